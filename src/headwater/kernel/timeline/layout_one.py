"""The timeline of tables before version 8, layout 1, shown as if it had layout 2.

    where       directly in `.hoodie`, among other things
    completed   <T>.<action>, without a completion time
    contents    commit metadata is JSON; all else is Avro, as in layout 2
    archived    Avro blocks in `.hoodie/archived`, which only an upgrade reads

Nothing tells when an instant completed, but when its file was modified, and a copy of the table has
another time there. So instants take effect in the order of their requested times, which is how Hudi
reads these tables too: here the completion time *is* the requested time (N-113). Who asks for a
moment in the past sees a commit that was requested before it, even if it completed after.

`LayoutOneStorage` translates names and contents wherever they are read, so that nothing else knows
of this layout, and refuses every write: only an upgrade writes to such a table, past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, NoReturn, TypeVar

from headwater.config.older_versions import FIRST_OF_LAYOUT_TWO
from headwater.config.table_options import VERSION
from headwater.errors import ConflictError, ErrorKind, Retry, UnsupportedError
from headwater.format.properties import parse_properties
from headwater.format.timeline.commit_json import decode_commit_json
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import HOODIE, PROPERTIES, PROPERTIES_BACKUP, TableLayout
from headwater.kernel.timeline.names import (
    COMPLETED_SUFFIXES,
    INFLIGHT_SUFFIXES,
    REQUESTED_SUFFIXES,
    is_instant_time,
)
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from headwater.model.instant import Action, InstantTime
from headwater.seams.storage import ObjectInfo, Storage, StoredObject

T = TypeVar("T")
R = TypeVar("R")

_VERSIONS = range(FIRST_OF_LAYOUT_TWO)
_WITH_COMMIT_METADATA = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


def modern_name(name: str, completion_time: InstantTime | None = None) -> str | None:
    """Return the name that a timeline file has in layout 2; None for any other file.

    Args:
        completion_time: when a completed instant completed; its requested time unless given.
    """
    time, _, suffix = name.partition(".")
    if not is_instant_time(time):
        return None
    if suffix in COMPLETED_SUFFIXES:
        return f"{time}_{completion_time or time}.{suffix}"
    return name if suffix in REQUESTED_SUFFIXES or suffix in INFLIGHT_SUFFIXES else None


def is_completed_name(name: str) -> bool:
    """Whether a name of layout 1 says that its instant has completed."""
    time, _, suffix = name.partition(".")
    return is_instant_time(time) and suffix in COMPLETED_SUFFIXES


def modern_content(name: str, data: bytes, *, path: str) -> bytes:
    """Return the bytes that a timeline file has in layout 2.

    Args:
        name: in either layout.
        path: for errors.

    Raises:
        CorruptTableError: commit metadata is damaged.
    """
    suffix = name.partition(".")[2]
    action = COMPLETED_SUFFIXES.get(suffix) or INFLIGHT_SUFFIXES.get(suffix)
    # What goes with a replace that was planned is Avro; an empty file says nothing in both.
    is_json = action in _WITH_COMMIT_METADATA and data.lstrip()[:1] == b"{"
    if not is_json:
        return data
    is_replace = action is Action.REPLACE_COMMIT
    record = ReplaceCommitMetadata if is_replace else CommitMetadata
    return encode_record(decode_commit_json(record, data, path=path))


class LayoutOneStorage:
    """The storage of a table with layout 1: it reads as one with layout 2, and is not written."""

    def __init__(self, storage: Storage, layout: TableLayout, *, table: str) -> None:
        self.stored = storage
        """The storage as it is."""
        self._timeline = layout.timeline
        self._table = table

    @property
    def uri(self) -> str:
        return self.stored.uri

    @property
    def page_size(self) -> int:
        return self.stored.page_size

    @property
    def can_replace(self) -> bool:
        return False

    @property
    def is_distant(self) -> bool:
        return self.stored.is_distant

    def read(self, path: str) -> bytes:
        old = self._old_path(path)
        return self._modern(path, old, self.stored.read(old))

    def read_versioned(self, path: str) -> StoredObject:
        return self.stored.read_versioned(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.stored.read_range(path, start, length)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        wanted = list(paths)
        old_paths = [self._old_path(path) for path in wanted]
        found = self.stored.read_many(old_paths)
        return [
            None if data is None else self._modern(path, old, data)
            for path, old, data in zip(wanted, old_paths, found, strict=True)
        ]

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        return self.stored.open_input(path, size_bytes)

    def info(self, path: str) -> ObjectInfo:
        return self.stored.info(self._old_path(path))._replace(path=path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        if folder.startswith(f"{self._timeline}/"):
            return []  # At most what an upgrade that is under way has written.
        if folder != self._timeline:
            return self.stored.list_names(folder, after)
        names = map(modern_name, self.stored.list_names(HOODIE))
        found = [name for name in names if name is not None and name > after]
        self._check_not_upgraded()
        return found

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        return self.stored.list_tree(folder)

    def put(self, path: str, data: bytes) -> None:
        self._refuse(path)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self._refuse(", ".join(objects))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._refuse(path)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        self._refuse(path)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        self._refuse(", ".join(objects))

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        self._refuse(path)

    def delete(self, path: str) -> None:
        self._refuse(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        self._refuse(", ".join(paths))

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return self.stored.at_once(call, items)

    def _check_not_upgraded(self) -> None:
        """Check that the timeline was still there when it was listed.

        An upgrade deletes it after it has written the properties, and a table without a timeline
        would look empty.

        Raises:
            ConflictError: the table has another version now.
        """
        for data in self.stored.read_many([PROPERTIES, PROPERTIES_BACKUP]):
            if data is None:
                continue
            if int(parse_properties(data, path=PROPERTIES).get(VERSION.key, "0")) in _VERSIONS:
                return
            raise ConflictError(
                f"Table {self._table} was upgraded since it was opened. Open it again",
                retry=Retry.NEVER,
                table=self._table,
            )

    def _old_path(self, path: str) -> str:
        """Return where a file is that layout 2 has at a path."""
        folder, _, name = path.rpartition("/")
        if folder != self._timeline:
            return path
        stem, dot, suffix = name.partition(".")
        return f"{HOODIE}/{stem.partition('_')[0]}{dot}{suffix}"

    def _modern(self, path: str, old_path: str, data: bytes) -> bytes:
        if path == old_path:
            return data
        return modern_content(old_path.rpartition("/")[2], data, path=old_path)

    def _refuse(self, path: str) -> NoReturn:
        raise UnsupportedError(
            f"Table {self._table} is of a version before 8, which Headwater reads but does not "
            f"write, so {path} was left alone. `headwater table upgrade` makes it one of version 9",
            kind=ErrorKind.UNSUPPORTED_TABLE_VERSION,
            path=path,
        )
