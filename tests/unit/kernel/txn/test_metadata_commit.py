"""A commit and the indexes that it has entries for: when it must prepare them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from headwater.errors import ConflictError, ErrorKind
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.metadata_commit import (
    MetadataCommit,
    commit_with_indexes,
    indexes_changed,
)
from headwater.model.instant import Action, Instant, InstantTime, State


def at(number: int) -> InstantTime:
    return InstantTime(f"202601010000000{number:02d}")


def done(time: int, action: Action, completion: int) -> Instant:
    return Instant(at(time), action, State.COMPLETED, at(completion))


@dataclass
class Update:
    """Prepares for what it is told, and remembers what it was."""

    seen: frozenset[str] = frozenset({"files"})
    asked: list[frozenset[str]] = field(default_factory=list)

    def prepare(self, partitions: frozenset[str]) -> MetadataCommit:
        self.asked.append(partitions)
        return MetadataCommit(partitions)


def test_without_an_update_nothing_is_said_to_indexes() -> None:
    assert commit_with_indexes(lambda prepared: prepared, None) is None


def test_a_refused_commit_prepares_for_what_the_refusal_names() -> None:
    wanted = frozenset({"files", "record_index"})

    def commit(prepared: MetadataCommit | None) -> str:
        assert prepared is not None
        if prepared.partitions != wanted:
            raise indexes_changed(prepared.partitions, wanted)
        return "committed"

    update = Update()
    assert commit_with_indexes(commit, update) == "committed"
    assert update.asked == [{"files"}, wanted]


def test_entries_that_are_too_old_again_and_again_are_prepared_under_the_lock() -> None:
    held = 0
    tries: list[int] = []

    @contextmanager
    def hold() -> Iterator[None]:
        nonlocal held
        held += 1
        yield
        held -= 1

    def commit(prepared: MetadataCommit | None) -> str:
        assert prepared is not None
        tries.append(held)
        if not held:
            raise indexes_changed(prepared.partitions, prepared.partitions)
        return "committed"

    assert commit_with_indexes(commit, Update(), hold) == "committed"
    assert tries == [0, 0, 0, 1]
    assert held == 0


def test_other_conflicts_are_not_retried_and_a_fault_ends() -> None:
    update = Update()

    def conflict(prepared: MetadataCommit | None) -> None:
        raise ConflictError("another writer was first", kind=ErrorKind.WRITE_CONFLICT)

    with pytest.raises(ConflictError, match="another writer"):
        commit_with_indexes(conflict, update)
    assert len(update.asked) == 1

    def never(prepared: MetadataCommit | None) -> None:
        raise indexes_changed(frozenset(), frozenset())

    with pytest.raises(ConflictError) as raised:
        commit_with_indexes(never, Update())
    assert raised.value.kind is ErrorKind.INDEXES_CHANGED


def test_n_36_a_plan_that_came_since_makes_entries_stale() -> None:
    first = Instant(at(1), Action.INDEXING, State.REQUESTED)
    second = Instant(at(5), Action.INDEXING, State.INFLIGHT)
    names = frozenset({"files", "record_index"})
    prepared = MetadataCommit(names, indexing=at(1))
    assert not prepared.is_stale(Timeline([first]))
    assert prepared.is_stale(Timeline([second]))
    assert not MetadataCommit(names).is_stale(Timeline([]))
    # Archival may take the plan away that was there; a newer one did not come.
    assert not prepared.is_stale(Timeline([]))


def test_n_127_entries_for_nobody_are_never_stale() -> None:
    planned = Instant(at(5), Action.INDEXING, State.INFLIGHT)
    assert not MetadataCommit(frozenset()).is_stale(Timeline([planned]))


def test_what_others_completed_makes_the_entries_of_a_service_stale() -> None:
    timeline = Timeline([done(1, Action.COMMIT, 3), done(2, Action.CLEAN, 7)])
    names = frozenset({"record_index"})
    assert not MetadataCommit(names).is_stale(timeline)
    assert not MetadataCommit(names, seen_until=at(3)).is_stale(timeline)
    assert MetadataCommit(names, seen_until=at(2)).is_stale(timeline)
