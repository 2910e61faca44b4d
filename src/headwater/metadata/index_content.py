"""What the indexes of a table contain and where, for whoever builds them.

Everything is read from the table as of the moment at which a plan was requested, from its commits
and not from a listing (H-61): clean keeps what a pending plan reads, and what it deletes beside
that it tells the index itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.files.ahead import windows
from headwater.format.metadata.index_definitions import (
    IndexDefinition,
    IndexVersion,
    encode_index_definitions,
)
from headwater.format.timeline.records import decode_record
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import METADATA
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.index_births import births_of
from headwater.kernel.txn.index_plan import PlannedIndex, run_time, taken_in
from headwater.kernel.view.commits import CommitReader, CompletedCommit
from headwater.kernel.view.table_view import TableView, ViewStart
from headwater.metadata.bootstrap import (
    ensure_metadata_table,
    initialise_partition,
    write_base_files,
)
from headwater.metadata.derive import Deriver, with_files_prefetched
from headwater.metadata.files_partition import files_records, records_of_files
from headwater.metadata.indexing import IndexProgress, Report, Stage
from headwater.metadata.log_files import encode_metadata_log
from headwater.metadata.partition_files import (
    BULK_INSERT,
    FIRST_LOG_VERSION,
    catchup_token,
    encode_metadata_commit,
    list_groups,
    log_stat,
)
from headwater.metadata.partition_kinds import FILES, file_id
from headwater.metadata.records import MetadataRecords
from headwater.metadata.records_by_group import share_out
from headwater.metadata.table_change import Inputs, LateInputs, TableChange
from headwater.metadata.update import change_of_clean, change_of_commit
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import BaseFile, DataFile, LogFile, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime
from headwater.model.service_metadata import CleanMetadata
from headwater.seams.batched_puts import BatchedPuts
from headwater.seams.storage import Storage

_REPORT_EVERY_FILES = 100

_INSTANTS_AT_ONCE = 500
_BYTES_AT_ONCE = 256 * 1024 * 1024
"""How long a run is that one log stands for, and how much data it may have brought: what it means
to an index is in memory at once."""


@dataclass(frozen=True, slots=True)
class TableIndexes:
    """The indexes of one table. See `indexing.IndexContent`."""

    table: TableContext

    @property
    def storage(self) -> Storage:
        return self.table.storage

    @property
    def config(self) -> TableConfig:
        return self.table.config

    def initialise(self, planned: PlannedIndex, time: InstantTime) -> None:
        ensure_metadata_table(self.storage, self.config)
        initialise_partition(self.storage, planned.partition, planned.group_count, time)

    def build(
        self, planned: PlannedIndex, attempt: Attempt, check: Callable[[], None], report: Report
    ) -> Sequence[WriteStat]:
        view = load_view_before(self.storage, self.config, attempt.instant)
        partition = planned.partition
        if self._deriver(view).is_partitioned(partition):
            return self._build_by_partition(partition, view, attempt, check, report)
        entries = self._whole(partition, view, attempt.instant, check, report)
        return write_base_files(
            self.storage,
            partition,
            attempt.instant,
            attempt.attempt,
            entries,
            planned.group_count,
            self._version(partition),
        )

    def _build_by_partition(
        self,
        partition: str,
        view: TableView,
        attempt: Attempt,
        check: Callable[[], None],
        report: Report,
    ) -> Sequence[WriteStat]:
        """Write one file group for each partition of the table, as writers do for new ones."""
        slices = view.slices()
        view.check_complete(slices)
        total = sum(1 for one in slices for _ in one.files())
        counted = _Counted(attempt.instant, partition, total, report)
        deriver = self._deriver(view)
        stats: list[WriteStat] = []
        for apart in sorted({one.group.partition for one in slices}):
            check()
            some = [one for one in slices if one.group.partition == apart]
            stats += write_base_files(
                self.storage,
                partition,
                attempt.instant,
                attempt.attempt,
                deriver.of_files(partition, some, counted.add),
                1,
                data_partition=apart,
            )
        counted.tell()
        return stats

    def catch_up(
        self,
        partitions: frozenset[str],
        run: Sequence[Instant],
        timeline: Timeline,
        attempt: Attempt,
    ) -> Iterator[tuple[int, Sequence[WriteStat]]]:
        reader = CommitReader(self.storage, table_layout(self.config))
        start = ViewStart(timeline, timeline.completed[-1].completion_time, reader)
        view = TableView(self.config, start, start.listed_files(self.storage, self.config))
        deriver = self._deriver(view)
        births = births_of(self.table.load_config())
        groups = {
            name: list_groups(self.storage, name, births.get(name)) for name in sorted(partitions)
        }
        is_fenced = find_journal(self.storage)[0] is not None
        token = partial(catchup_token, attempt=attempt if is_fenced else None)
        for at in range(0, len(run), _INSTANTS_AT_ONCE):
            changes = list(self._changes_of(run[at : at + _INSTANTS_AT_ONCE], reader, view))
            sizes = [sum(file.size_bytes for file in change.added) for _, change in changes]
            for piece in windows(changes, sizes, _BYTES_AT_ONCE):
                yield len(piece), self._write_run(deriver, groups, piece, token)

    def _write_run(
        self,
        deriver: Deriver,
        groups: Mapping[str, Sequence[str]],
        run: Sequence[tuple[Instant, TableChange]],
        token: Callable[[int], str],
    ) -> Sequence[WriteStat]:
        """Write one log for each file group that a run of instants concerns."""
        changes = [change for _, change in run]
        time = run_time([instant for instant, _ in run])
        at_hand = replace(deriver, storage=with_files_prefetched(self.storage, changes))
        puts = BatchedPuts(self.storage)
        stats: list[WriteStat] = []
        for partition, file_ids in groups.items():
            entries = (
                files_records(changes)
                if partition == FILES
                else at_hand.of_changes(partition, changes)
            )
            definition = deriver.definitions.get(partition)
            version = IndexVersion.V2 if definition is None else definition.version
            # Also where there is nothing to say: the log shows that somebody has looked.
            nothing = (
                file_ids[0] if file_ids else file_id(partition, 0, ""),
                0,
                MetadataRecords.none(),
            )
            shares = list(share_out(partition, entries, file_ids, version)) or [nothing]
            stats += [
                _put_log(puts, partition, time, name, token(number), part)
                for name, number, part in shares
            ]
        puts.flush()
        return stats

    def encode_commit(self, stats: Sequence[WriteStat], covered: frozenset[str]) -> bytes:
        return encode_metadata_commit(stats, BULK_INSERT, covered=covered)

    def _whole(
        self,
        partition: str,
        view: TableView,
        plan: InstantTime,
        check: Callable[[], None],
        report: Report,
    ) -> Iterator[MetadataRecords]:
        """Give all that a partition holds as of a view."""
        if partition == FILES:
            files = list(stored_files(view))
            report(_progress(plan, partition, rows=len(files), files=len(files), of=len(files)))
            yield records_of_files(sorted({file.partition for file in files}), files)
            return
        slices = view.slices()
        view.check_complete(slices)
        counted = _Counted(plan, partition, sum(1 for one in slices for _ in one.files()), report)
        for piece in self._deriver(view).of_files(partition, slices, counted.add):
            check()
            yield piece
        counted.tell()

    def _deriver(self, view: TableView) -> Deriver:
        return Deriver(
            table=self.table,
            storage=self.storage,
            schema=view.schema(),
            definitions=load_index_definitions(self.storage, self.config),
        )

    def _changes_of(
        self, instants: Sequence[Instant], reader: CommitReader, view: TableView
    ) -> list[tuple[Instant, TableChange]]:
        """Return what completed instants did, with what they had read, in their order."""
        folder = table_layout(self.config).timeline
        changes: dict[Instant, TableChange] = {}
        cleans = [instant for instant in instants if instant.action is Action.CLEAN]
        contents = load_contents(self.storage, folder, cleans)
        for instant, data in zip(cleans, contents, strict=True):
            metadata = decode_record(CleanMetadata, data, path=instant_path(folder, instant))
            changes[instant] = change_of_clean(instant.requested_time, _cleaned(metadata))
        commits = [instant for instant in instants if instant.action is not Action.CLEAN]
        for commit in reader.load(commits):
            changes[commit.instant] = change_of_commit(
                commit.instant,
                commit.metadata,
                LateInputs(partial(_inputs_of, commit, view)),
                has_seen_all=not commit.is_table_service,
            )
        return [(instant, changes[instant]) for instant in instants]

    def _version(self, partition: str) -> IndexVersion:
        found = load_index_definitions(self.storage, self.config).get(partition)
        return IndexVersion.V2 if found is None else found.version


@dataclass(slots=True)
class _Counted:
    """How far the reading of a build has come."""

    plan: InstantTime
    partition: str
    total: int
    report: Report
    files: int = 0
    rows: int = 0

    def add(self, files: int, rows: int) -> None:
        before = self.files // _REPORT_EVERY_FILES
        self.files += files
        self.rows += rows
        if self.files // _REPORT_EVERY_FILES > before:
            self.tell()

    def tell(self) -> None:
        self.report(
            _progress(self.plan, self.partition, rows=self.rows, files=self.files, of=self.total)
        )


def _progress(
    plan: InstantTime, partition: str, *, rows: int, files: int, of: int
) -> IndexProgress:
    return IndexProgress(
        instant=plan,
        stage=Stage.BUILDING,
        partition=partition,
        rows=rows,
        files=files,
        files_total=of,
    )


def load_view_before(storage: Storage, config: TableConfig, plan: InstantTime) -> TableView:
    """Return the table as it was when a pending plan was requested.

    A clean that ran since may have raised the floor of time travel above that moment. It has kept
    what the plan reads, so unlike a reader's view this one is not refused.
    """
    layout = table_layout(config)
    timeline = load_active(storage, layout.timeline)
    reader = CommitReader(storage, layout)
    done = taken_in(timeline, plan) or tuple(reader.history.instants())
    newest = max((i.completion_time for i in done if i.completion_time), default=None)
    start = ViewStart(timeline, newest, reader)
    return TableView(config, start, start.listed_files(storage, config))


def stored_files(view: TableView) -> Iterator[DataFile]:
    """Give the committed files of a view that are in storage, those of older slices too."""
    for history in view.histories():
        yield from (file for file in history.files if view.is_stored(file))


def encode_definition(definition: IndexDefinition) -> str:
    """Return a definition as a plan carries it."""
    return encode_index_definitions({definition.index_name: definition}).decode()


def _inputs_of(commit: CompletedCommit, view: TableView) -> Inputs:
    """Return the file groups that a commit rewrote or replaced, with what they held.

    A write that rewrites a group has seen all that there was when it completed, a service what
    there was when it was planned. Clean keeps both for a pending plan.
    """
    groups = {file.group for file in commit.files if isinstance(file, BaseFile)}
    groups |= set(commit.replaced_groups())
    partitions = {group.partition for group in groups}
    if commit.is_table_service:
        slices = view.slices_up_to(commit.requested_time, partitions)
    else:
        slices = view.slices_before(commit.completion_time, partitions)
    return {one.group: tuple(one.files()) for one in slices if one.group in groups}


def _put_log(
    puts: BatchedPuts,
    partition: str,
    time: InstantTime,
    name: str,
    token: str,
    entries: MetadataRecords,
) -> WriteStat:
    """Write what a run of instants brought to one file group."""
    data = encode_metadata_log(entries, partition, time)
    log = LogFile(partition, name, time, FIRST_LOG_VERSION, token, size_bytes=len(data))
    puts.add(f"{METADATA}/{log.path}", data)
    return log_stat(log, written=len(entries.keys), deleted=len(entries.removed))


def _cleaned(metadata: CleanMetadata) -> Iterator[DataFile]:
    for partition, cleaned in metadata.partition_metadata.items():
        for name in cleaned.success_delete_files:
            short = name.rpartition("/")[2]
            file = parse_data_file(f"{partition}/{short}" if partition else short)
            if file is not None:
                yield file
