"""Reading the images of changed records; what a change is, is told in `cdc`.

Records are joined by key, all of a file group at once. Of a group that got logs only the records
that the logs name are read; of one that was rewritten, the keys of all its rows, and the columns of
those that changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.convert import convert_array
from headwater.arrow.meta_columns import COMMIT_TIME, RECORD_KEY
from headwater.arrow.record_marks import whole
from headwater.errors import CorruptTableError, ErrorKind
from headwater.files.log_files import read_log_parts
from headwater.format.log.blocks import decode_rows
from headwater.format.log.frames import BlockType, iter_blocks
from headwater.model.files import FileSlice, LogFile
from headwater.queries.cdc import ChangeTask, change_schema
from headwater.queries.incremental import written_by
from headwater.queries.slice_query import SliceQuery, read_slice
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage
from headwater.slice.reader import Batches

_OP, _BEFORE, _AFTER, _KEY = "op", "before", "after", "record_key"
_INSERT, _UPDATE, _DELETE = "i", "u", "d"


def read_changes(query: SliceQuery, tasks: Sequence[ChangeTask]) -> Batches:
    """Give the changes of some tasks, write by write, as `cdc.change_schema` has them.

    Of the tasks of one write that stand together, deletes come first: a record that the write moved
    is deleted in one file group and inserted in another.

    Raises:
        CorruptTableError: a file is missing or damaged; the error names it.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    storage = open_storage(query.storage_uri, query.storage_options)
    # The images are joined by key, and the instant tells who wrote them.
    images = replace(query, columns=(RECORD_KEY, COMMIT_TIME, *query.schema.names), where=None)
    for _, of_write in groupby(tasks, key=lambda task: task.instant_time):
        yield from _deletes_first(storage, images, list(of_write))


def _deletes_first(
    storage: Storage, query: SliceQuery, tasks: Sequence[ChangeTask]
) -> Iterator[pa.RecordBatch]:
    """Give the changes of one write; held is only what it wrote to file groups that were there."""
    held: list[pa.RecordBatch] = []
    for task in tasks:
        if task.before is not None:
            for changes in _TaskReader(storage, query, task).read():
                is_delete = pc.equal(changes[_OP], _DELETE)
                deletes = changes.filter(is_delete)
                if deletes.num_rows:
                    yield deletes
                if deletes.num_rows < changes.num_rows:
                    held.append(changes.filter(pc.invert(is_delete)))
    yield from held
    for task in tasks:
        if task.before is None:
            yield from _TaskReader(storage, query, task).read()


class _TaskReader:
    """Reads the changes of one write to one file group."""

    def __init__(self, storage: Storage, query: SliceQuery, task: ChangeTask) -> None:
        self._storage = storage
        self._query = query
        self._task = task
        self._schema = change_schema(query.schema)

    def read(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        if task.cdc_logs:
            yield from self._read_cdc_logs()
        elif task.before is None or task.after is None:
            for rows in self._rows(task.before):
                yield from self._deletes(rows)
            for rows in self._rows(task.after):
                yield from self._writes(rows, rows.slice(0, 0))
        elif task.is_rewritten:
            yield from self._compare_rewritten()
        else:
            yield from self._compare(self._logged_keys())

    def _read_cdc_logs(self) -> Iterator[pa.RecordBatch]:
        for log in self._task.cdc_logs:
            for changes in self._cdc_rows(log):
                if _AFTER in changes.schema.names:
                    yield from self._whole_changes(changes)
                else:
                    yield from self._compare(pc.unique(changes[_KEY]))

    def _cdc_rows(self, log: LogFile) -> Iterator[pa.Table]:
        (data,) = self._storage.read_many([log.path])
        if data is None:
            raise CorruptTableError(
                f"The change log {self._storage.uri}/{log.path} of a completed instant does not "
                "exist. Restore it from a copy",
                kind=ErrorKind.CORRUPT_LOG,
                path=log.path,
            )
        for block in iter_blocks(data, path=log.path):
            if block.type is not BlockType.CDC_DATA:
                raise CorruptTableError(
                    f"The change log {log.path} has a block of type {block.type.name} at offset "
                    f"{block.offset}. Restore it from a copy",
                    kind=ErrorKind.CORRUPT_LOG,
                    path=log.path,
                    offset=block.offset,
                )
            yield decode_rows(block, path=log.path)

    def _whole_changes(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        images = [
            convert_array(whole(changes[name]), self._schema.field(name), (name,))
            for name in (_BEFORE, _AFTER)
        ]
        yield self._batch(whole(changes[_OP]), *images)

    def _logged_keys(self) -> pa.Array:
        parts = read_log_parts(self._storage, self._task.logs, columns={RECORD_KEY})
        return pc.unique(pa.chunked_array([part.record_keys for part in parts], pa.string()))

    def _compare(self, keys: pa.Array) -> Iterator[pa.RecordBatch]:
        """Compare the records of some keys."""
        old = self._table(self._rows(self._task.before, keys))
        new = self._table(self._rows(self._task.after, keys))
        is_gone = pc.invert(pc.is_in(old[RECORD_KEY], value_set=new[RECORD_KEY]))
        yield from self._deletes(old.filter(is_gone))
        # A record that the logs had deleted is back, with its older values, when the one written
        # now has a smaller ordering value than the base file's (format rule 7.1).
        is_back = pc.invert(pc.is_in(new[RECORD_KEY], value_set=old[RECORD_KEY]))
        is_written = pc.equal(new[COMMIT_TIME], self._task.instant_time)
        yield from self._writes(new.filter(pc.or_(is_written, is_back)), old)

    def _compare_rewritten(self) -> Iterator[pa.RecordBatch]:
        """Compare all records of the group."""
        written = replace(self._query, where=written_by(self._task.instant_time))
        new = self._table(self._rows(self._task.after, query=written))
        only_keys = replace(self._query, columns=(RECORD_KEY,))
        left = pa.Table.from_batches(
            self._rows(self._task.after, query=only_keys), only_keys.result_schema
        )
        left_keys, new_keys = whole(left[RECORD_KEY]), whole(new[RECORD_KEY])
        updated = []
        for rows in self._rows(self._task.before):
            is_left = pc.is_in(rows.column(RECORD_KEY), value_set=left_keys)
            yield from self._deletes(rows.filter(pc.invert(is_left)))
            updated.append(rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=new_keys)))
        yield from self._writes(new, self._table(iter(updated)))

    def _rows(
        self,
        file_slice: FileSlice | None,
        keys: pa.Array | None = None,
        query: SliceQuery | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if file_slice is not None:
            yield from read_slice(self._storage, query or self._query, file_slice, keys)

    def _table(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, self._query.result_schema).combine_chunks()

    def _deletes(self, rows: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if rows.num_rows:
            image = self._image(rows, None)
            nothing = pa.nulls(rows.num_rows, image.type)
            yield self._batch(pa.repeat(_DELETE, rows.num_rows), image, nothing)

    def _writes(
        self, new: pa.Table | pa.RecordBatch, old: pa.Table | pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Give inserts and updates: rows whose keys are not, or are, among older ones."""
        if new.num_rows == 0:
            return
        places = whole(pc.index_in(new.column(RECORD_KEY), value_set=whole(old[RECORD_KEY])))
        is_insert = pc.is_null(places)
        yield self._batch(
            pc.if_else(is_insert, _INSERT, _UPDATE),
            self._image(old.take(places), is_insert),
            self._image(new, None),
        )

    def _image(self, rows: pa.Table | pa.RecordBatch, is_absent: pa.Array | None) -> pa.StructArray:
        columns = [whole(rows.column(name)) for name in self._query.schema.names]
        fields = list(self._schema.field(_AFTER).type)
        return pa.StructArray.from_arrays(columns, fields=fields, mask=is_absent)

    def _batch(self, ops: pa.Array, before: pa.Array, after: pa.Array) -> pa.RecordBatch:
        times = pa.repeat(pa.scalar(self._task.completion_time, pa.string()), len(ops))
        return pa.RecordBatch.from_arrays([ops, times, before, after], schema=self._schema)
