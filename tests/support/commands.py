"""The commands of `headwater`, as the command line itself has them."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from headwater.cli.main import app

Words = tuple[str, ...]


def all_commands(group: typer.Typer = app, words: Words = ()) -> Iterator[Words]:
    """Give the words of every command."""
    for command in group.registered_commands:
        assert command.callback is not None
        yield *words, command.name or command.callback.__name__.replace("_", "-")
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from all_commands(inner.typer_instance, (*words, str(inner.name)))
