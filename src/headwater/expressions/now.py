"""The moment that a condition is asked at, said in the condition.

`current_date`, `current_timestamp` and the like become literals before anybody evaluates them. So
whoever skips files by a condition and whoever evaluates it on rows, who may be Spark, mean the same
moment.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import TokenType
from sqlglot.errors import TokenError

from headwater.config.arguments import text_of
from headwater.expressions.parse import HeadwaterSpark

_DAYS = ("current_date", "curdate")
_MOMENTS = ("current_timestamp", "now")
_LOCAL_MOMENTS = ("localtimestamp",)
_NEED_BRACKETS = ("curdate", "now")
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


def with_now_said(text: str, columns: Collection[str], zone: str, now: datetime) -> str:
    """Return a condition or value with literals in place of what asks for the time.

    Args:
        columns: names that may be used in it. As in Spark, one of them goes before a function
            without brackets.
        zone: by which it is decided which day it is.

    Raises:
        InvalidInputError: the text or the zone is none.
    """
    text_of(text, "A condition or value in SQL")
    text_of(zone, "A time zone")
    try:
        tokens = HeadwaterSpark().tokenize(text)
        local = now.astimezone(ZoneInfo(zone))
    except (TokenError, ZoneInfoNotFoundError, ValueError):
        return text  # Whoever evaluates it says what is wrong.
    known = {name.lower() for name in columns}
    parts, end = [], 0
    for at, token in enumerate(tokens):
        name = token.text.lower()
        literal = _literal(name, local)
        is_field = at > 0 and tokens[at - 1].token_type is TokenType.DOT
        if literal is None or is_field or token.token_type in _QUOTED:
            continue
        brackets = tokens[at + 1 : at + 3]
        has_brackets = [each.text for each in brackets] == ["(", ")"]
        if not has_brackets and (name in known or name in _NEED_BRACKETS):
            continue
        parts += [text[end : token.start], literal]
        end = (brackets[1] if has_brackets else token).end + 1
    return "".join([*parts, text[end:]])


def _literal(name: str, local: datetime) -> str | None:
    if name in _DAYS:
        return f"DATE '{local.date()}'"
    if name in _MOMENTS:
        moment = local.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")
        return f"TIMESTAMP '{moment}'"
    if name in _LOCAL_MOMENTS:
        moment = local.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        return f"TIMESTAMP_NTZ '{moment}'"
    return None
