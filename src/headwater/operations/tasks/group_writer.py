"""Writing the rows of file groups.

    merge on read    a log file: blocks of rows, and a block of deletes; but the first rows of a
                     group become a base file, unless others may start the same group
    copy on write    a new base file: the rows alone, or merged with the base file before

The same code runs for every engine; a group's rows are all here, as one table. Inserts of a table
that is not bucketed have no group yet: they fill up small base files of copy-on-write tables, each
one task's alone, and then make new ones. A small file that gets both updates and inserts is written
once, with both.

Two things of logs are as stock Hudi's readers need them. A row that is marked as a delete goes into
the block of deletes, because not all of them know the table's own mark. And a row of a partial
write whose record is not there yet is written with all columns, since a partial row that has
nothing to complete it is read as garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.keys import KeyGenerator, carried_over, put_down
from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.arrow.merge import MergeCounts
from headwater.arrow.meta_columns import (
    add_meta_columns,
    repeated_text,
    replace_file_name,
    sequence_numbers,
)
from headwater.arrow.ordering import is_all_null
from headwater.arrow.record_marks import deleted_rows, whole
from headwater.arrow.schema_evolution import project_batch
from headwater.engine.engine import TaskContext
from headwater.errors import AlreadyExistsError, check
from headwater.files.base_files import new_bloom_filter, open_base_file
from headwater.format.log.blocks import encode_data_blocks, encode_delete_blocks
from headwater.format.parquet.base_file import BaseFileReader, BaseFileStats, write_base_file
from headwater.format.partition_metadata import (
    encode_partition_metadata,
    partition_metadata_path,
)
from headwater.kernel.txn.markers import Marker, MarkerKind, Markers, announce_all
from headwater.markers.abort_signal import AbortSignal
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.operations.plan import INSERTS, Operation, WritePlan, has_room
from headwater.operations.tasks.duplicates import without_existing
from headwater.operations.tasks.gathered_files import Announced, GatheredFiles
from headwater.operations.tasks.inserts import plan_inserts
from headwater.operations.tasks.leaving import split_leaving
from headwater.operations.tasks.reduced import reduced
from headwater.seams.storage import Storage
from headwater.slice.merged_slice import open_merged
from headwater.slice.reader import SliceReader

NO_PREVIOUS_COMMIT = "null"
"""What Hudi writes, as text, where a file group has no slice before this one."""


def slices_to_fill(plan: WritePlan, context: TaskContext, partition: str) -> dict[int, FileSlice]:
    """Return the slices that new rows of a partition go to in a task, the first before others."""
    if plan.is_merge_on_read:
        return {}
    return {
        number: one
        for number, one in plan.groups.slices.get(partition, {}).items()
        if number % context.task_count == context.task
        and has_room(one, small_file_limit=plan.files.small_file_limit)
    }


class GroupWriter:
    """Writes the file groups of one task."""

    def __init__(
        self,
        plan: WritePlan,
        context: TaskContext,
        storage: Storage,
        markers: Markers,
        keys: KeyGenerator,
        stop: AbortSignal | None = None,
        near: dict[FileGroupId, Storage] | None = None,
    ) -> None:
        """`near` has storages to read slices from, which hold files of several at hand; each slice
        is taken out when it is written, so that no more is held than has to be."""
        self._plan = plan
        self._context = context
        self._storage = storage
        self._markers = markers
        self._keys = keys
        self._stop = stop
        self._near = {} if near is None else near
        self._reader = plan.slice_reader(storage)
        self._rule = self._reader.rule
        self._token = plan.write_token(context)
        self._schema = self._reader.schema
        self._numbered_rows = plan.first_row()
        self._made_partitions: set[str] = set()
        self._new_files = GatheredFiles(
            storage,
            self._announce,
            gathers=plan.announcing.detection is None,
        )

    def write_partition(
        self, partition: str, groups: Iterable[tuple[int, pa.Table]]
    ) -> Iterator[WriteStat]:
        """Write all rows of the task for one partition; give the stats of the files made.

        Args:
            groups: numbers of groups (see `GroupKey`) and their rows, inserts first.
        """
        filling: dict[int, pa.Table] = {}
        for number, rows in groups:
            if number == INSERTS:
                rows, deletes = self._without_duplicates(rows)
                pieces = self._insert_pieces(partition, rows)
                if self._plan.looks_up:
                    # Updates of the same files may follow.
                    filling = {to: part for to, part in pieces if to is not None}
                    pieces = [piece for piece in pieces if piece[0] is None]
                yield from self._insert(partition, pieces, deletes)
            else:
                self._check_mine(number)
                yield from self._write_group(partition, number, rows, filling.pop(number, None))
                self._release(self._plan.groups.slice_of(partition, number))
        for number, rows in filling.items():
            file_slice = self._plan.groups.slices[partition][number]
            yield self._change(file_slice, None, more=rows)
            self._release(file_slice)

    def _release(self, file_slice: FileSlice | None) -> None:
        """Hold nothing of a slice any more that was read to write it."""
        if file_slice is not None:
            self._near.pop(file_slice.group, None)

    def _reader_of(self, file_slice: FileSlice) -> SliceReader:
        return replace(self._reader, storage=self._storage_of(file_slice))

    def _storage_of(self, file_slice: FileSlice) -> Storage:
        return self._near.get(file_slice.group, self._storage)

    def _check_mine(self, number: int) -> None:
        """Two tasks that wrote one slice would each lose what the other wrote."""
        here = self._context
        check(
            not self._plan.looks_up or number % here.task_count == here.task,
            "Rows of a file slice came to a task that does not own it",
            slice_number=number,
            task=here.task,
            task_count=here.task_count,
        )

    def _write_group(
        self, partition: str, number: int, rows: pa.Table, more: pa.Table | None
    ) -> Iterator[WriteStat]:
        file_slice = self._plan.groups.slice_of(partition, number)
        if self._plan.operation is Operation.DELETE:
            if file_slice is not None:
                yield from self._delete(file_slice, rows)
            return
        rows, leaving = split_leaving(rows)
        rows = self._sorted(reduced(rows, self._keys, self._rule))
        if file_slice is not None:
            rows = without_existing(
                self._plan, self._reader_of(file_slice), self._keys, file_slice, rows
            )
            has_leaving = leaving is not None and leaving.num_rows > 0
            if rows.num_rows or has_leaving or more is not None:
                yield self._change(file_slice, rows, more=more, leaving=leaving)
            return
        new = self._plan.new_group(partition, number)
        is_shared = self._plan.is_non_blocking or self._plan.is_handed_over
        if self._plan.is_merge_on_read and is_shared and not self._plan.is_bulk:
            # Several writers or tasks may start one group, and only logs go together.
            yield self._append_log(new, rows, None)
            return
        yield self._create(new, self._without_deleted(rows))
        yield from self._keep_deletes(new, self._deletes_to_keep(rows))

    def _deletes_to_keep(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are deletes of records which may still arrive (INV-50)."""
        plan = self._plan
        if not plan.is_merge_on_read or plan.is_bulk or not self._rule.merges_by_ordering:
            return rows.slice(0, 0)
        ordering = self._ordering(rows) or ()
        is_kept = deleted_rows(rows, self._rule) & ~is_all_null(ordering, rows.num_rows)
        return rows.filter(pa.array(is_kept))

    def _keep_deletes(self, group: FileGroupId, deletes: pa.Table) -> Iterator[WriteStat]:
        """Write deletes beside the base file of a new group."""
        if deletes.num_rows:
            yield self._append_log(group, deletes, None)

    def _without_duplicates(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return new records, and deletes of records that may still arrive.

        Rows that were looked up have one row per key from here on; others are taken as they are.
        """
        rows, _ = split_leaving(rows)
        if not self._plan.looks_up:
            return rows, rows.slice(0, 0)
        rows = reduced(rows, self._keys, self._rule)
        return self._without_deleted(rows), self._deletes_to_keep(rows)

    def _insert_pieces(self, partition: str, rows: pa.Table) -> list[tuple[int | None, pa.Table]]:
        """Return new rows in pieces, each with the number of the slice to fill up, if any."""
        rows = self._sorted(rows)
        if rows.num_rows == 0:
            return []
        files = self._plan.files
        pieces = plan_inserts(
            rows.num_rows,
            self._free_bytes(partition),
            record_size_bytes=self._plan.groups.record_size_bytes
            or max(1, put_down(rows).nbytes // rows.num_rows),
            file_size_max=files.file_size_max,
        )
        return [(piece.slice_number, rows.slice(piece.start, piece.row_count)) for piece in pieces]

    def _free_bytes(self, partition: str) -> dict[int, int]:
        """Return what the small files may grow by that are this task's to fill."""
        size_max = self._plan.files.file_size_max
        filled = slices_to_fill(self._plan, self._context, partition)
        return {number: size_max - one.size_bytes for number, one in filled.items()}

    def _insert(
        self,
        partition: str,
        pieces: Sequence[tuple[int | None, pa.Table]],
        deletes: pa.Table,
    ) -> Iterator[WriteStat]:
        """Write new rows: each piece behind the rows of a small file, or into a new one.

        Args:
            deletes: to be kept beside the first of the new files, which may have no rows.
        """
        new_groups = (self._plan.new_group(partition, self._context.task, n) for n in count())
        if deletes.num_rows and not pieces:
            pieces = [(None, deletes.slice(0, 0))]
        for number, rows in pieces:
            if number is None:
                group = next(new_groups)
                yield self._create(group, rows)
                yield from self._keep_deletes(group, deletes)
                deletes = deletes.slice(0, 0)
            else:
                file_slice = self._plan.groups.slices[partition][number]
                yield self._fill(file_slice, rows)
                self._release(file_slice)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        columns = self._plan.files.sort_columns
        if not columns or self._plan.operation is not Operation.BULK_INSERT:
            return rows
        return rows.sort_by([(name, "ascending") for name in columns])

    def _without_deleted(self, rows: pa.Table) -> pa.Table:
        is_kept = ~deleted_rows(rows, self._rule)
        return rows if is_kept.all() else rows.filter(pa.array(is_kept))

    def _change(
        self,
        file_slice: FileSlice,
        rows: pa.Table | None,
        *,
        more: pa.Table | None = None,
        leaving: pa.Table | None = None,
    ) -> WriteStat:
        """Write what comes to a slice that exists, as one file.

        Args:
            rows: updates of its records.
            more: new records that fill it up, in a copy-on-write table.
            leaving: rows whose keys are deleted, because their records go to another partition.
        """
        gone = None if leaving is None else whole(self._keys.record_keys(leaving))
        if self._plan.is_merge_on_read:
            check(rows is not None and more is None, "A log is not filled up")
            return self._append_log(file_slice.group, cast(pa.Table, rows), file_slice, gone)
        base = self._new_base_file(file_slice.group)
        time, parts = self._plan.instant_time, list[LogPart]()
        if rows is not None:
            written = self._with_meta_columns(rows, base.partition, base.name)
            parts.append(DataPart(time, written, self._plan.is_partial))
        if more is not None:
            written = self._with_meta_columns(self._complete(more), base.partition, base.name)
            parts.append(DataPart(time, written))
        if gone is not None:
            paths = repeated_text(base.partition, len(gone), is_encoded=False)
            parts.append(DeletePart(time, gone, paths))
        return self._merge(file_slice, base, parts)

    def _delete(self, file_slice: FileSlice, rows: pa.Table) -> Iterator[WriteStat]:
        record_keys = pc.unique(self._keys.record_keys(rows))
        deleted = len(record_keys)
        if self._plan.looks_up and file_slice.logs:
            # A key that was looked up is in some file, but its record may be gone.
            reader = self._reader_of(file_slice)
            live = reader.live_keys(file_slice, record_keys)
            standing = reader.tombstones(file_slice, record_keys).record_keys
            known = pa.chunked_array([*live.chunks, standing], pa.string())
            deleted = len(live)
            record_keys = record_keys.filter(pc.is_in(record_keys, value_set=known))
            if not len(record_keys):
                return
        paths = repeated_text(file_slice.group.partition, len(record_keys), is_encoded=False)
        if not self._plan.is_merge_on_read:
            part = DeletePart(self._plan.instant_time, record_keys, paths)
            yield self._merge(file_slice, self._new_base_file(file_slice.group), [part])
            return
        blocks = self._delete_blocks(record_keys, paths, None)
        yield self._put_log(file_slice.group, blocks, file_slice, deleted=deleted)

    def _append_log(
        self,
        group: FileGroupId,
        rows: pa.Table,
        file_slice: FileSlice | None,
        gone: pa.StringArray | None = None,
    ) -> WriteStat:
        """Write rows to a log, with deletes of the keys that are gone in any case."""
        is_deleted = deleted_rows(rows, self._rule)
        deletes = rows.filter(pa.array(is_deleted))
        records = rows if deletes.num_rows == 0 else rows.filter(pa.array(~is_deleted))
        updates, whole_records = self._by_need(records, file_slice)
        blocks = [
            self._data_blocks(group, whole_records, is_partial=False),
            self._data_blocks(group, updates, is_partial=True),
        ]
        if deletes.num_rows:
            paths = repeated_text(group.partition, deletes.num_rows, is_encoded=False)
            keys = whole(self._keys.record_keys(deletes))
            blocks.append(iter(self._delete_blocks(keys, paths, self._ordering(deletes))))
        deleted = deletes.num_rows
        if gone is not None and len(gone):
            paths = repeated_text(group.partition, len(gone), is_encoded=False)
            blocks.append(iter(self._delete_blocks(gone, paths, None)))
            deleted += len(gone)
        return self._put_log(
            group,
            chain.from_iterable(blocks),
            file_slice,
            written=records.num_rows,
            deleted=deleted,
        )

    def _by_need(self, rows: pa.Table, file_slice: FileSlice | None) -> tuple[pa.Table, pa.Table]:
        """Return the rows that complete older records, and those that need all columns."""
        if not self._plan.is_partial:
            return rows.slice(0, 0), rows
        if file_slice is None:
            return rows.slice(0, 0), self._complete(rows)
        keys = self._keys.record_keys(rows)
        live = self._reader_of(file_slice).live_keys(file_slice, keys)
        is_update = pc.is_in(keys, value_set=live)
        new = rows.filter(pc.invert(is_update))
        return rows.filter(is_update), self._complete(new)

    def _complete(self, rows: pa.Table) -> pa.Table:
        """Return rows with all columns of the table: a partial write may lack some."""
        return carried_over(rows, project_batch(rows, self._plan.columns.schema))

    def _data_blocks(
        self, group: FileGroupId, rows: pa.Table, *, is_partial: bool
    ) -> Iterator[bytes]:
        if not rows.num_rows:
            return iter(())
        plan = self._plan
        return encode_data_blocks(
            self._with_meta_columns(rows, group.partition, group.file_id),
            instant_time=plan.instant_time,
            avro_schema_json=plan.columns.block_avro_schema
            if is_partial
            else plan.columns.avro_schema,
            block_format=plan.files.log_block_format,
            is_partial=is_partial,
            compression=plan.files.compression,
        )

    def _delete_blocks(
        self, record_keys: pa.Array, paths: pa.Array, ordering: tuple[pa.Array, ...] | None
    ) -> list[bytes]:
        return encode_delete_blocks(
            record_keys,
            paths,
            ordering,
            instant_time=self._plan.instant_time,
            avro_schema_json=self._plan.columns.avro_schema,
        )

    def _ordering(self, rows: pa.Table) -> tuple[pa.Array, ...] | None:
        """Return the ordering values of rows; a partial write may lack the columns."""
        if not self._rule.merges_by_ordering:
            return None
        fields = [self._schema.field(name) for name in self._rule.ordering_fields]
        return tuple(
            whole(rows[field.name])
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in fields
        )

    def _put_log(
        self,
        group: FileGroupId,
        blocks: Iterable[bytes],
        file_slice: FileSlice | None,
        *,
        written: int = 0,
        deleted: int = 0,
    ) -> WriteStat:
        log = LogFile(*group, self._plan.instant_time, 1, self._token)
        with self._new_files.open(log, MarkerKind.CREATE) as sink:
            for block in blocks:
                sink.write(block)
            size_bytes = sink.tell()
        return WriteStat(
            file_id=group.file_id,
            path=log.path,
            partition_path=group.partition,
            prev_commit=self._plan.instant_time,
            num_writes=written,
            num_deletes=deleted,
            num_inserts=written if file_slice is None else 0,
            num_update_writes=0 if file_slice is None else written,
            total_write_bytes=size_bytes,
            file_size_in_bytes=size_bytes,
            log_version=log.version,
            log_offset=0,
            base_file="",
            log_files=(log.name,),
        )

    def _create(self, group: FileGroupId, rows: pa.Table) -> WriteStat:
        base = self._new_base_file(group)
        written = self._write_base_file(
            base,
            MarkerKind.CREATE,
            [self._with_meta_columns(self._complete(rows), base.partition, base.name)],
            row_count_max=rows.num_rows,
        )
        return _base_file_stat(base, written, MergeCounts(inserted=rows.num_rows))

    def _fill(self, file_slice: FileSlice, rows: pa.Table) -> WriteStat:
        base = self._new_base_file(file_slice.group)
        with _open(self._storage_of(file_slice), file_slice) as old:
            batches = (self._moved(batch, base) for batch in old.iter_batches())
            more = self._with_meta_columns(rows, base.partition, base.name)
            written = self._write_base_file(
                base,
                MarkerKind.MERGE,
                chain(batches, [more]),
                row_count_max=old.row_count + rows.num_rows,
            )
        counts = MergeCounts(inserted=rows.num_rows)
        return _base_file_stat(base, written, counts, before=file_slice)

    def _merge(self, file_slice: FileSlice, base: BaseFile, parts: Sequence[LogPart]) -> WriteStat:
        with open_merged(self._reader_of(file_slice), file_slice, written=parts) as found:
            written = self._write_base_file(
                base,
                MarkerKind.MERGE,
                (replace_file_name(batch, base.name) for batch in found.batches),
                row_count_max=found.row_count_max,
            )
        return _base_file_stat(base, written, found.batches.counts, before=file_slice)

    def _moved(self, batch: pa.RecordBatch, base: BaseFile) -> pa.RecordBatch:
        return replace_file_name(project_batch(batch, self._schema), base.name)

    def _new_base_file(self, group: FileGroupId) -> BaseFile:
        return BaseFile(*group, self._token, self._plan.instant_time)

    def _write_base_file(
        self,
        base: BaseFile,
        kind: MarkerKind,
        batches: Iterable[pa.RecordBatch | pa.Table],
        *,
        row_count_max: int,
    ) -> BaseFileStats:
        if self._stop is not None:
            batches = self._stop.watched(batches)
        with self._new_files.open(base, kind) as sink:
            return write_base_file(
                batches,
                self._schema,
                sink=sink,
                avro_schema_json=self._plan.columns.avro_schema,
                codec=self._plan.files.compression,
                bloom=new_bloom_filter(self._plan.config, self._plan.files, row_count_max),
            )

    def flush(self) -> None:
        """See to it that all files are there whose stats were given."""
        self._new_files.flush()

    def _announce(self, files: Sequence[Announced]) -> None:
        """Publish that files are about to be written, and their partitions if those are new."""
        announce_all(self._markers, [Marker(file.path, kind) for file, kind in files])
        known = {*self._plan.groups.known_partitions, *self._made_partitions}
        new = sorted({file.partition for file, _ in files} - known)
        self._storage.at_once(self._make_partition, new)
        self._made_partitions.update(new)

    def _make_partition(self, partition: str) -> None:
        with suppress(AlreadyExistsError):
            self._storage.put_if_absent(
                partition_metadata_path(partition),
                encode_partition_metadata(partition, self._plan.instant_time),
            )

    def _with_meta_columns(self, rows: pa.Table, partition: str, file_name: str) -> pa.Table:
        first_row = self._numbered_rows
        self._numbered_rows += rows.num_rows
        record_keys = (
            sequence_numbers(
                self._plan.instant_time,
                task=self._context.task,
                first_row=first_row,
                count=rows.num_rows,
            )
            if self._keys.generates_keys
            else self._keys.record_keys(rows)
        )
        return add_meta_columns(
            put_down(rows),
            instant_time=self._plan.instant_time,
            task=self._context.task,
            first_row=first_row,
            record_keys=record_keys,
            partition_path=partition,
            file_name=file_name,
        )


def _open(storage: Storage, file_slice: FileSlice) -> BaseFileReader:
    check(file_slice.base is not None, "A slice to merge with has a base file")
    return open_base_file(storage, cast(BaseFile, file_slice.base))


def _base_file_stat(
    base: BaseFile, written: BaseFileStats, counts: MergeCounts, before: FileSlice | None = None
) -> WriteStat:
    return WriteStat(
        file_id=base.file_id,
        path=base.path,
        partition_path=base.partition,
        prev_commit=NO_PREVIOUS_COMMIT if before is None else before.base_instant,
        prev_base_file=before.base.name if before is not None and before.base else None,
        num_writes=written.row_count,
        num_inserts=counts.inserted,
        num_update_writes=counts.updated,
        num_deletes=counts.deleted,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
    )
