"""Writes of rows under concurrency control, as the scenarios of many writers share them.

A write goes from its request to its commit as `operations.write` takes it: the instant first, then
the view it is planned on, the data files, a look at what others did, the commit with its check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headwater.config.table import TableConfig
from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.changes import change_of, load_changes
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.key_conflicts import KeyCheck
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.operations.committing import SCHEMA_KEY
from headwater.seams.storage import Storage
from headwater.testing.actor import Body, Process
from headwater.testing.check import BEGUN, COMMITTED, ENDED, FAILED, FENCED, UNKNOWN
from headwater.testing.check_rows import PLANNED
from headwater.testing.history import Step
from headwater.testing.scenarios.plan import (
    MakeTransaction,
    claim_of,
    components_of,
    lock_transaction,
)
from headwater.testing.simulation import Simulation, Violation
from headwater.testing.table import LAYOUT

LOST = "lost"  # Another writer was first; nothing was committed.

Fill = Callable[[Process, InflightWrite, TableView], CommitMetadata]
"""Write the data files of a write that was planned on a view."""

MakeSnapshot = Callable[[Storage, Timeline], Snapshot]


def planned_snapshot(storage: Storage, planned_on: Timeline) -> Snapshot:
    """Return the snapshot as the product takes it: the timeline that the write was planned on."""
    return Snapshot.of(planned_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A kind of write."""

    config: TableConfig
    action: Action
    fill: Fill
    is_bucketed: bool = False
    is_non_blocking: bool = False
    transaction: MakeTransaction = lock_transaction
    snapshot: MakeSnapshot = planned_snapshot
    keys: KeyCheck | None = None
    brings: str | None = None
    """The columns that the write adds to those of the table; None: it says none at all."""

    def run(self, process: Process) -> tuple[str, InstantTime]:
        """Write and commit, once; return how it ended, and the instant."""
        components = components_of(process)
        txn = self.transaction(components)
        try:
            inflight = start_inflight_write(components, txn, self.action, claim_of(process), b"")
        except HeadwaterError as error:
            return word_of(error), InstantTime("")
        time = inflight.instant_time
        try:
            view = load_view(process.storage, self.config)
            process.note(PLANNED, time, view.instant or "")
            metadata = self._with_columns(self.fill(process, inflight, view), view)
            check = self._check(process.storage, time, view, metadata)
            inflight.commit(encode_record(metadata), check)
        except CommitUnknownError:
            return UNKNOWN, time
        except HeadwaterError as error:
            inflight.abandon()
            return word_of(error), time
        return COMMITTED, time

    def _with_columns(self, metadata: CommitMetadata, view: TableView) -> CommitMetadata:
        if self.brings is None:
            return metadata
        columns = {*self.brings.split(), *(view.avro_schema() or "").split()}
        extra = {**(metadata.extra_metadata or {}), SCHEMA_KEY: " ".join(sorted(columns))}
        return replace(metadata, extra_metadata=extra)

    def _check(
        self, storage: Storage, time: InstantTime, view: TableView, metadata: CommitMetadata
    ) -> ConflictCheck:
        instant = Instant(time, self.action, State.INFLIGHT)
        check = ConflictCheck(
            mine=change_of(CompletedCommit(instant, metadata)),
            snapshot=self.snapshot(storage, view.timeline),
            is_bucketed=self.is_bucketed,
            is_non_blocking=self.is_non_blocking,
            keys=self.keys,
            planned_schema=None if self.brings is None else view.avro_schema() or "",
        )
        done = [i for i in check.unread(load_active(storage, LAYOUT.timeline)) if i.is_completed]
        return replace(check, known=load_changes(storage, LAYOUT, done))


def writer(write: Write, rounds: int = 1) -> Body:
    """Return an actor that writes, again after it has lost, and tells what it was told."""

    def body(process: Process) -> str:
        word = LOST
        for _ in range(rounds):
            process.note(BEGUN)
            word, time = write.run(process)
            process.note(ENDED, FAILED if word == LOST else word, time)
            if word != LOST:
                break
        return word

    return body


def check_outcome(simulation: Simulation) -> Iterator[Violation]:
    """Without a fault writers lose to each other only, and one of them commits."""
    if simulation.budgets != simulation.scenario.faults.budgets():
        return
    results = simulation.results()
    for actor, word in results.items():
        if word in (FAILED, FENCED, UNKNOWN):
            yield Violation("INV-84", f"{actor} ended {word}: {results}")
    if COMMITTED not in results.values():
        yield Violation("LIV-07", f"nobody committed: {results}")


def losses_in(step: Step, simulation: Simulation) -> Iterator[str]:
    """Give, for each write that fails in a step, up to when it had seen the table."""
    for note in step.notes:
        if note.name == ENDED and note.values[0] == FAILED:
            saw = simulation.facts.get(("planned", note.values[1]))
            if saw is not None:
                yield saw


def word_of(error: HeadwaterError) -> str:
    """Return how a write ended that failed."""
    if isinstance(error, FencedError):
        return FENCED
    is_conflict = isinstance(error, ConflictError) and error.kind is ErrorKind.WRITE_CONFLICT
    return LOST if is_conflict else FAILED
