"""One place for each key of the whole table, before its rows are written.

In a table whose index is one of the whole table, rows of one key may claim different partitions,
among themselves and other than the one where the record is. All of them have come to one task, by
the number of the slice that holds the key, or by the key itself if it is new. The task settles

1. which one of several rows of a key counts, whatever partitions they claim;
2. in a plan that leaves records where they are, whether the record is still there: files and
   indexes may have keys of records that a log has deleted. If it is, the row gets the record's own
   partition columns, because readers skip partitions by them. If not, it is an insert into the
   partition that it claims, as it is once the log was compacted, unless a delete hides it (INV-50);
   what it wins over is forgotten where it was;
3. in a plan that moves records, whether the record goes elsewhere. The row and the record are
   merged first: one that loses, because its ordering value is the smaller one, moves nothing. If it
   does, the merged record is an insert into its new partition, and its key is deleted in the slice
   that had it. Both files are this task's and of one commit.

What was settled goes through a buffer again, because the rows of one partition are written
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.fold import fold_logs
from headwater.arrow.keys import KeyGenerator, carried_over, put_down
from headwater.arrow.log_parts import DataPart
from headwater.arrow.merge import merge_batches
from headwater.arrow.meta_columns import (
    RECORD_KEY,
    add_meta_columns,
)
from headwater.arrow.ordering import Mask, is_all_null, is_not_less, to_numpy
from headwater.arrow.record_marks import deleted_rows, whole
from headwater.arrow.schema_evolution import project_batch
from headwater.operations.plan import INSERTS, WritePlan
from headwater.operations.routing.existing_partitions import with_existing_partitions
from headwater.operations.routing.partition_rows import rows_by_partition
from headwater.operations.routing.route import GroupKey
from headwater.operations.tasks.duplicates import without_existing
from headwater.operations.tasks.leaving import IS_LEAVING, mark_leaving, split_leaving
from headwater.operations.tasks.reduced import reduced
from headwater.seams.storage import Storage


class PartitionUpdate:
    """Settles the rows of one task."""

    def __init__(self, plan: WritePlan, storage: Storage, keys: KeyGenerator) -> None:
        self._plan = plan
        self._keys = keys
        self._reader = plan.slice_reader(storage)
        self._rule = self._reader.rule
        self._schema = self._reader.schema

    def settle(self, group: GroupKey, rows: pa.Table) -> Iterator[tuple[GroupKey, pa.Table]]:
        """Give the rows of one slice, or of some new keys, by the groups that they go to.

        Raises:
            InvalidInputError: a column is missing or does not fit.
            CorruptTableError: a file to merge with is missing or damaged.
        """
        rows, leaving = split_leaving(rows)
        if leaving is not None and leaving.num_rows:
            yield group, mark_leaving(leaving, is_leaving=True)
        if rows.num_rows:
            for to, some in self._settled(group, rows):
                is_marked = leaving is None or IS_LEAVING in some.column_names
                yield to, some if is_marked else mark_leaving(some, is_leaving=False)

    def _settled(self, group: GroupKey, rows: pa.Table) -> Iterator[tuple[GroupKey, pa.Table]]:
        if group.number >= 0:
            file_slice = self._plan.groups.slices[group.partition][group.number]
            rows = without_existing(self._plan, self._reader, self._keys, file_slice, rows)
        rows = reduced(rows, self._keys, self._rule)
        if group.number < 0:
            yield from self._new(rows)
        elif self._plan.moves_records:
            yield from self._moved(group, rows)
        else:
            yield from self._kept(group, rows)

    def _record_keys(self, rows: pa.Table) -> pa.StringArray:
        return whole(self._keys.record_keys(rows)).cast(pa.string())

    def _new(self, rows: pa.Table) -> Iterator[tuple[GroupKey, pa.Table]]:
        """Give new records by partition. A partial write may lack columns, moved records do not."""
        for partition, numbers in rows_by_partition(self._keys.partition_dictionary(rows)):
            some = rows.take(pa.array(numbers))
            complete = carried_over(some, project_batch(some, self._plan.columns.schema))
            yield GroupKey(partition, INSERTS), self._keys.with_keys(complete)

    def _kept(self, group: GroupKey, rows: pa.Table) -> Iterator[tuple[GroupKey, pa.Table]]:
        """Give rows of records that stay where they are, and those whose records are gone."""
        is_away = ~_is_in_partition(self._keys, rows, group.partition)
        if not is_away.any():
            yield group, rows
            return
        keys = self._record_keys(rows)
        fields = (field.column for field in self._keys.partition.fields)
        columns = [name for name in fields if name in rows.column_names]
        old = self._records(group, keys.filter(pa.array(is_away)), [RECORD_KEY, *columns])
        at = pc.index_in(keys, value_set=whole(old[RECORD_KEY]).cast(pa.string()))
        is_gone = pc.and_(pa.array(is_away), pc.is_null(at))
        is_kept = pc.invert(is_gone)
        staying, places = rows.filter(is_kept), at.filter(is_kept)
        for name in columns:
            own, known = whole(staying[name]), whole(old[name]).take(places)
            values = pc.if_else(pc.is_valid(places), known, own)
            number = staying.schema.get_field_index(name)
            staying = staying.set_column(number, staying.schema.field(number), values)
        coming, leaving = self._unhidden(group, rows.filter(is_gone))
        yield from self._new(coming)
        yield from _parted(group, staying, leaving)

    def _moved(self, group: GroupKey, rows: pa.Table) -> Iterator[tuple[GroupKey, pa.Table]]:
        is_away = ~_is_in_partition(self._keys, rows, group.partition)
        if not is_away.any():
            yield group, rows
            return
        away = rows.filter(pa.array(is_away))
        old = self._records(group, self._keys.record_keys(away), self._schema.names)
        is_there = pc.is_in(self._record_keys(away), value_set=whole(old[RECORD_KEY]))
        # A delete goes where the record is, and where it says if there is none.
        is_delete = pa.array(deleted_rows(away, self._rule))
        is_gone = pc.invert(is_there)
        coming, leaving = self._unhidden(group, away.filter(is_gone))
        yield from self._new(coming)
        merged = self._merged(old, away.filter(pc.and_not(is_there, is_delete)))
        moved = merged.filter(pa.array(~_is_in_partition(self._keys, merged, group.partition)))
        yield from self._new(moved.select(self._plan.columns.schema.names))
        keys = self._record_keys(rows)
        moved_keys = whole(moved[RECORD_KEY]).cast(pa.string())
        gone_keys = self._record_keys(away.filter(is_gone))
        is_moved = pc.is_in(keys, value_set=moved_keys)
        is_staying = pc.invert(pc.or_(is_moved, pc.is_in(keys, value_set=gone_keys)))
        leaving = pa.concat_tables([rows.filter(is_moved), leaving])
        yield from _parted(group, self._staying(group, rows.filter(is_staying)), leaving)

    def _staying(self, group: GroupKey, rows: pa.Table) -> pa.Table:
        """Return rows of records that stay, with the partition columns of where they are."""
        combined = rows.combine_chunks()
        home = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows.num_rows, np.int32)), pa.array([group.partition])
        )
        batches = [
            with_existing_partitions(self._keys, batch, home) for batch in combined.to_batches()
        ]
        return pa.Table.from_batches(batches, rows.schema)

    def _records(self, group: GroupKey, keys: pa.StringArray, columns: Sequence[str]) -> pa.Table:
        """Load some columns of the records of some keys from the slice of a group."""
        file_slice = self._plan.groups.slices[group.partition][group.number]
        schema = pa.schema([self._schema.field(name) for name in columns])
        with closing(self._reader.read(file_slice, columns, keys=keys)) as found:
            return pa.Table.from_batches(found, schema)

    def _unhidden(self, group: GroupKey, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return rows that no delete in a slice hides, and those of them that it did not hide.

        What the latter win over is to be forgotten in the slice.
        """
        file_slice = self._plan.groups.slices[group.partition][group.number]
        deletes = self._reader.tombstones(file_slice, self._record_keys(rows))
        if not len(deletes.record_keys):
            return rows, rows.slice(0, 0)
        at = pc.index_in(self._record_keys(rows), value_set=deletes.record_keys)
        limits = [column.take(at) for column in deletes.ordering]
        own = [
            whole(rows[name]).cast(column.type)
            for name, column in zip(self._rule.ordering_fields, limits, strict=True)
        ]
        is_met = to_numpy(at.is_valid())
        is_plain_delete = deleted_rows(rows, self._rule) & is_all_null(own, rows.num_rows)
        is_coming = is_not_less(own, limits, rows.num_rows) | is_plain_delete | ~is_met
        return rows.filter(pa.array(is_coming)), rows.filter(pa.array(is_coming & is_met))

    def _merged(self, old: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the records that rows become together with the older ones; keys are unique."""
        written = add_meta_columns(
            put_down(rows),
            instant_time=self._plan.instant_time,
            task=0,
            first_row=0,
            record_keys=self._keys.record_keys(rows),
            partition_path="",
            file_name="",
            encodes_constants=False,
        )
        part = DataPart(self._plan.instant_time, written, self._plan.is_partial)
        folded = fold_logs([part], self._rule, self._schema)
        merged = merge_batches(old.to_batches(), folded, self._rule, schema=self._schema)
        return pa.Table.from_batches(merged, self._schema)


def _is_in_partition(keys: KeyGenerator, rows: pa.Table, partition: str) -> Mask:
    paths = keys.partition_dictionary(rows)
    is_it = np.array([path == partition for path in paths.dictionary.to_pylist()], np.bool_)
    codes = paths.indices.to_numpy(zero_copy_only=False)
    found: Mask = is_it[codes]
    return found


def _parted(
    group: GroupKey, staying: pa.Table, leaving: pa.Table
) -> Iterator[tuple[GroupKey, pa.Table]]:
    """Give the rows that are written to a group, and those whose keys leave it."""
    for rows, is_leaving in ((staying, False), (leaving, True)):
        if rows.num_rows:
            yield group, mark_leaving(rows, is_leaving=is_leaving)
