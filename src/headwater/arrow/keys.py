"""Record keys and partition paths of rows, as the table's key generator makes them (rule 6.4).

| type | record key | partition path |
|---|---|---|
| SIMPLE | the value of one column | one column |
| COMPLEX | `f1:v1,f2:v2`, also for one column | columns joined with `/` |
| NON_PARTITION | one column as SIMPLE, several as COMPLEX | "" |
| TIMESTAMP | as NON_PARTITION | one column, formatted as a time |
| CUSTOM | as NON_PARTITION | columns, each `name:SIMPLE` or `name:TIMESTAMP` |

In `f1:v1,f2:v2` a null is `__null__` and an empty text `__empty__`; at least one must be neither.
A text may say the same of itself, or have `,f2:` inside. Two different keys would then be one text
and their records one, so `check_distinct` refuses such values before they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.buckets import EMPTY_PLACEHOLDER, NULL_PLACEHOLDER
from headwater.arrow.key_text import column_text, is_text
from headwater.arrow.partition_paths import PartitionField, PartitionPathRule
from headwater.arrow.time_partition import TimePartition
from headwater.config.table import TableConfig
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError, check
from headwater.model.column_names import OWN_PREFIX

Rows: TypeAlias = Any
"""A `pa.RecordBatch` or a `pa.Table`."""
R = TypeVar("R", pa.RecordBatch, pa.Table)

_TYPES = ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM")
_CONSISTENT_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"


CARRIED_KEY = f"{OWN_PREFIX}key"
CARRIED_PATH = f"{OWN_PREFIX}path"
"""Columns of rows on their way to a file: what was made once is carried beside them."""
CARRIED = (CARRIED_KEY, CARRIED_PATH)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGenerator:
    """Makes the keys of one table. A value: it pickles, and holds no rows."""

    record_key_fields: tuple[str, ...]
    """None for a table whose keys are generated: see `meta_columns.sequence_numbers`."""
    names_fields: bool
    """Whether record keys are `f1:v1,f2:v2` or plain values."""
    partition: PartitionPathRule

    @classmethod
    def from_config(cls, config: TableConfig) -> Self:
        """Return the key generator that a table's config describes.

        Raises:
            InvalidInputError: kind INVALID_OPTION, if the config contradicts itself.
            UnsupportedError: kind UNSUPPORTED_OPTION, if the table's keys come from a type or
                setting that this release does not know.
        """
        kind = _type_of(config)
        if config.raw.get(_CONSISTENT_TIMESTAMPS, "").strip().lower() == "true":
            raise UnsupportedError(
                f"Table {config.name} has {_CONSISTENT_TIMESTAMPS}=true, so its keys depend on the "
                "zone of each writer's Java runtime. This release cannot make such keys",
                kind=ErrorKind.UNSUPPORTED_OPTION,
            )
        keys, fields = config.record_key_fields, _partition_fields(kind, config)
        if kind == "SIMPLE" and len(keys) > 1:
            raise _contradiction(config, kind, "has one record key field", keys)
        if kind in ("SIMPLE", "TIMESTAMP") and len(fields) != 1:
            raise _contradiction(config, kind, "has one partition field", config.partition_fields)
        return cls(
            record_key_fields=keys,
            names_fields=kind == "COMPLEX" or len(keys) > 1,
            partition=PartitionPathRule(
                fields=fields,
                is_hive_style=config.is_hive_style,
                is_url_encoded=config.is_url_encoded,
            ),
        )

    @property
    def generates_keys(self) -> bool:
        """Whether rows have no key of their own."""
        return not self.record_key_fields

    def record_keys(self, rows: Rows) -> pa.StringArray:
        """Return the record key of every row: those that the rows carry, or else made of them.

        Raises:
            InvalidInputError: a key column is missing or has a type without text, or a row has no
                key.
        """
        check(not self.generates_keys, "A table without key columns was asked for its keys")
        if CARRIED_KEY in rows.schema.names:
            return _column(rows, CARRIED_KEY)
        texts = [_column_text(rows, column) for column in self.record_key_fields]
        if not self.names_fields:
            is_missing = _is_missing(texts[0])
            self._check_keys(is_missing, texts[0])
            return texts[0]
        parts: list[Any] = []
        is_missing = None
        for column, text in zip(self.record_key_fields, texts, strict=True):
            parts.append(pa.scalar(f",{column}:" if parts else f"{column}:"))
            without_null = pc.fill_null(text, NULL_PLACEHOLDER)
            parts.append(pc.if_else(pc.equal(without_null, ""), EMPTY_PLACEHOLDER, without_null))
            own = _is_missing(text)
            is_missing = own if is_missing is None else pc.and_(is_missing, own)
        self._check_keys(is_missing, texts[0])
        return pc.binary_join_element_wise(*parts, pa.scalar(""))

    def check_distinct(self, rows: Rows) -> None:
        """Refuse rows whose record key or partition path may be that of other values as well.

        Null and the empty text share a partition, as in stock Hudi.

        Raises:
            InvalidInputError: a value has what keys and paths are put together with.
        """
        if len(self.record_key_fields) > 1:
            for column, after in zip_longest(self.record_key_fields, self.record_key_fields[1:]):
                self._check_key_text(rows, column, after)
        for field in self.partition.fields:
            values = _column(rows, field.column)
            if field.time is not None or not is_text(values.type):
                continue
            for text in pc.unique(column_text(values, field.column)).to_pylist():
                problem = None if text is None else self.partition.ambiguity(text)
                if problem is not None:
                    row = pc.index(column_text(values, field.column), text).as_py()
                    raise self._ambiguous(rows, row, field.column, problem)

    def _check_key_text(self, rows: Rows, column: str, after: str | None) -> None:
        """Refuse texts that stand for something else in a key of several columns."""
        values = _column(rows, column)
        if not is_text(values.type):
            return
        text = column_text(values, column)
        placeholders = pa.array([NULL_PLACEHOLDER, EMPTY_PLACEHOLDER])
        row = pc.index(pc.is_in(text, value_set=placeholders), True).as_py()
        if row >= 0:
            raise self._ambiguous(rows, row, column, "stands for null or an empty text in keys")
        if after is None:
            return  # Whatever follows the name of the last column is its value.
        row = pc.index(pc.match_substring(text, f",{after}:"), True).as_py()
        if row >= 0:
            problem = f"has ,{after}: inside, which is how the value of {after} begins in keys"
            raise self._ambiguous(rows, row, column, problem)

    def _ambiguous(self, rows: Rows, row: int, column: str, problem: str) -> InvalidInputError:
        partitions = (field.column for field in self.partition.fields)
        columns = dict.fromkeys((*self.record_key_fields, *partitions))
        shown = ", ".join(f"{name}={_column(rows, name)[row].as_py()!r}" for name in columns)
        value = _column(rows, column)[row].as_py()
        return InvalidInputError(
            f"Column {column} has the value {value!r} in row {row} ({shown}), which {problem}. "
            "Records of different values would become one. Change the value"
        )

    def partition_paths(self, rows: Rows) -> pa.StringArray:
        """Return the partition path of every row, "" in a table without partitions.

        Raises:
            InvalidInputError: a partition column is missing, or a value cannot be part of a path.
        """
        return self.partition_dictionary(rows).dictionary_decode()

    def partition_dictionary(self, rows: Rows) -> pa.DictionaryArray:
        """Return the same as `partition_paths`, with every path once and a number per row."""
        if CARRIED_PATH in rows.schema.names:
            return _column(rows, CARRIED_PATH)
        columns = [_column(rows, field.column) for field in self.partition.fields]
        return self.partition.paths(columns, rows.num_rows)

    def partition_values(self, path: str) -> dict[str, str | None]:
        """Return what a partition path tells about its rows; see `PartitionPathRule.values`."""
        return self.partition.values(path)

    def with_keys(self, rows: R, record_keys: pa.StringArray | None = None) -> R:
        """Return rows that carry their record keys, so that nobody makes them again.

        A key that is a column of text as it is needs no carrying.

        Args:
            record_keys: the keys, if they are known.

        Raises:
            InvalidInputError: as `record_keys`.
        """
        if self.generates_keys or self._is_column(rows) or CARRIED_KEY in rows.schema.names:
            return rows
        made = self.record_keys(rows) if record_keys is None else record_keys
        return rows.append_column(CARRIED_KEY, made)

    def with_keys_and_paths(self, rows: pa.RecordBatch, fitting: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows that carry their keys and partition paths.

        Args:
            fitting: the same rows in the types of the table, which these are made of.

        Raises:
            InvalidInputError: as `record_keys` and `partition_paths`.
        """
        if not self.generates_keys:
            rows = self.with_keys(rows, self.record_keys(fitting))
        if CARRIED_PATH in rows.schema.names:
            return rows
        return rows.append_column(CARRIED_PATH, self.partition_dictionary(fitting))

    def _is_column(self, rows: pa.RecordBatch | pa.Table) -> bool:
        if self.names_fields or len(self.record_key_fields) != 1:
            return False
        at = rows.schema.get_field_index(self.record_key_fields[0])
        return at >= 0 and bool(pa.types.is_string(rows.schema.field(at).type))

    def _check_keys(self, is_missing: pa.Array, text: pa.Array) -> None:
        count = pc.sum(is_missing).as_py() or 0
        if count == 0:
            return
        row = pc.index(is_missing, True).as_py()
        columns = self.record_key_fields
        if len(columns) == 1:
            value = "null" if text[row].as_py() is None else "empty"
            problem = f"Column {columns[0]} is the record key, but it is null or empty"
            detail = f"the first is row {row}, where it is {value}"
        else:
            problem = f"Columns {', '.join(columns)} are the record key, but all null or empty"
            detail = f"the first is row {row}"
        raise InvalidInputError(
            f"{problem} in {count} of {len(is_missing)} row(s); {detail}. Give each row a key"
        )


def carried_over(rows: pa.RecordBatch | pa.Table, to: R, names: Sequence[str] = CARRIED) -> R:
    """Return the same rows with other columns, such that they carry what they did before."""
    for name in names:
        if name in rows.schema.names:
            to = to.append_column(name, rows.column(name))
    return to


def put_down(rows: R, names: Sequence[str] = CARRIED) -> R:
    """Return rows with nothing but their own columns."""
    carried = [name for name in names if name in rows.schema.names]
    return rows.drop_columns(carried) if carried else rows


def _type_of(config: TableConfig) -> str:
    stored = config.key_generator_type
    if stored is None:
        if not config.partition_fields:
            return "NON_PARTITION"
        is_simple = len(config.record_key_fields) <= 1 and len(config.partition_fields) == 1
        return "SIMPLE" if is_simple else "COMPLEX"
    kind = stored.strip().upper().removesuffix("_AVRO")
    if kind not in _TYPES:
        raise UnsupportedError(
            f"Table {config.name} has the key generator {stored}; this release makes keys of the "
            f"types {', '.join(_TYPES)}",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    return kind


def _partition_fields(kind: str, config: TableConfig) -> tuple[PartitionField, ...]:
    if kind == "NON_PARTITION":
        if config.partition_fields:
            raise _contradiction(config, kind, "has no partition fields", config.partition_fields)
        return ()
    if kind == "TIMESTAMP":
        time = TimePartition.from_properties(config.raw)
        return tuple(PartitionField(column, time) for column in config.partition_fields)
    if kind != "CUSTOM":
        return tuple(PartitionField(column) for column in config.partition_fields)
    return tuple(_custom_field(stated, config) for stated in config.partition_fields)


def _custom_field(stated: str, config: TableConfig) -> PartitionField:
    column, _, kind = stated.partition(":")
    match kind.strip().upper():
        case "SIMPLE":
            return PartitionField(column.strip())
        case "TIMESTAMP":
            return PartitionField(column.strip(), TimePartition.from_properties(config.raw))
        case _:
            raise _contradiction(
                config, "CUSTOM", "wants name:SIMPLE or name:TIMESTAMP", config.partition_fields
            )


def _contradiction(
    config: TableConfig, kind: str, rule: str, found: tuple[str, ...]
) -> InvalidInputError:
    return InvalidInputError(
        f"Table {config.name} has the key generator {kind}, which {rule}, but its config says "
        f"{', '.join(found) or 'none'}. Correct hoodie.properties",
        kind=ErrorKind.INVALID_OPTION,
    )


def _column(rows: Rows, column: str) -> pa.Array:
    """Return a column, or the field of a struct as `column.field`, in one array."""
    name, *inner = (column,) if column in rows.schema.names else column.split(".")
    if rows.schema.names.count(name) != 1:
        known = ", ".join(rows.schema.names)
        raise InvalidInputError(
            f"Column {column} is part of the table's key or partition path, but the rows have the "
            f"columns {known}. Add the column"
        )
    values = rows.column(name)
    for field in inner:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(field) < 0:
            raise InvalidInputError(
                f"Column {column} is part of the table's key or partition path, but {name} has the "
                f"type {rows.schema.field(name).type}. Add the field"
            )
        values = pc.struct_field(values, field)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _column_text(rows: Rows, column: str) -> pa.Array:
    return column_text(_column(rows, column), column)


def _is_missing(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.equal(texts, ""), True)
