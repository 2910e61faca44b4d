"""Optimistic writers that lose and write again: occ_keys and occ_redo.

occ_keys: writers bring the same new key, each to a file group of its own unless it finds the key in
the table. They meet in no group, so only the comparison of keys keeps it from being there twice
(INV-94, INV-82).

occ_redo: A changes two buckets; B begins a write of each and commits the one, then the other. A
writer that loses keeps its instant and writes again what the product tells it to, on a new view;
what it keeps must not hide what others have written meanwhile (N-70, INV-81).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.config.files import FileConfig
from headwater.errors import CommitUnknownError, ConflictError, ErrorKind, HeadwaterError
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.changes import change_of, load_changes
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.key_conflicts import KeyCheck, KeyScope
from headwater.kernel.txn.transaction import LockTransaction, Transaction
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import BaseFile, DataFile, FileGroupId, write_token
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.operations.plan import Operation, TableLocation, WriteColumns, WritePlan, bucket_of
from headwater.operations.redo import part_to_redo
from headwater.seams.components import Components
from headwater.seams.storage import Storage
from headwater.testing.actor import Body, Process
from headwater.testing.check import BEGUN, COMMITTED, ENDED, FAILED, UNKNOWN
from headwater.testing.check_rows import PLANNED, RowChecks
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    base_file,
    config_of,
    decode_rows,
    metadata_of,
    put_rows,
    read_slice,
)
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import (
    LOCK_TIMEOUT_MS,
    claim_of,
    components_of,
    heartbeat_deadlines_ms,
    lock_transaction,
)
from headwater.testing.scenarios.writes import LOST, Write, check_outcome, word_of, writer
from headwater.testing.simulation import Scenario, Simulation
from headwater.testing.table import LAYOUT
from headwater.testing.world import World

KEY = "k"
TABLE = config_of("COPY_ON_WRITE")
BUCKETS = config_of(
    "COPY_ON_WRITE", {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
)
FIRST = FileGroupId(PARTITION, "00000000-fg-0")
SECOND = FileGroupId(PARTITION, "00000001-fg-0")
REDONE = "redone"  # What a write had lost in was written again.


def occ_keys(faults: Faults, *, actors: str = "AB") -> Scenario:
    """Return writers of one new key, each of which tries twice."""
    write = Write(
        config=TABLE,
        action=Action.COMMIT,
        fill=_insert_or_update,
        transaction=_transaction_with_keys,
        keys=KeyCheck(KeyScope.TABLE),
    )
    checks = RowChecks(config=TABLE)
    return _scenario("occ_keys", checks, {name: writer(write, 2) for name in actors}, faults)


def occ_redo(faults: Faults) -> Scenario:
    """Return the writers of two buckets, that of two writes first: its requests come before."""
    checks = RowChecks(config=BUCKETS)
    actors = {"B": _redoing_writer([FIRST], [SECOND]), "A": _redoing_writer([FIRST, SECOND])}
    built = _scenario("occ_redo", checks, actors, faults)
    return replace(built, marks={"something was redone": _has_redone})


def _scenario(name: str, checks: RowChecks, actors: Mapping[str, Body], faults: Faults) -> Scenario:
    return Scenario(
        name=name,
        actors=dict(actors),
        set_up=_empty_table,
        invariants=checks.invariants(),
        learn=checks.learn,
        hear=checks.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        is_private=_is_private,
        has_eager_clocks=True,
    )


def _empty_table(world: World) -> None:
    """An empty table has no timeline files at all."""


def _is_private(actor: str, op: Op) -> bool:
    """Whether a call is about what nobody else looks at, or reads what nobody else changes."""
    is_own = op.target.startswith((".hoodie/.attempts/", ".hoodie/.heartbeat/"))
    return is_own or (op.kind is Kind.READ and op.target.startswith(f"{PARTITION}/"))


# occ_keys


def _transaction_with_keys(components: Components) -> Transaction:
    return LockTransaction(
        components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS, load_keys=_load_keys
    )


def _load_keys(storage: Storage, files: Sequence[DataFile]) -> list[pa.ChunkedArray | None]:
    found = [[row.key for row in decode_rows(storage.read(file.path))] for file in files]
    return [pa.chunked_array([keys], pa.string()) for keys in found]


def _insert_or_update(process: Process, write: InflightWrite, view: TableView) -> CommitMetadata:
    """Write the key anew where it is, or to a new group."""
    time, attempt = write.instant_time, write.attempt.attempt
    row = Row(KEY, 0, time)
    for one in view.slices([PARTITION]):
        rows = read_slice(process.storage, one)
        if KEY in rows:
            file = base_file(one.group, time, attempt)
            stat = put_rows(process.storage, file, {**rows, KEY: row}.values())
            return metadata_of("UPSERT", [stat])
    file = base_file(FileGroupId(PARTITION, f"fg-{process.name}-{time}"), time, attempt)
    stat = put_rows(process.storage, file, [row])
    return metadata_of("UPSERT", [replace(stat, num_inserts=1, num_writes=1)])


# occ_redo


def _has_redone(step: Step, simulation: Simulation) -> bool:
    return any(note.name == REDONE for note in step.notes)


def _redoing_writer(*writes: Sequence[FileGroupId]) -> Body:
    """Return an actor that begins writes of some groups, then does one after the other."""

    def body(process: Process) -> str:
        word = LOST
        process.note(BEGUN)
        begun = [_Redoing(process, groups) for groups in writes]
        if not all(one.begin() for one in begun):
            return FAILED
        for one in begun:
            word, time = one.run()
            process.note(ENDED, FAILED if word == LOST else word, time)
        return word

    return body


@dataclass
class _Redoing:
    """A write as `operations.write` takes it, with one redo."""

    process: Process
    groups: Sequence[FileGroupId]
    inflight: InflightWrite | None = None

    def begin(self) -> bool:
        components = components_of(self.process)
        txn, claim = lock_transaction(components), claim_of(self.process)
        try:
            self.inflight = start_inflight_write(components, txn, Action.COMMIT, claim, b"")
        except HeadwaterError:
            return False
        return True

    def run(self) -> tuple[str, InstantTime]:
        inflight = self.inflight
        assert inflight is not None
        time = inflight.instant_time
        try:
            view = self._look(time)
            stats = self._write(inflight, view, self.groups, 0)
            try:
                self._commit(inflight, stats, Snapshot.of(view.timeline))
            except ConflictError as lost:
                if lost.kind is not ErrorKind.WRITE_CONFLICT:
                    raise
                self._redo(inflight, stats, view, lost)
        except CommitUnknownError:
            return UNKNOWN, time
        except HeadwaterError as error:
            inflight.abandon()
            return word_of(error), time
        return COMMITTED, time

    def _look(self, time: InstantTime) -> TableView:
        view = load_view(self.process.storage, BUCKETS)
        self.process.note(PLANNED, time, view.instant or "")
        return view

    def _redo(
        self,
        inflight: InflightWrite,
        stats: Mapping[FileGroupId, WriteStat],
        before: TableView,
        lost: ConflictError,
    ) -> None:
        storage, time = self.process.storage, inflight.instant_time
        check = self._check(time, stats.values(), Snapshot.of(before.timeline))
        view = load_view(storage, BUCKETS)
        unread, vanished = check.unread(view.timeline), check.snapshot.vanished(view.timeline)
        others = check.others(view.timeline, load_changes(storage, LAYOUT, unread, vanished))
        part = part_to_redo(_plan(time), check, others, ())
        if part is None:
            raise lost
        self.process.note(PLANNED, time, view.instant or "")
        again = [group for group in stats if part.has(group.partition, bucket_of(group))]
        self.process.note(REDONE)
        stats = {**stats, **self._write(inflight, view, again, part.number)}
        self._commit(inflight, stats, Snapshot.of(view.timeline))

    def _write(
        self, inflight: InflightWrite, view: TableView, groups: Iterable[FileGroupId], redo: int
    ) -> dict[FileGroupId, WriteStat]:
        """Read groups and write each anew with a row of its own."""
        storage, time = self.process.storage, inflight.instant_time
        slices = {one.group: one for one in view.slices([PARTITION])}
        token = write_token(0, inflight.attempt.attempt, redo)
        stats = {}
        for group in groups:
            rows = read_slice(storage, slices[group]) if group in slices else {}
            key = f"{self.process.name} in {group.file_id}"
            rows[key] = Row(key, 0, time)
            file = BaseFile(group.partition, group.file_id, token, time)
            stats[group] = put_rows(storage, file, rows.values())
        return stats

    def _check(
        self, time: InstantTime, stats: Iterable[WriteStat], snapshot: Snapshot
    ) -> ConflictCheck:
        instant = Instant(time, Action.COMMIT, State.INFLIGHT)
        mine = change_of(CompletedCommit(instant, metadata_of("UPSERT", stats)))
        return ConflictCheck(mine=mine, snapshot=snapshot, is_bucketed=True)

    def _commit(
        self, inflight: InflightWrite, stats: Mapping[FileGroupId, WriteStat], snapshot: Snapshot
    ) -> None:
        storage = self.process.storage
        check = self._check(inflight.instant_time, stats.values(), snapshot)
        done = [i for i in check.unread(_active(storage)) if i.is_completed]
        check = replace(check, known=load_changes(storage, LAYOUT, done))
        inflight.commit(encode_record(metadata_of("UPSERT", stats.values())), check)


def _active(storage: Storage) -> Timeline:
    return load_active(storage, LAYOUT.timeline)


def _plan(time: InstantTime) -> WritePlan:
    return WritePlan(
        location=TableLocation("", {}),
        config=BUCKETS,
        columns=WriteColumns(schema=pa.schema([]), avro_schema="", block_avro_schema=""),
        instant_time=time,
        attempt=1,
        operation=Operation.UPSERT,
        files=FileConfig(),
    )
