"""Job files: TOML in, a `Job` out, and all that is wrong in one message."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from headwater.arrow.spark_schema import schema_from_ddl
from headwater.config.option import problem_list
from headwater.config.write import ConcurrencyMode
from headwater.errors import ErrorKind, InvalidInputError, NotFoundError
from headwater.ingest.job import (
    FileFormat,
    FolderSource,
    Job,
    KafkaSource,
    QuarantineRule,
    Source,
    TableSource,
    Target,
)
from headwater.ingest.section import Section
from headwater.ingest.units import parse_duration_ms, parse_size_bytes
from headwater.model.operation import Operation

PATTERNS: Mapping[FileFormat, tuple[str, ...]] = MappingProxyType(
    {
        FileFormat.PARQUET: ("*.parquet",),
        FileFormat.JSON: ("*.json", "*.jsonl", "*.ndjson", "*.json.gz", "*.jsonl.gz"),
        FileFormat.CSV: ("*.csv", "*.csv.gz"),
        FileFormat.AVRO: ("*.avro",),
    }
)
"""What files of a format are called, unless the job says something else."""

_OPERATIONS = {
    str(operation).lower(): operation
    for operation in (
        Operation.UPSERT,
        Operation.INSERT,
        Operation.BULK_INSERT,
        Operation.DELETE,
    )
}
_MODES = {
    "optimistic": ConcurrencyMode.OPTIMISTIC,
    "non_blocking": ConcurrencyMode.NON_BLOCKING,
    "single_writer": ConcurrencyMode.SINGLE_WRITER,
}
_QUARANTINED_MAX = 100_000


def load_job(path: Path) -> Job:
    """Return the job of a file.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: kind INVALID_OPTION, with every problem in one message.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no job file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"The job file {path} cannot be read: {error}") from error
    return parse_job(text, str(path))


def parse_job(text: str, path: str) -> Job:
    """Return the job of a text; `path` names it in errors. Raises: see `load_job`."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(
            f"The job file {path} is not TOML: {error}", kind=ErrorKind.INVALID_OPTION
        ) from error
    problems: list[str] = []
    whole = Section(given, "", problems)
    job = Job(
        name=whole.needed_text("name"),
        source=_source(whole),
        target=_target(whole),
        select=_select(whole),
        quarantine=_quarantine(whole),
        zone=whole.parsed("time_zone", _zone, "UTC"),
    )
    whole.finish()
    if problems:
        raise InvalidInputError(
            problem_list(f"Invalid job file {path}", problems), kind=ErrorKind.INVALID_OPTION
        )
    return job


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {text!r}") from error
    return text


def _needed(whole: Section, key: str) -> Section:
    found = whole.section(key)
    if found is None:
        whole.problem(key, "is missing")
        return Section({}, key, [])
    return found


def _source(whole: Section) -> Source:
    section = _needed(whole, "source")
    kinds = {"folder": _folder, "table": _table, "kafka": _kafka}
    make = section.choice("type", kinds, _folder)
    source = (make or _folder)(section)
    section.finish()
    return source


def _folder(section: Section) -> Source:
    formats = {str(kind): kind for kind in FileFormat}
    path = section.needed_text("path")
    if section.text("format") is None:
        section.problem("format", f"is missing; there are {', '.join(formats)}")
    kind = section.choice("format", formats, None) or FileFormat.PARQUET
    source = FolderSource(
        path=path,
        format=kind,
        columns=_columns(section),
        patterns=section.texts("pattern", PATTERNS[kind]),
        min_age_ms=section.parsed("min_age", parse_duration_ms, 0),
        files_max=section.integer("batch_files", 1000, minimum=1),
        bytes_max=section.parsed("batch_size", parse_size_bytes, 1 << 30),
        delimiter=section.character("delimiter", ","),
        has_header=section.flag("header", True),
        options=section.options(),
    )
    _check_types(section, source)
    return source


def _check_types(section: Section, source: FolderSource) -> None:
    """Note types that files of a format have no values of."""
    for field in source.columns or ():
        is_nested = pa.types.is_nested(field.type)
        if source.format is FileFormat.CSV and is_nested:
            section.problem("columns", f"has {field.name}, which is no type for CSV: {field.type}")


def _table(section: Section) -> Source:
    return TableSource(
        path=section.needed_text("path"),
        is_feed=bool(section.choice("changes", {"rows": False, "feed": True}, False)),
        after=section.text("after"),
        options=section.options(),
    )


def _kafka(section: Section) -> Source:
    return KafkaSource(
        servers=section.needed_text("servers"),
        topic=section.needed_text("topic"),
        columns=_columns(section),
        partitions=section.integer("partitions", 0),
        records_max=section.integer("batch_records", 100_000, minimum=1),
        options=section.options(),
    )


def _columns(section: Section) -> pa.Schema | None:
    return section.parsed("columns", schema_from_ddl, None)


def _target(whole: Section) -> Target:
    section = _needed(whole, "target")
    target = Target(
        path=section.needed_text("path"),
        operation=section.choice("operation", _OPERATIONS, None) or Operation.UPSERT,
        mode=section.choice("mode", _MODES, None) or ConcurrencyMode.OPTIMISTIC,
        is_partial=section.flag("partial", False),
        options=section.options(),
    )
    if target.is_partial and target.operation is not Operation.UPSERT:
        section.problem("partial", "goes with operation = 'upsert' only")
    section.finish()
    return target


def _select(whole: Section) -> str | None:
    section = whole.section("transform")
    if section is None:
        return None
    select = section.needed_text("sql")
    section.finish()
    return select


def _quarantine(whole: Section) -> QuarantineRule | None:
    section = whole.section("quarantine")
    if section is None:
        return None
    rule = QuarantineRule(
        path=section.needed_text("path"),
        rows_max=section.integer("limit_rows", 1000),
        share_max=section.share("limit_share", 0.1),
        options=section.options(),
    )
    if rule.rows_max > _QUARANTINED_MAX:  # They are in memory until the batch has been read.
        section.problem("limit_rows", f"must be at most {_QUARANTINED_MAX}, got {rule.rows_max}")
    section.finish()
    return rule
