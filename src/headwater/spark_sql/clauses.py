"""What a statement on a table of ours may say.

sqlglot reads the clauses of many dialects. One at which nobody here looks would be left out in
silence, and the statement would run on more rows than it says.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from headwater.errors import UnsupportedError

NAME = frozenset({"this", "db", "catalog"})
"""What a table is named by."""


def check_clauses(part: exp.Expr, known: Collection[str], form: str) -> None:
    """Refuse a part of a statement that says more than is understood.

    Args:
        known: the arguments of sqlglot's that whoever calls looks at.
        form: what can be said.

    Raises:
        UnsupportedError
    """
    others = [name for name, value in part.args.items() if value and name not in known]
    if others:
        raise UnsupportedError(
            f"{', '.join(_shown(part, name) for name in others)} is not supported here, only "
            f"{form}. Leave it out, or say it otherwise"
        )


def check_target(name: exp.Table, known: Collection[str], form: str) -> None:
    """Refuse what stands beside the name of the table that a statement changes.

    Raises:
        UnsupportedError: a time, a sample, a join, names of columns after an alias.
    """
    check_clauses(name, {*NAME, *known}, form)
    alias = name.args.get("alias")
    if alias is not None:
        check_clauses(alias, {"this"}, form)


def _shown(part: exp.Expr, name: str) -> str:
    """Return a clause as it is written, as far as sqlglot can write it."""
    value = part.args[name]
    listed = value if isinstance(value, list) else [value]
    texts = [
        each.sql(dialect="spark") if isinstance(each, exp.Expr) else each
        for each in listed
        if isinstance(each, exp.Expr | str)
    ]
    word = name.strip("_").replace("_", " ").upper()
    text = ", ".join(texts).strip()
    return text if text.upper().startswith(word.split()[0]) else f"{word} {text}".strip()
