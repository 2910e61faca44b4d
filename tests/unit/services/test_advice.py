"""Advice as a decision on statistics, without a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.clustering import ClusteringConfig
from headwater.config.compaction import CompactionConfig
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import Action, InstantTime
from headwater.services.advice.advice import Advice, Need, ranked
from headwater.services.advice.costs import amplification
from headwater.services.advice.decide import advise
from headwater.services.advice.overlap import overlap_of
from headwater.services.advice.settings import RewriteSettings, Scope
from headwater.services.advice.statistics import (
    IndexState,
    MetadataTableStatistics,
    Overlap,
    TableStatistics,
    WaitingPlan,
)

MB = 1024 * 1024
SETTINGS = RewriteSettings(
    compaction=CompactionConfig(), clustering=ClusteringConfig(), reads_max=50
)


def at(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


def a_slice(
    name: str, base_mb: int = 1, *, logs: int = 0, log_mb: int = 0, time: int = 1, where: str = ""
) -> FileSlice:
    group = FileGroupId(where, name)
    base = BaseFile(*group, "0-1-0", at(time), "parquet", base_mb * MB)
    files = tuple(
        LogFile(*group, at(time + n + 1), 1, "0-1-0", size_bytes=log_mb * MB) for n in range(logs)
    )
    return FileSlice(group, at(time), base, files)


def advice_of(*slices: FileSlice, scope: Scope | None = None, **known: Any) -> list[Advice]:
    settings = known.pop("settings", SETTINGS)
    return advise(TableStatistics(slices=slices, **known), settings, scope)


def needs(advice: list[Advice]) -> list[Need]:
    return [one.need for one in advice]


def named(advice: list[Advice], need: Need) -> list[str]:
    """Return the file ids that a piece of advice takes."""
    return [group.file_id for one in advice if one.need is need for group in one.file_groups]


# Ranking.


def test_a_table_of_which_nothing_is_known_needs_nothing() -> None:
    assert advise(TableStatistics(), SETTINGS) == []


def test_gain_over_cost_decides_and_the_order_of_needs_where_they_are_alike() -> None:
    def piece(need: Need, gain: int, cost: int, times: int = 0) -> Advice:
        return Advice(
            need=need, call="", why="", gain_bytes=gain, cost_bytes=cost, times_cancelled=times
        )

    dear = piece(Need.LOGS, 10 * MB, 96 * MB)
    cheap = piece(Need.LONG_TIMELINE, 1 * MB, 0)
    alike = piece(Need.OBSOLETE_FILES, 1 * MB, 0)
    assert ranked([dear, cheap, alike]) == [alike, cheap, dear]
    cancelled = replace(alike, need=Need.SMALL_FILES, times_cancelled=2)
    assert ranked([cancelled, dear]) == [dear, cancelled], "each time halves the rank"
    assert cancelled.score == pytest.approx(alike.score / 4)


def test_what_others_wait_for_goes_before_what_only_costs() -> None:
    found = advice_of(
        *(a_slice(f"f{n}", base_mb=5) for n in range(3)),
        a_slice("logged", base_mb=5, logs=2),
        failed_writes=(at(7),),
        obsolete_files=20,
        archivable=20,
        instant_count=40,
    )
    assert needs(found)[0] is Need.FAILED_WRITES
    assert set(needs(found)) == {
        Need.FAILED_WRITES,
        Need.SMALL_FILES,
        Need.LOGS,
        Need.OBSOLETE_FILES,
        Need.LONG_TIMELINE,
    }


# Logs.


def test_small_logs_on_a_large_base_file_are_put_together_and_on_a_small_one_merged() -> None:
    assert needs(advice_of(a_slice("a", 400, logs=8)))[0] is Need.MANY_LOGS
    assert needs(advice_of(a_slice("a", 0, logs=8)))[0] is Need.LOGS


def test_what_does_not_pay_within_the_reads_is_left_out() -> None:
    """A log of a few bytes on 100 megabytes spares a read one file, and costs 200."""
    assert advice_of(a_slice("a", 100, logs=1)) == []
    patient = replace(SETTINGS, reads_max=1_000)
    assert needs(advice_of(a_slice("a", 100, logs=1), settings=patient)) == [Need.LOGS]
    both = advice_of(a_slice("a", 100, logs=1), a_slice("b", 1, logs=1))
    assert named(both, Need.LOGS) == ["b"], "and so is a file group among others"


def test_file_groups_of_pending_plans_and_avoided_ones_are_left_out() -> None:
    slices = [a_slice(name, logs=3) for name in "abc"]
    scope = Scope(avoided={Need.LOGS: {slices[1].group}})
    found = advice_of(*slices, closed=frozenset({slices[0].group}), scope=scope)
    assert named(found, Need.LOGS) == ["c"]


def test_a_table_that_cannot_be_rewritten_gets_no_such_advice() -> None:
    assert advice_of(a_slice("a", logs=9), a_slice("b"), is_rewritable=False) == []


def test_read_amplification_is_what_a_read_costs_against_compacted_slices() -> None:
    assert amplification([]) == 1
    assert amplification([a_slice("a", 3)]) == 1
    # Three files of 5 megabytes instead of one of 3: eight against four.
    assert amplification([a_slice("a", 3, logs=2, log_mb=1)]) == 2


# Small files and order.


def test_small_files_are_counted_before_and_after() -> None:
    (found,) = advice_of(*(a_slice(f"f{n}") for n in range(10)))
    assert found.need is Need.SMALL_FILES
    assert "10 files would fit into 1" in found.why
    assert (found.gain_bytes, found.cost_bytes) == (9 * MB, 20 * MB)


def test_nothing_is_clustered_where_nothing_tells_where_rows_belong() -> None:
    assert advice_of(a_slice("a"), a_slice("b"), is_bucketed=None) == []


SORTED_BY = replace(SETTINGS, clustering=ClusteringConfig(sort_columns=("fare",), file_bytes=MB))


def overlapping(depth: float) -> Overlap:
    spared = depth - 1
    return Overlap(
        column="fare", file_count=4, depth=depth, spared_files=spared, spared_bytes=int(spared * MB)
    )


def test_files_that_lie_over_each_other_are_sorted_and_others_not() -> None:
    files = [a_slice(name, 1) for name in "abcd"]
    (found,) = advice_of(*files, overlaps=(overlapping(4.0),), settings=SORTED_BY)
    assert found.need is Need.UNSORTED
    assert "sort_by=['fare']" in found.call
    assert found.gain_bytes == 6 * MB
    assert advice_of(*files, overlaps=(overlapping(1.0),), settings=SORTED_BY) == []
    assert (
        advice_of(*files, overlaps=(overlapping(4.0),), is_bucketed=True, settings=SORTED_BY) == []
    )


def test_a_clustering_that_was_cancelled_says_so_and_loses_rank() -> None:
    files = [a_slice(f"f{n}") for n in range(10)]
    (fresh,) = advice_of(*files)
    (tried,) = advice_of(*files, cancelled_clusterings=3)
    assert "cancelled it 3 times" in tried.why
    assert tried.score == pytest.approx(fresh.score / 8)


def test_cold_file_groups_are_clustered_first_and_hot_ones_when_no_other_is_left() -> None:
    files = [a_slice(f"f{n}") for n in range(6)]
    writes = tuple(at(n) for n in range(10, 20))
    hot = {one.group: at(19) for one in files[:3]}
    written = {**hot, files[3].group: at(11), files[4].group: at(10)}
    scope = Scope(is_cold_first=True)
    found = advice_of(*files, writes=writes, written=written, scope=scope)
    assert named(found, Need.SMALL_FILES) == ["f3", "f4", "f5"]
    only_hot = advice_of(*files[:3], writes=writes, written=hot, scope=scope)
    assert named(only_hot, Need.SMALL_FILES) == ["f0", "f1", "f2"]
    little = Scope(is_cold_first=True, bytes_max=4 * MB)
    found = advice_of(*files, writes=writes, written=written, scope=little)
    assert named(found, Need.SMALL_FILES) == ["f4", "f5"], "the longest not written"


def test_within_a_budget_the_partition_goes_first_that_was_not_written_for_longest() -> None:
    days = [a_slice(f"f{n}", where=f"day{day}") for day in range(3) for n in range(2)]
    written = {one.group: at(30 - int(one.group.partition[-1])) for one in days}
    found = advice_of(*days, written=written, scope=Scope(bytes_max=9 * MB))
    assert {group.partition for group in found[0].file_groups} == {"day2", "day1"}
    few = replace(SETTINGS, clustering=ClusteringConfig(groups_max=1))
    found = advice_of(*days, written=written, settings=few)
    assert {group.partition for group in found[0].file_groups} == {"day2"}


def test_files_that_are_large_enough_use_up_no_budget() -> None:
    """They are the coldest of all: nobody writes to what was clustered."""
    full = [a_slice(f"full{n}", base_mb=200) for n in range(3)]
    small = [a_slice(f"f{n}") for n in range(3)]
    written = {one.group: at(9) for one in small}
    found = advice_of(*full, *small, written=written, scope=Scope(bytes_max=6 * MB))
    assert named(found, Need.SMALL_FILES) == ["f0", "f1", "f2"]


def test_files_are_left_where_putting_them_together_does_not_pay() -> None:
    """Two of 100 megabytes into one of 200: 400 are moved to spare a read one file."""
    large = replace(SETTINGS, clustering=ClusteringConfig(file_bytes=500 * MB))
    dear = [a_slice(f"f{n}", base_mb=100, where="a") for n in range(2)]
    cheap = [a_slice(f"g{n}", base_mb=1, where="b") for n in range(2)]
    found = advice_of(*dear, *cheap, settings=large)
    assert named(found, Need.SMALL_FILES) == ["g0", "g1"]


def test_within_a_budget_those_logs_go_first_that_have_waited_longest() -> None:
    """Compacted file groups get new logs, and so go to the end: none is passed over for ever."""
    waiting = {name: number for number, name in enumerate("abcd", start=1)}
    done = []
    for now in range(10, 18):
        slices = [a_slice(name, 1, logs=2, time=time) for name, time in waiting.items()]
        found = advice_of(*slices, scope=Scope(bytes_max=2 * MB))
        (name,) = named(found, Need.LOGS)
        done.append(name)
        waiting[name] = now
    assert done == list("abcdabcd")


def test_a_few_files_or_instants_are_not_worth_a_commit() -> None:
    assert advice_of(obsolete_files=5, archivable=5) == []
    assert needs(advice_of(obsolete_files=5, obsolete_bytes=100 * MB)) == [Need.OBSOLETE_FILES]


def test_what_others_wait_for_is_named_whatever_it_costs() -> None:
    large = a_slice("a", 100_000)
    plan = WaitingPlan(instant=at(4), action=Action.CLUSTERING, file_groups=(large.group,))
    (found,) = advice_of(large, closed=frozenset({large.group}), waiting_plans=(plan,))
    assert found.need is Need.WAITING_PLAN
    assert found.reads_to_pay > SETTINGS.reads_max


# The other needs.


@pytest.mark.parametrize(
    ("known", "need", "words"),
    [
        ({"unfinished": (at(3),)}, Need.UNFINISHED_CLEAN, str(at(3))),
        ({"failed_plans": (at(3),)}, Need.FAILED_WRITES, str(at(3))),
        ({"expired_lock": "a/1"}, Need.EXPIRED_LOCK, "a/1"),
        ({"obsolete_files": 30}, Need.OBSOLETE_FILES, "30 files"),
        ({"archivable": 12, "instant_count": 50}, Need.LONG_TIMELINE, "50 instants, of which 12"),
        ({"indexes": {"files": IndexState.MISSING}}, Need.MISSING_INDEX, "files"),
        ({"indexes": {"column_stats": IndexState.UNFINISHED}}, Need.UNFINISHED_INDEX, "column_"),
        ({"indexes": {"record_index": IndexState.DROPPED}}, Need.DROPPED_INDEX, "record_index"),
        (
            {"waiting_plans": (WaitingPlan(instant=at(4), action=Action.LOG_COMPACTION),)},
            Need.WAITING_PLAN,
            "logcompaction",
        ),
        (
            {
                "waiting_plans": (
                    WaitingPlan(instant=at(4), action=Action.CLUSTERING, is_cancelled=True),
                )
            },
            Need.CANCELLED_PLAN,
            str(at(4)),
        ),
    ],
)
def test_each_thing_that_is_wrong_is_named_alone(
    known: dict[str, Any], need: Need, words: str
) -> None:
    (found,) = advice_of(**known)
    assert found.need is need
    assert words in found.why


def test_the_metadata_table_is_named_when_its_compaction_is_due() -> None:
    behind = MetadataTableStatistics(commits=9, commits_max=8, size_bytes=1000)
    (found,) = advice_of(metadata_table=behind)
    assert (found.need, found.cost_bytes) == (Need.METADATA_LOGS, 2000)
    assert found.call == "t.services.compact_metadata_table()"
    (held,) = advice_of(metadata_table=replace(behind, waits_for=(at(5),)))
    assert "rollback_failed_writes" in held.call
    assert str(at(5)) in held.why
    assert advice_of(metadata_table=replace(behind, commits=7)) == []


def test_a_long_list_of_instants_is_cut() -> None:
    (found,) = advice_of(failed_writes=tuple(at(n) for n in range(9)))
    assert "and 6 more" in found.why


# Overlap.


def a_file(name: str, where: str = "p", size: int = MB) -> BaseFile:
    return BaseFile(where, name, "0-1-0", at(1), "parquet", size)


def test_values_are_in_one_file_if_rows_are_sorted_and_in_all_if_they_are_mixed() -> None:
    files = [a_file(name) for name in "abc"]
    apart = overlap_of("n", files, pa.array([0, 10, 20]), pa.array([9, 19, 29]))
    assert (apart.depth, apart.spared_bytes) == (1.0, 0)
    mixed = overlap_of("n", files, pa.array([0, 0, 0]), pa.array([9, 9, 9]))
    assert (mixed.depth, mixed.spared_files, mixed.spared_bytes) == (3.0, 2.0, 2 * MB)


def test_partitions_are_looked_at_one_by_one_and_unknown_bounds_not_at_all() -> None:
    files = [a_file("a", "p"), a_file("b", "q"), a_file("c", "q"), a_file("d", "q")]
    low, high = pa.array(["a", "a", "a", None]), pa.array(["c", "c", "c", None])
    found = overlap_of("text", files, low, high)
    assert (found.file_count, found.spared_files) == (3, 1.0)
    nothing = overlap_of("n", [], pa.array([], pa.int64()), pa.array([], pa.int64()))
    assert (nothing.file_count, nothing.depth) == (0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12))
def test_depth_is_as_a_naive_count_of_ranges(pairs: list[tuple[int, int]]) -> None:
    """Of values in the middle, by rank, of each range."""
    lows = [min(pair) for pair in pairs]
    highs = [max(pair) for pair in pairs]
    ranks = {value: rank for rank, value in enumerate(sorted({*lows, *highs}), start=1)}
    ranges = [(ranks[low], ranks[high]) for low, high in zip(lows, highs, strict=True)]
    middles = [(low + high) // 2 for low, high in ranges]
    naive = [sum(low <= middle <= high for low, high in ranges) for middle in middles]
    found = overlap_of("n", [a_file("f")] * len(pairs), pa.array(lows), pa.array(highs))
    assert found.depth == pytest.approx(sum(naive) / len(naive))
