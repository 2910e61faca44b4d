"""Storage on a file system of this machine.

How each guarantee is kept:

S1, S3  An object is written in full under no name, then linked to its name, which fails if the
        name is taken (`put_if_absent`), or renamed over it (`put`, `replace`). Where the file
        system has no hard links, `put_if_absent` looks and renames while it holds the folder
        alone: exactly one headwater process still wins, but another engine that creates the same
        name in between is overwritten.
        An empty object is whole as soon as it has its name, and is created under it.
S2      The kernel's own promise, which network file systems do not make: do not use them.
S4      `delete` unlinks. Folders are created on demand. Those of single instants, which would be
        more with every commit, are removed with the last object in them (`_STANDING_DEPTH`); a
        writer whose folder vanishes creates it again.
S5      One pass over a folder can see a later file and miss an earlier one, so a pass counts only
        if the folder demonstrably stood still, or if the next pass finds the same. A folder that
        writers keep busy is listed while the lock keeps them out.

`replace` compares and renames while it holds the folder alone; `put` and `delete` hold it shared,
and `put_if_absent` cannot succeed where an object is. So all mixes of the four are safe between
threads and processes of headwater, not against other engines. The version is a hash of the bytes:
inode numbers are reused at once and the kernel's timestamps stand still for milliseconds, so that
(inode, time, size) can describe two objects.

Hadoop's local file system, which stock Hudi writes through, keeps a checksum of `name` in
`.name.crc` and refuses to read a file that it does not fit. So every write removes the checksum
that an earlier object of that name may have had; a file without one is read unchecked.

With `fsync`, which is the default, a write that returned survives a power cut: without it the cut
can leave a completed instant with no bytes in it. It took 190 µs against 27 µs on the disk it was
measured on, and takes milliseconds on slow ones; `unforced` and `force` put off the wait for what
can be written again. A delete is not forced out by itself; journaling
file systems keep the order, so the next write makes it durable too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self, TypeVar

import pyarrow as pa

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from headwater.seams.durability import must_outlive_power_cut
from headwater.seams.folder_lock import hold_folder
from headwater.seams.parallel_map import parallel_map
from headwater.seams.staged_file import HIDDEN_PREFIX, StagedFile, create_empty, stage, stage_empty
from headwater.seams.storage import ObjectInfo, StoredObject
from headwater.seams.storage_arguments import check_folder, check_path, check_range
from headwater.seams.system_errors import BROKEN, FULL, system_error

T = TypeVar("T")
R = TypeVar("R")

# The kernel stamps a folder with a clock that ticks every 1 to 10 ms. A folder whose stamp is two
# of the slowest ticks old gets a different stamp from any change that happens now.
_QUIET_NS = 20_000_000
_SECOND_NS = 1_000_000_000

# Two passes agree unless a writer comes in between; five in a row mean that one always does.
_PASSES_MAX = 5

# A journal takes in at once what several writers wait for. With four, fourteen small files took
# 11 ms where they took 90 one after the other, on a busy disk; with more it was no faster.
_WRITES_AT_ONCE = 4

# How often a writer recreates its folder before it says that somebody keeps removing it.
_FOLDER_ATTEMPTS_MAX = 100

# Below a hidden folder, as `.hoodie/.attempts` is, deeper folders are made for one purpose and done
# with. The others are used again at once.
_STANDING_DEPTH = 2

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


Publish = Callable[[StagedFile, int, str], None]
"""Gives a staged file, in the folder of a descriptor, its name."""


class _Entries(NamedTuple):
    """What one pass over a folder found."""

    files: list[str]
    folders: list[str]


class LocalStorage:
    """Objects as files below a folder, which is created by the first write."""

    def __init__(self, base: str | Path, *, fsync: bool = True) -> None:
        self._base = os.path.abspath(base)
        self._fsync = fsync

    @property
    def uri(self) -> str:
        """The absolute path of the base, without a scheme."""
        return self._base

    @property
    def page_size(self) -> int:
        """Without bound: a listing of one folder is atomic however long it is."""
        return sys.maxsize

    @property
    def can_replace(self) -> bool:
        return True

    @property
    def is_distant(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"LocalStorage({self._base!r}, fsync={self._fsync})"

    def read(self, path: str) -> bytes:
        try:
            with open(self._locate(path), "rb", buffering=0) as file:
                return file.readall()
        except OSError as error:
            raise self._read_error(error, path) from error

    def read_versioned(self, path: str) -> StoredObject:
        data = self.read(path)
        return StoredObject(data, _version_of(data))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        check_range(path, start, length)
        try:
            with open(self._locate(path), "rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as error:
            raise self._read_error(error, path) from error

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        # One after the other: a small file from the page cache costs less than a thread hand-over.
        return [self._read_or_none(path) for path in paths]

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        """Open the file for Arrow, which reads it also after a delete.

        It is not mapped into memory: that saved 3 to 7 % of the time of a read, and a file that
        shrinks, or a disk that fails, then killed the process.
        """
        full = self._locate(path)
        if os.path.isdir(full):
            raise self._absent(path)
        try:
            source: BinaryIO = pa.OSFile(full, "r")
        except OSError as error:
            raise self._read_error(error, path) from error
        return source

    def info(self, path: str) -> ObjectInfo:
        try:
            found = os.stat(self._locate(path))
        except OSError as error:
            raise self._read_error(error, path) from error
        if stat.S_ISDIR(found.st_mode):
            raise self._absent(path)
        return _info(path, found)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        check_folder(folder)
        names = self._list_folder(folder).files
        return [name for name in names if name > after] if after else names

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        check_folder(folder)
        # What is listed is there, whatever its name: no path below is checked.
        found: list[ObjectInfo] = []
        pending = [folder]
        while pending:
            current = pending.pop()
            entries = self._list_folder(current)
            pending += [_join(current, name) for name in entries.folders]
            for name in entries.files:
                path = _join(current, name)
                try:
                    found.append(_info(path, os.stat(f"{self._base}/{path}")))
                except FileNotFoundError:
                    continue  # It was deleted after the pass that found it.
                except OSError as error:
                    raise self._read_error(error, path) from error
        return sorted(found)

    def put(self, path: str, data: bytes) -> None:
        self._write(path, data, self._replacing(path))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self._write_many(objects, self._replacing)

    def _write_many(
        self, objects: Mapping[str, bytes], publishing: Callable[[str], Publish]
    ) -> None:
        """Write objects side by side, and wait once for the names in a folder."""

        def write(each: tuple[str, bytes]) -> None:
            self._write(*each, publishing(each[0]), is_name_synced=False)

        # Only waiting is worth a thread.
        width = _WRITES_AT_ONCE if self._fsync and any(objects.values()) else 1
        parallel_map(write, [*objects.items()], width=width)
        for path in {os.path.dirname(path): path for path in objects}.values():
            self._sync_folder_of(path)

    @property
    def is_forced(self) -> bool:
        """Whether what is written outlives a power cut."""
        return self._fsync

    def unforced(self) -> Self:
        """Return the same storage without waiting for the disk; see `force`."""
        return type(self)(self._base, fsync=False)

    def force(self, paths: Iterable[str]) -> None:
        """Have objects on the disk that were written without waiting for it, if they are there.

        Raises:
            StorageError: the disk failed; a power cut may undo some of them.
        """
        if not self._fsync:
            return
        wanted = [*paths]
        parallel_map(self._force_bytes, wanted, width=_WRITES_AT_ONCE)
        folders = {os.path.dirname(path) for path in wanted}
        # A folder may be as new as what is in it.
        for folder in {*folders, *map(os.path.dirname, folders)}:
            self._sync_folder_of(f"{folder}/any")

    def _force_bytes(self, path: str) -> None:
        try:
            file = os.open(self._locate(path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error(error, path, "write") from error
        try:
            os.fsync(file)
        except OSError as error:
            raise self._error(error, path, "write") from error
        finally:
            os.close(file)

    def put_if_absent(self, path: str, data: bytes) -> None:
        # Who lost a race need not wait until the disk has what it lost with.
        if os.path.lexists(self._locate(path)):
            raise self._taken(path)
        self._write(path, data, self._creating(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        full = self._locate(path)
        if os.path.lexists(full):
            raise self._taken(path)
        try:
            folder = self._open_or_create_folder(os.path.dirname(full))
        except OSError as error:
            raise self._error(error, path, "write") from error
        with ExitStack() as stack:
            stack.callback(os.close, folder)
            try:
                staged = stack.enter_context(stage_empty(folder))
            except OSError as error:
                raise self._error(error, path, "write") from error
            with staged.open_sink(lambda error: self._error(error, path, "write")) as sink:
                yield sink
            self._publish_output(staged, folder, path)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        self._write_many(objects, self._creating)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        def check_version() -> None:
            stored = self._read_or_none(path)
            if stored is None or _version_of(stored) != version:
                raise ConflictError(
                    f"{self._locate(path)} {'changed' if stored is not None else 'vanished'} "
                    "since it was read. Read it again and decide anew"
                )

        def publish(staged: StagedFile, folder: int, name: str) -> None:
            with self._hold(folder, path, alone=True):
                check_version()
                staged.replace(name)

        # The first look, without the lock, saves the staging and keeps the folder of an absent
        # object from being created.
        check_version()
        self._write(path, data, publish)
        return _version_of(data)

    def delete(self, path: str) -> None:
        full = self._locate(path)
        folder_path, name = os.path.split(full)
        try:
            folder = os.open(folder_path, _OPEN_FOLDER)
            try:
                with self._hold(folder, path, alone=False):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise self._error(error, path, "delete") from error
            return
        self._remove_if_empty(os.path.dirname(path))

    def _remove_if_empty(self, folder: str) -> None:
        """Remove a folder for which nobody has use any more, and those above it."""
        while folder.startswith(".") and folder.count("/") >= _STANDING_DEPTH:
            try:
                os.rmdir(f"{self._base}/{folder}")
            except OSError:
                return  # It holds something, or somebody was faster.
            folder = os.path.dirname(folder)

    def delete_many(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        # One after the other: a file from the page cache costs less than a thread hand-over.
        return [call(item) for item in items]

    def _locate(self, path: str) -> str:
        check_path(path)
        if path.rpartition("/")[2].startswith(HIDDEN_PREFIX):
            raise InvalidInputError(
                f"{path!r} begins with {HIDDEN_PREFIX}, the mark of files that are being written. "
                "Choose another name"
            )
        return f"{self._base}/{path}"

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFoundError:
            return None

    def _creating(self, path: str) -> Publish:
        # A loser that can see the winner need not write its bytes, nor wait for the disk.
        if os.path.lexists(self._locate(path)):
            raise self._taken(path)

        def publish(staged: StagedFile, folder: int, name: str) -> None:
            self._link_if_absent(staged, folder, path)

        return publish

    def _replacing(self, path: str) -> Publish:
        def publish(staged: StagedFile, folder: int, name: str) -> None:
            with self._hold(folder, path, alone=False):
                staged.replace(name)

        return publish

    def _write(
        self,
        path: str,
        data: bytes,
        publish: Publish,
        *,
        is_name_synced: bool = True,
    ) -> None:
        """Stage `data` beside its future name and `publish` it there.

        A `FileNotFoundError` means that the folder was removed before the file had its name, so
        nothing landed and the whole of it can be done again.
        """
        folder_path, name = os.path.split(self._locate(path))
        for _ in range(_FOLDER_ATTEMPTS_MAX):
            try:
                folder = self._open_or_create_folder(folder_path)
                try:
                    if data or not self._create_empty(folder, path):
                        # An empty file has nothing to lose but its name.
                        with stage(folder, data, fsync=self._fsync and bool(data)) as staged:
                            _remove_checksum(folder, name)
                            publish(staged, folder, name)
                    if is_name_synced:
                        self._sync_folder(folder, path)
                finally:
                    os.close(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._error(error, path, "write") from error
            return
        raise StorageError(
            f"Cannot write {self._locate(path)}: its folder was removed {_FOLDER_ATTEMPTS_MAX} "
            "times while the object was written. Find out which process removes it, then try again"
        )

    def _create_empty(self, folder: int, path: str) -> bool:
        """Create an empty file, which is whole as soon as it has its name; False if it is taken.

        Half of what a small commit writes is empty, and staging costs twice as much.
        """
        name = os.path.basename(path)
        _remove_checksum(folder, name)
        with self._hold(folder, path, alone=False):
            return create_empty(folder, name)

    def _publish_output(self, staged: StagedFile, folder: int, path: str) -> None:
        """Give the staged file its name. Its writer is gone, so it cannot be written again."""
        try:
            if self._fsync:
                staged.sync()
            _remove_checksum(folder, os.path.basename(path))
            self._link_if_absent(staged, folder, path)
            self._sync_folder(folder, path)
        except FileNotFoundError as error:
            raise StorageError(
                f"Cannot write {self._locate(path)}: its folder was removed while the object was "
                "written. Find out which process removed it, then write the object again"
            ) from error
        except OSError as error:
            raise self._error(error, path, "write") from error

    def _sync_folder(self, folder: int, path: str) -> None:
        """Make a new name durable. It is there whatever comes, so no error says otherwise."""
        if not self._fsync or not must_outlive_power_cut(path):
            return
        try:
            os.fsync(folder)
        except OSError as error:
            kind = ErrorKind.STORAGE_FULL if error.errno in FULL else ErrorKind.STORAGE_BROKEN
            raise StorageError(
                f"{self._locate(path)} was written, but a power cut may undo that: "
                f"{error.strerror}. {FULL.get(error.errno or 0, BROKEN)}",
                kind=kind,
            ) from error

    def _sync_folder_of(self, path: str) -> None:
        try:
            folder = os.open(os.path.dirname(self._locate(path)), _OPEN_FOLDER)
        except FileNotFoundError:
            return  # What was written there has been deleted since.
        except OSError as error:
            raise self._error(error, path, "write") from error
        try:
            self._sync_folder(folder, path)
        finally:
            os.close(folder)

    def _link_if_absent(self, staged: StagedFile, folder: int, path: str) -> None:
        try:
            with self._hold(folder, path, alone=False):
                staged.link(os.path.basename(path))
        except FileExistsError as error:
            raise self._taken(path) from error
        except OSError as error:
            # The folder just took the staged file, so this is no matter of permissions.
            if error.errno not in _NO_HARD_LINKS:
                raise
            self._move_if_absent(staged, folder, path)

    def _move_if_absent(self, staged: StagedFile, folder: int, path: str) -> None:
        full = self._locate(path)
        with self._hold(folder, path, alone=True):
            if os.path.lexists(full):
                raise self._taken(path)
            staged.replace(os.path.basename(full))

    def _hold(self, folder: int, path: str, *, alone: bool) -> AbstractContextManager[None]:
        """Hold the folder of the object at `path`, of which `folder` is a descriptor."""
        return hold_folder(folder, os.path.dirname(self._locate(path)), alone=alone)

    def _open_or_create_folder(self, folder_path: str) -> int:
        try:
            return os.open(folder_path, _OPEN_FOLDER)
        except FileNotFoundError:
            self._create_folder(folder_path)
            return os.open(folder_path, _OPEN_FOLDER)

    def _create_folder(self, folder_path: str) -> None:
        parent_path = os.path.dirname(folder_path)
        try:
            os.mkdir(folder_path)
        except FileExistsError:
            return  # Another writer was faster; if it is no folder, opening it will say so.
        except FileNotFoundError:
            self._create_folder(parent_path)
            with suppress(FileExistsError):
                os.mkdir(folder_path)
        if self._fsync:
            parent = os.open(parent_path, _OPEN_FOLDER)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)

    def _list_folder(self, folder: str) -> _Entries:
        full = f"{self._base}/{folder}" if folder else self._base
        try:
            descriptor = os.open(full, _OPEN_FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            return _Entries([], [])
        except OSError as error:
            raise self._error(error, folder, "list") from error
        try:
            entries = _list_standing_still(descriptor)
            if entries is None:
                with hold_folder(descriptor, full, alone=True):
                    entries = _list_standing_still(descriptor)
        except OSError as error:
            raise self._error(error, folder, "list") from error
        finally:
            os.close(descriptor)
        if entries is None:
            raise StorageError(
                f"Cannot list {full}: another engine changed it during each of {2 * _PASSES_MAX} "
                "passes. Try again"
            )
        return entries

    def _absent(self, path: str) -> NotFoundError:
        return NotFoundError(f"There is no object {self._locate(path)}")

    def _taken(self, path: str) -> AlreadyExistsError:
        return AlreadyExistsError(f"{self._locate(path)} exists already; it was left as it is")

    def _read_error(self, error: OSError, path: str) -> HeadwaterError:
        if error.errno in _ABSENT:
            return self._absent(path)
        return self._error(error, path, "read")

    def _error(self, error: OSError, path: str, verb: str) -> HeadwaterError:
        return system_error(f"Cannot {verb} {self._base}/{path}", error)


def _list_standing_still(folder: int) -> _Entries | None:
    """Return what the folder held at one moment, or None if it never stood still.

    Two passes that agree prove it for names that are created, and for names created and deleted
    once, except that a name which lived only during the call may be missing.
    """
    seen = None
    for _ in range(_PASSES_MAX):
        # Names alone tell whether it stood still, and are sorted out once.
        if seen is not None and os.listdir(folder) == [entry.name for entry in seen]:
            return _sorted_out(seen)
        before = os.fstat(folder)
        now_ns = time.time_ns()
        with os.scandir(folder) as found:
            seen = list(found)
        if _stood_still(before, os.fstat(folder), now_ns):
            return _sorted_out(seen)
    return None


def _sorted_out(found: list[os.DirEntry[str]]) -> _Entries:
    # The kernel tells the type with the name, so neither question costs a call. Most are files,
    # and a timeline has ten thousands of them.
    files = [entry.name for entry in found if entry.is_file()]
    folders: list[str] = []
    if len(files) < len(found):
        known = set(files)
        others = (entry for entry in found if entry.name not in known)
        folders = [entry.name for entry in others if entry.is_dir(follow_symlinks=False)]
    if HIDDEN_PREFIX in "/".join(files):  # One look instead of ten thousand.
        files = [name for name in files if not name.startswith(HIDDEN_PREFIX)]
    return _Entries(files, folders)


def _stood_still(before: os.stat_result, after: os.stat_result, now_ns: int) -> bool:
    """Tell from the folder's stamps, taken around a pass that began at `now_ns`."""
    # The change time cannot be set back, as the modification time can by tools that copy.
    stamps = (before.st_mtime_ns, before.st_ctime_ns)
    if stamps != (after.st_mtime_ns, after.st_ctime_ns):
        return False
    newest_ns = max(stamps)
    # Some file systems keep whole seconds, in which a change can hide.
    return newest_ns % _SECOND_NS != 0 and now_ns - newest_ns > _QUIET_NS


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _remove_checksum(folder: int, name: str) -> None:
    """Remove what Hadoop noted about an earlier object of that name."""
    with suppress(FileNotFoundError):
        os.unlink(f".{name}.crc", dir_fd=folder)


def _info(path: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, found.st_size, found.st_mtime_ns // 1_000_000)


def _version_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
