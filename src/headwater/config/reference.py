"""The reference page of all options, made from their declarations.

python -m headwater.config.reference > docs/reference/options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from headwater.config.hudi_options import HARMLESS_OPTIONS, PAYLOAD_CLASS, PAYLOADS
from headwater.config.option import Option
from headwater.config.registry import OPTION_GROUPS, OPTION_PREFIXES
from headwater.config.source import SOURCE_OPTIONS, TABLE_KEYS
from headwater.config.unsupported import UNSUPPORTED_OPTIONS

_HEAD = """\
# Options

Options are Hudi's own keys, and a few that begin with `headwater.`; values are text, numbers or
booleans. An absent key means the default. A malformed value, a key of no known family, and a key
that Headwater sets by itself are errors, all reported at once. A `hoodie.*` key that nothing here
reads is kept and warned about. So nothing is ignored in silence.

Options about the table are stored in `hoodie.properties` when the table is created. Their defaults
are what an absent key means in a table that exists already.

This page is made from the declarations: `python -m headwater.config.reference`.
"""


def render() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for title, options in OPTION_GROUPS.items():
        parts.append(f"## {title}\n")
        parts.append(
            _table(("key", "value", "default", "meaning"), (_row(option) for option in options))
        )
    parts.append('## Data source\n\nOnly `format("headwater")` knows these.\n')
    parts.append(
        _table(("key", "value", "default", "meaning"), (_row(option) for option in SOURCE_OPTIONS))
    )
    parts.append("It also takes these names for options of the table.\n")
    parts.append(
        _table(("key", "meaning"), ((f"`{old}`", f"`{key}`") for old, key in TABLE_KEYS.items()))
    )
    parts.append("## Families of keys\n")
    parts.append(
        _table(
            ("keys", "meaning"),
            ((f"`{family.prefix}*`", family.doc) for family in OPTION_PREFIXES),
        )
    )
    parts.append("## Options of Hudi that become others\n")
    parts.append(
        _table(
            ("key", "value", "becomes"),
            (
                (f"`{PAYLOAD_CLASS}`", f"`{name}`", _assignments(becomes))
                for name, becomes in PAYLOADS.items()
            ),
        )
    )
    parts.append(
        "## Options of Hudi without effect\n\nThey change no row; each reason is said once, as a "
        "warning.\n"
    )
    parts.append(
        _table(("keys", "why"), ((f"`{each.pattern}`", each.why) for each in HARMLESS_OPTIONS))
    )
    parts.append("## Options of Hudi that are refused\n")
    parts.append(
        _table(
            ("key", "accepted", "instead"),
            ((f"`{option.key}`", option.limits, option.advice) for option in UNSUPPORTED_OPTIONS),
        )
    )
    return "\n".join(parts)


def _row(option: Option[Any, Any]) -> tuple[str, ...]:
    meaning = option.doc
    if option.aliases:
        meaning += " Older name: " + ", ".join(f"`{alias}`" for alias in option.aliases) + "."
    if option.is_managed:
        meaning += " Set by Headwater."
    return f"`{option.key}`", option.expectation, _default(option), meaning


def _assignments(options: Mapping[str, str]) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in options.items())


def _default(option: Option[Any, Any]) -> str:
    if option.default is None or option.default == ():
        return "none"
    if isinstance(option.default, Enum):
        return f"`{option.default.value}`"
    return f"`{option.encode(option.default)}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(render())
