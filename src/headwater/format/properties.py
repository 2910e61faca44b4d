"""Java properties text, the syntax of `hoodie.properties` and of partition metafiles (format 1.1).

Java reads almost anything as properties: a torn or foreign file comes out as odd keys, not as an
error. Every writer of these files uses `Properties.store`, so what that method can never produce
proves damage and is refused:

- a control character other than tab, form feed and line ends (NUL included);
- a `\\u` that is not followed by four hex digits, or that is half of a surrogate pair;
- a line without `=`, `:` or blank between key and value;
- one key with two different values;
- a last line without line end, or one that a backslash continues into nothing.

All else is read as Java reads it.

Hudi's files have no checksum but that of the table's name. Ours have one in a comment, of all bytes
of the file with zeros in its place. Java drops comments when it writes a file anew, and with them a
checksum that is true no more.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping

from headwater.config.limits import check_object_bytes
from headwater.config.table import table_checksum
from headwater.config.table_options import CHECKSUM, DATABASE, NAME
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError

_CHECKSUM = re.compile(rb"headwater\.crc32=([0-9a-f]{8})")
_NO_CHECKSUM = b"00000000"
_LINE_END = re.compile(r"\r\n|\n|\r")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_BLANKS = " \t\f"
_READ_AS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_AS = {char: f"\\{letter}" for letter, char in _READ_AS.items()} | {
    char: f"\\{char}" for char in "\\=:#!"
}


def parse_properties(data: bytes, *, path: str) -> dict[str, str]:
    """Return the keys and values of a properties file.

    Raises:
        CorruptTableError: kind CORRUPT_PROPERTIES, naming `path` and the line.
    """
    check_object_bytes(data, path)
    properties: dict[str, str] = {}
    for number, line in _logical_lines(data.decode("latin-1"), path):
        raw_key = _KEY.match(line)
        end = raw_key.end() if raw_key else 0
        separator = _SEPARATOR.match(line, end)
        if separator is None or separator.end() == end:
            raise _corrupt("has no = between key and value", path, number)
        key = _unescape(line[:end], path, number)
        value = _unescape(line[separator.end() :], path, number)
        if properties.setdefault(key, value) != value:
            raise _corrupt(f"sets {key} a second time, to another value", path, number)
    _check_bytes(data, path)  # Last: whatever else is wrong says more.
    return properties


def encode_properties(properties: Mapping[str, str], *, comment: str) -> bytes:
    """Return properties text in the given order, as Java's `Properties.store` would write it.

    Raises:
        InvalidInputError: a key or value holds half a surrogate pair, which no file can carry.
    """
    readable = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", comment)
    lines = [f"#{line}" for line in _LINE_END.split(readable)]
    lines.append(f"#headwater.crc32={_NO_CHECKSUM.decode()}")
    lines += [
        f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}"
        for key, value in properties.items()
    ]
    data = "".join(f"{line}\n" for line in lines).encode("latin-1", "backslashreplace")
    found = _CHECKSUM.search(data)
    return (
        data if found is None else _with_checksum(data, found, f"{zlib.crc32(data):08x}".encode())
    )


def _check_bytes(data: bytes, path: str) -> None:
    """Compare a file with its own checksum, if it has one."""
    found = _CHECKSUM.search(data)
    if found is None:
        return
    if zlib.crc32(_with_checksum(data, found, _NO_CHECKSUM)) != int(found[1], 16):
        raise CorruptTableError(
            "The bytes are not those that were written, by the checksum among them; the file was "
            "damaged or edited by hand. Restore it from a copy; if the change was meant, delete "
            "the line that begins with #headwater.crc32",
            kind=ErrorKind.CORRUPT_PROPERTIES,
            path=path,
        )


def _with_checksum(data: bytes, found: re.Match[bytes], digits: bytes) -> bytes:
    return data[: found.start(1)] + digits + data[found.end(1) :]


def check_table_checksum(properties: Mapping[str, str], *, path: str) -> None:
    """Raise unless the properties carry the checksum of their table name, or none (format 1.3).

    Raises:
        CorruptTableError: kind CORRUPT_CHECKSUM for a wrong checksum, kind CORRUPT_PROPERTIES for
            a file without a table name.
    """
    if NAME.key not in properties:
        raise CorruptTableError(
            f"{NAME.key} is missing, so this is no table config or it was cut short; restore the "
            "file from a copy",
            kind=ErrorKind.CORRUPT_PROPERTIES,
            path=path,
        )
    stored = properties.get(CHECKSUM.key)
    expected = table_checksum(properties.get(DATABASE.key), properties[NAME.key])
    if stored is not None and stored.strip() != str(expected):
        raise CorruptTableError(
            f"{CHECKSUM.key} is {stored}, but the table's name gives {expected}; the file was "
            "damaged or edited by hand. Restore it, or correct the checksum if the name is right",
            kind=ErrorKind.CORRUPT_CHECKSUM,
            path=path,
        )


def _logical_lines(text: str, path: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines that set a property, with continuation lines joined."""
    natural = _LINE_END.split(text)
    if natural.pop():
        raise _corrupt("is not complete: the file was cut short", path, len(natural) + 1)
    pending, start, is_open = "", 0, False
    for number, line in enumerate(natural, 1):
        if _CONTROL.search(line):
            raise _corrupt("holds control characters", path, number)
        content = line.lstrip(_BLANKS)
        is_comment = not pending and content[:1] in ("", "#", "!")
        is_open = not is_comment and _continues(content)
        if is_comment:
            continue
        start = start if pending else number
        pending += content[:-1] if is_open else content
        if pending and not is_open:
            yield start, pending
            pending = ""
    if is_open:
        raise _corrupt("goes on, but nothing follows: the file was cut short", path, len(natural))


def _continues(line: str) -> bool:
    """Whether the line ends in a backslash that no other backslash escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, path: str, number: int) -> str:
    if "\\" not in text:
        return text

    def replace(escape: re.Match[str]) -> str:
        code, char = escape.groups()
        if code is not None:
            return chr(int(code, 16))
        if char == "u":
            raise _corrupt("has a \\u without four hex digits", path, number)
        return _READ_AS.get(char, char)

    try:
        # Java writes characters beyond the basic plane as surrogate pairs.
        return _ESCAPE.sub(replace, text).encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise _corrupt("has half of a surrogate pair", path, number) from None


def _escape(text: str, *, is_key: bool) -> str:
    try:
        units = text.encode("utf-16-be")
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{text!r} holds half of a surrogate pair and cannot be written as a property"
        ) from None
    escaped = []
    for at in range(0, len(units), 2):
        char = chr(int.from_bytes(units[at : at + 2], "big"))
        if char == " " and (is_key or at == 0):
            escaped.append("\\ ")
        elif char in _WRITTEN_AS:
            escaped.append(_WRITTEN_AS[char])
        elif " " <= char <= "~":
            escaped.append(char)
        else:
            escaped.append(f"\\u{ord(char):04X}")
    return "".join(escaped)


def _corrupt(problem: str, path: str, number: int) -> CorruptTableError:
    return CorruptTableError(
        f"Line {number} {problem}. Restore the file from a copy, or repair it by hand",
        kind=ErrorKind.CORRUPT_PROPERTIES,
        path=path,
        line=number,
    )
