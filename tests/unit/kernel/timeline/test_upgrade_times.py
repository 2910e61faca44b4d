"""Completion times of an upgraded timeline: each instant gets one, and no two are equal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from headwater.format.timeline.archived_entries import ArchivedEntry
from headwater.kernel.timeline.upgrade import OldTimeline, archived_rows
from headwater.model.instant import InstantTime
from headwater.seams.storage import ObjectInfo

FIRST, SECOND, THIRD = "20240101000000000", "20240101000000001", "20240101000100000"


def milliseconds(second: float) -> int:
    return int((datetime(2024, 1, 1, tzinfo=UTC).timestamp() + second) * 1000)


def old(modified: Mapping[str, float]) -> OldTimeline:
    return OldTimeline(
        {
            name: ObjectInfo(f".hoodie/{name}", 1, milliseconds(second))
            for name, second in modified.items()
        }
    )


def test_completion_times_are_those_of_the_files_if_all_of_them_may_be() -> None:
    files = {
        f"{FIRST}.commit": 2.5,
        f"{FIRST}.commit.requested": 0.1,
        f"{THIRD}.commit": 61.0,
    }
    assert old(files).completion_times(is_utc=True) == {
        f"{FIRST}.commit": "20240101000002500",
        f"{THIRD}.commit": "20240101000101000",
    }


def test_completion_times_of_a_copy_follow_from_the_requested_ones() -> None:
    files = {f"{FIRST}.commit": 900, f"{SECOND}.clean": 900, f"{THIRD}.commit": 900}
    found = old(files).completion_times(is_utc=True)
    # The millisecond after the first is that of the second.
    assert found == {
        f"{FIRST}.commit": "20240101000000002",
        f"{SECOND}.clean": "20240101000000003",
        f"{THIRD}.commit": "20240101000100001",
    }


def test_completion_times_of_savepoints_differ_from_those_of_their_commits() -> None:
    files = {f"{FIRST}.commit": 5, f"{FIRST}.savepoint": 5}
    found = old(files).completion_times(is_utc=True)
    assert len(set(found.values())) == 2


def test_completion_times_of_archived_instants_are_those_noted_if_they_may_be() -> None:
    entries = [
        ArchivedEntry(FIRST, "commit", "COMPLETED", "20240101000050000", b"one"),
        ArchivedEntry(FIRST, "commit", "COMPLETED", "20240101000050000", b"again"),
        ArchivedEntry(SECOND, "compaction", "REQUESTED", None, b"plan"),
        ArchivedEntry(SECOND, "commit", "COMPLETED", None, b"two"),
        ArchivedEntry(THIRD, "deltacommit", "INFLIGHT", None, b""),
    ]
    rows = archived_rows(entries, [], [InstantTime(THIRD)])
    assert [(row.instant.requested_time, row.metadata, row.plan) for row in rows] == [
        (FIRST, b"one", b""),
        (SECOND, b"two", b"plan"),
    ]
    # That of the first is after the second began, so it is not believed.
    assert [row.instant.completion_time for row in rows] == [
        "20240101000000002",
        "20240101000000003",
    ]
