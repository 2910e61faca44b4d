"""Days and moments in expressions: intervals, days added, and the parts of a moment.

An interval is added to a constant as Spark does it: days and months by the calendar of the zone,
hours and less by the clock. A column takes what is the same in every zone.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa
from sqlglot import exp

from headwater.expressions.nodes import Call, Function, Literal, Node
from headwater.expressions.parse import Tree

if TYPE_CHECKING:
    from headwater.expressions.compile import Compile, Compiler

_US = 1_000_000
_DAY_US = 24 * 3600 * _US
_INT64_MAX = 2**63 - 1
_INTERVAL_DIGITS_MAX = 18
_TOO_FAR = "The interval leads too far: no day and no moment is that far away"
_MONTHS = MappingProxyType({"YEAR": 12, "QUARTER": 3, "MONTH": 1})
_DAYS = MappingProxyType({"WEEK": 7, "DAY": 1})
_MICROSECONDS = MappingProxyType(
    {
        "HOUR": 3600 * _US,
        "MINUTE": 60 * _US,
        "SECOND": _US,
        "MILLISECOND": 1000,
        "MICROSECOND": 1,
    }
)
_PARTS: Mapping[type[Tree], Function] = MappingProxyType(
    {exp.Hour: Function.HOUR, exp.Minute: Function.MINUTE, exp.Second: Function.SECOND}
)
_DAY_PARTS: Mapping[type[Tree], Function] = MappingProxyType(
    {
        exp.Year: Function.YEAR,
        exp.Quarter: Function.QUARTER,
        exp.Month: Function.MONTH,
        exp.Day: Function.DAY,
        exp.DayOfMonth: Function.DAY,
        exp.DayOfWeek: Function.DAY_OF_WEEK,
        exp.DayOfYear: Function.DAY_OF_YEAR,
    }
)


@dataclass(frozen=True, slots=True)
class Interval:
    """Months, or days with a time."""

    months: int = 0
    days: int = 0
    microseconds: int = 0
    has_time: bool = False
    """Whether it names hours or less, be they zero: it makes a moment of a day."""

    def __add__(self, other: Interval) -> Interval:
        return Interval(
            self.months + other.months,
            self.days + other.days,
            self.microseconds + other.microseconds,
            self.has_time or other.has_time,
        )

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.microseconds, self.has_time)


def interval_of(compiler: Compiler, tree: Tree) -> Interval | None:
    """Return the interval that a part of an expression says; None if it says something else."""
    if isinstance(tree, exp.Paren):
        return interval_of(compiler, tree.this)
    if isinstance(tree, exp.Neg):
        inner = interval_of(compiler, tree.this)
        return None if inner is None else -inner
    if isinstance(tree, exp.Add | exp.Sub):
        # The right side first: in a long sum of numbers it tells at once that this is none.
        other = interval_of(compiler, tree.expression)
        one = None if other is None else interval_of(compiler, tree.this)
        if one is None or other is None:
            return None
        return one + (other if isinstance(tree, exp.Add) else -other)
    return _literal_interval(compiler, tree) if isinstance(tree, exp.Interval) else None


def _literal_interval(compiler: Compiler, tree: exp.Interval) -> Interval:
    unit = tree.args.get("unit")
    name = unit.name.upper().rstrip("S") if isinstance(unit, exp.Var) else ""
    try:
        number = Decimal(tree.this.name)
    except InvalidOperation as error:
        raise compiler.refused(tree, "An interval is a number and a unit") from error
    if not number.is_finite() or number.adjusted() >= _INTERVAL_DIGITS_MAX:
        raise compiler.refused(tree, _TOO_FAR)
    whole = int(number)
    if name in _MICROSECONDS and number * _MICROSECONDS[name] % 1 == 0:
        return Interval(microseconds=int(number * _MICROSECONDS[name]), has_time=True)
    if whole == number and name in _DAYS:
        return Interval(days=whole * _DAYS[name])
    if whole == number and name in _MONTHS:
        return Interval(months=whole * _MONTHS[name])
    raise compiler.refused(
        tree, "An interval is a whole number and a unit from YEAR to MICROSECOND, such as 7 DAYS"
    )


def shifted(compiler: Compiler, moment: Tree, interval: Interval, tree: Tree) -> Node:
    """Return a day or moment with an interval added."""
    node = compiler.compile(moment)
    if abs(interval.days) * _DAY_US + abs(interval.microseconds) > _INT64_MAX:
        raise compiler.refused(tree, _TOO_FAR)
    if interval.months and (interval.days or interval.has_time):
        raise compiler.refused(tree, "Months and days do not go into one interval here")
    if pa.types.is_date(node.type) and interval.has_time:
        node = compiler.cast(node, pa.timestamp("us", "UTC"), tree)
    if not (pa.types.is_date(node.type) or pa.types.is_timestamp(node.type)):
        raise compiler.refused(tree, f"An interval is not added to a {node.type}")
    if isinstance(node, Literal):
        try:
            return Literal(_shift(node.value, interval, compiler.zone), node.type)
        except (OverflowError, ValueError) as error:
            raise compiler.refused(tree, f"The interval leads too far: {error}") from error
    if interval.months == 0 and pa.types.is_date(node.type):
        days = Literal(interval.days, pa.int32())
        return Call(Function.ADD_DAYS, (node, days), pa.date32())
    is_fixed = interval.days == 0 or node.type.tz is None or compiler.zone == "UTC"
    if interval.months or not is_fixed:
        raise compiler.refused(
            tree,
            "The interval is not added to a column here, because its length depends on the day; "
            "add it to the constant on the other side",
        )
    length = timedelta(days=interval.days, microseconds=interval.microseconds)
    return Call(Function.ADD, (node, Literal(length, pa.duration("us"))), node.type)


def _shift(value: object, interval: Interval, zone: str) -> date | datetime | None:
    if isinstance(value, datetime):
        local = value if value.tzinfo is None else value.astimezone(ZoneInfo(zone))
        moved = _by_calendar(local.replace(tzinfo=None, fold=0), interval)
        if value.tzinfo is not None:
            moved = _in_zone(moved, local)
        return moved + timedelta(microseconds=interval.microseconds)
    if isinstance(value, date):
        return _by_calendar(datetime(value.year, value.month, value.day), interval).date()
    return None


def _by_calendar(local: datetime, interval: Interval) -> datetime:
    months = local.year * 12 + local.month - 1 + interval.months
    year, month = months // 12, months % 12 + 1
    day = min(local.day, monthrange(year, month)[1])
    return local.replace(year=year, month=month, day=day) + timedelta(days=interval.days)


def _in_zone(moved: datetime, before: datetime) -> datetime:
    """Return the moment of a local time; of one that comes twice, that with the offset before."""
    found = [moved.replace(tzinfo=before.tzinfo, fold=fold) for fold in (0, 1)]
    same = [each for each in found if each.utcoffset() == before.utcoffset()]
    is_twice = found[0].utcoffset() != found[1].utcoffset()
    chosen = same[0] if same and is_twice and _exists(same[0]) else found[0]
    return chosen.astimezone(UTC)


def _exists(moment: datetime) -> bool:
    """Whether a local time is shown by clocks; it is not while they are put forward."""
    back = moment.astimezone(UTC).astimezone(moment.tzinfo)
    return back.replace(tzinfo=None, fold=0) == moment.replace(tzinfo=None, fold=0)


def days_added(compiler: Compiler, day: Node, count: Tree, tree: Tree) -> Node:
    """Return days with a number of days added, as `date_add` and `+` do."""
    number = compiler.compile(count)
    if not (pa.types.is_integer(number.type) and number.type.bit_width <= 32):
        raise compiler.refused(count, f"This is a {number.type}, not a number of days")
    operands = (compiler.cast(day, pa.date32(), tree), compiler.cast(number, pa.int32(), tree))
    return Call(Function.ADD_DAYS, operands, pa.date32())


def _date_add(compiler: Compiler, tree: Tree) -> Node:
    unit = tree.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise compiler.refused(tree, "Days are added here, or an interval by +")
    return days_added(compiler, compiler.compile(tree.this), tree.expression, tree)


def _date_diff(compiler: Compiler, tree: Tree) -> Node:
    if tree.args.get("unit") is not None:
        raise compiler.refused(tree, "datediff takes two days")
    days = tuple(
        compiler.cast(compiler.compile(each), pa.date32(), each)
        for each in (tree.this, tree.expression)
    )
    return Call(Function.DAYS_BETWEEN, days, pa.int32())


def _to_date(compiler: Compiler, tree: Tree) -> Node:
    if tree.args.get("format") is not None:
        raise compiler.refused(tree, "to_date takes no format here")
    return compiler.cast(compiler.compile(tree.this), pa.date32(), tree)


def _part_of_day(compiler: Compiler, tree: Tree) -> Node:
    day = compiler.cast(compiler.compile(tree.this), pa.date32(), tree)
    return Call(_DAY_PARTS[type(tree)], (day,), pa.int32())


def _part_of_moment(compiler: Compiler, tree: Tree) -> Node:
    node = compiler.compile(tree.this)
    if not pa.types.is_timestamp(node.type):
        node = compiler.cast(node, pa.timestamp("us", "UTC"), tree)
    local = compiler.cast(node, pa.timestamp("us"), tree)
    return Call(_PARTS[type(tree)], (local,), pa.int32())


TIME_FUNCTIONS: Mapping[type[Tree], Compile] = MappingProxyType(
    {
        exp.TsOrDsAdd: _date_add,
        exp.DateDiff: _date_diff,
        exp.TsOrDsToDate: _to_date,
        **dict.fromkeys(_DAY_PARTS, _part_of_day),
        **dict.fromkeys(_PARTS, _part_of_moment),
    }
)
