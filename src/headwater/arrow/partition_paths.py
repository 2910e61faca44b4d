"""Partition paths: the folder of a row, and back from the folder to what it tells (rule 6.4).

One part per partition column, joined with `/`. A null or empty value is
`__HIVE_DEFAULT_PARTITION__`; url encoding escapes what Hive escapes; hive style puts `column=` in
front. Without url encoding a value with `/` makes nested folders, as in stock Hudi.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.key_text import column_text
from headwater.arrow.time_partition import TimePartition
from headwater.errors import InvalidInputError

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_DOTS = (".", "..")
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column; `time` if the TIMESTAMP key generator formats it."""

    column: str
    time: TimePartition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPathRule:
    """How a table names its partitions."""

    fields: tuple[PartitionField, ...]
    is_hive_style: bool
    is_url_encoded: bool

    def paths(self, columns: Sequence[pa.Array], row_count: int) -> pa.DictionaryArray:
        """Return each row's partition path; every path is in the dictionary once.

        Args:
            columns: the values of each partition column.

        Raises:
            InvalidInputError: a value cannot be part of a path.
        """
        if not self.fields:
            return _distinct(pa.repeat(pa.scalar(0, pa.int64()), row_count), [""])
        codes, paths = self._parts(self.fields[0], columns[0])
        for field, values in zip(self.fields[1:], columns[1:], strict=True):
            encoded, parts = self._parts(field, values)
            both = pc.add(pc.multiply(pc.cast(codes, pa.int64()), len(parts)), encoded)
            # Combinations are encoded anew, so that codes stay below the square of the rows.
            combined = both.dictionary_encode()
            codes = combined.indices
            pairs = (divmod(code, len(parts)) for code in combined.dictionary.to_pylist())
            paths = [f"{paths[before]}/{parts[part]}" for before, part in pairs]
        return _distinct(codes, paths)

    def ambiguity(self, text: str) -> str | None:
        """Return why other values may have the same path as a text; None if none has."""
        if text == DEFAULT_PARTITION:
            return "stands for null in partition paths"
        if self.is_url_encoded or "/" not in text or len(self.fields) == 1:
            return None
        advice = "create the table with url encoding of partition paths if it is to be allowed"
        if not self.is_hive_style:
            # Beside columns of times alone, whose slashes are counted, the path can be taken apart.
            if sum(field.time is None for field in self.fields) == 1:
                return None
            return f"has a slash, as there is between the columns of the partition path; {advice}"
        inner = text.split("/")[1:]
        names = tuple(f"{field.column}=" for field in self.fields)
        if any(segment.startswith(names) for segment in inner):
            return f"names a partition column after a slash, as partition paths do; {advice}"
        return None

    def values(self, path: str) -> dict[str, str | None]:
        """Return what a path tells about the columns of its rows, as `column_text` writes them.

        None stands for null or an empty text. A column is left out where the path does not tell
        its value: if it is formatted as a time, or if slashes in values make the path ambiguous.
        Nobody may skip a partition on account of a column that is left out.
        """
        segments = path.split("/") if path else []
        spans = self._hive_spans(segments) if self.is_hive_style else self._spans(segments)
        if spans is None:
            return {}
        return {
            field.column: self._value("/".join(segments[start:end]), field.column)
            for field, (start, end) in zip(self.fields, spans, strict=True)
            if field.time is None
        }

    def _parts(self, field: PartitionField, values: pa.Array) -> tuple[pa.Array, list[str]]:
        """Return a code per row, and the part of the path that each code stands for."""
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if field.time is not None:
            encoded = field.time.wall_times(values, field.column).dictionary_encode()
            texts = field.time.output.format(encoded.dictionary)
        else:
            if pa.types.is_null(values.type):
                values = pc.cast(values, pa.string())
            encoded = values.dictionary_encode(null_encoding="encode")
            texts = column_text(encoded.dictionary, field.column)
        return encoded.indices, [self._part(field.column, text) for text in texts.to_pylist()]

    def _part(self, column: str, text: str | None) -> str:
        part = text or DEFAULT_PARTITION
        if self.is_url_encoded:
            part = escape_path_part(part)
        _check_part(part, column, is_url_encoded=self.is_url_encoded)
        return f"{column}={part}" if self.is_hive_style else part

    def _value(self, part: str, column: str) -> str | None:
        if self.is_hive_style:
            part = part.removeprefix(f"{column}=")
        if part == DEFAULT_PARTITION:
            return None
        return unescape_path_part(part) if self.is_url_encoded else part

    def _hive_spans(self, segments: list[str]) -> list[tuple[int, int]] | None:
        starts = []
        for field in self.fields:
            found = [n for n, part in enumerate(segments) if part.startswith(f"{field.column}=")]
            if len(found) != 1:
                return None
            starts.append(found[0])
        if starts != sorted(starts) or starts[:1] != [0]:
            return None
        return list(zip(starts, [*starts[1:], len(segments)], strict=True))

    def _spans(self, segments: list[str]) -> list[tuple[int, int]] | None:
        widths = [
            1 + (field.time.output.slash_count if field.time and not self.is_url_encoded else 0)
            for field in self.fields
        ]
        plain = [place for place, field in enumerate(self.fields) if field.time is None]
        if len(plain) == 1:
            widths[plain[0]] += len(segments) - sum(widths)
        if sum(widths) != len(segments) or min(widths, default=1) < 1:
            return None
        starts = [sum(widths[:place]) for place in range(len(widths))]
        return [(start, start + width) for start, width in zip(starts, widths, strict=True)]


def escape_path_part(text: str) -> str:
    """Return the text with Hive's special characters as `%XX`."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def unescape_path_part(text: str) -> str:
    """Undo `escape_path_part`."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _check_part(part: str, column: str, *, is_url_encoded: bool) -> None:
    """Refuse what would leave the table's folder, or meet its metadata, or no storage takes."""
    segments = part.replace("\\", "/").split("/")
    if any(segment in ("", *_DOTS) for segment in segments) or _CONTROL_CHARACTER.search(part):
        advice = "Change the value"
        if not is_url_encoded and part not in _DOTS:  # Which url encoding leaves as they are.
            advice += ", or create the table with url encoding of partition paths"
    elif any(segment.startswith(".hoodie") for segment in segments):
        advice = "Folders named .hoodie belong to the table itself; change the value"
    else:
        return
    raise InvalidInputError(
        f"Column {column} has the value {part!r}, which cannot be a partition path. {advice}"
    )


def _distinct(codes: pa.Array, paths: list[str]) -> pa.DictionaryArray:
    """Merge codes of equal paths: null and "" share one, and so may values with slashes."""
    places: dict[str, int] = {}
    for path in paths:
        places.setdefault(path, len(places))
    if len(places) != len(paths):
        code_of = pa.array([places[path] for path in paths], pa.int64())
        codes = code_of.take(codes)
    return pa.DictionaryArray.from_arrays(
        pc.cast(codes, pa.int32()), pa.array(list(places), pa.string())
    )
