"""`headwater table`: a table as a whole, from its creation to its end."""

from __future__ import annotations

from enum import StrEnum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import (
    Columns,
    Confirmed,
    OutputFormat,
    TableOptions,
    TablePath,
    confirm,
    open_given_table,
    parse_options,
    split_columns,
)
from headwater.cli.data_files import read_data_files, write_data_file
from headwater.cli.output import Format, output_of, say
from headwater.cli.progress import shown_while

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.model.commit import Commit

app = typer.Typer(no_args_is_help=True, help="A table as a whole.")

_ROWS_OF_A_SCREEN = 100


@unique
class WriteOperation(StrEnum):
    """What can be done with the rows of files."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite_partitions"


@app.command()
def create(
    path: TablePath,
    schema: Annotated[
        str,
        typer.Option(
            help="Columns as in SQL, `id long, name string`, or a file to take them from."
        ),
    ],
    record_key: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns that identify a record.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns that make the partition path.")
    ] = None,
    ordering: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Columns whose larger value wins for one key."),
    ] = None,
    table_type: Annotated[
        str | None, typer.Option("--type", help="COPY_ON_WRITE (default) or MERGE_ON_READ.")
    ] = None,
    record_location: Annotated[
        str | None,
        typer.Option(
            "--index",
            help="bucket (default), simple, bloom, global_simple, global_bloom or record_index.",
        ),
    ] = None,
    buckets: Annotated[int | None, typer.Option(help="File groups per partition.")] = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Create a table."""
    from headwater.table import create_table

    declared = read_data_files([Path(schema)]).schema if Path(schema).is_file() else schema
    made = create_table(
        path,
        schema=declared,
        record_key=split_columns(record_key),
        partition_by=split_columns(partition_by),
        ordering=split_columns(ordering),
        table_type=table_type,
        index=record_location,
        buckets=buckets,
        options=parse_options(options),
    )
    output_of(output).show_fields({"name": made.name, "uri": made.uri})


@app.command()
def describe(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Show type, keys, partitioning and indexes of a table."""
    with open_given_table(path, options) as table:
        config, slices = table.config, table.inspect.slices()
    output_of(output).show_fields(
        {
            "name": config.name,
            "uri": table.uri,
            "version": config.version,
            "type": str(config.table_type),
            "record_key": list(config.record_key_fields),
            "partition_by": list(config.partition_columns),
            "ordering": list(config.ordering_fields),
            "index": None if config.index_type is None else str(config.index_type),
            "indexes": list(config.metadata_partitions),
            "file_groups": slices.num_rows,
        }
    )


@app.command()
def schema(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Show the columns of a table."""
    import pyarrow as pa

    with open_given_table(path, options) as table:
        columns = table.schema
    rows = {
        "column": columns.names,
        "type": [str(field.type) for field in columns],
        "nullable": [field.nullable for field in columns],
    }
    output_of(output).show_rows(pa.table(rows), nothing="The table has no columns yet.")


@app.command()
def history(
    path: TablePath,
    last: Annotated[int, typer.Option(min=1, help="How many commits, the newest ones.")] = 20,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show the commits of a table and what each did, newest first."""
    with open_given_table(path, options) as table:
        rows = _first(table.history(), last)
    output_of(output).show_rows(rows, nothing="Nothing was committed yet.")


@app.command()
def read(
    path: TablePath,
    columns: Columns = None,
    where: Annotated[str | None, typer.Option(help="A condition in SQL.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="An instant, a completion time or `2024-01-31 09:30:00`.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many rows; 100 on a screen unless given.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Write the rows to a .parquet, .arrow, .csv or .json file instead."),
    ] = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show rows of a table, or write them to a file, without Spark."""
    with open_given_table(path, options) as table, shown_while("reading"):
        rows = table.read_arrow(split_columns(columns), where=where, as_of=as_of)
    count = rows.num_rows
    if to is not None:
        written = _first(rows, limit)
        write_data_file(written, to)
        say(f"{written.num_rows:,} rows in {to}")
        return
    if limit is None and output is Format.TEXT:
        limit = _ROWS_OF_A_SCREEN
    shown = _first(rows, limit)
    output_of(output).show_rows(shown, nothing="No rows.")
    if shown.num_rows < count:
        say(f"{shown.num_rows:,} of {count:,} rows; --limit shows more, --to writes all to a file")


@app.command()
def write(
    path: TablePath,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files of .parquet, .arrow, .csv or .json lines."),
    ],
    operation: Annotated[
        WriteOperation, typer.Option(help="What to do with the rows.")
    ] = WriteOperation.UPSERT,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Write the rows of files in one commit, without Spark."""
    with open_given_table(path, options) as table, shown_while(f"{operation} of rows"):
        rows = read_data_files(files, like=table.schema)
        commit: Commit = getattr(table, operation.value)(rows)
    output_of(output).show_fields(
        {
            "instant": str(commit.instant),
            "completion_time": str(commit.completion_time),
            "inserted": commit.inserted,
            "updated": commit.updated,
            "deleted": commit.deleted,
            "file_groups": len(commit.file_groups),
        }
    )


@app.command()
def upgrade(
    path: TablePath,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    fenced: Annotated[
        bool | None,
        typer.Option(
            "--fenced/--no-fenced",
            help="Give the table a journal for its decisions, so that its writers need no lock; "
            "--no-fenced takes it away again. Writers are told to open the table again.",
        ),
    ] = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Make a table of version 6 or 8 one of version 9; stop its writers before. Or switch it."""
    from headwater.config.lock import PROVIDER
    from headwater.seams.open_storage import is_object_store
    from headwater.table import upgrade_table

    given = parse_options(options)
    with shown_while("upgrading"):
        done = upgrade_table(path, given, dry_run=dry_run, fenced=fenced)
    if fenced is False and PROVIDER.key not in given and not is_object_store(path):
        say(
            "warning: without its journal the table trusts a lock. If it has several writers, each "
            f"needs the same {PROVIDER.key}, such as filesystem, or is refused"
        )
    output_of(output).show_fields(
        {
            "from_version": done.from_version,
            "to_version": done.to_version,
            "is_done": done.is_done,
            "instants": done.instants,
            "archived_instants": done.archived,
            "compacted_file_groups": done.compacted,
            "drops_metadata_table": done.drops_metadata_table,
            "changed_properties": sorted(done.properties),
        }
    )


@app.command()
def drop(
    path: TablePath,
    options: TableOptions = None,
    yes: Confirmed = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Delete a table and all of its files, for good. Tables in folders of its folder stay."""
    from headwater.opening import delete_table

    with open_given_table(path, options) as table:
        confirm(f"Delete {table.uri} with all of its files, for good?", is_confirmed=yes)
        with shown_while("deleting"):
            count = delete_table(table.storage)
    output_of(output).show_fields({"uri": table.uri, "deleted_files": count})


def _first(rows: pa.Table, count: int | None) -> pa.Table:
    """Return so many rows, or all; Arrow takes no number that is longer than its own."""
    return rows if count is None else rows.slice(0, min(count, rows.num_rows))
