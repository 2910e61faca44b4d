"""Files of our own: JSON objects that old and new releases read side by side (INV-89).

    format_version   1; a file without it is of a release before there were versions
    release          the release that wrote it, to be named to who cannot read it
    checksum         of all other fields, behind the release that made it; a release that keeps it
                     as a field it does not know names itself above
    ...              the fields of the file

A release that only adds fields keeps the version: who does not know them ignores them, and keeps
them where it writes the file anew. A release that gives a field another meaning, or a new one that
must not be ignored, raises the version, and older releases refuse the file and leave it alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from headwater.config.limits import check_object_bytes
from headwater.errors import ErrorKind, UnsupportedError
from headwater.format.strict_json import load_json

FORMAT_VERSION = 1
VERSION_FIELD = "format_version"
RELEASE_FIELD = "release"
CHECKSUM_FIELD = "checksum"


def encode_own(fields: Mapping[str, Any], unknown: str = "") -> bytes:
    """Encode a file; `unknown` is what `unknown_fields` gave for the file that it replaces."""
    content = own_fields(fields, unknown)
    text = json.dumps(content, sort_keys=True)
    checksum = _checksum_of(text.encode(), content)
    if min(content) > CHECKSUM_FIELD:  # It comes first, and nothing is encoded twice.
        return f'{{"{CHECKSUM_FIELD}": {json.dumps(checksum)}, {text[1:]}'.encode()
    return json.dumps({**content, CHECKSUM_FIELD: checksum}, sort_keys=True).encode()


def own_fields(fields: Mapping[str, Any], unknown: str = "") -> dict[str, Any]:
    """Return the fields with the version, for files that have other writers as well."""
    kept: dict[str, Any] = json.loads(unknown) if unknown else {}
    return {**kept, **fields, VERSION_FIELD: FORMAT_VERSION, RELEASE_FIELD: _this_release()}


def decode_own(data: bytes, *, path: str) -> dict[str, Any]:
    """Return the fields of a file.

    Raises:
        ValueError: it is no JSON object, or not the one that was written.
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    check_object_bytes(data, path)
    fields = load_json(data)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    check_version(fields, path=path)
    checksum = fields.pop(CHECKSUM_FIELD, None)
    is_of_writer = isinstance(checksum, str) and checksum.startswith(
        f"{fields.get(RELEASE_FIELD)} "
    )
    if is_of_writer and checksum not in _checksums(data, fields, checksum):
        raise ValueError("its checksum is that of other content")
    return fields


def _checksums(data: bytes, fields: Mapping[str, Any], said: str) -> Iterator[str]:
    """Give what the checksum of a file may be: of its own text, else of its fields."""
    # As it was written, it is the text without the checksum. To encode the fields again takes
    # longer than all the rest.
    before, _, after = data.partition(f'"{CHECKSUM_FIELD}": "{said}"'.encode())
    is_last = not after.startswith(b", ")
    text = before.removesuffix(b", ") + after if is_last else before + after.removeprefix(b", ")
    yield _checksum_of(text, fields)
    yield _checksum(fields)


def _checksum(fields: Mapping[str, Any]) -> str:
    return _checksum_of(json.dumps(fields, sort_keys=True).encode(), fields)


def _checksum_of(text: bytes, fields: Mapping[str, Any]) -> str:
    return f"{fields[RELEASE_FIELD]} {zlib.crc32(text):08x}"


def check_version(fields: Mapping[str, Any], *, path: str) -> None:
    """Refuse a version that this release does not know.

    Raises:
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION.
    """
    check_version_number(fields.get(VERSION_FIELD), fields.get(RELEASE_FIELD), path=path)


def check_version_number(found: object, release: object, *, path: str) -> None:
    """Refuse a version that this release does not know; None is that of the first releases.

    Raises:
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION.
    """
    if found is None or (isinstance(found, int) and 0 <= found <= FORMAT_VERSION):
        return
    newer = f"release {release}" if release else "a newer release"
    raise UnsupportedError(
        f"{path} has format version {found}, and this is Headwater {_this_release()}, which knows "
        f"versions up to {FORMAT_VERSION}. Headwater {release or '(unnamed)'} wrote it: use "
        f"{newer} or a later one here. Do not delete the file, its owner may be at work",
        kind=ErrorKind.UNSUPPORTED_FILE_VERSION,
        path=path,
    )


def unknown_fields(fields: Mapping[str, Any], known: Collection[str]) -> str:
    """Return the fields that this release does not know, as text; empty if there are none."""
    kept = {
        name: value
        for name, value in fields.items()
        if name not in known and name not in (VERSION_FIELD, RELEASE_FIELD, CHECKSUM_FIELD)
    }
    return json.dumps(kept, sort_keys=True) if kept else ""


@cache
def _this_release() -> str:
    # Loaded late: readers of tables never ask, and it takes long.
    from importlib.metadata import version

    return version("headwater")
