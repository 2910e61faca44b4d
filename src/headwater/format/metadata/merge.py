"""Merging records of the metadata table, those of a later instant over older ones (rule 8.6).

Lists of files merge name by name, see `fold_files`. Column and partition statistics: the newer
replaces the older if either is deleted or the newer is tight; otherwise bounds are widened and
counts added. All other records replace the older one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.format.avro.vectors import Longs, Mask
from headwater.format.metadata.column_stats import (
    COUNTS,
    STATS_SCHEMA,
    decode_column_stats,
    encode_column_stats,
    stats_column,
)
from headwater.format.metadata.records import decode_bloom_filters, decode_secondary
from headwater.format.metadata.schema import RecordType, Wrapper, read_record_types
from headwater.format.metadata.wrapped_values import (
    CONTENT_BRANCHES,
    NUMBER_BRANCHES,
    REAL_BRANCHES,
    WRAPPED,
    ValueType,
    decimals_of_content,
    scale_of,
    wrapped_of,
)

_FIELDS = tuple(field.name for field in WRAPPED)
_WHOLE = (ValueType.INT, ValueType.LONG)
_REAL = (ValueType.FLOAT, ValueType.DOUBLE)
_NUMBERS = (*_WHOLE, *_REAL)
_STATS = (RecordType.COLUMN_STATS, RecordType.PARTITION_STATS)


class Standing(NamedTuple):
    """How records stand to older ones of the same keys."""

    is_gone: Mask
    """They say that what they were about is gone; lists and locations never do."""
    replaces: Mask
    """Nothing that was said before counts; the others widen it."""


def standing_of(values: pa.BinaryArray) -> Standing:
    """Return how records stand to older ones.

    Raises:
        MalformedAvroError: a record is damaged.
    """
    types = read_record_types(values)
    is_gone = np.zeros(len(values), np.bool_)
    replaces = np.ones(len(values), np.bool_)
    rows = np.isin(types, _STATS)
    if rows.any():
        stats = decode_column_stats(values.filter(pa.array(rows)))
        is_gone[rows] = np.asarray(stats["is_deleted"])
        replaces[rows] = is_gone[rows] | np.asarray(stats["is_tight_bound"])
    for of_type, decode in (
        (RecordType.BLOOM_FILTER, _deleted_filters),
        (RecordType.SECONDARY_INDEX, decode_secondary),
    ):
        rows = types == of_type
        if rows.any():
            is_gone[rows] = np.asarray(decode(values.filter(pa.array(rows))))
    return Standing(is_gone, replaces)


def _deleted_filters(values: pa.BinaryArray) -> pa.BooleanArray:
    return stats_column(decode_bloom_filters(values), "is_deleted")


def widen_column_stats(values: pa.BinaryArray, subjects: Longs) -> pa.BinaryArray:
    """Return one record of column or partition statistics for each subject, over all of its own.

    Args:
        values: records of which none is deleted, and only the first of a subject may be tight.
        subjects: what each of them is about, in numbers that ascend from 0 without a gap.

    Raises:
        MalformedAvroError: a record is damaged, or of another type than the first.
    """
    is_alone = np.bincount(subjects)[subjects] == 1
    if is_alone.all():
        return values
    several = values.filter(pa.array(~is_alone))
    record_type = RecordType(int(read_record_types(several.slice(0, 1))[0]))
    stats = decode_column_stats(several)
    about = subjects[~is_alone]
    # Neighbours are widened two by two, which leaves half of them.
    while (is_second := _is_second(about)).any():
        second = np.flatnonzero(is_second)
        lone = np.setdiff1d(np.arange(len(about)), [second, second - 1])
        pairs = widen_stats(stats.take(second - 1), stats.take(second))
        places = np.concatenate([lone, second - 1])
        order = np.argsort(places)
        stats = pa.concat_tables([stats.take(lone), pairs]).take(order)
        about = about[places[order]]
    order = np.argsort(np.concatenate([subjects[is_alone], about]))
    widened = [values.filter(pa.array(is_alone)), encode_column_stats(stats, record_type)]
    return pa.concat_arrays(widened).take(pa.array(order))


def _is_second(about: Longs) -> Mask:
    """Return which rows are the second, fourth and so on of the rows that are about the same."""
    places = np.arange(len(about)) - np.searchsorted(about, about)
    return np.asarray(places % 2 == 1)


def widen_stats(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Merge decoded statistics row by row.

    A row that is deleted in the end says so by `is_deleted`. Bounds that are not known, or not of
    types that compare, leave both merged bounds unknown, null: Hudi refuses records that have one
    bound and not the other.

    Raises:
        MalformedAvroError: a decimal is malformed.
    """
    replaces = (
        np.asarray(newer["is_deleted"])
        | np.asarray(newer["is_tight_bound"])
        | np.asarray(older["is_deleted"])
    )
    lower, knows_lower = _merged_bound(older, newer, "min", replaces)
    upper, knows_upper = _merged_bound(older, newer, "max", replaces)
    is_known = knows_lower & knows_upper
    columns = {"min": _blanked(lower, ~is_known), "max": _blanked(upper, ~is_known)}
    for name in COUNTS:
        old, new = stats_column(older, name), stats_column(newer, name)
        columns[name] = pc.if_else(pa.array(replaces), new, pc.add(old, new))
    merged = pa.table(
        [columns.get(name, newer[name]) for name in STATS_SCHEMA.names], schema=STATS_SCHEMA
    )
    return _with_common_types(merged, older, newer, replaces)


def _merged_bound(
    older: pa.Table, newer: pa.Table, name: str, replaces: Mask
) -> tuple[pa.StructArray, Mask]:
    """Return the wider of two bounds, and whether it is known."""
    old, new = stats_column(older, name), stats_column(newer, name)
    is_less, is_comparable = _compared(older, newer, name)
    takes_new = ~is_less if name == "min" else is_less
    # A side without values, all null or empty, says nothing; one with unknown bounds says all.
    is_old_blank, is_new_blank = _is_blank(older), _is_blank(newer)
    takes_new = np.where(is_old_blank, True, np.where(is_new_blank, False, takes_new))
    mask = pa.array(takes_new | replaces)
    fields = [pc.if_else(mask, new.field(each), old.field(each)) for each in _FIELDS]
    return wrapped_of(*fields), is_comparable | is_old_blank | is_new_blank | replaces


def _blanked(wrapped: pa.StructArray, mask: Mask) -> pa.StructArray:
    """Return bounds with null in some rows."""
    if not mask.any():
        return wrapped
    rows = pa.array(mask)
    branch = pc.if_else(rows, pa.scalar(0, pa.int8()), wrapped.field("branch"))
    rest = (pc.if_else(rows, None, wrapped.field(name)) for name in _FIELDS[1:])
    return wrapped_of(branch, *rest)


def _value_types(stats: pa.Table) -> npt.NDArray[np.int32]:
    return np.asarray(stats_column(stats, "value_type").fill_null(ValueType.V1))


def _is_blank(stats: pa.Table) -> Mask:
    """Return which rows have no value but null."""
    is_blank = pc.equal(stats["value_count"], stats["null_count"]).fill_null(False)
    return np.asarray(is_blank.combine_chunks()).astype(np.bool_)


def _compared(older: pa.Table, newer: pa.Table, name: str) -> tuple[Mask, Mask]:
    """Return whether the old bound is less than the new one, and whether they compare at all."""
    old, new = stats_column(older, name), stats_column(newer, name)
    branches = np.asarray(old.field("branch")), np.asarray(new.field("branch"))
    types = _value_types(older), _value_types(newer)
    is_alike = (branches[0] == branches[1]) & (types[0] == types[1])
    is_whole = [np.isin(each, _WHOLE) for each in types]
    is_real = [np.isin(each, _REAL) for each in types]
    is_widened = (is_whole[0] | is_real[0]) & (is_whole[1] | is_real[1])
    is_less = np.zeros(len(old), np.bool_)
    is_comparable = np.zeros(len(old), np.bool_)
    numbers = [np.asarray(each.field("number").fill_null(0)) for each in (old, new)]
    has_real = [np.isin(each, REAL_BRANCHES) for each in branches]
    reals = [
        np.where(is_real_bound, np.asarray(each.field("real").fill_null(0)), number)
        for each, is_real_bound, number in zip((old, new), has_real, numbers, strict=True)
    ]
    is_number = [np.isin(each, NUMBER_BRANCHES) for each in branches]
    both = is_number[0] & is_number[1] & (is_alike | is_widened)
    is_less[both] = (numbers[0] < numbers[1])[both]
    is_comparable |= both
    is_known = (has_real[0] | is_number[0]) & (has_real[1] | is_number[1])
    both = is_known & (has_real[0] | has_real[1]) & (is_alike | is_widened)
    # NaN is the largest.
    is_less[both] = ((reals[0] < reals[1]) | (np.isnan(reals[1]) & ~np.isnan(reals[0])))[both]
    is_comparable |= both
    both = is_alike & np.isin(branches[0], CONTENT_BRANCHES)
    is_decimal = both & ((types[0] == ValueType.DECIMAL) | (branches[0] == Wrapper.DECIMAL))
    is_plain = both & ~is_decimal
    less = pc.less(old.field("content"), new.field("content")).fill_null(False)
    is_less[is_plain] = np.asarray(less)[is_plain]
    is_comparable |= is_plain
    if is_decimal.any():
        less_decimals, comparable_decimals = _compared_decimals(older, newer, name, is_decimal)
        is_less[is_decimal] = less_decimals
        is_comparable[is_decimal] = comparable_decimals
    return is_less, is_comparable


def _compared_decimals(
    older: pa.Table, newer: pa.Table, name: str, mask: Mask
) -> tuple[Mask, Mask]:
    rows = pa.array(mask)
    contents = [stats_column(each, name).field("content").filter(rows) for each in (older, newer)]
    infos = [stats_column(each, "type_info").filter(rows) for each in (older, newer)]
    is_less = np.zeros(len(contents[0]), np.bool_)
    is_comparable = np.zeros(len(contents[0]), np.bool_)
    is_same = pc.equal(infos[0].fill_null(""), infos[1].fill_null(""))
    for info in pc.unique(infos[0].filter(is_same)).to_pylist():
        alike = pc.and_(is_same, pc.equal(infos[0].fill_null(""), info or ""))
        places = np.asarray(alike)
        # Scale does not matter for the order of numbers that have the same.
        scale = 0 if info is None else scale_of(info)
        left, right = (decimals_of_content(each.filter(alike), scale) for each in contents)
        is_less[places] = np.asarray(pc.less(left, right).fill_null(False))
        is_comparable[places] = True
    return is_less, is_comparable


def _with_common_types(
    merged: pa.Table, older: pa.Table, newer: pa.Table, replaces: Mask
) -> pa.Table:
    """Give merged rows of widened columns the wider of both types, in bounds and value type."""
    old_types, new_types = _value_types(older), _value_types(newer)
    differs = ~replaces & (old_types != new_types)
    if not differs.any():
        return merged
    # Only numbers are widened; other rows that differ have no bounds, or only those of one side.
    # Value types of numbers ascend with what they can hold.
    is_wider = np.isin(old_types, _NUMBERS) & np.isin(new_types, _NUMBERS) & (old_types > new_types)
    is_old = differs & (is_wider | _is_blank(newer))
    types = np.where(is_old, old_types, new_types)
    has_type = pa.array(types != ValueType.V1)
    value_type = pc.if_else(has_type, pa.array(types.astype(np.int32)), None)
    infos = [stats_column(each, "type_info") for each in (older, newer)]
    changed = {
        "min": _widened(stats_column(merged, "min"), types, differs),
        "max": _widened(stats_column(merged, "max"), types, differs),
        "value_type": value_type,
        "type_info": pc.if_else(pa.array(is_old), *infos),
    }
    columns = [changed.get(name, merged[name]) for name in STATS_SCHEMA.names]
    return pa.table(columns, schema=STATS_SCHEMA)


def _widened(wrapped: pa.StructArray, types: npt.NDArray[np.int32], rows: Mask) -> pa.StructArray:
    branch = np.asarray(wrapped.field("branch")).copy()
    number, real = wrapped.field("number"), wrapped.field("real")
    has_value = rows & (branch != Wrapper.NULL)
    for kind, wrapper in (
        (ValueType.LONG, Wrapper.LONG),
        (ValueType.FLOAT, Wrapper.FLOAT),
        (ValueType.DOUBLE, Wrapper.DOUBLE),
    ):
        branch[has_value & (types == kind)] = wrapper
    to_real = has_value & np.isin(types, _REAL)
    real = pc.if_else(
        pa.array(to_real), pc.coalesce(real, number.cast(pa.float64(), safe=False)), real
    )
    number = pc.if_else(pa.array(to_real), None, number)
    return wrapped_of(pa.array(branch), number, real, wrapped.field("content"))
