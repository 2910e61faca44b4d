"""What a write waits for: the bytes, and the names that must outlive a power cut."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.tables import FENCED, LOCKED, MOR, a_table, trips

from headwater.kernel import layout
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.seams.durability import must_outlive_power_cut
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage

TIME = "20260101000000000"


@pytest.mark.parametrize(
    "path",
    [
        f"{layout.HOODIE}/lock",
        f"{layout.HOODIE}/lock.epoch",
        f"{layout.HOODIE}/lock.takeover",
        f"{layout.HOODIE}/.locks/a-key.lock",
        f"{layout.HEARTBEATS}/{TIME}",
        layout.CLOCK,
        f"{layout.METADATA}/{layout.HEARTBEATS}/{TIME}",
    ],
)
def test_what_speaks_of_live_processes_need_not_outlive_them(path: str) -> None:
    assert not must_outlive_power_cut(path)


@pytest.mark.parametrize(
    "path",
    [
        layout.PROPERTIES,
        f"{layout.TableLayout().timeline}/{TIME}.deltacommit.requested",
        f"{layout.ATTEMPTS}/{TIME}/00001.json",
        f"{layout.CANCELS}/{TIME}",
        f"{layout.MARKERS}/{TIME}/a.parquet.marker.CREATE",
        "lock",
        "city=lock/.hoodie_partition_metadata",
        ".hoodie/lock.file.parquet",
    ],
)
def test_everything_else_must(path: str) -> None:
    assert must_outlive_power_cut(path)


class TestSyncs:
    @pytest.fixture
    def synced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What was synced so far: "name" for a folder, "bytes" for a file.

        Threads that other tests have left sync files of their own tables.
        """
        synced: list[str] = []
        fsync = os.fsync

        def watched(descriptor: int) -> None:
            opened = f"/proc/self/fd/{descriptor}"
            if os.readlink(opened).startswith(str(tmp_path)):
                synced.append("name" if os.path.isdir(opened) else "bytes")
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", watched)
        return synced

    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        for folder in ("data", layout.HEARTBEATS):
            (tmp_path / folder).mkdir(parents=True)
        return LocalStorage(tmp_path)

    def test_bytes_come_before_their_name(self, storage: LocalStorage, synced: list[str]) -> None:
        storage.put("data/a", b"content")
        storage.put_if_absent("data/b", b"content")
        assert synced == ["bytes", "name"] * 2

    def test_an_empty_file_has_nothing_but_its_name(
        self, storage: LocalStorage, synced: list[str]
    ) -> None:
        storage.put_if_absent("data/a", b"")
        assert synced == ["name"]

    def test_names_of_one_folder_are_synced_together(
        self, storage: LocalStorage, synced: list[str]
    ) -> None:
        storage.put_many({"data/a": b"", "data/b": b"content", "data/c": b"more"})
        assert sorted(synced) == ["bytes", "bytes", "name"]
        assert synced[-1] == "name"

    def test_a_heartbeat_waits_for_nothing(self, storage: LocalStorage, synced: list[str]) -> None:
        storage.put(f"{layout.HEARTBEATS}/{TIME}", b"")
        assert synced == []

    def test_a_lock_is_whole_if_it_outlives_a_power_cut(
        self, storage: LocalStorage, synced: list[str]
    ) -> None:
        provider = FileSystemLockProvider(storage, ManualClock(), SystemIds())
        provider.acquire(timeout_ms=0).release()
        assert synced == ["bytes", "bytes"]  # The lock and its token.

    @pytest.mark.parametrize(
        ("options", "times"),
        [
            # Two slots, the marker with its folder, the data file, the log of the metadata table.
            (FENCED, {"name": 6, "bytes": 4}),
            # The lock, an attempt, timeline files of the table and of the metadata table besides.
            (LOCKED, {"name": 12, "bytes": 10}),
        ],
        ids=["journal", "lock"],
    )
    def test_how_often_a_small_commit_waits(
        self, tmp_path: Path, synced: list[str], options: dict[str, str], times: dict[str, int]
    ) -> None:
        table = a_table(tmp_path, table_type=MOR, buckets=1, options=options)
        made = table.with_options({"headwater.storage.fsync": "true"}).with_commits(3).create()
        synced.clear()
        made.upsert(trips(("a", "sf", 9)))
        assert Counter(synced) == times
