"""Schemas as Spark writes them: DDL text and JSON, without Spark.

DDL is `id long, name string NOT NULL COMMENT 'who', tags array<string>`; JSON is what
`StructType.json()` gives. Types become those that tables store: `byte` and `short` are int, `char`
and `varchar` are string. A comment is kept as the metadata `comment` of its column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from headwater.errors import InvalidInputError

COMMENT = b"comment"

_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int32(),
    "byte": pa.int32(),
    "smallint": pa.int32(),
    "short": pa.int32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DDL_NAMES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
_DECIMALS = ("decimal", "dec", "numeric")
_SIZED_TEXT = ("char", "character", "varchar")
_DECIMAL_DEFAULT = (10, 0)
_DECIMAL_PRECISION_MAX = 38
_NESTING_MAX = 64
_TOKEN = re.compile(
    r"""\s*(?:
        `(?P<quoted>(?:[^`]|``)+)`
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | (?P<word>[A-Za-z0-9_]+)
      | (?P<sign>[<>(),:])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_SIZE = re.compile(r"\d{1,10}", re.ASCII)
"""Java's int has no more digits, and int() takes far too much."""
_SIZED = re.compile(r"([a-z]+)\s*\(\s*(\d{1,10})\s*(?:,\s*(\d{1,10})\s*)?\)", re.ASCII)


def schema_from_ddl(text: str) -> pa.Schema:
    """Return the columns of a schema in Spark's DDL.

    Raises:
        InvalidInputError: it is no DDL, with the place where reading stopped; or a type cannot be
            stored, with the column's path.
    """
    reader = _DdlReader(text, _tokens(text))
    return pa.schema(reader.columns())


def ddl_of_schema(schema: pa.Schema) -> str:
    """Return columns in Spark's DDL, the inverse of `schema_from_ddl`.

    DDL cannot say that the elements of an array or the values of a map are never null.

    Raises:
        InvalidInputError: Spark has no such type; the message has the column's path.
    """
    return ", ".join(_ddl_field(field, (field.name,), " ") for field in schema)


def schema_from_spark_json(text: str) -> pa.Schema:
    """Return the columns of a schema as `StructType.json()` gives it.

    Raises:
        InvalidInputError: it is no such JSON, or a type cannot be stored, with the column's path.
    """
    try:
        parsed = json.loads(text)
        arrow = _json_type(parsed, ())
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"The schema is not JSON: {error}") from error
    except RecursionError:
        raise InvalidInputError("The schema is nested too deeply to be read") from None
    if not pa.types.is_struct(arrow):
        raise InvalidInputError("The schema must be a struct with the table's columns")
    return pa.schema(list(arrow))


# DDL.


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.lower() == word

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign


def _tokens(text: str) -> list[_Token]:
    tokens, place = [], 0
    while True:
        found = _TOKEN.match(text, place)
        if found is None:
            raise _no_ddl(text, place, "a name or a type")
        kind = str(found.lastgroup)
        content = found[kind]
        if kind == "quoted":
            content = content.replace("``", "`")
        elif kind in ("single", "double"):
            content = re.sub(r"\\(.)", r"\1", content, flags=re.DOTALL)
        tokens.append(_Token(kind, content, found.start(kind)))
        if kind == "end":
            return tokens
        place = found.end()


class _DdlReader:
    """Reads one text from left to right."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0

    def columns(self) -> list[pa.Field]:
        is_struct = self._peek().is_word("struct") and self._tokens[1].is_sign("<")
        fields = list(self._type(())) if is_struct else self._fields((), end="end")
        if self._peek().kind != "end":
            self._fail("a comma or the end")
        return fields

    def _fields(self, path: tuple[str, ...], *, end: str) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while True:
            fields.append(self._field(path, {field.name for field in fields}))
            if not self._peek().is_sign(","):
                break
            self._take()
        if end != "end":
            self._expect(end)
        return fields

    def _field(self, path: tuple[str, ...], known: set[str]) -> pa.Field:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            self._fail("the name of a column", token)
        inner = (*path, token.text)
        if token.text in known:
            raise InvalidInputError(f"Column {'.'.join(inner)} comes twice; rename one")
        if self._peek().is_sign(":"):
            self._take()
        arrow = self._type(inner)
        is_nullable, metadata = True, None
        if self._peek().is_word("not"):
            self._take()
            if not self._take().is_word("null"):
                self._fail("NULL after NOT", self._tokens[self._next - 1])
            is_nullable = False
        if self._peek().is_word("comment"):
            self._take()
            comment = self._take()
            if comment.kind not in ("single", "double"):
                self._fail("a quoted comment", comment)
            metadata = {COMMENT: comment.text.encode()}
        return pa.field(token.text, arrow, nullable=is_nullable, metadata=metadata)

    def _type(self, path: tuple[str, ...]) -> pa.DataType:
        _check_depth(path)
        token = self._take()
        if token.kind != "word":
            self._fail("a type", token)
        name = token.text.lower()
        if not self._peek().is_sign("<"):
            return _named_type(name, self._sizes(), path)
        if name == "array":
            self._take()
            element = self._type((*path, "element"))
            self._expect(">")
            return pa.list_(pa.field("element", element))
        if name == "map":
            self._take()
            key = self._type((*path, "key"))
            self._expect(",")
            value = self._type((*path, "value"))
            self._expect(">")
            return _map_type(key, pa.field("value", value), path)
        if name == "struct":
            self._take()
            return pa.struct(self._fields(path, end=">"))
        return self._fail("array<, map< or struct<", token)

    def _sizes(self) -> tuple[int, ...]:
        if not self._peek().is_sign("("):
            return ()
        sizes: list[int] = []
        while not sizes or self._peek().is_sign(","):
            self._take()
            token = self._take()
            if token.kind != "word" or not _SIZE.fullmatch(token.text):
                self._fail("a number of at most ten digits", token)
            sizes.append(int(token.text))
        self._expect(")")
        return tuple(sizes)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        # The end is taken as often as it is asked for.
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _expect(self, sign: str) -> None:
        token = self._take()
        if not token.is_sign(sign):
            self._fail(repr(sign), token)

    def _fail(self, wanted: str, token: _Token | None = None) -> NoReturn:
        raise _no_ddl(self._text, (token or self._peek()).place, wanted)


def _no_ddl(text: str, place: int, wanted: str) -> InvalidInputError:
    rest = text[place : place + 20].strip()
    found = f"{rest!r}" if rest else "the end"
    return InvalidInputError(
        f"The schema is no DDL such as 'id long, name string': expected {wanted} at character "
        f"{place}, got {found}"
    )


def _ddl_field(field: pa.Field, path: tuple[str, ...], separator: str) -> str:
    name = "`" + field.name.replace("`", "``") + "`"
    text = f"{name}{separator}{_ddl_type(field.type, path)}"
    if not field.nullable:
        text += " NOT NULL"
    comment = (field.metadata or {}).get(COMMENT)
    if comment is not None:
        escaped = comment.decode().replace("\\", "\\\\").replace("'", "\\'")
        text += f" COMMENT '{escaped}'"
    return text


def _ddl_type(arrow: pa.DataType, path: tuple[str, ...]) -> str:
    if arrow in _DDL_NAMES:
        return _DDL_NAMES[arrow]
    if pa.types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_fixed_size_binary(arrow):
        return "binary"
    if pa.types.is_list(arrow):
        return f"array<{_ddl_type(arrow.value_type, (*path, 'element'))}>"
    if pa.types.is_map(arrow):
        key = _ddl_type(arrow.key_type, (*path, "key"))
        return f"map<{key},{_ddl_type(arrow.item_type, (*path, 'value'))}>"
    if pa.types.is_struct(arrow):
        fields = (_ddl_field(field, (*path, field.name), ":") for field in arrow)
        return f"struct<{','.join(fields)}>"
    raise InvalidInputError(f"Column {'.'.join(path)} has the type {arrow}, which Spark lacks")


# JSON.


def _json_type(parsed: Any, path: tuple[str, ...]) -> pa.DataType:
    _check_depth(path)
    if isinstance(parsed, str):
        sized = _SIZED.fullmatch(parsed.strip().lower())
        if sized is None:
            return _named_type(parsed.strip().lower(), (), path)
        sizes = tuple(int(size) for size in sized.groups()[1:] if size is not None)
        return _named_type(sized[1], sizes, path)
    match parsed:
        case {"type": "struct", "fields": list(fields)}:
            return pa.struct(_json_fields(fields, path))
        case {"type": "array", "elementType": element}:
            arrow = _json_type(element, (*path, "element"))
            is_nullable = bool(parsed.get("containsNull", True))
            return pa.list_(pa.field("element", arrow, nullable=is_nullable))
        case {"type": "map", "keyType": key, "valueType": value}:
            arrow = _json_type(value, (*path, "value"))
            is_nullable = bool(parsed.get("valueContainsNull", True))
            item = pa.field("value", arrow, nullable=is_nullable)
            return _map_type(_json_type(key, (*path, "key")), item, path)
        case {"type": "udt"}:
            raise _refused(path, "a user-defined type", "convert it to the columns it is made of")
        case _:
            raise InvalidInputError(
                f"The schema is no JSON of a Spark StructType: {_where(path)} has no type"
            )


def _json_fields(fields: list[Any], path: tuple[str, ...]) -> list[pa.Field]:
    found: dict[str, pa.Field] = {}
    for field in fields:
        match field:
            case {"name": str(name), "type": inner}:
                comment = (field.get("metadata") or {}).get("comment")
                if name in found:
                    raise InvalidInputError(f"{_where((*path, name))} comes twice; rename one")
                found[name] = pa.field(
                    name,
                    _json_type(inner, (*path, name)),
                    nullable=bool(field.get("nullable", True)),
                    metadata={COMMENT: str(comment).encode()} if comment else None,
                )
            case _:
                raise InvalidInputError(
                    f"The schema is no JSON of a Spark StructType: {_where(path)} has a field "
                    "without a name or type"
                )
    return list(found.values())


# Types that both share.


def _named_type(name: str, sizes: tuple[int, ...], path: tuple[str, ...]) -> pa.DataType:
    if name in _PLAIN and not sizes:
        return _PLAIN[name]
    if name in _SIZED_TEXT and len(sizes) == 1:
        return pa.string()
    if name in _DECIMALS and len(sizes) <= 2:
        precision, scale = (*sizes, *_DECIMAL_DEFAULT[len(sizes) :])
        if not 0 <= scale <= precision <= _DECIMAL_PRECISION_MAX or precision == 0:
            raise _refused(
                path, f"decimal({precision},{scale})", "use decimal(p,s) with 0 <= s <= p <= 38"
            )
        return pa.decimal128(precision, scale)
    shown = f"{name}({','.join(map(str, sizes))})" if sizes else name
    known = ", ".join(dict.fromkeys([*_PLAIN, "decimal(p,s)", "array<>", "map<,>", "struct<>"]))
    raise _refused(path, shown, f"use one of {known}")


def _map_type(key: pa.DataType, item: pa.Field, path: tuple[str, ...]) -> pa.DataType:
    if key != pa.string():
        raise _refused(path, f"a map with keys of type {key}", "use string keys")
    return pa.map_(key, item)


def _check_depth(path: tuple[str, ...]) -> None:
    if len(path) > _NESTING_MAX:
        raise _refused(path[:8], "a type nested too deeply", f"use at most {_NESTING_MAX} levels")


def _refused(path: tuple[str, ...], what: str, advice: str) -> InvalidInputError:
    return InvalidInputError(f"{_where(path)} has a type that cannot be stored: {what}; {advice}")


def _where(path: tuple[str, ...]) -> str:
    return f"Column {'.'.join(path)}" if path else "the schema"
