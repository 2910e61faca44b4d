"""Merging against a twin that takes one event after the other, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwater.arrow.fold import fold_logs
from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.arrow.merge import MergeCounts, MergedBatches, merge_batches
from headwater.arrow.merge_rule import MergeMode, MergeRule, PartialUpdate
from headwater.arrow.meta_columns import META_COLUMNS, META_FIELDS
from headwater.arrow.reduce import reduce_batch
from headwater.errors import (
    CorruptTableError,
    InternalError,
    InvalidInputError,
    UnsupportedError,
)
from headwater.model.instant import InstantTime

KEY = "_hoodie_record_key"
MARKER = "unavailable"
T0 = InstantTime("20260101000000000")
DATA = pa.schema(
    [
        pa.field("ts", pa.int64()),
        pa.field("ts2", pa.string()),
        pa.field("a", pa.int64()),
        pa.field("b", pa.string()),
        pa.field("c", pa.list_(pa.int32())),
        pa.field("op", pa.string()),
        pa.field("_hoodie_is_deleted", pa.bool_()),
    ]
)
SCHEMA = pa.schema([*META_FIELDS, pa.field("_hoodie_operation", pa.string()), *DATA])
META = (*META_COLUMNS, "_hoodie_operation")

Row = dict[str, Any]


def sum_a(old: pa.Table, new: pa.Table) -> pa.Table:
    """Keep the new row, with the sum of both in column `a`; a null counts as 0."""
    total = pc.add(pc.fill_null(old["a"], 0), pc.fill_null(new["a"], 0))
    return new.set_column(new.schema.get_field_index("a"), new.schema.field("a"), total)


SUM_A = f"{__name__}:sum_a"


# The twin


@dataclass(frozen=True)
class Delete:
    ordering: tuple[Any, ...] | None  # None for a commit-time delete.


@dataclass(frozen=True)
class Record:
    row: Row
    brought: frozenset[str]
    is_whole: bool


State = Record | Delete


def ordering_key(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((0,) if value is None else (1, value) for value in values)


def ordering_of(state: State, rule: MergeRule) -> tuple[Any, ...]:
    if not rule.merges_by_ordering:
        return ()
    if isinstance(state, Delete):
        return ordering_key(state.ordering or [None] * len(rule.ordering_fields))
    return ordering_key([state.row[name] for name in rule.ordering_fields])


def is_commit_time(state: State) -> bool:
    return isinstance(state, Delete) and state.ordering is None


def laid_over(winner: Record, loser: Record, rule: MergeRule) -> Row:
    unit = rule.ordering_fields if rule.merges_by_ordering else ()
    return {
        name: value if name in winner.brought or name in (*META, *unit) else loser.row[name]
        for name, value in winner.row.items()
    }


def with_meta(row: Row, source: Row) -> Row:
    return {**row, **{name: source[name] for name in META}}


def meet(old: State | None, new: State, rule: MergeRule) -> State:
    if old is None:
        return new
    advances = is_commit_time(new) or ordering_of(new, rule) >= ordering_of(old, rule)
    if isinstance(new, Delete):
        return new if advances else old
    if isinstance(old, Delete):
        return new if advances else old
    if rule.mode is MergeMode.CUSTOM:
        total = (old.row["a"] or 0) + (new.row["a"] or 0)
        return replace(new, row={**new.row, "a": total})
    brought, is_whole = old.brought | new.brought, old.is_whole or new.is_whole
    if advances:
        return Record(laid_over(new, old, rule), brought, is_whole)
    filled = {
        name: new.row[name] if name in new.brought - old.brought else value
        for name, value in old.row.items()
    }
    unit = rule.ordering_fields if rule.merges_by_ordering else ()
    filled |= {name: old.row[name] for name in (*META, *unit)}
    if not old.is_whole:
        filled = with_meta(filled, new.row)
    return Record(filled, brought, is_whole)


def brought_by(row: Row, names: Sequence[str], rule: MergeRule) -> frozenset[str]:
    if rule.partial is PartialUpdate.IGNORE_DEFAULTS:
        return frozenset(name for name in names if row[name] is not None)
    if rule.partial is PartialUpdate.FILL_UNAVAILABLE:
        return frozenset(name for name in names if row[name] != MARKER)
    return frozenset(names)


def is_delete(row: Row, rule: MergeRule) -> bool:
    return (
        row.get("_hoodie_is_deleted") is True
        or row.get("_hoodie_operation") == "D"
        or (rule.delete_field is not None and row.get(rule.delete_field) == rule.delete_marker)
    )


def delete_of(values: Sequence[Any], rule: MergeRule) -> Delete:
    is_ordered = rule.merges_by_ordering and any(value is not None for value in values)
    return Delete(tuple(values) if is_ordered else None)


def events_of(parts: Sequence[LogPart], rule: MergeRule) -> list[tuple[str, State]]:
    events: list[tuple[str, State]] = []
    for part in parts:
        if isinstance(part, DeletePart):
            columns = [column.to_pylist() for column in part.ordering or ()]
            for number, key in enumerate(part.record_keys.to_pylist()):
                events.append((key, delete_of([column[number] for column in columns], rule)))
            continue
        names = part.rows.column_names
        for given_row in part.rows.to_pylist():
            row = {name: given_row.get(name) for name in SCHEMA.names}
            if is_delete(given_row, rule):
                delete = delete_of([row[name] for name in rule.ordering_fields], rule)
                events.append((row[KEY], delete))
                continue
            brought = brought_by(row, names if part.is_partial else SCHEMA.names, rule)
            is_whole = not part.is_partial and rule.partial is PartialUpdate.NONE
            events.append((row[KEY], Record(row, brought, is_whole)))
    return events


def twin_merge(
    base: Sequence[Row], parts: Sequence[LogPart], rule: MergeRule, *, keep_order: bool
) -> tuple[list[Row], MergeCounts]:
    events: dict[str, list[State]] = {}
    for key, event in events_of(parts, rule):
        events.setdefault(key, []).append(event)
    kept: list[Row] = []
    changed: list[Row] = []
    updated = deleted = 0
    for row in base:
        is_whole = rule.partial is PartialUpdate.NONE
        first = Record(row, brought_by(row, SCHEMA.names, rule), is_whole)
        state: State = first
        for event in events.get(row[KEY], []):
            state = meet(state, event, rule)
        if isinstance(state, Delete):
            deleted += 1
        elif state.row["_hoodie_commit_time"] == row["_hoodie_commit_time"]:
            kept.append(row)
        else:
            updated += 1
            (kept if keep_order else changed).append(state.row)
    new: list[Row] = []
    for key in events.keys() - {row[KEY] for row in base}:
        alone: State | None = None
        for event in events[key]:
            alone = meet(alone, event, rule)
        if isinstance(alone, Record):
            new.append(alone.row)
    new.sort(key=lambda row: list(events).index(row[KEY]))
    return kept + changed + new, MergeCounts(len(new), updated, deleted)


# The kernel, in the twin's terms


def batches_of(rows: Sequence[Row], size: int) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_pylist(list(rows[start : start + size]), schema=SCHEMA)
        for start in range(0, len(rows), size)
    ]


def merge(
    base: Sequence[Row],
    parts: Sequence[LogPart],
    rule: MergeRule,
    *,
    size: int = 3,
    keep_order: bool = False,
) -> tuple[list[Row], MergedBatches]:
    merged = merge_batches(
        batches_of(base, size),
        fold_logs(parts, rule, SCHEMA),
        rule,
        schema=SCHEMA,
        keep_order=keep_order,
        keep_tombstones=True,
    )
    rows = [row for batch in merged for row in batch.to_pylist()]
    return rows, merged


def compacted(
    base: list[Row], parts: Sequence[LogPart], rule: MergeRule
) -> tuple[list[Row], DeletePart]:
    rows, merged = merge(base, parts, rule)
    return rows, merged.tombstones.to_part(T0)


def in_key_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row[KEY]))


# What is merged

keys = st.sampled_from(["k0", "k1", "k2", "k3"])
small = st.none() | st.integers(0, 3)
letters = st.none() | st.sampled_from(["x", "y", MARKER])


@st.composite
def rules(draw: st.DrawFn) -> MergeRule:
    mode = draw(st.sampled_from(list(MergeMode)))
    if mode is MergeMode.CUSTOM:
        partial = PartialUpdate.NONE
    else:
        partial = draw(st.sampled_from(list(PartialUpdate)))
    has_delete_field = draw(st.booleans())
    return MergeRule(
        mode=mode,
        ordering_fields=draw(st.sampled_from([(), ("ts",), ("ts2", "ts")])),
        partial=partial,
        unavailable_marker=MARKER,
        delete_field="op" if has_delete_field else None,
        delete_marker="y" if has_delete_field else None,
        custom=SUM_A if mode is MergeMode.CUSTOM else None,
    )


@st.composite
def data_rows(draw: st.DrawFn, *, key: str | None = None, number: str = "0") -> Row:
    return {
        "_hoodie_commit_time": number,
        "_hoodie_commit_seqno": f"{number}_{draw(st.integers(0, 9))}",
        KEY: draw(keys) if key is None else key,
        "_hoodie_partition_path": "p",
        "_hoodie_file_name": "f",
        "_hoodie_operation": None,
        "ts": draw(small),
        "ts2": draw(letters),
        "a": draw(small),
        "b": draw(letters),
        "c": draw(st.none() | st.lists(st.integers(0, 2), max_size=2)),
        "op": draw(letters),
        "_hoodie_is_deleted": None,
    }


@st.composite
def bases(draw: st.DrawFn) -> list[Row]:
    names = draw(st.permutations(["k0", "k1", "k2", "k3", "k4", "k5"]))
    names = names[: draw(st.integers(0, 6))]
    return [draw(data_rows(key=name, number="base")) for name in names]


@st.composite
def log_parts(draw: st.DrawFn, rule: MergeRule, number: int, *, may_be_partial: bool) -> LogPart:
    time = InstantTime(f"2026{number:013d}")
    if draw(st.integers(0, 3)) == 0:
        deleted = draw(st.lists(keys, max_size=3))
        kinds = {"ts": (small, pa.int64()), "ts2": (letters, pa.string())}
        ordering: list[pa.Array] = []
        for name in rule.ordering_fields:
            values, kind = kinds[name]
            drawn = draw(st.lists(values, min_size=len(deleted), max_size=len(deleted)))
            ordering.append(pa.array(drawn, kind))
        is_plain = draw(st.booleans()) or not ordering
        return DeletePart(
            time,
            pa.array(deleted, pa.string()),
            pa.array(["p"] * len(deleted), pa.string()),
            None if is_plain else tuple(ordering),
        )
    rows = draw(st.lists(data_rows(number=str(number)), max_size=4))
    for row in rows:
        mark = draw(st.sampled_from(["", "", "", "flag", "operation"]))
        row["_hoodie_is_deleted"] = True if mark == "flag" else draw(st.sampled_from([None, False]))
        row["_hoodie_operation"] = "D" if mark == "operation" else "U"
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    is_partial = may_be_partial and draw(st.booleans())
    if is_partial:
        present = draw(st.sets(st.sampled_from(DATA.names)))
        table = table.select([name for name in SCHEMA.names if name in META or name in present])
    return DataPart(time, table, is_partial=is_partial)


@st.composite
def histories(draw: st.DrawFn) -> tuple[MergeRule, list[Row], list[LogPart]]:
    rule = draw(rules())
    may_be_partial = rule.mode is not MergeMode.CUSTOM and draw(st.booleans())
    count = draw(st.integers(0, 5))
    parts = [draw(log_parts(rule, n, may_be_partial=may_be_partial)) for n in range(count)]
    return rule, draw(bases()), parts


@settings(deadline=None, max_examples=100)
@given(histories(), st.integers(1, 4), st.booleans())
def test_merge_is_what_the_twin_does(
    history: tuple[MergeRule, list[Row], list[LogPart]], size: int, keep_order: bool
) -> None:
    rule, base, parts = history
    expected, counts = twin_merge(base, parts, rule, keep_order=keep_order)
    rows, merged = merge(base, parts, rule, size=size, keep_order=keep_order)
    assert rows == expected
    assert merged.counts == counts


# INV-49: compacting a prefix of the parts first changes nothing


@settings(deadline=None, max_examples=100)
@given(histories(), st.data())
def test_inv_49_compacting_a_prefix_first_changes_no_answer(
    history: tuple[MergeRule, list[Row], list[LogPart]], data: st.DataObject
) -> None:
    rule, base, parts = history
    assume(len(parts) > 1)
    split = data.draw(st.integers(1, len(parts) - 1))
    at_once, _ = merge(base, parts, rule)
    between, tombstones = compacted(base, parts[:split], rule)
    later, _ = merge(between, [tombstones, *parts[split:]], rule)
    assert in_key_order(later) == in_key_order(at_once)


def a_row(key: str, ts: int | None, **columns: Any) -> Row:
    row = dict.fromkeys(SCHEMA.names)
    written = {"_hoodie_commit_time": columns.pop("written", "0"), KEY: key, "ts": ts}
    return {**row, "_hoodie_partition_path": "p", **written, **columns}


def data(*rows: Row, only: Sequence[str] | None = None) -> DataPart:
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    if only is None:
        return DataPart(T0, table)
    return DataPart(T0, table.select([*META, *only]), is_partial=True)


def deletes(key: str, ts: int | None = None) -> DeletePart:
    ordering = None if ts is None else (pa.array([ts], pa.int64()),)
    return DeletePart(T0, pa.array([key]), pa.array(["p"]), ordering)


EVENT_TIME = MergeRule(mode=MergeMode.EVENT_TIME_ORDERING, ordering_fields=("ts",))
COMMIT_TIME = MergeRule(mode=MergeMode.COMMIT_TIME_ORDERING)


def test_inv_49_a_commit_time_delete_removes_the_row_whatever_follows() -> None:
    base = [a_row("k", 100, a=1)]
    parts: list[LogPart] = [deletes("k"), data(a_row("k", 50, a=2))]
    at_once, _ = merge(base, parts, EVENT_TIME)
    assert [row["a"] for row in at_once] == [2]
    between, tombstones = compacted(base, parts[:1], EVENT_TIME)
    later, _ = merge(between, [tombstones, *parts[1:]], EVENT_TIME)
    assert later == at_once


def test_inv_49_of_late_partial_records_the_first_fills_a_gap() -> None:
    rule = replace(EVENT_TIME, partial=PartialUpdate.IGNORE_DEFAULTS)
    base = [a_row("k", 5, a=1)]
    parts = [data(a_row("k", 3, b="x")), data(a_row("k", 4, b="y"))]
    at_once, _ = merge(base, parts, rule)
    between, tombstones = compacted(base, parts[:1], rule)
    later, _ = merge(between, [tombstones, *parts[1:]], rule)
    assert [row["b"] for row in at_once] == ["x"]
    assert later == at_once


def test_inv_49_a_late_record_lends_nothing_to_a_row_that_has_all_columns() -> None:
    base = [a_row("k", 25, a=1, b="x")]
    parts: list[LogPart] = [
        data(a_row("k", 20, a=2), only=["ts", "a"]),
        data(a_row("k", 30, b="y"), only=["ts", "b"]),
        data(a_row("k", 29, a=3, b="z")),
    ]
    at_once, _ = merge(base, parts, EVENT_TIME)
    assert [(row["a"], row["b"]) for row in at_once] == [(1, "y")]


def test_inv_50_a_delete_hides_smaller_and_equal_values_that_come_later() -> None:
    base = [a_row("k", 5)]
    between, tombstones = compacted(base, [deletes("k", 7)], EVENT_TIME)
    assert between == []
    assert merge(between, [tombstones, data(a_row("k", 6))], EVENT_TIME)[0] == []
    # Of equal values the later write wins.
    for ts in (7, 8):
        rows, merged = merge(between, [tombstones, data(a_row("k", ts))], EVENT_TIME)
        assert [row["ts"] for row in rows] == [ts]
        assert merged.tombstones.record_keys.to_pylist() == []


single_events = st.tuples(st.booleans(), st.sampled_from(["k0", "k1"]), st.integers(0, 3))


@settings(deadline=None, max_examples=60)
@given(st.lists(single_events, min_size=2, max_size=5), st.booleans())
def test_inv_50_holds_when_every_part_is_compacted_by_itself(
    events: list[tuple[bool, str, int]], has_base: bool
) -> None:
    parts: list[LogPart] = [
        deletes(key, ts) if is_deleted else data(a_row(key, ts, a=number))
        for number, (is_deleted, key, ts) in enumerate(events)
    ]
    base = [a_row("k0", 1, a=-1)] if has_base else []
    at_once, _ = merge(base, parts, EVENT_TIME)
    rows, kept = base, fold_logs([], EVENT_TIME, SCHEMA).tombstones.to_part(T0)
    for part in parts:
        rows, kept = compacted(rows, [kept, part], EVENT_TIME)
    assert in_key_order(rows) == in_key_order(at_once)


def test_tombstones_are_kept_for_keys_the_base_never_had_and_dropped_when_beaten() -> None:
    base = [a_row("beaten", 9)]
    parts = [deletes("beaten", 8), deletes("absent", 3), deletes("commit-time")]
    rows, merged = merge(base, parts, EVENT_TIME)
    assert rows == base
    assert merged.tombstones.record_keys.to_pylist() == ["absent"]
    assert merged.tombstones.ordering[0].to_pylist() == [3]
    _, merged = merge(base, parts, COMMIT_TIME)
    assert merged.tombstones.record_keys.to_pylist() == []


def test_rule_7_4_a_late_partial_record_fills_gaps_and_leaves_its_write_on_the_row() -> None:
    rule = replace(EVENT_TIME, partial=PartialUpdate.IGNORE_DEFAULTS)
    base = [a_row("k", 5, a=1, written="1")]
    (row,), merged = merge(base, [data(a_row("k", 3, a=9, b="x", written="2"))], rule)
    assert (row["ts"], row["a"], row["b"]) == (5, 1, "x")
    assert row["_hoodie_commit_time"] == "2"
    assert merged.counts == MergeCounts(updated=1)


def test_a_partial_block_after_a_delete_takes_nothing_from_the_base_row() -> None:
    base = [a_row("k", 1, a=1, b="old")]
    parts: list[LogPart] = [deletes("k"), data(a_row("k", 2, a=7), only=["ts", "a"])]
    (row,), _ = merge(base, parts, COMMIT_TIME)
    assert (row["a"], row["b"]) == (7, None)
    (row,), _ = merge(base, parts[1:], COMMIT_TIME)
    assert (row["a"], row["b"]) == (7, "old")


def test_fill_unavailable_keeps_the_older_text_and_honours_null() -> None:
    rule = replace(COMMIT_TIME, partial=PartialUpdate.FILL_UNAVAILABLE, unavailable_marker=MARKER)
    base = [a_row("k", 1, a=1, b="old")]
    (row,), _ = merge(base, [data(a_row("k", 2, a=None, b=MARKER))], rule)
    assert (row["a"], row["b"]) == (None, "old")


def test_a_custom_function_sums_a_column_over_logs_and_base() -> None:
    rule = MergeRule(mode=MergeMode.CUSTOM, custom=SUM_A)
    base = [a_row("k", 1, a=1), a_row("gone", 1, a=100)]
    parts: list[LogPart] = [
        data(a_row("k", 2, a=10), a_row("new", 1, a=5), a_row("k", 3, a=100)),
        deletes("gone"),
        data(a_row("gone", 4, a=7)),
    ]
    rows, _ = merge(base, parts, rule)
    assert {row[KEY]: row["a"] for row in rows} == {"k": 111, "new": 5, "gone": 7}


def loses_a_row(old: pa.Table, new: pa.Table) -> pa.Table:
    return new.slice(1)


def test_a_custom_function_that_loses_rows_is_refused_by_name() -> None:
    rule = MergeRule(mode=MergeMode.CUSTOM, custom=f"{__name__}:loses_a_row")
    with pytest.raises(InvalidInputError, match="loses_a_row"):
        merge([a_row("k", 1)], [data(a_row("k", 2))], rule)


def test_a_partial_block_of_a_custom_table_is_refused() -> None:
    rule = MergeRule(mode=MergeMode.CUSTOM, custom=SUM_A)
    with pytest.raises(UnsupportedError, match="only some columns"):
        merge([], [data(a_row("k", 2), only=["a"])], rule)


def test_a_java_payload_is_refused_only_when_something_is_merged() -> None:
    rule = MergeRule(mode=MergeMode.CUSTOM, custom="com.example.Payload")
    base = [a_row("k", 1)]
    assert merge(base, [], rule)[0] == base
    with pytest.raises(UnsupportedError, match=r"com\.example\.Payload"):
        merge(base, [deletes("k")], rule)


def test_dictionaries_of_the_base_file_stay_and_come_out_for_log_rows_too() -> None:
    text = pa.dictionary(pa.int32(), pa.string())
    encoded = SCHEMA.set(SCHEMA.get_field_index("b"), pa.field("b", text))
    base = [a_row("k0", 1, b="x"), a_row("k1", 1, b="y")]
    batches = [
        batch.set_column(SCHEMA.get_field_index("b"), encoded.field("b"), batch["b"].cast(text))
        for batch in batches_of(base, 2)
    ]
    parts = [data(a_row("k1", 2, b="z"), a_row("k2", 1, b="x"))]
    folded = fold_logs(parts, EVENT_TIME, encoded)
    for keep_order in (False, True):
        merged = list(
            merge_batches(batches, folded, EVENT_TIME, schema=encoded, keep_order=keep_order)
        )
        assert all(batch.schema.equals(encoded) for batch in merged)
        assert [row["b"] for batch in merged for row in batch.to_pylist()] == ["x", "z", "x"]


def test_only_requested_columns_come_out_but_all_marks_and_orderings_count() -> None:
    wanted = pa.schema([SCHEMA.field("a")])
    read = pa.schema([SCHEMA.field(KEY), SCHEMA.field("ts"), SCHEMA.field("a")])
    base = [a_row("k0", 5, a=0), a_row("k1", 5, a=1), a_row("k2", 5, a=2)]
    batches = [batch.select(read.names) for batch in batches_of(base, 2)]
    logs = pa.Table.from_pylist(
        [
            a_row("k0", 4, a=10),
            a_row("k1", 6, a=11),
            a_row("k2", 6, _hoodie_is_deleted=True),
        ],
        schema=SCHEMA,
    ).select([KEY, "ts", "a", "_hoodie_is_deleted"])
    folded = fold_logs([DataPart(T0, logs)], EVENT_TIME, read)
    merged = list(merge_batches(batches, folded, EVENT_TIME, schema=wanted))
    assert all(batch.schema.equals(wanted) for batch in merged)
    assert [row for batch in merged for row in batch.to_pylist()] == [{"a": 0}, {"a": 11}]


def test_a_column_that_decides_must_be_read() -> None:
    with pytest.raises(InvalidInputError, match="ts"):
        fold_logs([], EVENT_TIME, pa.schema([SCHEMA.field(KEY)]))
    folded = fold_logs([data(a_row("k", 1))], EVENT_TIME, SCHEMA)
    batch = batches_of([a_row("k", 1)], 1)[0].select([KEY, "a"])
    with pytest.raises(InvalidInputError, match="ts"):
        list(merge_batches([batch], folded, EVENT_TIME, schema=pa.schema([SCHEMA.field("a")])))


def test_narrower_types_of_older_files_are_widened() -> None:
    narrow = pa.schema(
        [field.with_type(pa.int32()) if field.name in ("ts", "a") else field for field in SCHEMA]
    )
    base = pa.RecordBatch.from_pylist([a_row("k0", 1, a=1), a_row("k1", 9, a=1)], schema=narrow)
    old_log = pa.Table.from_pylist([a_row("k0", 2, a=2)], schema=narrow).drop(["b"])
    parts = [DataPart(T0, old_log), data(a_row("k1", 3, a=2**40))]
    folded = fold_logs(parts, EVENT_TIME, SCHEMA)
    merged = pa.Table.from_batches(merge_batches([base], folded, EVENT_TIME, schema=SCHEMA))
    assert merged.schema.equals(SCHEMA)
    assert dict(zip(merged[KEY].to_pylist(), merged["a"].to_pylist(), strict=True)) == {
        "k0": 2,
        "k1": 1,
    }


def test_an_ordering_value_that_does_not_fit_is_a_damaged_table() -> None:
    broken = DeletePart(T0, pa.array(["k"]), pa.array(["p"]), (pa.array(["no number"]),))
    with pytest.raises(CorruptTableError, match="ts"):
        fold_logs([broken], EVENT_TIME, SCHEMA)


@pytest.mark.parametrize(("held_bytes", "batch_count"), [(64 * 1024 * 1024, 8), (1, 1)])
def test_as_many_base_rows_are_held_as_the_logs_have_keys_for_but_not_more_than_fit(
    monkeypatch: pytest.MonkeyPatch, held_bytes: int, batch_count: int
) -> None:
    monkeypatch.setattr("headwater.arrow.merge.GATHERED_BYTES", held_bytes)
    base = [a_row(f"k{number}", 1, a=number) for number in range(30)]
    folded = fold_logs([data(a_row("k1", 2, a=99), a_row("k29", 2, a=98))], EVENT_TIME, SCHEMA)
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in batches_of(base, 2):
            taken.append(batch)
            yield batch

    merged = merge_batches(batches(), folded, EVENT_TIME, schema=SCHEMA)
    first = next(merged)
    assert len(taken) == batch_count
    rows = [*first.to_pylist(), *(row for batch in merged for row in batch.to_pylist())]
    assert {row[KEY]: row["a"] for row in rows} == {
        f"k{number}": {1: 99, 29: 98}.get(number, number) for number in range(30)
    }


def test_counts_are_known_only_at_the_end() -> None:
    merged = merge_batches([], fold_logs([], COMMIT_TIME, SCHEMA), COMMIT_TIME, schema=SCHEMA)
    with pytest.raises(InternalError):
        _ = merged.counts
    assert list(merged) == []
    assert merged.counts == MergeCounts()


# Duplicates inside one batch


@settings(deadline=None, max_examples=100)
@given(rules(), st.data())
def test_reduce_is_what_the_twin_does(rule: MergeRule, drawn: st.DataObject) -> None:
    rows = [drawn.draw(data_rows(number=str(n))) for n in range(drawn.draw(st.integers(0, 7)))]
    for row in rows:
        row["_hoodie_is_deleted"] = drawn.draw(st.sampled_from([None, None, True]))
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    # Ordering fields decide inside a batch whatever the mode.
    inside = rule
    if rule.mode is not MergeMode.CUSTOM and rule.ordering_fields:
        inside = replace(rule, mode=MergeMode.EVENT_TIME_ORDERING)
    part = DataPart(T0, table)
    expected: dict[str, Row] = {}
    states: dict[str, State] = {}
    for (key, event), row in zip(events_of([part], inside), rows, strict=True):
        states[key] = meet(states.get(key), event, inside)
        if states[key] is event and isinstance(event, Delete):
            expected[key] = row
        elif isinstance(outcome := states[key], Record):
            expected[key] = outcome.row
    reduced = reduce_batch(table, KEY, rule)
    assert reduced.to_pylist() == list(expected.values())
    assert reduce_batch(table, table[KEY], rule).equals(reduced)


def test_reduce_needs_the_ordering_columns_of_the_batch() -> None:
    table = pa.table({"key": ["k", "k"], "a": [1, 2]})
    with pytest.raises(InvalidInputError, match="ts"):
        reduce_batch(table, "key", EVENT_TIME)
    by_commit_time = replace(COMMIT_TIME, ordering_fields=("ts",))
    assert reduce_batch(table, "key", by_commit_time)["a"].to_pylist() == [2]
