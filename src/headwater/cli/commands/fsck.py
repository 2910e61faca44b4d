"""`headwater fsck`: whether a table is what its timeline says.

    timeline   every completed commit can be read
    files      every file that a reader needs is in storage, in the size that was committed;
               with `--deep` they are also opened
    indexes    the metadata table says what the files say
    keys       with `--deep`: no record key is there twice, if the index of the table promises it

Nothing is repaired. A damaged index is dropped and created anew; lost files come back from a copy,
or with a savepoint. Of the records of a key that is there twice the wanted one is read, all are
deleted until none is found, and it is written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import typer

from headwater.cli.arguments import OutputFormat, TableOptions, TablePath, open_given_table
from headwater.cli.exit_codes import PROBLEMS_FOUND
from headwater.cli.output import Format, output_of
from headwater.config.table_options import UNIQUE_KEY_INDEXES, IndexType
from headwater.errors import CorruptTableError, NotFoundError
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.model.files import BaseFile, DataFile, LogFile
from headwater.table import Table

_TOLD_MAX = 1_000
"""How many places of doubled keys are told."""

SCHEMA = pa.schema(
    [
        pa.field("check", pa.string(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("problem", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with what."""

    check: str
    subject: str
    problem: str


def fsck(
    path: TablePath,
    options: TableOptions = None,
    *,
    deep: bool = typer.Option(False, "--deep", help="Read every data file that is in use."),
    output: OutputFormat = Format.TEXT,
) -> None:
    """Check a table: timeline, files and indexes. Exit code 1 if something is wrong."""
    try:
        table = open_given_table(path, options)
    except CorruptTableError as error:
        problems = [Problem("table", path, str(error))]
    else:
        with table:
            problems = list(find_problems(table, is_deep=deep))
    found = {name: [getattr(problem, name) for problem in problems] for name in SCHEMA.names}
    output_of(output).show_rows(pa.table(found, SCHEMA), nothing="No problems found.")
    if problems:
        raise typer.Exit(PROBLEMS_FOUND)


def find_problems(table: Table, *, is_deep: bool = False) -> Iterator[Problem]:
    """Give all that is wrong with a table.

    Raises: see `inspect.validate_metadata`; StorageError if storage does not answer.
    """
    try:
        view = load_listed_view(table.storage, table.config)
        slices = view.slices()
    except CorruptTableError as error:
        # Without commits nobody knows which files the table has.
        yield Problem("timeline", error.context.get("path", table.uri), str(error))
        return
    for one in slices:
        for file in one.files():
            yield from _problems_of_file(table, view, file, is_deep=is_deep)
    yield from _problems_of_indexes(table)
    if is_deep and table.config.index_type in (IndexType.BUCKET, *UNIQUE_KEY_INDEXES):
        yield from _doubled_keys(table)


def _problems_of_file(
    table: Table, view: TableView, file: DataFile, *, is_deep: bool
) -> Iterator[Problem]:
    try:
        stored = table.storage.info(file.path).size_bytes
    except NotFoundError:
        yield Problem("files", file.path, "a completed commit lists it, and it is not in storage")
        return
    if stored == 0:
        yield Problem("files", file.path, "it is empty")
    elif is_deep:
        try:
            _read(table, view, file)
        except CorruptTableError as error:
            yield Problem("files", file.path, str(error))


def _read(table: Table, view: TableView, file: DataFile) -> None:
    match file:
        case BaseFile():
            with open_base_file(table.storage, file) as reader:
                reader.read()
        case LogFile():
            for _ in read_log_parts(table.storage, [file]):
                pass


def _doubled_keys(table: Table) -> Iterator[Problem]:
    try:
        found = table.inspect.doubled_keys()
    except CorruptTableError:
        return  # Told of already: it is one of the files.
    for row in found.slice(0, _TOLD_MAX).to_pylist():
        where = f"{row['partition']}/{row['file_id']}".lstrip("/")
        yield Problem("keys", row["key"], f"it is there more than once, also in {where}")


def _problems_of_indexes(table: Table) -> Iterator[Problem]:
    try:
        found = table.inspect.validate_metadata()
    except CorruptTableError as error:
        yield Problem("indexes", error.context.get("path", table.uri), str(error))
        return
    # An index may name more than there is; readers look at the rows.
    for row in found.filter(pc.not_equal(found["problem"], "stale")).to_pylist():
        detail = f"{row['problem']}: {row['key']}"
        told = {name: row[name] for name in ("held", "expected") if row.get(name)}
        detail += "".join(f", {name} {value}" for name, value in told.items())
        yield Problem("indexes", row["partition"], detail)
