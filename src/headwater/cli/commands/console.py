"""`headwater console`: tables at work as a web page, until Ctrl-C."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, open_given_table
from headwater.cli.output import Format, output_of, say
from headwater.cli.stopping import Stop, stopped_by_signals
from headwater.errors import InvalidInputError
from headwater.seams.network import LOOPBACK


def console(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH…", help="The tables: local paths or s3://bucket/table."),
    ],
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="Offer buttons that cancel plans, run services and roll back dead writes.",
        ),
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = LOOPBACK,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; any free one unless given.")
    ] = 0,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Another name that browsers reach it by, such as a proxy's; may be repeated.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Holds the token to ask for; a random one unless given."),
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long; never unless given.")
    ] = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Serve a web page that shows tables at work. Only who has the address it prints can look."""
    # Servers are loaded by who runs one.
    from headwater.console.serving import Console, new_token
    from headwater.seams.network import is_loopback

    with ExitStack() as stack:
        tables = [stack.enter_context(open_given_table(path, options)) for path in paths]
        clock, ids = tables[0].context.clock, tables[0].context.ids
        if not is_loopback(host):
            say(
                "The console has no TLS: whoever reads this network reads the token. Listen on "
                "loopback and reach it by `ssh -L`, or put a proxy with TLS in front."
            )
        served = Console(
            tables,
            token=new_token(ids) if token_file is None else _read_token(token_file),
            host=host,
            port=port,
            names=name or (),
            allows_actions=allow_actions,
            every_ms=int(every * 1000),
        )
        stack.enter_context(served)
        output_of(output).show_fields(
            {
                "url": served.url,
                "tables": [table.uri for table in tables],
                "actions": "allowed" if allow_actions else "off; --allow-actions offers them",
            }
        )
        # Signals are asked for, since a process in the background of a shell ignores Ctrl-C's.
        stop = Stop(clock)
        with stopped_by_signals(stop, "The console ends."):
            stop.wait(math.inf if seconds is None else seconds)


def _read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"The token cannot be read from {file}: {error}") from error
