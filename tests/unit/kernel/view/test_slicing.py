"""Slicing by completion time: the rows of invariants 5.7, and every small history against a model.

Times are small numbers here, written as instant times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise, permutations
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, ErrorKind
from headwater.kernel.view.slicing import build_slices, merge_latest
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import InstantTime

GROUP = FileGroupId("p", "f")


def at(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


def base(requested: int) -> BaseFile:
    return BaseFile(*GROUP, "0-0-0", at(requested))


def log(requested: int, version: int = 1, token: str = "0-0-0", *, is_cdc: bool = False) -> LogFile:
    return LogFile(*GROUP, at(requested), version, token, is_cdc)


class History(NamedTuple):
    """Requested -> completion time, None for an instant that is pending."""

    bases: Mapping[int, int | None]
    logs: Mapping[int, int | None]

    def completion_time_of(self, time: InstantTime) -> InstantTime | None:
        done = {**self.bases, **self.logs}.get(int(time))
        return None if done is None else at(done)

    def slices(
        self,
        as_of: int | None = None,
        pending: Iterable[int] = (),
        log_compactions: Mapping[int, Iterable[int]] | None = None,
    ) -> tuple[FileSlice, ...]:
        return build_slices(
            map(base, self.bases),
            map(log, self.logs),
            self.completion_time_of,
            as_of=None if as_of is None else at(as_of),
            pending_compactions=map(at, pending),
            log_compactions={
                at(output): [log(taken).name for taken in inputs]
                for output, inputs in (log_compactions or {}).items()
            },
        )


Short = tuple[int, int | None, list[int]]


def short(slices: Iterable[FileSlice | None]) -> list[Short]:
    """Return base instant, base file and logs, by their requested times."""
    return [
        (
            int(one.base_instant),
            None if one.base is None else int(one.base.instant_time),
            [int(file.instant_time) for file in one.logs],
        )
        for one in slices
        if one is not None
    ]


F10, F60 = 10, 60
L1, L2, L3, L4 = 21, 30, 35, 62
DEMO = History(bases={F10: 20, F60: 80}, logs={L1: 40, L2: 50, L3: 90})


class TestR66Demo:
    """Invariants 5.7, row by row."""

    def test_slices_at_100(self) -> None:
        assert short(DEMO.slices(100)) == [(60, F60, [L3]), (10, F10, [L1, L2])]
        assert DEMO.slices() == DEMO.slices(100)

    @pytest.mark.parametrize(
        ("as_of", "latest"),
        [
            (85, [(60, F60, [])]),
            (80, [(60, F60, [])]),
            (79, [(10, F10, [L1, L2])]),
            (45, [(10, F10, [L1])]),
            (15, []),
        ],
    )
    def test_view(self, as_of: int, latest: list[Short]) -> None:
        assert short([merge_latest(DEMO.slices(as_of))]) == latest

    def test_a_base_completed_after_the_view_is_no_barrier_for_l4(self) -> None:
        history = History(DEMO.bases, {**DEMO.logs, L4: 70})
        assert short(history.slices(75)) == [(10, F10, [L1, L2, L4])]
        assert short(history.slices(100)) == [(60, F60, [L4, L3]), (10, F10, [L1, L2])]

    def test_logs_of_a_group_without_base_file_are_not_dropped(self) -> None:
        history = History({F60: 80}, DEMO.logs)
        assert short(history.slices(55)) == [(21, None, [L1, L2])]
        assert short(history.slices(100)) == [(60, F60, [L3]), (21, None, [L1, L2])]


def test_h36_rows_of_a_base_that_writes_data_are_not_shown_before_it_completes() -> None:
    history = History(bases={10: 20, 30: 60}, logs={40: 50})
    assert short(history.slices(55)) == [(10, 10, [40])]
    assert short(history.slices(60)) == [(30, 30, [40]), (10, 10, [])]


def test_h37_the_lowest_slice_is_named_after_the_first_requested_of_its_logs() -> None:
    history = History(bases={}, logs={30: 40, 10: 50})
    assert short(history.slices(45)) == [(30, None, [30])]
    assert short(history.slices(50)) == [(10, None, [30, 10])]


def test_m8_logs_are_ordered_by_completion_then_version_then_token() -> None:
    files = [log(5, 2), log(5, 1, "1-0-0"), log(5, 1, "0-0-0"), log(4, 9), log(6)]
    done = {at(5): at(20), at(4): at(30), at(6): at(10)}
    (only,) = build_slices([], files, done.get)
    assert only.logs == (log(6), log(5, 1, "0-0-0"), log(5, 1, "1-0-0"), log(5, 2), log(4, 9))


def test_a_cdc_log_is_never_content() -> None:
    (only,) = build_slices(
        [base(1)], [log(3), log(3, is_cdc=True)], {at(1): at(2), at(3): at(4)}.get
    )
    assert only.logs == (log(3),)
    assert build_slices([], [log(3, is_cdc=True)], {at(3): at(4)}.get) == ()


def test_inv_47_files_of_pending_instants_are_neither_barrier_nor_content() -> None:
    history = History(bases={1: 2, 20: None}, logs={3: 30, 5: None})
    assert short(history.slices()) == [(1, 1, [3])]


@pytest.mark.parametrize("as_of", [None, 100])
def test_h34_a_log_completed_when_a_base_was_requested_is_corrupt(as_of: int | None) -> None:
    with pytest.raises(CorruptTableError, match=r"log .*f_0+3\.log.* completed at 0+10") as caught:
        History(bases={1: 2, 10: 20}, logs={3: 10}).slices(as_of)
    assert caught.value.kind is ErrorKind.CORRUPT_FILE_GROUP


def test_two_base_files_of_one_instant_are_corrupt() -> None:
    twice = [base(1), base(1)._replace(write_token="1-0-0")]
    with pytest.raises(CorruptTableError, match="committed both"):
        build_slices(twice, [], {at(1): at(2)}.get)


class TestPendingCompaction:
    HISTORY = History(bases={10: 20, 60: None}, logs={21: 40, 30: 50, 35: 90})

    def test_it_opens_a_slice_without_base_file(self) -> None:
        assert short(self.HISTORY.slices(pending=[60])) == [(60, None, [35]), (10, 10, [21, 30])]

    def test_readers_get_one_merged_slice(self) -> None:
        merged = merge_latest(self.HISTORY.slices(pending=[60]))
        assert short([merged]) == [(10, 10, [21, 30, 35])]
        assert [merged] == list(self.HISTORY.slices())

    def test_it_opens_a_slice_above_a_group_that_has_only_logs(self) -> None:
        history = History(bases={}, logs={21: 40, 35: 90})
        assert short(history.slices(pending=[60])) == [(60, None, [35]), (21, None, [21])]
        assert short([merge_latest(history.slices(pending=[60]))]) == [(21, None, [21, 35])]

    def test_a_merged_slice_of_logs_is_named_after_the_first_requested(self) -> None:
        history = History(bases={}, logs={21: 40, 15: 90})
        assert short(history.slices(pending=[60])) == [(60, None, [15]), (21, None, [21])]
        assert short([merge_latest(history.slices(pending=[60]))]) == [(15, None, [21, 15])]

    def test_it_opens_no_slice_below_everything_visible(self) -> None:
        assert short(History(bases={10: 20}, logs={}).slices(pending=[5])) == [(10, 10, [])]

    def test_it_makes_no_slice_of_a_group_without_visible_files(self) -> None:
        assert History(bases={}, logs={21: None}).slices(pending=[60]) == ()

    def test_nothing_to_read_of_no_slices(self) -> None:
        assert merge_latest(()) is None


class TestLogBesideItsOwnBase:
    """H-39: the deletes that compaction 60 kept, and 35, which completed while it ran."""

    HISTORY = History(bases={10: 20, 60: 80}, logs={35: 70, 60: 80, 85: 90})

    def test_it_comes_before_all_other_logs_of_its_slice(self) -> None:
        assert short(self.HISTORY.slices()) == [(60, 60, [60, 35, 85]), (10, 10, [])]

    def test_it_is_seen_with_its_base_and_not_before(self) -> None:
        assert short(self.HISTORY.slices(80)) == [(60, 60, [60, 35]), (10, 10, [])]
        assert short(self.HISTORY.slices(79)) == [(10, 10, [35])]


class TestLogCompaction:
    """INV-51 and H-40: 50 took in 21 and 30."""

    HISTORY = History(bases={10: 20, 80: 95}, logs={21: 40, 30: 45, 50: 60, 55: 58, 85: 90})
    TAKEN: Mapping[int, Iterable[int]] = {50: [21, 30]}

    def test_the_output_stands_where_its_inputs_stood(self) -> None:
        slices = self.HISTORY.slices(70, log_compactions=self.TAKEN)
        assert short(slices) == [(10, 10, [50, 55])]

    def test_before_it_completes_the_inputs_are_shown(self) -> None:
        slices = self.HISTORY.slices(59, log_compactions=self.TAKEN)
        assert short(slices) == [(10, 10, [21, 30, 55])]

    def test_it_lies_below_a_base_that_contains_its_inputs(self) -> None:
        late = History(bases={10: 20, 48: 70}, logs={21: 40, 30: 45, 50: 60, 55: 58})
        slices = late.slices(log_compactions=self.TAKEN)
        assert short(slices) == [(48, 48, [55]), (10, 10, [50])]

    def test_inputs_may_be_gone_from_storage(self) -> None:
        done = self.HISTORY.completion_time_of
        taken = {at(50): [log(21).name, log(30).name]}
        (only,) = build_slices([base(10)], [log(50), log(55)], done, log_compactions=taken)
        assert only.logs == (log(50), log(55))

    @pytest.mark.parametrize("files", list(permutations([log(21), log(30), log(50), log(70)])))
    def test_an_output_may_be_taken_in_again(self, files: tuple[LogFile, ...]) -> None:
        done = {at(21): at(40), at(30): at(45), at(50): at(60), at(70): at(75), at(65): at(66)}
        taken = {at(50): [log(21).name, log(30).name], at(70): [log(50).name]}
        (only,) = build_slices([], [*files, log(65)], done.get, log_compactions=taken)
        assert only.logs == (log(70), log(65))

    @pytest.mark.parametrize(
        ("inputs", "reason"),
        [
            ([], "took in no log file"),
            ([base(10).name], "no log file committed before"),
            ([log(99).name], "no log file committed before"),
            ([log(50).name], "no log file committed before"),
            ([log(85).name], "no log file committed before"),
        ],
    )
    def test_impossible_inputs_are_corrupt(self, inputs: list[str], reason: str) -> None:
        with pytest.raises(CorruptTableError, match=reason):
            build_slices(
                [base(10)],
                [log(50)],
                self.HISTORY.completion_time_of,
                log_compactions={at(50): inputs},
            )

    def test_inputs_of_two_slices_are_corrupt(self) -> None:
        split = History(bases={42: 44}, logs={21: 40, 30: 45, 50: 60})
        with pytest.raises(CorruptTableError, match="different file slices"):
            split.slices(log_compactions=self.TAKEN)


def histories(bases: int, logs: int) -> Iterator[History]:
    """Give every order in which instants can be requested and complete, compactions in turn."""
    instants = bases + logs
    for order in permutations(range(2 * instants)):
        spans = [(order[2 * i], order[2 * i + 1]) for i in range(instants)]
        if any(start > end for start, end in spans):
            continue
        compactions, writes = spans[:bases], spans[bases:]
        # Compactions and writes of the same kind are interchangeable: one order of them is enough.
        if spans != [*sorted(compactions), *sorted(writes)]:
            continue
        if all(one[1] < other[0] for one, other in pairwise(compactions)):
            yield History(dict(compactions), dict(writes))


def visible_writes(history: History, as_of: int) -> list[int]:
    """The model: what a reader must get is every write completed by then, in that order."""
    done = [(end, start) for start, end in history.logs.items() if end is not None and end <= as_of]
    return [start for _, start in sorted(done)]


def read(history: History, one: FileSlice | None) -> list[int]:
    """Return the writes in a slice, in merge order. A compaction read all that completed before."""
    if one is None:
        return []
    inside = [] if one.base is None else visible_writes(history, int(one.base.instant_time) - 1)
    return inside + [int(file.instant_time) for file in one.logs]


@pytest.mark.parametrize(("bases", "logs"), [(0, 3), (1, 1), (1, 2), (2, 1), (1, 3), (2, 2)])
def test_inv_48_compactions_are_invisible_in_every_small_history(bases: int, logs: int) -> None:
    seen = 0
    for history in histories(bases, logs):
        for as_of in range(2 * (bases + logs)):
            latest = merge_latest(history.slices(as_of))
            assert read(history, latest) == visible_writes(history, as_of), (history, as_of)
            seen += 1
    assert seen > 0


@st.composite
def any_history(draw: st.DrawFn) -> History:
    """Any number of instants with any distinct times; some are pending."""
    instants = draw(st.integers(min_value=0, max_value=8))
    points = draw(st.permutations(range(2 * instants)))
    bases: dict[int, int | None] = {}
    logs: dict[int, int | None] = {}
    for one, other in zip(points[::2], points[1::2], strict=True):
        start, end = sorted((one, other))
        kind = draw(st.sampled_from([bases, logs]))
        kind[start] = draw(st.sampled_from([end, end, end, None]))
    return History(bases, logs)


def naive_slices(history: History, as_of: int) -> list[Short]:
    """Slice as INV-44 reads: a log lies above the last base requested before it completed."""
    bases = [start for start, end in history.bases.items() if end is not None and end <= as_of]
    above: dict[int | None, list[int]] = {start: [] for start in bases}
    for write in visible_writes(history, as_of):
        end = history.logs[write] or 0
        below = [start for start in bases if start < end]
        above.setdefault(max(below, default=None), []).append(write)
    lowest = above.pop(None, None)
    slices: list[Short] = [(start, start, above[start]) for start in sorted(bases, reverse=True)]
    return slices + ([(min(lowest), None, lowest)] if lowest else [])


@given(any_history(), st.integers(min_value=-1, max_value=17))
def test_slices_agree_with_the_naive_model(history: History, as_of: int) -> None:
    assert short(history.slices(max(as_of, 0))) == naive_slices(history, max(as_of, 0))


@given(any_history())
def test_inv_46_every_committed_file_is_in_exactly_one_slice(history: History) -> None:
    slices = history.slices()
    files = [file for one in slices for file in one.files()]
    committed = [start for start, end in {**history.bases, **history.logs}.items() if end]
    assert sorted(int(file.instant_time) for file in files) == sorted(committed)
    assert [one.base_instant for one in slices] == sorted(
        (one.base_instant for one in slices), reverse=True
    )


@given(any_history(), st.integers(min_value=0, max_value=17))
def test_inv_52_and_53_a_view_is_what_had_completed_by_then(history: History, as_of: int) -> None:
    """Whoever looked at that time, when later instants were pending, saw the same."""
    then = History(
        {
            start: end if end is not None and end <= as_of else None
            for start, end in history.bases.items()
        },
        {
            start: end if end is not None and end <= as_of else None
            for start, end in history.logs.items()
        },
    )
    assert history.slices(as_of) == then.slices()


@given(any_history(), st.lists(st.integers(min_value=0, max_value=17), max_size=3))
def test_pending_compactions_never_change_what_a_reader_gets(
    history: History, pending: list[int]
) -> None:
    ends = {end for end in history.logs.values() if end is not None}
    slices = history.slices(pending=[time for time in pending if time not in ends])
    assert merge_latest(slices) == merge_latest(history.slices())
