"""`headwater index`: building indexes beside writers, and taking them away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import (
    OutputFormat,
    TableOptions,
    TablePath,
    open_given_table,
    split_columns,
)
from headwater.cli.exit_codes import PROBLEMS_FOUND
from headwater.cli.output import Format, Output, output_of
from headwater.cli.progress import shown_indexing

if TYPE_CHECKING:
    from headwater.metadata.indexing import IndexedPlan

PlanInstant = Annotated[str, typer.Argument(metavar="INSTANT", help="The plan's instant.")]
IndexName = Annotated[
    str, typer.Argument(metavar="NAME", help="As `headwater index list` shows it.")
]

app = typer.Typer(no_args_is_help=True, help="Indexes of a table.")

IndexNames = Annotated[
    list[str],
    typer.Argument(
        metavar="INDEX...",
        help="files, column_stats, partition_stats, bloom_filters, record_index or "
        "secondary_index_<name>.",
    ),
]
IndexColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="The columns of column_stats or of a secondary index.",
    ),
]


@app.command("list")
def list_indexes(
    path: TablePath, options: TableOptions = None, output: OutputFormat = Format.TEXT
) -> None:
    """Show the indexes of a table and the state of each."""
    with open_given_table(path, options) as table:
        rows = table.indexes.list()
    output_of(output).show_rows(rows, nothing="The table has no indexes.")


@app.command()
def create(
    path: TablePath,
    names: IndexNames,
    columns: IndexColumns = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Plan indexes and build them while writers go on."""
    with open_given_table(path, options) as table, shown_indexing() as report:
        done = table.indexes.create(names, columns=split_columns(columns), progress=report)
    _show_plans(output_of(output), [] if done is None else [done], "The table has them already.")


@app.command()
def schedule(
    path: TablePath,
    names: IndexNames,
    columns: IndexColumns = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Plan indexes for `headwater index run` to build; writers keep them up to date."""
    with open_given_table(path, options) as table:
        instant = table.indexes.schedule(names, columns=split_columns(columns))
    output_of(output).show_fields({"instant": instant})


@app.command()
def run(
    path: TablePath,
    instant: Annotated[
        str | None, typer.Option(help="The plan to build; by default all that wait.")
    ] = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Build what was planned, or resume a build that died."""
    with open_given_table(path, options) as table, shown_indexing() as report:
        done = table.indexes.run(instant, progress=report)
    _show_plans(output_of(output), done, "No index waits to be built.")


@app.command()
def cancel(
    path: TablePath,
    instant: PlanInstant,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Give up a plan and delete what it has built so far."""
    with open_given_table(path, options) as table:
        table.indexes.cancel(instant)
    output_of(output).show_fields({"cancelled": instant})


@app.command()
def drop(
    path: TablePath,
    name: IndexName,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Drop an index."""
    with open_given_table(path, options) as table:
        table.indexes.drop(name)
    output_of(output).show_fields({"dropped": name})


def _show_plans(output: Output, plans: list[IndexedPlan], nothing: str) -> None:
    import pyarrow as pa

    schema = pa.schema(
        {
            "instant": pa.string(),
            "finished": pa.list_(pa.string()),
            "left_out": pa.list_(pa.string()),
        }
    )
    rows = [
        {
            "instant": plan.instant.requested_time,
            "finished": sorted(plan.finished),
            "left_out": [f"{name}: {error}" for name, error in sorted(plan.left_out.items())],
        }
        for plan in plans
    ]
    output.show_rows(pa.Table.from_pylist(rows, schema), nothing=nothing)
    if any(plan.left_out for plan in plans):
        raise typer.Exit(PROBLEMS_FOUND)
