"""The reference pages of all options, made from their declarations.

python -m headwater.config.reference > docs/reference/options.md
python -m headwater.config.reference hudi > docs/reference/hudi-options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from headwater.config.hudi_keys import HudiKey, load_hudi_keys
from headwater.config.hudi_options import MAPPED_VALUES, PAYLOAD_CLASS, PAYLOADS, RENAMED_OPTIONS
from headwater.config.option import Option
from headwater.config.registry import OPTION_GROUPS, OPTION_PREFIXES, fate_of
from headwater.config.source import SOURCE_OPTIONS, TABLE_KEYS

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
                *((f"`{key}`", "any", f"`{own}`") for key, own in RENAMED_OPTIONS.items()),
                *(
                    (f"`{PAYLOAD_CLASS}`", f"`{name}`", _assignments(becomes))
                    for name, becomes in PAYLOADS.items()
                ),
                *(
                    (f"`{key}`", f"`{value}`", _assignments(becomes) or "nothing")
                    for key, values in MAPPED_VALUES.items()
                    for value, becomes in values.items()
                ),
            ),
        )
    )
    parts.append(
        "## All options of Hudi\n\nWhich of them are honoured, which have no effect and which are "
        "refused: [options of Apache Hudi](hudi-options.md).\n"
    )
    return "\n".join(parts)


_HUDI_HEAD = """\
# Options of Apache Hudi

Every option that Hudi 1.2 declares, by the pages of its documentation, and what becomes of it here.

| | |
| --- | --- |
| honoured | read, and means what it means to Hudi; [options](options.md) says how |
| mapped | becomes another option with the same effect |
| harmless | changes no row; why is said once, as a warning |
| refused | would change what happens, so it is an error; values that are accepted are named |

A key of `hoodie.` that is not on this page is kept and warned about. Options given to a table, to
`format("headwater")`, to `hw.sql` or by `SET` in it go through the same check.

This page is made from the declarations: `python -m headwater.config.reference hudi`.
"""


def render_hudi() -> str:
    """Return the page about Hudi's options as Markdown."""
    parts = [_HUDI_HEAD]
    for title, keys in load_hudi_keys().items():
        parts.append(f"## {title}\n")
        parts.append(_table(("key", "Hudi's default", "here", ""), map(_hudi_row, keys)))
    return "\n".join(parts)


def _hudi_row(key: HudiKey) -> tuple[str, ...]:
    fate, why = fate_of(key.key)
    shown = f"`{key.key}`" + "".join(f", `{older}`" for older in key.older_names)
    return shown, f"`{key.default}`" if key.default else "none", fate, why


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
    sys.stdout.write(render_hudi() if sys.argv[1:] == ["hudi"] else render())
