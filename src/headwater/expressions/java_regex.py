"""Regular expressions of Java, as Spark has them, in the syntax of RE2, as Arrow has them.

Only what means the same in both is taken, or can be said in the other. The differences:

    .       Java's does not match the ends of lines, of which it knows more than `\\n`
    $       Java's is also before the end of the last line, so it is taken at the end of a pattern
    \\b     like classes of Unicode, look-around, back references, possessive quantifiers and `&&`:
            refused, because RE2 lacks them or means something else by them
"""

from __future__ import annotations

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_LINE_ENDS}]"
_END = rf"(?:\r\n|[{_LINE_ENDS}])?\z"

_PLAIN_ESCAPES = frozenset("dDwWtnrf") | frozenset(r"\.[]{}()*+-?^$|/")
"""What a backslash may stand before, inside of brackets and outside."""
_SPACES = {"s": r"\t\n\x{0b}\f\r ", "S": r"\t\n\x{0b}\f\r "}
"""Java's \\s also matches the vertical tab, RE2's does not."""


def re2_of(pattern: str) -> str:
    """Return a pattern for RE2 that matches what Java's does.

    Raises:
        ValueError: it has something that RE2 has not, or not as Java means it.
    """
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
            parts.append(_escape(pattern, at))
        elif sign == "[":
            found, at = _brackets(pattern, at)
            parts.append(found)
        elif sign == "(" and pattern[at + 1 : at + 2] == "?" and pattern[at + 2 : at + 3] != ":":
            raise ValueError(f"{pattern[at : at + 3]} is not the same in both")
        elif sign == "$":
            if at + 1 < len(pattern) and pattern[at + 1] not in "|)":
                raise ValueError("$ is taken at the end only")
            parts.append(_END)
        elif sign == ".":
            parts.append(_ANY)
        elif sign == "+" and at and pattern[at - 1] in "*+?}" and _is_quantified(pattern, at - 1):
            raise ValueError("possessive quantifiers are not the same in both")
        else:
            parts.append(sign)
        at += 1
    return "".join(parts)


def _is_quantified(pattern: str, at: int) -> bool:
    """Whether the sign at a place is a quantifier, and not one with a backslash before it."""
    slashes = len(pattern[:at]) - len(pattern[:at].rstrip("\\"))
    return slashes % 2 == 0


def _escape(pattern: str, at: int) -> str:
    sign = pattern[at : at + 1]
    if sign in _SPACES:
        return f"[{'^' if sign == 'S' else ''}{_SPACES[sign]}]"
    if sign not in _PLAIN_ESCAPES or not sign:
        raise ValueError(f"\\{sign} is not the same in both")
    return "\\" + sign


def _brackets(pattern: str, start: int) -> tuple[str, int]:
    """Return a class of characters, and the place of its last bracket."""
    at = start + 1
    parts = ["["]
    if pattern[at : at + 1] == "^":
        parts.append("^")
        at += 1
    while at < len(pattern):
        sign = pattern[at]
        if sign == "]":
            if at == start + 1 or (at == start + 2 and parts[-1] == "^"):
                raise ValueError("an empty class of characters is not the same in both")
            return "".join([*parts, "]"]), at
        if sign == "\\":
            at += 1
            escaped = pattern[at : at + 1]
            if escaped == "S" or escaped not in _PLAIN_ESCAPES | {"s"} or not escaped:
                raise ValueError(f"\\{escaped} in brackets is not the same in both")
            parts.append(_SPACES["s"] if escaped == "s" else "\\" + escaped)
        elif sign == "[" or pattern.startswith("&&", at):
            raise ValueError("classes within classes are not the same in both")
        else:
            parts.append(sign)
        at += 1
    raise ValueError("a bracket has no end")
