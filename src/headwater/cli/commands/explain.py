"""`headwater explain`: what a kind of error means, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.arguments import OutputFormat
from headwater.cli.explanations import EXPLANATIONS
from headwater.cli.output import Format, output_of
from headwater.errors import ErrorKind, InvalidInputError


def _kinds() -> list[str]:
    return [str(kind) for kind in ErrorKind]


def explain(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="What an error has in parentheses, such as conflict.early.",
            autocompletion=_kinds,
        ),
    ],
    output: OutputFormat = Format.TEXT,
) -> None:
    """Explain what a kind of error means and what to do about it."""
    if kind not in _kinds():
        raise InvalidInputError(
            f"There is no kind {kind!r} of error; kinds are {', '.join(_kinds())}"
        )
    cause, remedy = EXPLANATIONS[ErrorKind(kind)]
    output_of(output).show_fields({"kind": kind, "cause": cause, "remedy": remedy})
