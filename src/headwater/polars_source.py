"""A scan as a lazy frame of Polars, which tells its columns and filters before anything is read.

What is understood of a filter skips files and rows; Polars evaluates all of it again. Filters come
as expressions of Polars, of which the serialised form is looked at: what has another form than the
ones known here is not understood, which is never wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.queries.predicate import Comparison, Condition, Literal, Predicate

if TYPE_CHECKING:
    import polars

    from headwater.scan import Scan

NOTHING = Predicate()

_COMPARISONS: Mapping[str, Comparison] = MappingProxyType(
    {
        "Eq": Comparison.EQUAL,
        "NotEq": Comparison.NOT_EQUAL,
        "Lt": Comparison.LESS,
        "LtEq": Comparison.LESS_EQUAL,
        "Gt": Comparison.GREATER,
        "GtEq": Comparison.GREATER_EQUAL,
    }
)
_MIRRORED: Mapping[Comparison, Comparison] = MappingProxyType(
    {
        Comparison.LESS: Comparison.GREATER,
        Comparison.LESS_EQUAL: Comparison.GREATER_EQUAL,
        Comparison.GREATER: Comparison.LESS,
        Comparison.GREATER_EQUAL: Comparison.LESS_EQUAL,
    }
)
_EPOCH = datetime(1970, 1, 1)


def lazy_frame_of(scan: Scan) -> polars.LazyFrame:
    """Return a scan as a lazy frame.

    Raises:
        InvalidInputError: Polars is not installed.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ModuleNotFoundError as error:
        raise InvalidInputError("to_polars() needs Polars: pip install polars") from error

    def frames(
        columns: list[str] | None,
        predicate: polars.Expr | None,
        row_count: int | None,
        _batch_rows: int | None,
    ) -> Iterator[polars.DataFrame]:
        known = NOTHING if predicate is None else known_part_of_polars(predicate)
        wanted = None if columns is None else tuple(columns)
        needed = () if predicate is None else predicate.meta.root_names()
        if wanted is not None:
            wanted = tuple(dict.fromkeys((*wanted, *needed))) or scan.schema.names[:1]
        with scan.narrowed(wanted, known) as reader:
            for batch in reader:
                frame = pl.DataFrame(batch)
                if predicate is not None:
                    frame = frame.filter(predicate)
                if row_count is not None:
                    frame = frame.head(row_count)
                    row_count -= frame.height
                yield frame if columns is None else frame.select(columns)
                if row_count == 0:
                    return

    schema = pl.DataFrame(scan.schema.empty_table()).schema
    return register_io_source(frames, schema=schema, is_pure=True, explain_name=repr(scan))


def known_part_of_polars(predicate: polars.Expr) -> Predicate:
    """Return what is known of a filter of Polars for single columns; it may be nothing."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (ValueError, TypeError, RuntimeError):
        return NOTHING
    return _known(tree)


def _known(tree: Any) -> Predicate:
    match tree:
        case {"BinaryExpr": {"op": "And" | "LogicalAnd", "left": left, "right": right}}:
            one, other = _known(left), _known(right)
            return Predicate(
                one.conditions + other.conditions, one.alternatives + other.alternatives
            )
        case {"BinaryExpr": {"op": "Or" | "LogicalOr", "left": left, "right": right}}:
            branches = (_known(left), _known(right))
            is_known = all(branch.is_known for branch in branches)
            return Predicate((), (branches,)) if is_known else NOTHING
        case {"BinaryExpr": {"op": op, "left": {"Column": name}, "right": {"Literal": literal}}}:
            return _compared(name, _COMPARISONS.get(op), literal)
        case {"BinaryExpr": {"op": op, "left": {"Literal": literal}, "right": {"Column": name}}}:
            comparison = _COMPARISONS.get(op)
            mirrored = None if comparison is None else _MIRRORED.get(comparison, comparison)
            return _compared(name, mirrored, literal)
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNull"}}}:
            return Predicate((Condition(name, Comparison.IS_NULL),))
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNotNull"}}}:
            return Predicate((Condition(name, Comparison.IS_NOT_NULL),))
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": low}, {"Literal": high}],
                "function": {"Boolean": {"IsBetween": {"closed": "Both"}}},
            }
        }:
            one = _compared(name, Comparison.GREATER_EQUAL, low)
            other = _compared(name, Comparison.LESS_EQUAL, high)
            return Predicate(one.conditions + other.conditions)
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": {"Scalar": {"List": content}}}],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        }:
            return _listed(name, content)
        case _:
            return NOTHING


def _listed(name: str, content: list[int]) -> Predicate:
    """Return what a list tells, whose values come as an Arrow stream."""
    try:
        values = pa.ipc.open_stream(bytes(content)).read_all().column(0)
    except (pa.ArrowInvalid, ValueError, IndexError):
        return NOTHING
    literals = tuple(value for value in values.to_pylist() if value is not None)
    return Predicate((Condition(name, Comparison.IN, literals),))


def _compared(name: str, comparison: Comparison | None, literal: Any) -> Predicate:
    value = _value(literal)
    if comparison is None or value is None:
        return NOTHING
    return Predicate((Condition(name, comparison, (value,)),))


def _value(literal: Any) -> Literal | None:
    match literal:
        case {"Dyn": {"Int": int() as value}} | {"Dyn": {"Float": float() as value}}:
            return value
        case {"Dyn": {"Str": str() as value}} | {"Scalar": {"String": str() as value}}:
            return value
        case {"Scalar": {"Boolean": bool() as value}}:
            return value
        case {"Scalar": {"Date": int() as days}}:
            return date(1970, 1, 1) + timedelta(days=days)
        case {"Scalar": {"Datetime": [int() as count, "Microseconds", zone]}}:
            moment = _EPOCH + timedelta(microseconds=count)
            return moment if zone is None else moment.replace(tzinfo=UTC)
        case {"Scalar": {"Int32": int() as value}} | {"Scalar": {"Int64": int() as value}}:
            return value
        case {"Scalar": {"Float64": float() as value}}:
            return value
        case _:
            return None
