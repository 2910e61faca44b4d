"""Keys that are taken from lines by position agree with those of file groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.kernel.txn.markers import Marker, MarkerKind, marker_name
from headwater.markers.conflict_keys import conflict_key, keys_of_lines, lines_with
from headwater.model.files import BaseFile, FileGroupId, LogFile
from headwater.model.instant import InstantTime

T = InstantTime("20260101000000000")
partitions = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="/\n\0"), min_size=1).filter(
        lambda part: part not in (".", "..")
    ),
    max_size=3,
).map("/".join)
file_ids = st.uuids().map(lambda found: f"{found}-0")


def name_of(group: FileGroupId, *, is_log: bool) -> str:
    token = "0-1-0"
    file = LogFile(*group, T, 1, token) if is_log else BaseFile(*group, token, T)
    return marker_name(Marker(file.path, MarkerKind.MERGE))


@pytest.mark.parametrize("is_bucketed", [False, True])
@given(st.lists(st.tuples(partitions, file_ids, st.booleans()), max_size=20))
def test_lines_have_the_keys_of_their_groups(
    is_bucketed: bool, files: list[tuple[str, str, bool]]
) -> None:
    groups = [(FileGroupId(partition, file_id), is_log) for partition, file_id, is_log in files]
    names = [name_of(group, is_log=is_log) for group, is_log in groups]
    expected = {conflict_key(group, is_bucketed=is_bucketed) for group, _ in groups}
    lines = "".join(f"{name}\n" for name in names).encode()
    assert keys_of_lines(lines, is_bucketed=is_bucketed) == expected
    assert lines_with(expected, lines, is_bucketed=is_bucketed) == [n.encode() for n in names]
    assert lines_with({b"none"}, lines, is_bucketed=is_bucketed) == []


def test_a_partition_with_underscores_is_no_trap() -> None:
    """Hudi takes all before the first underscore of the whole path for partition and file id."""
    first = FileGroupId("event_date=2026-01-01", "a-0")
    second = FileGroupId("event_date=2026-01-02", "b-0")
    keys = [
        keys_of_lines(name_of(group, is_log=False).encode(), is_bucketed=False)
        for group in (first, second)
    ]
    assert not keys[0] & keys[1]


def test_the_partition_is_part_of_the_key() -> None:
    keys = {conflict_key(FileGroupId(p, "a-0"), is_bucketed=False) for p in ("", "x", "x/y")}
    assert len(keys) == 3


@pytest.mark.parametrize("data", [b"", b"\n", b"no marker", b"\xff\xfe\n/\n_"])
def test_garbage_is_harmless(data: bytes) -> None:
    keys_of_lines(data, is_bucketed=False)
    keys_of_lines(data, is_bucketed=True)
