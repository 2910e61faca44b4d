"""The survivors of the logs merged with the base file, batch by batch.

One function serves snapshot reads, copy-on-write upserts (the incoming batch is one `DataPart`) and
compaction. Base rows keep their order; updated rows take their place with `keep_order`, else they
follow at the end; new rows always do. The rows are the same for every division into batches. Base
files may be read with dictionaries: the schema says which columns have them.

If a base file holds a key twice, each of its rows is merged by itself.

Compaction and answers (INV-49). Compacting any prefix of the parts into the base first, and putting
the tombstones it kept (`keep_tombstones`, INV-50) in front of the other parts, gives the same rows:
a base row is the first event of its key, see `fold.py`. Apache Hudi lets logs meet each other
before they meet the base file, so its answers to late records do depend on when it compacted.

Only ordered tombstones of EVENT_TIME_ORDERING are kept: every other delete counts as the smallest
value, or as older than whatever comes, so it hides nothing that arrives later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.align import align_batch, align_table, plain_schema
from headwater.arrow.fold import (
    Folded,
    FoldedOnto,
    Tombstones,
    check_merge_columns,
    ordering_columns_of,
    take_rows,
)
from headwater.arrow.merge_rule import MergeRule
from headwater.arrow.meta_columns import RECORD_KEY
from headwater.arrow.ordering import Mask, Positions, is_not_less, to_numpy
from headwater.errors import CorruptTableError, check

CHANGED_BYTES = 32 * 1024 * 1024
"""How much of changed rows is kept before it is given out: a few at a time would be slow."""
MERGE_BATCH_ROWS = 262_144
"""Rows per batch of a base file: large enough for kernels, small enough for a task's memory."""
ROWS_PER_KEY = 8
"""Base rows that are looked up together, for each key of the logs. The hash table of these keys is
built for each look-up, which takes as long as to look three rows up for each of them."""
GATHERED_BYTES = 64 * 1024 * 1024
"""How much of a base file is held for that at the most."""


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What a merge did to the base file."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class MergedBatches(Iterator[pa.RecordBatch]):
    """The merged rows, and when all of them have been taken, what was done."""

    def __init__(self, merge: _Merge, base_batches: Iterable[pa.RecordBatch]) -> None:
        self._merge = merge
        self._batches = merge.run(base_batches)
        self._is_done = False

    def __next__(self) -> pa.RecordBatch:
        for batch in self._batches:
            return batch
        self._is_done = True
        raise StopIteration

    @property
    def counts(self) -> MergeCounts:
        check(self._is_done, "Merge counts were asked for before the last batch was taken")
        return self._merge.counts()

    @property
    def tombstones(self) -> Tombstones:
        """The deletes that compaction must keep; empty unless `keep_tombstones`."""
        check(self._is_done, "Tombstones were asked for before the last batch was taken")
        return self._merge.tombstones()


def merge_batches(
    base_batches: Iterable[pa.RecordBatch],
    folded: Folded,
    rule: MergeRule,
    *,
    schema: pa.Schema,
    keep_order: bool = False,
    keep_tombstones: bool = False,
) -> MergedBatches:
    """Merge the survivors of the logs with the rows of a base file.

    Args:
        base_batches: about `MERGE_BATCH_ROWS` rows each, with the columns of `schema`, the record
            key, and the ordering fields if ordering values decide.
        folded: made by the same rule, with at least the columns of `schema`.
        schema: the columns of the result. Partial updates and custom functions need all columns
            that they look at.

    Raises:
        InvalidInputError: a column that merging needs is missing, or columns cannot become what the
            schema says; while batches are taken.
        CorruptTableError: ordering values of the base file cannot be compared; likewise.
        UnsupportedError: the rule cannot be honoured.
    """
    return MergedBatches(
        _Merge(folded, rule, schema, keep_order=keep_order, keep_tombstones=keep_tombstones),
        base_batches,
    )


@dataclass(frozen=True, slots=True)
class _Matches:
    """Base rows of one batch whose keys have survivors."""

    base_rows: Positions
    survivors: Positions
    ordering: list[pa.Array]
    """Of the base rows, as the types they have in the survivors."""


class _Merge:
    """One run over a base file; it remembers which survivors it has met."""

    def __init__(
        self,
        folded: Folded,
        rule: MergeRule,
        schema: pa.Schema,
        *,
        keep_order: bool,
        keep_tombstones: bool,
    ) -> None:
        self._folded = folded
        self._rule = rule
        self._schema = schema
        self._plain = plain_schema(schema)
        self._keep_order = keep_order
        self._keep_tombstones = keep_tombstones
        self._rows = align_table(folded.rows, self._plain)
        self._is_met = np.zeros(folded.key_count, np.bool_)
        self._is_beaten = np.zeros(folded.key_count, np.bool_)
        self._updated = self._deleted = 0
        self._changed: list[pa.Table] = []

    def run(self, base_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch, found in self._looked_up(base_batches):
            merged = self._merge_batch(batch, found)
            if merged.num_rows:
                yield merged
            if sum(rows.nbytes for rows in self._changed) >= CHANGED_BYTES:
                yield from self._pieces(self._changed)
                self._changed.clear()
        new = align_table(self._folded.rows_of(~self._is_met), self._plain)
        yield from self._pieces([*self._changed, new])
        self._changed.clear()

    def _looked_up(
        self, base_batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Give each batch with the survivors of its keys, null where there are none."""
        survivors = self._folded.record_keys
        for group in _gathered(base_batches, len(survivors) * ROWS_PER_KEY):
            for batch in group:
                check_merge_columns(batch.schema, self._rule)
            keys = [batch.column(RECORD_KEY).cast(survivors.type) for batch in group]
            found = pc.index_in(pa.chunked_array(keys), value_set=survivors).combine_chunks()
            start = 0
            while group:  # Whoever takes them lets go of them, one by one.
                batch = group.pop(0)
                yield batch, found.slice(start, batch.num_rows)
                start += batch.num_rows

    def _pieces(self, parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        rows = pa.concat_tables(parts)
        for start in range(0, rows.num_rows, MERGE_BATCH_ROWS):
            piece = rows.slice(start, MERGE_BATCH_ROWS).combine_chunks()
            for batch in piece.to_batches():
                yield align_batch(batch, self._schema)

    def counts(self) -> MergeCounts:
        return MergeCounts(int(np.count_nonzero(self._is_new())), self._updated, self._deleted)

    def tombstones(self) -> Tombstones:
        is_kept = self._folded.is_tombstone & ~self._folded.is_commit_time & ~self._is_beaten
        return self._folded.tombstones_of(is_kept & self._keep_tombstones)

    def _is_new(self) -> Mask:
        return ~self._folded.is_tombstone & ~self._is_met

    def _merge_batch(self, batch: pa.RecordBatch, found: pa.Array) -> pa.RecordBatch:
        matches = self._match(batch, found)
        if not len(matches.base_rows):
            return align_batch(batch, self._schema)
        self._is_met[matches.survivors] = True
        outcome = self._outcome(batch, matches)
        self._is_beaten[matches.survivors[~outcome.is_deleted]] = True
        changed_rows, changed = matches.base_rows[outcome.is_changed], outcome.rows
        self._deleted += int(np.count_nonzero(outcome.is_deleted))
        self._updated += len(changed_rows)
        is_kept = np.ones(batch.num_rows, np.bool_)
        is_kept[matches.base_rows[outcome.is_deleted]] = False
        if self._keep_order:
            base = align_batch(batch, self._schema)
            return _with_changes(base, is_kept, changed_rows, changed)
        is_kept[changed_rows] = False
        self._changed.append(changed)
        return align_batch(self._kept_rows(batch, is_kept), self._schema)

    def _kept_rows(self, batch: pa.RecordBatch, is_kept: Mask) -> pa.RecordBatch:
        """Return the rows that nothing changed, as they are stored: fewer rows, and dictionaries,
        are aligned in less time. Columns that only the merge needed are not copied."""
        names = [name for name in self._schema.names if name in batch.schema.names]
        return batch if is_kept.all() else batch.select(names).filter(pa.array(is_kept))

    def _match(self, batch: pa.RecordBatch, found: pa.Array) -> _Matches:
        base_rows = np.nonzero(to_numpy(found.is_valid()))[0]
        survivors = to_numpy(found.drop_null()).astype(np.int64)
        return _Matches(base_rows, survivors, self._ordering(batch, base_rows))

    def _ordering(self, batch: pa.RecordBatch, rows: Positions) -> list[pa.Array]:
        values = []
        for name, column in zip(
            ordering_columns_of(self._rule), self._folded.ordering, strict=True
        ):
            try:
                values.append(batch.column(name).take(rows).cast(column.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise CorruptTableError(
                    f"Ordering column {name} of a base file has values of type "
                    f"{batch.column(name).type} that cannot be compared as {column.type}: {error}"
                ) from error
        return values

    def _outcome(self, batch: pa.RecordBatch, matches: _Matches) -> FoldedOnto:
        folded, survivors = self._folded, matches.survivors
        if folded.combined is not None:
            old = align_table(pa.Table.from_batches([batch.take(matches.base_rows)]), self._plain)
            return folded.combined.fold_onto(survivors, old, matches.ordering)
        new = [column.take(survivors) for column in folded.ordering]
        is_winning = is_not_less(new, matches.ordering, len(survivors)) | folded.is_reset[survivors]
        is_deleted = is_winning & folded.is_tombstone[survivors]
        is_changed = is_winning & ~is_deleted
        rows = take_rows(self._rows, folded.row_numbers[survivors[is_changed]])
        return FoldedOnto(is_deleted, is_changed, rows)


def _gathered(batches: Iterable[pa.RecordBatch], row_count: int) -> Iterator[list[pa.RecordBatch]]:
    """Give batches that follow each other: so many rows together, unless they are large."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if (
            sum(each.num_rows for each in gathered) >= row_count
            or sum(each.nbytes for each in gathered) >= GATHERED_BYTES
        ):
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _with_changes(
    base: pa.RecordBatch, is_kept: Mask, changed_rows: Positions, changed: pa.Table
) -> pa.RecordBatch:
    """Return the kept rows of the batch in their order, with changed rows in place."""
    if not len(changed_rows):
        return base.filter(pa.array(is_kept))
    places = np.arange(base.num_rows)
    places[changed_rows] = base.num_rows + np.arange(len(changed_rows))
    aligned = align_table(changed, base.schema)
    columns = [
        pa.concat_arrays([column, *aligned[name].chunks]).take(places[is_kept])
        for name, column in zip(base.schema.names, base.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=base.schema)
