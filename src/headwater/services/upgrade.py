"""Upgrade: a table of version 6 or 8 becomes one of version 9, as an upgrade of Hudi's leaves it.

It rewrites the timeline in layout 2, compacts every file slice that has logs, for the names of
these mean something else from version 8 on, and deletes the metadata table, which the next
`headwater index create` or write of Hudi's builds again. No row changes.

It holds the table lock. Writers that take no lock, or another one, have to be stopped: an instant
that appears meanwhile is found and ends the upgrade, but one that begins at the very end is not.
Pending instants are refused, as only the engine that began them can tell what they are worth.
Readers go on: of a table of version 6 until the last step, of one of version 9 from then on.

What is new lies where no reader of the older version looks, and all of it counts at once with the
table's properties, which are written last:

1. note the upgrade, with the instant of its compaction, in `.hoodie/.upgrade.json`;
2. take the metadata table off the properties, then delete it;
3. write the base files of the compaction, each announced by a marker;
4. write the archived timeline, then the active one;
5. look whether the old timeline is still as it was, and write the properties of version 9;
6. delete the old timeline and the markers, then the note.

What a crash leaves behind, by the last write that landed:

    after             the table is             who repairs
    note              as it was                the next upgrade begins anew
    properties (2)    of version 6, without    the same; or Hudi's next write builds the metadata
                      a metadata table         table again
    base files        of version 6; nothing    the next upgrade deletes what markers of the noted
                      lists them               instant announce, and begins anew
    timelines         of version 6; nothing    the next upgrade deletes them, and begins anew
                      reads them
    properties (5)    of version 9             the next upgrade goes on with step 6; until then
                                               nobody reads what is left of the old timeline
    some deletions    of version 9             the same

The old archive stays: nothing of version 9 reads it, and nothing else has what was in it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.config.older_versions import upgraded
from headwater.config.table import WRITTEN_VERSION, TableConfig
from headwater.config.table_options import (
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    POPULATE_META_FIELDS,
    IndexType,
)
from headwater.context import TableContext
from headwater.engine.engine import never_stops
from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    UnsupportedError,
)
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.own_json import decode_own, encode_own
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import HOODIE, METADATA, UPGRADE, TableLayout, marker_folder
from headwater.kernel.table_config import (
    FOLDER_MARK,
    change_table_config_in_lock,
    load_table_config,
    table_layout,
)
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.timeline.history.rows import HistoryRow
from headwater.kernel.timeline.history.write import write_first_history
from headwater.kernel.timeline.layout_one import LayoutOneStorage, modern_name
from headwater.kernel.timeline.upgrade import (
    archived_rows,
    load_archive,
    load_modern_files,
    load_old_timeline,
)
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.markers.batches import load_every_marker
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import BaseFile, FileSlice, LogFile, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.model.plans import CompactionPlan
from headwater.operations.committing import SCHEMA_KEY
from headwater.seams.lock import TABLE, HeldLock
from headwater.seams.storage import Storage
from headwater.services.compaction import CompactionTask, execute_compaction_task
from headwater.services.rewrite_files import RewriteJob, by_partition, operation_of_slice

log = logging.getLogger(__name__)

_CHECKSUM = ".crc"
_NAMED_MAX = 5
_FILES_AT_ONCE = 500
"""How many timeline files are held and put together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What an upgrade did, or would do."""

    from_version: int
    to_version: int
    is_done: bool
    """Whether the table is now as it was to be; false of a dry run that would change it."""
    instants: int
    """How many instants of the active timeline were rewritten."""
    archived: int
    """How many archived ones were."""
    compacted: int
    """How many file groups were compacted."""
    drops_metadata_table: bool
    properties: Mapping[str, str | None]
    """The properties that change, with their new values; None for those that go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Everything that the upgrade of one table writes, but for the files of the compaction."""

    config: TableConfig
    names: frozenset[str]
    """The files of the old timeline."""
    files: Mapping[str, bytes]
    """Those of the new one."""
    instants: int
    rows: Sequence[HistoryRow]
    slices: Sequence[FileSlice]
    view: TableView
    compaction: InstantTime

    @property
    def new_layout(self) -> TableLayout:
        """Where the timelines are after the upgrade."""
        properties = upgraded(self.config.raw)
        return table_layout(TableConfig.from_properties(properties, path=HOODIE))


def run_upgrade(table: TableContext, *, is_dry_run: bool = False) -> Upgrade:
    """Upgrade a table to version 9; one that has it already is tidied up after a dead upgrade.

    Raises:
        InvalidInputError: kind INVALID_STATE; instants are pending.
        UnsupportedError: the table has logs that cannot be merged here, or no record keys.
        ConflictError: the lock was not to be had in time; or another engine has written to the
            table, or begun an upgrade of its own.
        CorruptTableError: the table is damaged.
        CommitUnknownError: it is not known whether the properties were written; try again.
    """
    stored = table.storage.stored if isinstance(table.storage, LayoutOneStorage) else table.storage
    reached = replace(table, storage=stored)
    if is_dry_run:
        config = load_table_config(stored, table.clock)
        is_current = config.version == WRITTEN_VERSION
        plan = None if is_current else _plan(reached, config)
        return _report(config, plan, is_done=is_current)
    locks = reached.components.locks
    held = locks.acquire(TABLE, timeout_ms=table.lock_config.acquire_timeout_ms)
    try:
        return _upgrade(reached, held)
    finally:
        held.release()
        if table.locks is None:
            reached.close()


def _upgrade(table: TableContext, held: HeldLock) -> Upgrade:
    storage = table.storage
    config = load_table_config(storage, table.clock)
    if config.version == WRITTEN_VERSION:
        _tidy(storage, held)
        return _report(config, None, is_done=True)
    _undo(storage, held, config)
    plan = _plan(table, config)
    held.check()
    storage.put(UPGRADE, _encode_note(plan))
    _drop_metadata_table(table, held)
    if not config.has_layout_two:
        _write_timeline(table, held, plan)
    held.check()
    if plan.names != frozenset(load_old_timeline(storage).files):
        raise ConflictError(
            f"Table {config.name} was written to while it was upgraded, so it is left as it was. "
            "Stop its writers, and upgrade it again",
            table=config.name,
        )
    change_table_config_in_lock(storage, held, table.clock, _upgraded)
    _tidy(storage, held)
    log.info("table upgraded table=%s from=%s to=%s", config.name, config.version, WRITTEN_VERSION)
    return _report(config, plan, is_done=True)


# The plan.


def _plan(table: TableContext, config: TableConfig) -> _Plan:
    storage, layout = table.storage, table_layout(config)
    if config.has_layout_two:
        _check_nothing_pending(config, load_active(storage, layout.timeline).pending)
        return _Plan(
            config=config,
            names=frozenset(load_old_timeline(storage).files),
            files={},
            instants=0,
            rows=(),
            slices=(),
            view=load_listed_view(storage, config),
            compaction=InstantTime(""),
        )
    shown = LayoutOneStorage(storage, layout, table=config.name)
    old = load_old_timeline(storage)
    view = load_listed_view(shown, config)
    timeline = view.timeline
    unfinished = [point for point in timeline.savepoints if not point.is_completed]
    _check_nothing_pending(config, [*timeline.pending, *unfinished])
    slices = [one for one in view.slices() if one.logs]
    view.check_complete(view.slices())
    if slices and not config.has_meta_fields:
        raise UnsupportedError(
            f"Table {config.name} has log files and {POPULATE_META_FIELDS.key}=false, so that they "
            "cannot be merged here. Compact it with Apache Hudi first",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    completions = old.completion_times(is_utc=config.is_utc)
    older = [
        file
        for history in view.histories()
        for file in history.files
        if timeline.find(file.instant_time) is None
    ]
    entries = load_archive(storage, f"{HOODIE}/{config.archive_folder}")
    rows = archived_rows(entries, older, old.requested_times)
    largest = max([*old.requested_times, *completions.values()], default=InstantTime(""))
    now = table.now()
    return _Plan(
        config=config,
        names=frozenset(old.files),
        files=load_modern_files(storage, old, completions),
        instants=len(old.requested_times),
        rows=rows,
        slices=slices,
        view=view,
        compaction=now if now > largest else instant_time_after(largest),
    )


def _check_nothing_pending(config: TableConfig, pending: Sequence[Instant]) -> None:
    if pending:
        named = ", ".join(map(str, pending[:_NAMED_MAX]))
        more = len(pending) - _NAMED_MAX
        raise InvalidInputError(
            f"Table {config.name} has instants that have not ended, so it cannot be upgraded: "
            f"{named}" + (f" and {more} more" if more > 0 else "") + ". Let the engine that began "
            "them finish them or roll them back: any write of Hudi's rolls failed writes back, and "
            "run_compaction and run_clustering execute plans",
            kind=ErrorKind.INVALID_STATE,
            table=config.name,
        )


def _report(config: TableConfig, plan: _Plan | None, *, is_done: bool) -> Upgrade:
    properties = config.raw if plan is None else upgraded(config.raw)
    keys = config.raw.keys() | properties.keys()
    changed = {key: properties.get(key) for key in sorted(keys)}
    return Upgrade(
        from_version=config.version,
        to_version=WRITTEN_VERSION,
        is_done=is_done,
        instants=0 if plan is None else plan.instants,
        archived=0 if plan is None else len(plan.rows),
        compacted=0 if plan is None else len(plan.slices),
        drops_metadata_table=plan is not None and METADATA_PARTITIONS.key in config.raw,
        properties={key: new for key, new in changed.items() if new != config.raw.get(key)},
    )


# The steps.


def _drop_metadata_table(table: TableContext, held: HeldLock) -> None:
    def without(config: TableConfig) -> dict[str, str]:
        dropped = (METADATA_PARTITIONS.key, METADATA_PARTITIONS_INFLIGHT.key)
        return {key: text for key, text in config.raw.items() if key not in dropped}

    change_table_config_in_lock(table.storage, held, table.clock, without)
    held.check()
    table.storage.delete_many([info.path for info in table.storage.list_tree(METADATA)])


def _write_timeline(table: TableContext, held: HeldLock, plan: _Plan) -> None:
    storage, layout = table.storage, plan.new_layout
    files = {f"{layout.timeline}/{name}": data for name, data in plan.files.items()}
    if plan.slices:
        files |= _compact(table, plan, layout)
    held.check()
    # Hudi lists both folders, and fails if they are absent.
    storage.put(f"{layout.history}/{FOLDER_MARK}", b"")
    write_first_history(storage, layout, plan.rows)
    held.check()
    paths = sorted(files)
    for start in range(0, len(paths), _FILES_AT_ONCE):
        some = paths[start : start + _FILES_AT_ONCE]
        storage.put_many({path: files[path] for path in some})


def _compact(table: TableContext, plan: _Plan, layout: TableLayout) -> dict[str, bytes]:
    """Write the base files of the compaction; return its timeline files."""
    time, schema = plan.compaction, plan.view.schema()
    job = RewriteJob(
        storage_uri=table.storage.uri,
        storage_options=table.options,
        # Rows are merged by the rule of the older version. Which index its writers use is not
        # known; bloom filters are what most of them look for in base files.
        config=replace(plan.config, index_type=IndexType.BLOOM),
        files=table.file_config,
        schema=schema,
        instant_time=time,
        attempt=1,
    )
    tasks = [
        CompactionTask(job=job, slice=one, log_bytes=sum(log.size_bytes for log in one.logs))
        for one in plan.slices
    ]
    engine = table.engine_for(sum(one.size_bytes for one in plan.slices))
    found = engine.run(execute_compaction_task, tasks, poll=never_stops)
    metadata = CommitMetadata(
        partition_to_write_stats=by_partition(stat for stats in found for stat in stats),
        compacted=True,
        extra_metadata={SCHEMA_KEY: encode_avro_schema(schema, table=plan.config.name)},
        operation_type="COMPACT",
    )
    operations = tuple(operation_of_slice(one) for one in plan.slices)
    done = Instant(time, Action.COMPACTION, State.COMPLETED, instant_time_after(time))
    return {
        instant_path(layout.timeline, done, State.REQUESTED): encode_record(
            CompactionPlan(operations=operations, preserve_hoodie_metadata=True)
        ),
        instant_path(layout.timeline, done, State.INFLIGHT): b"",
        instant_path(layout.timeline, done): encode_record(metadata),
    }


def _upgraded(config: TableConfig) -> Mapping[str, str]:
    return config.raw if config.version == WRITTEN_VERSION else upgraded(config.raw)


def _tidy(storage: Storage, held: HeldLock) -> None:
    """Delete what the table of the older version had, if an upgrade of ours left it (step 6)."""
    note = _load_note(storage)
    if note is None:
        return
    held.check()
    names = load_old_timeline(storage).files
    # On disks Hudi has a checksum beside each file, which may outlive its file in a crash.
    checksums = [
        name
        for name in storage.list_names(HOODIE)
        if name.endswith(_CHECKSUM) and modern_name(name[1 : -len(_CHECKSUM)]) is not None
    ]
    old = [f"{HOODIE}/{name}" for name in (*checksums, *names)]
    markers = [info.path for info in storage.list_tree(marker_folder(note))] if note else []
    storage.delete_many([*old, *markers])
    storage.delete(UPGRADE)


def _undo(storage: Storage, held: HeldLock, config: TableConfig) -> None:
    """Delete what an upgrade that died before step 5 has written."""
    if config.has_layout_two:
        return  # It has written nothing but properties.
    written = [info.path for info in storage.list_tree(table_layout(config).timeline)]
    note = _load_note(storage)
    if note is None:
        files = [path for path in written if not path.endswith(f"/{FOLDER_MARK}")]
        if files:
            raise ConflictError(
                f"Table {config.name} has version {config.version}, but a timeline of a later one "
                f"as well, such as {files[0]}: another engine has begun to upgrade it. Let that "
                "engine finish, or delete the folder if you know that it is not needed",
                kind=ErrorKind.ALREADY_RUNNING,
                table=config.name,
                path=files[0],
            )
        return
    held.check()
    log.warning("upgrade that died is undone table=%s instant=%s", config.name, note)
    if note:
        announced = [marker.data_path for marker in load_every_marker(storage, note)]
        storage.delete_many([path for path in announced if _time_of(path) == note])
        storage.delete_many([info.path for info in storage.list_tree(marker_folder(note))])
    storage.delete_many(written)
    storage.delete(UPGRADE)


def _time_of(path: str) -> InstantTime | None:
    file: BaseFile | LogFile | None = parse_data_file(path)
    return None if file is None else file.instant_time


def _encode_note(plan: _Plan) -> bytes:
    return encode_own(
        {"from": plan.config.version, "to": WRITTEN_VERSION, "instant": plan.compaction}
    )


def _load_note(storage: Storage) -> InstantTime | None:
    """Return the instant of an upgrade that has not come to its end; None if there is none."""
    (data,) = storage.read_many([UPGRADE])
    if data is None:
        return None
    try:
        return InstantTime(str(decode_own(data, path=UPGRADE)["instant"]))
    except (ValueError, KeyError) as error:
        raise CorruptTableError(
            f"{UPGRADE} is damaged: {error}. It names the instant of an upgrade that died; delete "
            "the files of that instant, which no timeline has, and then this one",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=UPGRADE,
        ) from error
