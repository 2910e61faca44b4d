"""Optimistic writers that lose and write again: occ_keys, occ_redo, occ_append and occ_rebase.

occ_keys: writers bring the same new key, each to a file group of its own unless it finds the key in
the table. They meet in no group, so only the comparison of keys keeps it from being there twice
(INV-94, INV-82).

occ_redo: A changes two buckets; B begins a write of each and commits the one, then the other. A
writer that loses keeps its instant and writes again what the product tells it to, on a new view;
what it keeps must not hide what others have written meanwhile (N-70, INV-81).

occ_append, occ_rebase: the same writers append to the buckets, as they do to merge-on-read tables.
Their logs complete in the order in which they were requested (N-128, INV-133).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.config.files import FileConfig
from headwater.config.table import TableConfig
from headwater.errors import CommitUnknownError, ConflictError, ErrorKind, HeadwaterError
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.changes import change_of, load_changes
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.key_conflicts import KeyCheck, KeyScope
from headwater.kernel.txn.transaction import Transaction
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import BaseFile, DataFile, FileGroupId, LogFile, write_token
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.operations.plan import Operation, WriteColumns, WritePlan, bucket_of
from headwater.operations.redo import part_to_redo
from headwater.operations.table_location import TableLocation
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
_TWO_BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
BUCKETS = config_of("COPY_ON_WRITE", _TWO_BUCKETS)
LOGS = config_of("MERGE_ON_READ", _TWO_BUCKETS)
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
    built = _scenario("occ_redo", RowChecks(config=BUCKETS), _redoing_writers(_REWRITES), faults)
    return replace(built, marks={"something was redone": _has_redone})


def occ_append(faults: Faults) -> Scenario:
    """Return the same writers where they append to groups that they have looked at."""
    checks = RowChecks(config=LOGS, keeps_order=True)
    built = _scenario("occ_append", checks, _redoing_writers(_APPENDS), faults)
    return replace(built, marks={"something was redone": _has_redone})


def occ_rebase(faults: Faults) -> Scenario:
    """Return them where a log says the same whatever it lies on, so that it may just stay."""
    checks = RowChecks(config=LOGS, is_non_blocking=True, keeps_order=True)
    way = replace(_APPENDS, is_rebased=True)
    return _scenario("occ_rebase", checks, _redoing_writers(way), faults)


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
    return transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS, load_keys=_load_keys)


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


@dataclass(frozen=True)
class _Way:
    """How rows get into file groups."""

    config: TableConfig
    action: Action
    is_rebased: bool = False

    @property
    def appends(self) -> bool:
        return self.action is Action.DELTA_COMMIT


_REWRITES = _Way(BUCKETS, Action.COMMIT)
_APPENDS = _Way(LOGS, Action.DELTA_COMMIT)


def _redoing_writers(way: _Way) -> dict[str, Body]:
    return {
        "B": _redoing_writer(way, [FIRST], [SECOND]),
        "A": _redoing_writer(way, [FIRST, SECOND]),
    }


def _redoing_writer(way: _Way, *writes: Sequence[FileGroupId]) -> Body:
    """Return an actor that begins writes of some groups, then does one after the other."""

    def body(process: Process) -> str:
        word = LOST
        process.note(BEGUN)
        begun = [_Redoing(process, way, groups) for groups in writes]
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
    way: _Way
    groups: Sequence[FileGroupId]
    inflight: InflightWrite | None = None

    def begin(self) -> bool:
        components = components_of(self.process)
        txn, claim = lock_transaction(components), claim_of(self.process)
        try:
            self.inflight = start_inflight_write(components, txn, self.way.action, claim, b"")
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
        view = load_view(self.process.storage, self.way.config)
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
        view = load_view(storage, self.way.config)
        unread, vanished = check.unread(view.timeline), check.snapshot.vanished(view.timeline)
        others = check.others(view.timeline, load_changes(storage, LAYOUT, unread, vanished))
        part = part_to_redo(self._plan(time), check, others, ())
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
        """Write a row of its own to each group: with all that it has, or on top of it."""
        storage, time = self.process.storage, inflight.instant_time
        slices = {one.group: one for one in view.slices([PARTITION])}
        token = write_token(0, inflight.attempt.attempt, redo)
        stats = {}
        for group in groups:
            is_read = group in slices and not self.way.appends
            rows = read_slice(storage, slices[group]) if is_read else {}
            key = f"{self.process.name} in {group.file_id}"
            rows[key] = Row(key, 0, time)
            file: DataFile = BaseFile(group.partition, group.file_id, token, time)
            if self.way.appends:
                file = LogFile(group.partition, group.file_id, time, 1, token)
            stats[group] = put_rows(storage, file, rows.values())
        return stats

    def _check(
        self, time: InstantTime, stats: Iterable[WriteStat], snapshot: Snapshot
    ) -> ConflictCheck:
        instant = Instant(time, self.way.action, State.INFLIGHT)
        return ConflictCheck(
            mine=change_of(CompletedCommit(instant, metadata_of("UPSERT", stats))),
            snapshot=snapshot,
            is_bucketed=True,
            is_rebased=self.way.is_rebased,
        )

    def _commit(
        self, inflight: InflightWrite, stats: Mapping[FileGroupId, WriteStat], snapshot: Snapshot
    ) -> None:
        storage = self.process.storage
        check = self._check(inflight.instant_time, stats.values(), snapshot)
        done = [i for i in check.unread(_active(storage)) if i.is_completed]
        check = replace(check, known=load_changes(storage, LAYOUT, done))
        inflight.commit(encode_record(metadata_of("UPSERT", stats.values())), check)

    def _plan(self, time: InstantTime) -> WritePlan:
        none = pa.schema([])
        return WritePlan(
            location=TableLocation("", {}),
            config=self.way.config,
            columns=WriteColumns(schema=none, avro_schema="", block_avro_schema="", of_rows=none),
            instant_time=time,
            attempt=1,
            operation=Operation.UPSERT,
            files=FileConfig(),
        )


def _active(storage: Storage) -> Timeline:
    return load_active(storage, LAYOUT.timeline)
