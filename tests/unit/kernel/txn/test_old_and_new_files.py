"""INV-89: files of yesterday's and tomorrow's releases, beside those of this one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, EarlyConflictError, ErrorKind, UnsupportedError
from headwater.format.own_json import FORMAT_VERSION, decode_own, encode_own
from headwater.format.timeline.records import encode_record
from headwater.kernel.txn.attempts import Attempt, Purpose, decode_attempt, encode_attempt
from headwater.kernel.txn.cancel_records import (
    AbortRecord,
    CancelCount,
    CancelEntry,
    count_plan,
    decode_abort,
    decode_count,
    decode_entry,
    encode_abort,
    encode_count,
    encode_entry,
)
from headwater.kernel.txn.heartbeat import beat_together
from headwater.kernel.txn.index_plan import (
    VERSION_KEY,
    PlannedIndex,
    decode_index_plan,
    encode_index_plan,
)
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.lock_file import Epoch, LockFile, parse_epoch, parse_lock_file
from headwater.kernel.txn.locks.storage_based import (
    StorageBasedLockProvider,
    StorageLock,
    parse_storage_lock,
)
from headwater.markers.abort_signal import AbortSignal, abort_signal_path, leave_abort_signal
from headwater.model.instant import InstantTime
from headwater.model.plans import IndexPartitionInfo, IndexPlan
from headwater.seams.ids import Owner, SystemIds

TIME = InstantTime("20260101000000000")
OTHER = InstantTime("20260101000000001")
ATTEMPT = Attempt(
    instant=TIME,
    attempt=1,
    token="token",
    owner=Owner("host", 7, "writer", "boot pid:[1]", 5),
    purpose=Purpose.WRITE,
    started_ms=0,
    interval_ms=100,
    tolerable_misses=2,
)
ENTRY = CancelEntry(owner="me", requested_ms=1, reason="why")
ABORT = AbortRecord(entry=ENTRY, owner="me", aborted_ms=2, token="t", plan=b"plan")
COUNT = CancelCount(times=3, counted=(TIME,))
LOCK = LockFile(
    owner="me", acquisition="a", token=1, acquired_ms=1, written_ms=1, lease_ms=10, write=1
)
STORAGE_LOCK = StorageLock(expired=False, valid_until_ms=9, owner="me", token=4)


class OwnFile(NamedTuple):
    data: bytes
    decode: Callable[[bytes], Any]
    encode_again: Callable[[Any], bytes] | None
    """Where the file is written anew from what was read."""


FILES = {
    "attempt": OwnFile(
        encode_attempt(ATTEMPT), lambda data: decode_attempt(data, path="p"), encode_attempt
    ),
    "abort": OwnFile(encode_abort(ABORT), lambda data: decode_abort(data, path="p"), None),
    "count": OwnFile(encode_count(COUNT), decode_count, encode_count),
    "lock": OwnFile(LOCK.encode(), lambda data: parse_lock_file(data, "p"), None),
    "epoch": OwnFile(
        Epoch(3, "a").encode(), lambda data: parse_epoch(data, "p"), lambda epoch: epoch.encode()
    ),
    "storage lock": OwnFile(
        STORAGE_LOCK.encode(),
        lambda data: parse_storage_lock(data, "p"),
        lambda lock: lock.encode(),
    ),
}
every_file = pytest.mark.parametrize("file", FILES.values(), ids=FILES)


def changed(data: bytes, **more: object) -> bytes:
    """Return a file as another release writes it."""
    return json.dumps({**json.loads(data), "release": "7.2", **more}).encode()


def without_version(data: bytes) -> bytes:
    fields = json.loads(data)
    assert fields.pop("format_version") == FORMAT_VERSION
    assert fields.pop("release")
    return json.dumps(fields).encode()


@every_file
def test_inv_89_files_of_yesterday_are_read(file: OwnFile) -> None:
    assert file.decode(without_version(file.data)) == file.decode(file.data)


@every_file
def test_inv_89_fields_of_tomorrow_are_ignored_and_kept(file: OwnFile) -> None:
    found = file.decode(changed(file.data, region="north"))
    if file.encode_again is None:
        assert found == file.decode(file.data)
        return
    again, before = json.loads(file.encode_again(found)), json.loads(file.data)
    assert again.pop("checksum", None) != before.pop("checksum", "")
    assert again == {**before, "region": "north"}


# Not the lock file: others write it, too, and so it has no checksum.
@pytest.mark.parametrize("name", sorted(FILES.keys() - {"lock"}))
def test_no_bit_changes_what_a_file_says_in_silence(name: str) -> None:
    file = FILES[name]
    said = file.decode(file.data)
    # A count of cancellations that cannot be read begins anew.
    allowed = [said, CancelCount()] if isinstance(said, CancelCount) else [said]
    for position in range(len(file.data) * 8):
        damaged = bytearray(file.data)
        damaged[position // 8] ^= 1 << position % 8
        with suppress(CorruptTableError, UnsupportedError):
            # A name that is damaged is that of a field which nobody knows.
            found = file.decode(bytes(damaged))
            has_unknown = bool(getattr(found, "unknown", ""))
            assert (replace(found, unknown="") if has_unknown else found) in allowed


@every_file
@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, "x", -1, 1.5])
def test_inv_89_a_version_of_tomorrow_is_refused_by_name(file: OwnFile, version: object) -> None:
    with pytest.raises(UnsupportedError, match=r"use release 7\.2 or a later one") as raised:
        file.decode(changed(file.data, format_version=version, release="7.2"))
    assert raised.value.kind is ErrorKind.UNSUPPORTED_FILE_VERSION


def test_inv_89_fields_of_the_owner_are_kept_by_whoever_beats() -> None:
    storage = MemoryStorage()
    fields = json.loads(encode_attempt(ATTEMPT))
    fields["owner"]["zone"] = "b"
    storage.put(ATTEMPT.path, changed(json.dumps(fields).encode()))
    assert beat_together(storage, ATTEMPT)
    found = json.loads(storage.read(ATTEMPT.path))
    assert found == {**fields, "beat": 1, "checksum": found["checksum"]}


@pytest.mark.parametrize("field", ["aaa", "zzz"])
def test_inv_89_bytes_are_those_of_the_sorted_fields(field: str) -> None:
    data = encode_own({field: [1, "ä"]})
    assert data == json.dumps(json.loads(data), sort_keys=True).encode()
    assert decode_own(data, path="a file")[field] == [1, "ä"]


def test_inv_89_an_owner_of_yesterday_has_no_known_place() -> None:
    fields = json.loads(without_version(encode_attempt(ATTEMPT)))
    del fields["owner"]["process_space"], fields["owner"]["started"]
    found = decode_attempt(json.dumps(fields).encode(), path="p")
    assert found.owner == Owner("host", 7, "writer")
    assert not SystemIds().is_gone(found.owner)


def test_inv_89_what_an_entry_says_is_no_obstacle() -> None:
    data = encode_entry(ENTRY)
    assert decode_entry(without_version(data)) == ENTRY
    assert decode_entry(changed(data, region="north")) == ENTRY
    assert decode_entry(changed(data, format_version=FORMAT_VERSION + 1)) is None


def test_inv_89_a_count_of_tomorrow_is_left_as_it_is() -> None:
    data = changed(encode_count(COUNT), format_version=FORMAT_VERSION + 1)
    assert count_plan(data, OTHER, ()) == data
    kept = changed(encode_count(COUNT), region="north")
    found = json.loads(count_plan(kept, OTHER, (TIME,)))
    assert found == {
        **json.loads(kept),
        "release": found["release"],
        "checksum": found["checksum"],
        "times": 4,
        "counted": [TIME, OTHER],
    }


def test_inv_89_a_lock_of_tomorrow_is_not_taken() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    newer = changed(LOCK.encode(), format_version=FORMAT_VERSION + 1)
    storage.put(".hoodie/lock", newer)
    with pytest.raises(UnsupportedError):
        FileSystemLockProvider(storage, clock, SystemIds()).acquire(timeout_ms=100)
    assert storage.read(".hoodie/lock") == newer


def test_inv_89_an_object_lock_of_tomorrow_is_not_taken() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    provider = StorageBasedLockProvider(storage, clock, SystemIds())
    newer = changed(STORAGE_LOCK.encode(), format_version=FORMAT_VERSION + 1)
    storage.put(provider.path_of("table"), newer)
    with pytest.raises(UnsupportedError):
        provider.acquire("table", timeout_ms=100)
    assert storage.read(provider.path_of("table")) == newer


def test_inv_89_a_stop_note_has_a_version() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    leave_abort_signal(storage, TIME, EarlyConflictError("stop", owner="other"))
    path = abort_signal_path(TIME)
    note = storage.read(path)
    for data in (note, without_version(note), changed(note, region="north")):
        storage.put(path, data)
        with pytest.raises(EarlyConflictError, match="stop"):
            AbortSignal(storage, clock, TIME).check()
    storage.put(path, changed(note, format_version=FORMAT_VERSION + 1))
    with pytest.raises(UnsupportedError):
        AbortSignal(storage, clock, TIME).check()


@pytest.mark.parametrize("version", [None, "1", "2", "x"])
def test_inv_89_an_index_plan_has_a_version(version: str | None) -> None:
    planned = (PlannedIndex(partition="files", group_count=1, up_to=TIME),)
    assert decode_index_plan(encode_index_plan(planned, TIME), path="p") == planned
    extra = {"headwater.file.groups": "1", "headwater.more": "x"}
    if version is not None:
        extra[VERSION_KEY] = version
    info = IndexPartitionInfo(
        metadata_partition_path="files", index_upto_instant=TIME, extra_metadata=extra
    )
    data = encode_record(IndexPlan(index_partition_infos=(info,)))
    if version in (None, "1"):
        assert decode_index_plan(data, path="p") == planned
        return
    with pytest.raises(UnsupportedError):
        decode_index_plan(data, path="p")
