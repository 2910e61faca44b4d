"""What only the local disk can show: races between processes, crashes, the system's own errors.

The processes run this file as a script and do what the functions under "The workers" say.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import pickle
import resource
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    Retry,
    StorageError,
)
from headwater.kernel.write_once import put_once
from headwater.seams.clock import SystemClock
from headwater.seams.local import LocalStorage
from headwater.seams.staged_file import HIDDEN_PREFIX

PROCESSES = 8
CLAIMS = 1000
INCREMENTS = 100


def content_of(worker: int, turn: int) -> bytes:
    """Return bytes that cannot be a mixture or a part of what two workers write."""
    line = b"worker %d turn %d\n" % (worker, turn)
    return line * 400 + b"end of " + line


def is_whole(data: bytes) -> bool:
    _, worker, _, turn = data.split(b"\n", 1)[0].split()
    return data == content_of(int(worker), int(turn))


# The workers. Each runs in a process of its own.


def claim_names(storage: LocalStorage, worker: int) -> list[int]:
    """Try to create every name; return those that this worker got."""
    won = []
    for turn in range(CLAIMS):
        try:
            storage.put_if_absent(f"slots/{turn:04d}", content_of(worker, turn))
        except AlreadyExistsError:
            continue
        won.append(turn)
    return won


def claim_names_without_links(storage: LocalStorage, worker: int) -> list[int]:
    """Do the same on what looks like a file system that has no hard links."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(os, "O_TMPFILE", raising=False)
        patch.setattr(os, "link", refuse)
        return claim_names(storage, worker)


def rewrite_and_read(storage: LocalStorage, worker: int) -> int:
    """Overwrite one object and read it; return how often it was not whole."""
    broken = 0
    for turn in range(200):
        storage.put("object", content_of(worker, turn))
        broken += not is_whole(storage.read("object"))
    return broken


def increment_counter(storage: LocalStorage, worker: int) -> int:
    """Add to a shared counter; return how often another process was faster."""
    conflicts = 0
    left = INCREMENTS
    while left:
        stored = storage.read_versioned("counter")
        try:
            storage.replace("counter", b"%d" % (int(stored.data) + 1), version=stored.version)
        except ConflictError:
            conflicts += 1
            continue
        left -= 1
    return conflicts


def a_lease(turn: bytes) -> bytes:
    """Return a lease so long that comparing it gives others time to come in between."""
    return turn + b" padding" * 25_000


def turn_of(lease: bytes) -> bytes:
    return lease.partition(b" ")[0]


def renew_until_done(storage: LocalStorage, worker: int) -> int:
    """Replace the lease whenever there is one, keeping the number that it begins with."""
    renewals = 0
    while storage.read_many(["done"]) == [None]:
        with suppress(NotFoundError, ConflictError):
            stored = storage.read_versioned("lease")
            renewed = a_lease(b"%s renewed by %d" % (turn_of(stored.data), worker))
            storage.replace("lease", renewed, version=stored.version)
            renewals += 1
    return renewals


def put_among_renewals(storage: LocalStorage, worker: int) -> int:
    """Overwrite the lease while others renew it; count how often an older one replaced it."""
    if worker:
        return renew_until_done(storage, worker)
    lost = 0
    for turn in range(100):
        storage.put("lease", a_lease(b"%d" % turn))
        lost += sum(turn_of(storage.read("lease")) != b"%d" % turn for _ in range(5))
    storage.put("done", b"")
    return lost


def delete_among_renewals(storage: LocalStorage, worker: int) -> int:
    """Create and delete the lease while others renew it; count how often it came back."""
    if worker:
        return renew_until_done(storage, worker)
    back = 0
    for turn in range(500):
        storage.put_if_absent("lease", a_lease(b"%d" % turn))
        for _ in range(5):
            storage.read("lease")
        storage.delete("lease")
        back += sum(storage.read_many(["lease"]) != [None] for _ in range(5))
        storage.delete("lease")
    storage.put("done", b"")
    return back


def create_steadily(storage: LocalStorage, worker: int) -> int:
    """Create names in order, without a pause."""
    for turn in range(2000):
        storage.put_if_absent(f"ordered/{worker}-{turn}", b"")
    return 2000


def create_in_bursts(storage: LocalStorage, worker: int) -> int:
    """Create names in order, with pauses after which the folder looks as if it stood still."""
    for turn in range(600):
        storage.put_if_absent(f"ordered/{worker}-{turn}", b"")
        if turn % 40 == 39:
            time.sleep(0.03)
    return 600


def write_until_killed(storage: LocalStorage, worker: int) -> None:
    for turn in itertools.count():
        write = storage.put if turn % 2 else storage.put_if_absent
        write(f"large/{worker}-{turn}", content_of(worker, turn) * 200)
        print(turn, flush=True)


def write_beyond_the_limit(storage: LocalStorage, worker: int) -> list[str]:
    """Write more than this process may; the limit acts in the middle of the bytes.

    An even worker stages its bytes in a file without a name, an odd one under a hidden name.
    """
    folder = f"{worker}"
    storage.put(f"{folder}/kept", b"small")
    messages = []
    with pytest.MonkeyPatch.context() as patch:
        if worker % 2:
            patch.delattr(os, "O_TMPFILE", raising=False)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited[1]))
        for write, name in (
            (storage.put, "new"),
            (storage.put_if_absent, "new"),
            (storage.put, "kept"),
        ):
            try:
                write(f"{folder}/{name}", b"x" * 5000)
            except StorageError as error:
                messages.append(str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    return messages


WORKERS: dict[str, Callable[[LocalStorage, int], object]] = {
    worker.__name__: worker
    for worker in (
        claim_names,
        claim_names_without_links,
        rewrite_and_read,
        increment_counter,
        put_among_renewals,
        delete_among_renewals,
        create_steadily,
        create_in_bursts,
        write_until_killed,
        write_beyond_the_limit,
    )
}


class Process:
    """A process that runs one worker after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.popen = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def output(self) -> IO[str]:
        assert self.popen.stdout is not None
        return self.popen.stdout

    def wait_until_ready(self) -> None:
        assert self.output.readline() == "ready\n"

    def start(self, worker: Callable[..., object], base: Path) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps([worker.__name__, str(base), self.number]) + "\n")
        self.popen.stdin.flush()

    def result(self) -> Any:
        return json.loads(self.output.readline())


@contextmanager
def processes(count: int) -> Iterator[list[Process]]:
    """Start processes, none of which survives the block."""
    with ExitStack() as stack:
        started = []
        for number in range(count):
            process = Process(number)
            stack.enter_context(process.popen)
            stack.callback(process.popen.kill)
            started.append(process)
        for process in started:
            process.wait_until_ready()
        yield started


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[Process]]:
    """Eight processes that all tests of this file use; starting them takes the longest."""
    with processes(PROCESSES) as started:
        yield started


def run(worker: Callable[..., object], base: Path, fleet: list[Process]) -> list[Any]:
    """Run the worker in every process at once and return the results."""
    for process in fleet:
        process.start(worker, base)
    return [process.result() for process in fleet]


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, fsync=False)


class TestProcesses:
    @pytest.mark.parametrize("worker", [claim_names, claim_names_without_links])
    def test_s1_every_name_has_one_winner_and_its_bytes(
        self,
        storage: LocalStorage,
        tmp_path: Path,
        fleet: list[Process],
        worker: Callable[..., object],
    ) -> None:
        won: list[list[int]] = run(worker, tmp_path, fleet)
        winners = {turn: number for number, turns in enumerate(won) for turn in turns}
        assert sum(map(len, won)) == CLAIMS
        assert sorted(winners) == list(range(CLAIMS))
        for turn, number in winners.items():
            assert storage.read(f"slots/{turn:04d}") == content_of(number, turn)
        assert len(os.listdir(tmp_path / "slots")) == CLAIMS

    def test_s3_readers_see_whole_objects_only(
        self, storage: LocalStorage, tmp_path: Path, fleet: list[Process]
    ) -> None:
        storage.put("object", content_of(0, 0))
        assert run(rewrite_and_read, tmp_path, fleet) == [0] * PROCESSES
        assert os.listdir(tmp_path) == ["object"]

    def test_replace_loses_no_update(
        self, storage: LocalStorage, tmp_path: Path, fleet: list[Process]
    ) -> None:
        storage.put("counter", b"0")
        conflicts: list[int] = run(increment_counter, tmp_path, fleet)
        assert int(storage.read("counter")) == PROCESSES * INCREMENTS
        assert sum(conflicts) > 0

    @pytest.mark.parametrize("worker", [put_among_renewals, delete_among_renewals])
    def test_a_replace_undoes_no_later_put_or_delete(
        self, tmp_path: Path, fleet: list[Process], worker: Callable[..., object]
    ) -> None:
        undone, *renewals = run(worker, tmp_path, fleet)
        assert undone == 0
        assert sum(renewals) > 0

    @pytest.mark.parametrize("worker", [create_steadily, create_in_bursts])
    def test_s5_a_listing_never_shows_a_name_without_the_one_before_it(
        self,
        storage: LocalStorage,
        tmp_path: Path,
        fleet: list[Process],
        worker: Callable[..., object],
    ) -> None:
        # Other names make a pass over the folder long enough to be overtaken.
        for number in range(3000):
            storage.put(f"ordered/other-{number}", b"")
        writers = fleet[:2]
        with ThreadPoolExecutor(1) as pool:
            finished = pool.submit(run, worker, tmp_path, writers)
            listings = 0
            while not finished.done():
                listings += check_order(storage, len(writers))
            created: list[int] = finished.result()
        assert listings > 0
        check_order(storage, len(writers))
        assert len(storage.list_names("ordered")) == 3000 + sum(created)

    def test_a_killed_writer_leaves_whole_objects_and_nothing_else(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        with processes(2) as started:
            for process in started:
                process.start(write_until_killed, tmp_path)
            for process in started:
                for _ in range(5):
                    process.output.readline()
                process.popen.kill()
        names = storage.list_names("large")
        assert len(names) >= 10
        for name in names:
            worker, turn = map(int, name.split("-"))
            assert storage.read(f"large/{name}") == content_of(worker, turn) * 200
        left = set(os.listdir(tmp_path / "large")) - set(names)
        # A rename starts from a hidden name, so a kill between its two steps can leave that.
        assert len(left) <= len(started)
        assert all(name.startswith(HIDDEN_PREFIX) for name in left)

    def test_a_write_that_fails_half_way_leaves_nothing(
        self, storage: LocalStorage, tmp_path: Path, fleet: list[Process]
    ) -> None:
        for worker, messages in enumerate(run(write_beyond_the_limit, tmp_path, fleet[:2])):
            assert len(messages) == 3
            assert all(f"{tmp_path}/{worker}/" in message for message in messages)
            assert os.listdir(tmp_path / f"{worker}") == ["kept"]
            assert storage.read(f"{worker}/kept") == b"small"


def check_order(storage: LocalStorage, writers: int) -> bool:
    """Check one listing for gaps; tell whether it saw the writers at work."""
    turns: dict[str, set[int]] = {str(number): set() for number in range(writers)}
    for name in storage.list_names("ordered"):
        writer, _, turn = name.partition("-")
        if writer in turns:
            turns[writer].add(int(turn))
    for seen in turns.values():
        assert seen == set(range(len(seen)))
    return any(turns.values())


class TestFolders:
    def test_the_base_is_created_by_the_first_write(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path / "a" / "b")
        assert storage.list_tree("") == []
        assert os.listdir(tmp_path) == []
        storage.put("c/d/object", b"1")
        assert (tmp_path / "a/b/c/d/object").read_bytes() == b"1"

    def test_a_refused_replace_creates_no_folder(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        with pytest.raises(ConflictError, match="vanished"):
            storage.replace("folder/lease", b"", version="any")
        assert os.listdir(tmp_path) == []

    def test_the_folders_of_one_instant_go_with_the_last_object_in_them(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        """There would be more of them with every commit."""
        paths = [".hoodie/.temp/1/a=1/b=2/m", ".hoodie/.temp/1/n", ".hoodie/.attempts/1/1.json"]
        for path in (*paths, "a=1/b=2/c=3/data"):
            storage.put(path, b"")
        storage.delete(paths[0])
        assert not (tmp_path / ".hoodie/.temp/1/a=1").exists()
        assert storage.list_names(".hoodie/.temp/1") == ["n"]
        storage.delete_many([*paths, "a=1/b=2/c=3/data"])
        # Those that are used again at once stay, and so do folders of rows.
        assert os.listdir(tmp_path / ".hoodie/.temp") == []
        assert os.listdir(tmp_path / ".hoodie/.attempts") == []
        assert (tmp_path / "a=1/b=2/c=3").is_dir()

    def test_a_folder_that_is_removed_under_a_writer_is_created_again(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        stop = threading.Event()
        allowed = removed = 0  # Bounded for each write, or a busy machine would give up in time.

        def remove() -> None:
            nonlocal allowed, removed
            while not stop.wait(0.0001):
                for folder in (tmp_path / "a/b", tmp_path / "a"):
                    if allowed > 0:
                        with suppress(OSError):
                            folder.rmdir()
                            allowed -= 1
                            removed += 1

        remover = threading.Thread(target=remove)
        remover.start()
        try:
            turn = 0
            while turn < 200 or removed < 50:
                allowed = 5
                write = storage.put if turn % 2 else storage.put_if_absent
                write("a/b/object", b"%d" % turn)
                assert storage.read("a/b/object") == b"%d" % turn
                storage.delete("a/b/object")
                turn += 1
        finally:
            stop.set()
            remover.join()

    def test_a_removed_base_is_empty(self, storage: LocalStorage, tmp_path: Path) -> None:
        storage.put("a/object", b"1")
        shutil.rmtree(tmp_path)
        assert storage.list_names("a") == []
        storage.delete("a/object")
        with pytest.raises(NotFoundError):
            storage.read("a/object")


class TestHiddenNames:
    def test_no_listing_shows_a_file_that_is_being_written(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        storage.put("folder/object", b"1")
        (tmp_path / "folder" / f"{HIDDEN_PREFIX}abc").write_bytes(b"half")
        assert storage.list_names("folder") == ["object"]
        assert [info.path for info in storage.list_tree("")] == ["folder/object"]

    def test_an_empty_object_takes_the_place_of_one_that_is_not(
        self, storage: LocalStorage
    ) -> None:
        storage.put("folder/name", b"1")
        with pytest.raises(AlreadyExistsError):
            storage.put_if_absent("folder/name", b"")
        assert storage.read("folder/name") == b"1"
        storage.put("folder/name", b"")
        assert storage.read("folder/name") == b""
        assert storage.list_names("folder") == ["name"]

    @pytest.mark.parametrize("data", [b"", b"1"])
    def test_what_hadoop_noted_of_an_earlier_object_is_there_until_the_bytes_are(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
    ) -> None:
        """Or another engine could note anew meanwhile what does not fit the object that follows."""
        checksum = tmp_path / "folder" / ".name.crc"
        checksum.parent.mkdir()
        checksum.write_bytes(b"crc")
        synced: list[bool] = []
        monkeypatch.setattr(os, "fsync", lambda _: synced.append(checksum.exists()))
        LocalStorage(tmp_path).put("folder/name", data)
        assert not checksum.exists()
        assert synced[: len(data)] == [True] * len(data)

    def test_the_mark_of_hidden_names_is_refused(self, storage: LocalStorage) -> None:
        with pytest.raises(InvalidInputError, match=HIDDEN_PREFIX):
            storage.put(f"folder/{HIDDEN_PREFIX}abc", b"1")


class TestDurability:
    @pytest.fixture
    def synced(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, bool]]:
        """What was forced to disk, and whether the object could be seen by then."""
        calls: list[tuple[str, bool]] = []
        fsync = os.fsync

        def record(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            name = str(path.relative_to(tmp_path)) if path.is_dir() else "file"
            calls.append((name, (tmp_path / "a/b/object").exists()))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", record)
        return calls

    @pytest.mark.parametrize("write", [LocalStorage.put, LocalStorage.put_if_absent])
    def test_bytes_are_on_disk_before_the_name_and_the_name_before_the_return(
        self,
        tmp_path: Path,
        synced: list[tuple[str, bool]],
        write: Callable[[LocalStorage, str, bytes], None],
    ) -> None:
        write(LocalStorage(tmp_path), "a/b/object", b"1")
        assert synced == [(".", False), ("a", False), ("file", False), ("a/b", True)]

    @pytest.mark.parametrize("write", [LocalStorage.put_many, LocalStorage.create_many])
    def test_many_names_of_a_folder_are_waited_for_once(
        self,
        tmp_path: Path,
        synced: list[tuple[str, bool]],
        write: Callable[[LocalStorage, Mapping[str, bytes]], None],
    ) -> None:
        LocalStorage(tmp_path).put("a/b/first", b"1")
        synced.clear()
        write(LocalStorage(tmp_path), {f"a/b/{name}": b"2" for name in ("object", *range(40))})
        assert synced.pop() == ("a/b", True)
        assert [name for name, _ in synced] == ["file"] * 41

    def test_without_fsync_nothing_is_forced(
        self, storage: LocalStorage, synced: list[tuple[str, bool]]
    ) -> None:
        storage.put_if_absent("a/b/object", b"1")
        storage.put("a/b/object", b"2")
        assert synced == []


class TestErrors:
    @pytest.mark.parametrize("write", [LocalStorage.put, LocalStorage.put_if_absent])
    def test_a_file_where_a_folder_is_needed(
        self,
        storage: LocalStorage,
        tmp_path: Path,
        write: Callable[[LocalStorage, str, bytes], None],
    ) -> None:
        storage.put("object", b"1")
        with pytest.raises(StorageError, match="A file stands where") as caught:
            write(storage, "object/below/deeper", b"2")
        assert caught.value.retry is Retry.NEVER
        assert f"{tmp_path}/object/below/deeper" in str(caught.value)
        assert storage.read("object") == b"1"

    def test_a_base_below_a_file_is_empty_and_takes_no_write(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        storage = LocalStorage(tmp_path / "file" / "table")
        assert storage.list_names("") == []
        assert storage.list_tree("a") == []
        assert storage.read_many(["a"]) == [None]
        storage.delete("a")
        with pytest.raises(StorageError) as caught:
            storage.put("a", b"1")
        assert caught.value.retry is Retry.NEVER

    def test_a_folder_where_the_object_would_be(self, storage: LocalStorage) -> None:
        storage.put("folder/object", b"1")
        with pytest.raises(StorageError, match="A folder stands where") as caught:
            storage.put("folder", b"2")
        assert caught.value.retry is Retry.NEVER
        with pytest.raises(AlreadyExistsError):
            storage.put_if_absent("folder", b"2")

    def test_a_name_that_is_too_long(self, storage: LocalStorage) -> None:
        with pytest.raises(StorageError, match="shorter") as caught:
            storage.put("x" * 300, b"1")
        assert caught.value.retry is Retry.NEVER

    @pytest.mark.skipif(
        not os.path.isdir("/sys/kernel"), reason="needs a folder that refuses even root"
    )
    def test_a_place_that_may_not_be_written(self) -> None:
        storage = LocalStorage("/sys/kernel")
        for path in ("object", "folder/object"):
            with pytest.raises(StorageError, match=f"/sys/kernel/{path}") as caught:
                storage.put_if_absent(path, b"1")
            assert caught.value.kind is ErrorKind.STORAGE_DENIED
            assert caught.value.retry is Retry.NEVER

    @pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.ENOSPC])
    def test_n_122_an_error_after_the_name_is_there_refuses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        fsync = os.fsync

        def fail_for_folders(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(code, os.strerror(code))
            fsync(descriptor)

        storage = LocalStorage(tmp_path)
        monkeypatch.setattr(os, "fsync", fail_for_folders)
        with pytest.raises(StorageError, match="was written") as put:
            storage.put_if_absent("a", b"a")
        with pytest.raises(StorageError, match="was written") as written, storage.open_output("b"):
            pass
        for caught in (put, written):
            assert caught.value.retry is Retry.SAME_CALL
            assert caught.value.is_final
        assert sorted(storage.list_names("")) == ["a", "b"]
        put_once(storage, SystemClock(), "c", b"c")
        assert storage.read("c") == b"c"

    def test_an_error_keeps_its_cause(self, storage: LocalStorage) -> None:
        with pytest.raises(NotFoundError) as caught:
            storage.read("absent")
        assert isinstance(caught.value.__cause__, FileNotFoundError)


class TestIdentity:
    def test_the_uri_is_absolute_and_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        storage = LocalStorage("table")
        monkeypatch.chdir("/")
        assert storage.uri == str(tmp_path / "table")

    def test_it_travels_to_another_process(self, storage: LocalStorage) -> None:
        storage.put("object", b"1")
        copy = pickle.loads(pickle.dumps(storage))
        assert copy.read("object") == b"1"
        assert repr(copy) == repr(storage)

    def test_modified_ms_is_the_time_of_the_file(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        storage.put("object", b"1")
        os.utime(tmp_path / "object", ns=(0, 1_767_225_600_123_999_999))
        assert storage.info("object").modified_ms == 1_767_225_600_123
        assert storage.list_tree("")[0].modified_ms == 1_767_225_600_123

    def test_an_object_has_the_mode_of_any_new_file(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        (tmp_path / "other").write_bytes(b"")
        storage.put("a", b"1")
        storage.put_if_absent("b", b"1")
        modes = {(tmp_path / name).stat().st_mode for name in ("a", "b", "other")}
        assert len(modes) == 1

    def test_a_write_removes_the_checksum_of_the_object_before(
        self, storage: LocalStorage, tmp_path: Path
    ) -> None:
        """Hadoop refuses to read a file that the checksum beside it does not fit."""
        checksum, other = tmp_path / ".object.crc", tmp_path / ".other.crc"
        other.write_bytes(b"crc")

        def replace() -> None:
            storage.replace("object", b"2", version=storage.read_versioned("object").version)

        def write_anew() -> None:
            storage.delete("object")
            with storage.open_output("object") as sink:
                sink.write(b"3")

        writes: list[Callable[[], None]] = [
            lambda: storage.put_if_absent("object", b"0"),
            lambda: storage.put("object", b"1"),
            replace,
            write_anew,
        ]
        for write in writes:
            checksum.write_bytes(b"crc of what was there before")
            write()
            assert not checksum.exists()
        assert other.exists()


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        name, base, number = json.loads(line)
        result = WORKERS[name](LocalStorage(base, fsync=False), number)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()


def test_a_new_file_that_cannot_be_made_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: int) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("headwater.seams.staged_file._create", refuse)
    storage = LocalStorage(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StorageError, match="Input/output error"), storage.open_output("a/b"):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
