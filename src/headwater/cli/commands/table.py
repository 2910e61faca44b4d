"""`headwater table`: what a table is."""

from __future__ import annotations

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, TablePath, open_given_table
from headwater.cli.output import Format, output_of

app = typer.Typer(no_args_is_help=True, help="A table as a whole.")


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
            "type": str(config.table_type),
            "record_key": list(config.record_key_fields),
            "partition_by": list(config.partition_columns),
            "ordering": list(config.ordering_fields),
            "index": None if config.index_type is None else str(config.index_type),
            "indexes": list(config.metadata_partitions),
            "file_groups": slices.num_rows,
        }
    )
