"""What two writers must not both touch, as short bytes that are fast to compare.

The key of a file group is its partition and file id; in a table with a bucket index, its partition
and bucket, since two groups may not share one (INV-65). Never the file id alone: two partitions may
hold equal ones (H-66).

Keys are made for hundreds of thousands of markers at a time, so they are taken from the lines of
marker files by position. In rare cases, such as a partition whose name begins with a dot, two
groups get one key: whoever finds equal keys looks at the markers themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from headwater.model.files import FileGroupId

_BUCKET_LENGTH = 8
"""The first characters of a file id are the number of its bucket."""


def conflict_key(group: FileGroupId, *, is_bucketed: bool) -> bytes:
    """Return the key of a file group."""
    file_id = group.file_id[:_BUCKET_LENGTH] if is_bucketed else group.file_id
    path = f"{group.partition}/{file_id}" if group.partition else file_id
    return path.replace("/.", "/").removeprefix(".").encode()


def keys_of_lines(lines: bytes, *, is_bucketed: bool) -> set[bytes]:
    """Return the keys of marker names, one in each line. Lines that are no names may give any."""
    keys = set(_line_keys(lines, is_bucketed))
    keys.discard(b"")
    return keys


def lines_with(keys: Collection[bytes], lines: bytes, *, is_bucketed: bool) -> list[bytes]:
    """Return the lines whose key is one of these."""
    by_line = zip(lines.split(b"\n"), _line_keys(lines, is_bucketed), strict=True)
    return [line for line, key in by_line if key in keys]


def _line_keys(lines: bytes, is_bucketed: bool) -> list[bytes]:
    # Names of log files begin with a dot.
    plain = lines.removeprefix(b".").replace(b"\n.", b"\n").replace(b"/.", b"/").split(b"\n")
    if is_bucketed:
        return [line[: line.rfind(b"/") + 1 + _BUCKET_LENGTH] for line in plain]
    return [line[: line.find(b"_", line.rfind(b"/") + 1)] for line in plain]
