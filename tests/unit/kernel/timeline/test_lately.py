"""A timeline that is made of the one before says what one says that is made of all names."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptTableError
from headwater.kernel.timeline.active import Timeline, _parse, parse_timeline
from headwater.kernel.timeline.lately import FEW, KEPT, LatelyParsed
from headwater.model.instant import Action

TIMES = [f"2026111800000{number:04d}" for number in range(6)] + ["20210101000000"]
SUFFIXES = [
    "deltacommit.requested",
    "deltacommit.inflight",
    "commit.requested",
    "inflight",
    "compaction.requested",
    "compaction.inflight",
    "clustering.requested",
    "clustering.inflight",
    "clustering.aborted",
    "clean.requested",
    "savepoint.inflight",
]
COMPLETED = ["deltacommit", "commit", "replacecommit", "clean", "savepoint"]

pending = st.builds("{}.{}".format, st.sampled_from(TIMES), st.sampled_from(SUFFIXES))
completed = st.builds(
    "{}_{}.{}".format, st.sampled_from(TIMES), st.sampled_from(TIMES), st.sampled_from(COMPLETED)
)
others = st.sampled_from(["history", ".keep", "notes.txt", "x_y.commit", "12.inflight"])
changes = st.lists(pending | completed | others, max_size=4)

whole = partial(_parse, folder="timeline")


def told(timeline: Timeline) -> tuple[object, ...]:
    return (
        timeline.instants,
        timeline.savepoints,
        timeline.completed,
        timeline.pending,
        timeline.largest_time,
        [timeline.find(instant.requested_time) for instant in timeline.instants],
    )


def outcome(parse: object, names: tuple[str, ...]) -> object:
    assert callable(parse)
    try:
        return told(parse(names))
    except CorruptTableError as error:
        return error.kind


@given(histories=st.lists(changes, max_size=12))
def test_it_says_what_all_names_say(histories: list[list[str]]) -> None:
    lately, names = LatelyParsed(whole), dict.fromkeys(["history"])
    for changed in histories:
        for name in changed:
            # A name that is there goes, so that instants come and leave in any order.
            names = (
                {n: None for n in names if n != name} if name in names else {**names, name: None}
            )
        asked = tuple(names)
        assert outcome(lately.parse, asked) == outcome(whole, asked)


def commits(first: int, count: int) -> tuple[str, ...]:
    times = [f"20261118{number:09d}" for number in range(first, first + count)]
    return tuple(f"{time}_{time}.commit" for time in times)


def test_what_is_parsed_again_is_about_the_times_that_changed() -> None:
    parsed: list[int] = []

    def parse(names: tuple[str, ...]) -> Timeline:
        parsed.append(len(names))
        return whole(names)

    lately = LatelyParsed(parse)
    tables = [commits(1_000 * number, 100) for number in range(KEPT)]
    for names in tables * 2:
        lately.parse(names)
    assert parsed == [100] * KEPT  # Of each table once.
    assert len(lately.parse(tables[0] + commits(100, FEW))) == 100 + FEW
    assert len(lately.parse(tables[0])) == 100
    assert parsed[KEPT:] == [FEW, 0]
    lately.parse(tables[0] + commits(100, FEW + 1))
    assert parsed[KEPT + 2 :] == [100 + FEW + 1]


def test_a_damaged_name_is_told_each_time() -> None:
    names = commits(0, 10)
    parse_timeline(names)
    for _ in range(2):
        with pytest.raises(CorruptTableError, match="12"):
            parse_timeline([*names, "12.commit.requested"])
    assert parse_timeline(names).completed[-1].action is Action.COMMIT
