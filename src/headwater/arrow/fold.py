"""The logs of one file slice folded into one survivor per key, before they meet the base file.

The rule of two records (format rules 7.1, 7.2, 7.4; M8):

- EVENT_TIME_ORDERING: the larger ordering value wins; of equal ones the later write. A null
  ordering value, or a missing ordering column, is smaller than every value.
- COMMIT_TIME_ORDERING: the later write wins, in the order of parts and of rows in a part.
- CUSTOM: the function makes one row of the two; it is called once per round, in which each key
  with records left brings its next one. Deletes are in the order of writes.
- A delete competes like a record. One without any ordering value is a commit-time delete: it wins
  over what it meets, and counts as the smallest ordering value afterwards.
- A record that brings only some columns, because its block or the table's partial update mode says
  so, takes the others from the older record if it wins, and fills that one's gaps if it loses.
  After a delete there is no older record. Ordering columns are taken from the winner as one value.
- The merged row has the meta columns of the record, among those that could contribute, that was
  written last: incremental reads find a row by the write that last touched it.

The row of a base file is the first event of its key, so that an answer does not depend on what was
compacted when (INV-49). Where one record wins as a whole, it is enough to compare the base row with
the survivor of the logs, unless a delete among them removed it (`Folded.is_reset`). Where a row is
made of several records, those of the key are folded again with the base row in front: `fold_onto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.arrow.align import align_table, plain_schema
from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.arrow.merge_rule import (
    CustomMerge,
    MergeMode,
    MergeRule,
    PartialUpdate,
    check_mergeable,
    resolve_custom,
)
from headwater.arrow.meta_columns import META_COLUMNS, OPERATION, PARTITION_PATH, RECORD_KEY
from headwater.arrow.ordering import (
    Mask,
    Positions,
    is_all_null,
    ordering_ranks,
    to_numpy,
)
from headwater.arrow.record_marks import deleted_rows, provided_rows, whole
from headwater.arrow.survivors import Survivors, find_survivors
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Deletes that hide what arrives later with a smaller or equal ordering value (INV-50)."""

    record_keys: pa.Array
    partition_paths: pa.Array
    ordering: tuple[pa.Array, ...]

    def filter(self, is_kept: pa.Array) -> Tombstones:
        return Tombstones(
            self.record_keys.filter(is_kept),
            self.partition_paths.filter(is_kept),
            tuple(column.filter(is_kept) for column in self.ordering),
        )

    def to_part(self, instant_time: InstantTime) -> DeletePart:
        """Return them as the content of a delete block, to stand in front of later parts."""
        return DeletePart(
            instant_time, self.record_keys, self.partition_paths, self.ordering or None
        )


def concat_tombstones(some: Sequence[Tombstones]) -> Tombstones:
    """Return the deletes of several slices of one table, at least one, as one."""
    return Tombstones(
        pa.concat_arrays([one.record_keys for one in some]),
        pa.concat_arrays([one.partition_paths for one in some]),
        tuple(map(pa.concat_arrays, zip(*(one.ordering for one in some), strict=True))),
    )


@dataclass(frozen=True, slots=True)
class Folded:
    """One survivor per key, keys in the order in which they first appear."""

    record_keys: pa.Array
    partition_paths: pa.Array
    """Null where the rows were read without their partition path."""
    is_tombstone: Mask
    is_commit_time: Mask
    """The survivor is a tombstone that removes whatever it meets."""
    is_reset: Mask
    """The logs hold a delete that removes whatever it meets, so a base row is gone in any case."""
    ordering: tuple[pa.Array, ...]
    """One array per ordering field; none unless ordering values decide."""
    rows: pa.Table
    """The survivors that are records, in the order of their keys. None of them where rows are made
    of several records: see `combined`."""
    row_numbers: Positions
    """Per key its row in `rows`; of no meaning for a tombstone."""
    combined: CombinedRecords | None
    """What rows are made of, if one is made of several records."""

    @property
    def key_count(self) -> int:
        return len(self.is_tombstone)

    @property
    def record_count(self) -> int:
        return int(np.count_nonzero(~self.is_tombstone))

    def rows_of(self, is_wanted: Mask) -> pa.Table:
        """Return the survivors of keys that have no base row; tombstones have no row."""
        is_wanted = is_wanted & ~self.is_tombstone
        if self.combined is not None:
            return self.combined.rows_of(np.nonzero(is_wanted)[0])
        return take_rows(self.rows, self.row_numbers[is_wanted])

    @property
    def resets(self) -> Tombstones:
        """The deletes that must stay in front of survivors that do not say themselves that a base
        row is gone."""
        is_silent = self.is_reset & ~(self.is_tombstone & self.is_commit_time)
        kept = np.nonzero(is_silent)[0]
        return Tombstones(self.record_keys.take(kept), self.partition_paths.take(kept), ())

    @property
    def tombstones(self) -> Tombstones:
        """All survivors that are deletes, as log compaction keeps them."""
        return self.tombstones_of(self.is_tombstone)

    def tombstones_of(self, is_kept: Mask) -> Tombstones:
        kept = np.nonzero(is_kept)[0]
        return Tombstones(
            self.record_keys.take(kept),
            self.partition_paths.take(kept),
            tuple(column.take(kept) for column in self.ordering),
        )


def fold_logs(parts: Sequence[LogPart], rule: MergeRule, schema: pa.Schema) -> Folded:
    """Fold the parts of one file slice, given in merge order.

    Args:
        schema: the columns of the survivors: those asked for, the record key, and the ordering
            fields if ordering values decide. Columns of the parts that it lacks are dropped, but
            delete marks are honoured all the same.

    Raises:
        InvalidInputError: the schema lacks a column that merging needs, or a part has a column
            that cannot become what the schema says.
        CorruptTableError: an ordering value of a delete does not fit the ordering column.
        UnsupportedError: the rule cannot be honoured; see `check_mergeable`. Also for a partial
            block in a table with merge mode CUSTOM.
    """
    check_merge_columns(schema, rule)
    if parts:
        check_mergeable(rule)
    events = _gather(parts, rule, plain_schema(schema))
    encoded = events.record_keys.dictionary_encode()
    keys = to_numpy(encoded.indices).astype(np.int64)
    survivors = find_survivors(
        keys,
        ordering_ranks(events.ordering, len(events.is_delete)),
        events.is_delete,
        events.is_commit_time,
    )
    winners = survivors.winners
    is_tombstone = events.is_delete[winners]
    rows, combined = events.rows, None
    if events.rows.num_rows and (rule.combines_records or not events.is_whole.all()):
        combined = CombinedRecords(events, survivors, rule)
        rows = rows.slice(0, 0)
    else:
        rows = take_rows(rows, events.row_numbers[winners[~is_tombstone]])
    return Folded(
        record_keys=whole(encoded.dictionary),
        partition_paths=events.partition_paths.take(winners),
        is_tombstone=is_tombstone,
        is_commit_time=events.is_commit_time[winners],
        is_reset=_any_of_key(events.is_commit_time, keys, len(winners)),
        ordering=tuple(column.take(winners) for column in events.ordering),
        rows=rows,
        row_numbers=np.cumsum(~is_tombstone) - 1,
        combined=combined,
    )


def fold_columns(
    rows: pa.Table,
    row_numbers: Positions,
    provided: Mapping[str, Mask],
    is_whole: Mask,
    survivors: Survivors,
    keys: Positions,
    *,
    unit: Sequence[str],
) -> pa.Table:
    """Return the rows of keys won by records. A column that nobody brought is null.

    Args:
        row_numbers: per event its row; of no meaning for deletes without one.
        provided: per column and event whether it brings the column; all do where it is left out.
        is_whole: per event whether it brings all columns of its table, read or not.
        unit: columns that come from the winner together.
    """
    winners = survivors.winners[keys]
    if not provided and is_whole.all():
        return take_rows(rows, row_numbers[winners])
    newest = survivors.newest(keys, is_whole)
    columns: list[pa.Array] = []
    for name in rows.column_names:
        picked = winners
        if _is_meta(name):
            picked = newest
        elif name in provided and name not in unit:
            picked = survivors.pick(keys, provided[name])
        columns.append(whole(rows[name]).take(row_numbers[picked]))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def fold_custom(
    rows: pa.Table, firsts: Positions, counts: Positions, merge: CustomMerge
) -> pa.Table:
    """Return one row per run of consecutive rows, made by a custom function.

    Args:
        firsts, counts: where the rows of each run begin, and how many there are.
    """
    # Longest runs first, so that the runs still in a round are the first ones.
    longest = np.argsort(-counts, kind="stable")
    firsts, counts = firsts[longest], counts[longest]
    merged = take_rows(rows, firsts)
    finished: list[pa.Table] = []
    for round_number in range(1, int(counts.max(initial=1))):
        left = int(np.count_nonzero(counts > round_number))
        finished.append(merged.slice(left))
        new = take_rows(rows, firsts[:left] + round_number)
        merged = call_custom(merge, merged.slice(0, left), new)
    in_order = pa.concat_tables([merged, *reversed(finished)])
    return take_rows(in_order, np.argsort(longest, kind="stable"))


def call_custom(merge: CustomMerge, old: pa.Table, new: pa.Table) -> pa.Table:
    """Return what a custom function makes of two aligned tables.

    Raises:
        InvalidInputError: the result has other columns, or not as many rows.
    """
    merged = merge(old, new)
    if not merged.schema.equals(old.schema) or merged.num_rows != old.num_rows:
        raise InvalidInputError(
            f"The merge function {getattr(merge, '__qualname__', merge)} was given "
            f"{old.num_rows} rows with columns {old.schema.names} and returned {merged.num_rows} "
            f"with {merged.schema.names}. It must keep the number of rows, and the names and types "
            "of the columns",
            kind=ErrorKind.INVALID_OPTION,
        )
    return merged


def check_merge_columns(schema: pa.Schema, rule: MergeRule) -> None:
    """Raise unless the columns that decide a merge are there.

    Raises:
        InvalidInputError: naming those that are not.
    """
    missing = [
        name for name in (RECORD_KEY, *ordering_columns_of(rule)) if name not in schema.names
    ]
    if missing:
        raise InvalidInputError(
            f"Merging needs the columns {', '.join(missing)}, but only "
            f"{', '.join(schema.names)} were read. Read them too and drop them after the merge"
        )


def ordering_columns_of(rule: MergeRule) -> tuple[str, ...]:
    """Return the columns that decide between records of different writes."""
    return rule.ordering_fields if rule.merges_by_ordering else ()


def take_rows(rows: pa.Table, positions: Positions) -> pa.Table:
    """Return the rows at the positions, or the table itself if these are all of them in order."""
    if len(positions) == rows.num_rows and np.array_equal(positions, np.arange(len(positions))):
        return rows
    return rows.take(positions).combine_chunks()


@dataclass(frozen=True, slots=True)
class _Events:
    """All records and deletes of the parts in the order of their arrival."""

    record_keys: pa.Array
    partition_paths: pa.Array
    ordering: tuple[pa.Array, ...]
    is_delete: Mask
    is_commit_time: Mask
    is_whole: Mask
    row_numbers: Positions
    rows: pa.Table
    provided: Mapping[str, Mask]


@dataclass(frozen=True, slots=True)
class FoldedOnto:
    """What base rows became, each by itself."""

    is_deleted: Mask
    is_changed: Mask
    """Some record had a say in what the row is now."""
    rows: pa.Table
    """The rows that changed."""


@dataclass(frozen=True, slots=True)
class CombinedRecords:
    """All events of all keys, for rows that are made of several records."""

    events: _Events
    survivors: Survivors
    rule: MergeRule

    def rows_of(self, keys: Positions) -> pa.Table:
        """Return the rows of keys that records survived of, and that no base row has."""
        events = self.events
        if self.rule.mode is MergeMode.CUSTOM:
            in_order = take_rows(events.rows, events.row_numbers[self.survivors.arrivals].clip(0))
            return _fold_runs(in_order, self.survivors, keys, self.rule)
        return fold_columns(
            events.rows,
            events.row_numbers,
            events.provided,
            events.is_whole,
            self.survivors,
            keys,
            unit=ordering_columns_of(self.rule),
        )

    def fold_onto(
        self, keys: Positions, base: pa.Table, base_ordering: Sequence[pa.Array]
    ) -> FoldedOnto:
        """Fold the events of keys again, behind a base row for each.

        Args:
            base: with the columns of the result.
            base_ordering: of the base rows, with the types of the events' own.
        """
        rule, events, count = self.rule, self.events, len(keys)
        places, owners = self.survivors.events_of(keys)
        rows = take_rows(align_table(events.rows, base.schema), events.row_numbers[places].clip(0))
        rows = pa.concat_tables([base, rows]).combine_chunks()
        ordering = [
            pa.concat_arrays([old, new.take(places)])
            for old, new in zip(base_ordering, events.ordering, strict=True)
        ]
        is_base = np.arange(rows.num_rows) < count
        is_delete = _behind(is_base, False, events.is_delete[places])
        survivors = find_survivors(
            np.concatenate([np.arange(count), owners]),
            ordering_ranks(ordering, rows.num_rows),
            is_delete,
            _behind(is_base, False, events.is_commit_time[places]),
        )
        is_deleted = is_delete[survivors.winners]
        records = np.nonzero(~is_deleted)[0]
        is_whole = _behind(is_base, rule.partial is PartialUpdate.NONE, events.is_whole[places])
        is_changed = ~is_deleted
        is_changed[records] = ~is_base[survivors.newest(records, is_whole)]
        changed = np.nonzero(is_changed)[0]
        if rule.mode is MergeMode.CUSTOM:
            in_order = take_rows(rows, survivors.arrivals)
            return FoldedOnto(
                is_deleted, is_changed, _fold_runs(in_order, survivors, changed, rule)
            )
        provided = {
            name: _behind(is_base, True, mask[places]) for name, mask in events.provided.items()
        }
        for name in base.column_names:
            old = None if _is_meta(name) else provided_rows(base[name], rule)
            if old is not None:
                mask = provided.setdefault(name, np.ones(rows.num_rows, np.bool_))
                mask[:count] = old
        merged = fold_columns(
            rows,
            np.arange(rows.num_rows),
            provided,
            is_whole,
            survivors,
            changed,
            unit=ordering_columns_of(rule),
        )
        return FoldedOnto(is_deleted, is_changed, merged)


def _behind(is_base: Mask, of_base: bool, of_events: Mask) -> Mask:
    """Return a mask over base rows, all of which say the same, and the events behind them."""
    result = np.full(len(is_base), of_base)
    result[~is_base] = of_events
    return result


def _fold_runs(
    in_order: pa.Table, survivors: Survivors, keys: Positions, rule: MergeRule
) -> pa.Table:
    """Return the rows that the table's own function makes of the runs of keys."""
    if not len(keys):
        return in_order.slice(0, 0)
    # Every event advances, so a run is whatever follows the last delete of its key.
    starts, ends = survivors.run_starts[keys], survivors.run_ends[keys]
    return fold_custom(in_order, starts, ends - starts + 1, resolve_custom(rule.custom))


def _is_meta(name: str) -> bool:
    return name in META_COLUMNS or name == OPERATION


def _gather(parts: Sequence[LogPart], rule: MergeRule, schema: pa.Schema) -> _Events:
    fields = [schema.field(name) for name in ordering_columns_of(rule)]
    record_keys: list[pa.Array] = []
    paths: list[pa.Array] = []
    ordering: list[list[pa.Array]] = [[] for _ in fields]
    is_delete: list[Mask] = []
    is_whole: list[Mask] = []
    tables: list[pa.Table] = []
    row_numbers: list[Positions] = []
    provided: dict[str, list[tuple[int, Mask]]] = {}
    event_count = row_count = 0
    for part in parts:
        if isinstance(part, DeletePart):
            count = len(part.record_keys)
            columns = dict(zip((field.name for field in fields), part.ordering or (), strict=False))
            record_keys.append(part.record_keys)
            paths.append(part.partition_paths)
            is_delete.append(np.ones(count, np.bool_))
            row_numbers.append(np.full(count, -1, np.int64))
            is_whole.append(np.ones(count, np.bool_))
        else:
            count = part.rows.num_rows
            rows = align_table(part.rows, schema)
            columns = {field.name: rows[field.name] for field in fields}
            record_keys.append(whole(rows[RECORD_KEY]))
            paths.append(_partition_paths(part.rows))
            is_delete.append(deleted_rows(part.rows, rule))
            row_numbers.append(np.arange(row_count, row_count + count))
            tables.append(rows)
            row_count += count
            is_table_partial = rule.partial is not PartialUpdate.NONE
            is_whole.append(np.full(count, not (part.is_partial or is_table_partial)))
            for name, mask in _provided(part, rows, rule):
                provided.setdefault(name, []).append((event_count, mask))
        for collected, field in zip(ordering, fields, strict=True):
            collected.append(_ordering_column(columns.get(field.name), field, count))
        event_count += count
    order = tuple(
        _concat(collected, field.type) for collected, field in zip(ordering, fields, strict=True)
    )
    deletes = np.concatenate([np.zeros(0, np.bool_), *is_delete])
    # Without ordering values to compare, "removes whatever came before it" is just the later write.
    is_commit_time = deletes & is_all_null(order, event_count)
    return _Events(
        record_keys=_concat(record_keys, pa.string()),
        partition_paths=_concat(paths, pa.string()),
        ordering=order,
        is_delete=deletes,
        is_commit_time=is_commit_time,
        is_whole=np.concatenate([np.zeros(0, np.bool_), *is_whole]),
        row_numbers=np.concatenate([np.zeros(0, np.int64), *row_numbers]),
        rows=pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table(),
        provided={name: _laid_out(masks, event_count) for name, masks in provided.items()},
    )


def _provided(part: DataPart, rows: pa.Table, rule: MergeRule) -> Iterable[tuple[str, Mask]]:
    """Give the columns that not every row of the part brings."""
    for name in rows.column_names:
        if _is_meta(name):
            continue
        if part.is_partial and name not in part.rows.column_names:
            if rule.mode is MergeMode.CUSTOM:
                raise UnsupportedError(
                    f"The log block of instant {part.instant_time} holds only some columns; a "
                    f"table merged by {rule.custom} cannot have such blocks",
                    kind=ErrorKind.UNSUPPORTED_OPTION,
                )
            yield name, np.zeros(rows.num_rows, np.bool_)
        else:
            mask = provided_rows(rows[name], rule)
            if mask is not None:
                yield name, mask


def _laid_out(masks: Sequence[tuple[int, Mask]], event_count: int) -> Mask:
    result = np.ones(event_count, np.bool_)
    for start, mask in masks:
        result[start : start + len(mask)] = mask
    return result


def _partition_paths(rows: pa.Table) -> pa.Array:
    if PARTITION_PATH not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.string())
    return whole(rows[PARTITION_PATH].cast(pa.string()))


def _ordering_column(
    column: pa.Array | pa.ChunkedArray | None, field: pa.Field, count: int
) -> pa.Array:
    if column is None:
        return pa.nulls(count, field.type)
    try:
        return whole(column.cast(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptTableError(
            f"A delete has an ordering value of type {column.type}, which does not fit into column "
            f"{field.name} of type {field.type}: {error}"
        ) from error


def _concat(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return (
        pa.concat_arrays([array.cast(kind) for array in arrays]) if arrays else pa.array([], kind)
    )


def _any_of_key(is_marked: Mask, keys: Positions, key_count: int) -> Mask:
    result = np.zeros(key_count, np.bool_)
    result[keys[is_marked]] = True
    return result
