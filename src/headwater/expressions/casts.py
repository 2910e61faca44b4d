"""Conversions of values as Spark does them, where Arrow does not by itself."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.expressions.coercion import is_number, is_text

_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_ZONED = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_TIME_WITH_ZONE = rf"([0-9]:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]+)?)?)\s*{_ZONED}"
"""A zone follows a time of day: what ends `2020-01-02` is none."""

_PLAIN = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
"""What nearly all texts look like, and what Arrow reads as it is."""
_SPELLINGS = (
    (r"^([0-9]{4})$", r"\1-01-01"),
    (r"^([0-9]{4}-[0-9]{1,2})$", r"\1-01"),
    (r"^([0-9]{4})-([0-9])-", r"\1-0\2-"),
    (r"^([0-9]{4}-[0-9]{2})-([0-9])($|[ T])", r"\1-0\2\3"),
)
"""How Spark lets people write days, and how Arrow reads them."""
_SPELLINGS_OF_TIMES = (
    *_SPELLINGS,
    (r"([ T:])([0-9])(\b|Z)", r"\10\2\3"),
    (r"(\.[0-9]{6})[0-9]+", r"\1"),
    (r"\s*(?:UTC|GMT)$", "Z"),
    (r"([+-])([0-9]):", r"\10\2:"),
)
"""Spark cuts a fraction behind the microsecond. In a replacement `\\10` is group 1 and a 0."""

Convert = Callable[[pa.Array], pa.Array]


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of a type can be converted with the result that Spark has."""
    if source == target or pa.types.is_null(source):
        return True
    if is_text(source):
        is_time = pa.types.is_date(target) or pa.types.is_timestamp(target)
        is_bytes = pa.types.is_binary(target)
        return bool(is_time or is_bytes or pa.types.is_boolean(target) or is_number(target))
    if is_text(target):
        # Engines differ on the text of floating point numbers.
        return not (pa.types.is_floating(source) or pa.types.is_nested(source))
    if is_number(source) and is_number(target):
        return not (pa.types.is_floating(source) and pa.types.is_decimal(target))
    if pa.types.is_boolean(source) or pa.types.is_boolean(target):
        return (is_number(source) or pa.types.is_boolean(source)) and (
            is_number(target) or pa.types.is_boolean(target)
        )
    is_day = pa.types.is_date(source) or pa.types.is_timestamp(source)
    return bool(is_day and (pa.types.is_date(target) or pa.types.is_timestamp(target)))


def may_fail(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether some value of a type has no counterpart in the other."""
    if source == target or is_text(target) or pa.types.is_null(source):
        return False
    if is_text(source):
        return not pa.types.is_binary(target)
    if is_number(source) and is_number(target):
        if pa.types.is_floating(target):
            return False
        return not (
            pa.types.is_integer(source)
            and pa.types.is_integer(target)
            and source.bit_width <= target.bit_width
        )
    return False


def cast_values(values: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    """Return values as another type; see `can_cast`.

    Raises:
        InvalidInputError: a value has no counterpart.
    """
    source = values.type
    if source == target:
        return values
    if pa.types.is_null(source):
        return pa.nulls(len(values), target)
    try:
        return _converter(source, target, zone)(values)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InvalidInputError(
            f"A value of type {source} cannot be cast to {target}: {error}. Use TRY_CAST for null "
            "in its place"
        ) from error


def try_cast_values(values: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    """Return values as another type, null where there is no counterpart."""
    try:
        return cast_values(values, target, zone)
    except InvalidInputError:
        if len(values) == 1:
            return pa.nulls(1, target)
    # Halves, so that a few bad values among many cost few tries.
    middle = len(values) // 2
    halves = [try_cast_values(half, target, zone) for half in (values[:middle], values[middle:])]
    return pa.concat_arrays(halves)


def _converter(source: pa.DataType, target: pa.DataType, zone: str) -> Convert:
    if is_text(source):
        return _from_text(target, zone)
    if is_text(target):
        return _to_text(source, zone)
    if pa.types.is_boolean(target):
        return lambda values: pc.not_equal(values, pa.scalar(0).cast(values.type))
    if pa.types.is_boolean(source):
        return lambda values: values.cast(pa.int8()).cast(target)
    if pa.types.is_date(source) or pa.types.is_timestamp(source):
        return lambda values: _time(values, target, zone)
    if pa.types.is_integer(target) and not pa.types.is_integer(source):
        return lambda values: _whole_number(values, target)
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        return lambda values: _decimal(values, target)
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        # By way of a decimal that holds every integer.
        wide = pa.decimal256(20 + target.scale, target.scale)
        return lambda values: values.cast(wide).cast(target)
    if pa.types.is_decimal(source) and pa.types.is_floating(target):
        # By way of text: Arrow's own conversion of 1.2 is not the double nearest to it.
        return lambda values: values.cast(pa.string()).cast(pa.float64()).cast(target)
    if pa.types.is_floating(target):
        return lambda values: values.cast(target, safe=False)
    return lambda values: values.cast(target)


def _from_text(target: pa.DataType, zone: str) -> Convert:
    def convert(values: pa.Array) -> pa.Array:
        trimmed = pc.utf8_trim_whitespace(values.cast(pa.string()))
        if pa.types.is_boolean(target):
            return _boolean(trimmed)
        if pa.types.is_date(target):
            return _day(trimmed).cast(pa.date32())
        if pa.types.is_timestamp(target):
            return _moment(trimmed, target, zone)
        if pa.types.is_binary(target):
            return values.cast(pa.binary())
        unsigned = pc.replace_substring_regex(trimmed, r"^\+([0-9.])", r"\1")
        if pa.types.is_decimal(target):
            wide = pa.decimal256(76, 38)
            return _decimal(unsigned.cast(wide), target)
        return unsigned.cast(target)

    return convert


def _boolean(texts: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(texts)
    is_true = pc.is_in(lowered, value_set=pa.array(_TRUE))
    known = pc.or_(is_true, pc.is_in(lowered, value_set=pa.array(_FALSE)))
    if not pc.all(pc.or_(known, pc.is_null(texts)), min_count=0).as_py():
        raise pa.ArrowInvalid("a text is no boolean")
    return pc.if_else(pc.is_valid(texts), is_true, pa.scalar(None, pa.bool_()))


def _day(texts: pa.Array) -> pa.Array:
    """Return texts with a day at their beginning as the day alone, of two digits a part."""
    days = pc.replace_substring_regex(texts, r"^([0-9]+-[0-9]+-[0-9]+)[ T].*$", r"\1")
    return _respelt(days, _SPELLINGS)


def _respelt(texts: pa.Array, spellings: tuple[tuple[str, str], ...]) -> pa.Array:
    if pc.all(pc.match_substring_regex(texts, _PLAIN), min_count=0).as_py():
        return texts
    for pattern, replacement in spellings:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts


def _moment(texts: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    respelt = _respelt(texts, _SPELLINGS_OF_TIMES)
    local = pa.timestamp("us")
    if target.tz is None:
        return pc.replace_substring_regex(respelt, _TIME_WITH_ZONE, r"\1").cast(local)
    is_zoned = pc.fill_null(pc.match_substring_regex(respelt, _TIME_WITH_ZONE), False)
    if not pc.any(is_zoned, min_count=0).as_py():
        return _in_zone(respelt.cast(local), zone)
    nothing = pa.scalar(None, pa.string())
    bare = pc.if_else(is_zoned, nothing, respelt).cast(local)
    zoned = pc.if_else(is_zoned, respelt, nothing)
    zoned = pc.replace_substring_regex(zoned, r"\s+([Z+-])", r"\1")
    return pc.coalesce(zoned.cast(target), _in_zone(bare, zone))


def _in_zone(local: pa.Array, zone: str) -> pa.Array:
    """Return the moments of local times.

    Of one that comes twice a year it is the first. One that clocks leave out is as long after they
    were put forward as it is after the last that they showed: 02:30 is 03:30.
    """
    utc = pa.timestamp("us", "UTC")
    after = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest").cast(utc)
    before = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    is_left_out = pc.not_equal(before.cast(utc, safe=False), after)
    if not pc.any(is_left_out, min_count=0).as_py():
        return after
    microsecond = pa.scalar(1, pa.duration("us"))
    last_shown = _local(pc.subtract(after, microsecond), zone)
    late = pc.subtract(local, pc.add(last_shown, microsecond))
    return pc.if_else(is_left_out, pc.add(after, late), after)


def _local(moments: pa.Array, zone: str) -> pa.Array:
    if moments.type.tz is None:
        return moments
    return pc.local_timestamp(moments.cast(pa.timestamp("us", zone)))


def _time(values: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    if pa.types.is_date(target):
        return _local(values, zone).cast(pa.date32(), safe=False)
    local = _local(values, zone) if pa.types.is_timestamp(values.type) else values
    local = local.cast(pa.timestamp("us"))
    return local if target.tz is None else _in_zone(local, zone)


def _to_text(source: pa.DataType, zone: str) -> Convert:
    if not pa.types.is_timestamp(source):
        return lambda values: values.cast(pa.string())

    def convert(values: pa.Array) -> pa.Array:
        texts = pc.strftime(_local(values, zone).cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
        texts = pc.replace_substring_regex(texts, r"\.0+$", "")
        return pc.replace_substring_regex(texts, r"(\.[0-9]*[1-9])0+$", r"\1")

    return convert


def _whole_number(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers without what is behind their point."""
    return pc.trunc(values).cast(target)


def _decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type.scale > target.scale:
        values = pc.round(values, ndigits=target.scale, round_mode="half_towards_infinity")
    return values.cast(target)
