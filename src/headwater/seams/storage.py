"""The storage seam: what the protocol may rely on, and nothing more.

Paths are relative to the table's base, use `/`, and never begin with one. Guarantees, tested for
every implementation by `tests/unit/contracts/test_storage.py`:

S1  `put_if_absent` is atomic: of many callers racing for one name exactly one succeeds.
S2  `read`, `list_*` and `delete` see every write that returned before they began.
S3  an object appears whole or not at all.
S4  `delete` is idempotent and unconditional.
S5  `list_names` is atomic per page of `page_size` names, not across pages; `list_tree` promises
    no more than S2.

Data files go through `open_output`, small ones too: it creates one as `put_if_absent` does, so S1
and S3 hold for what is written to it, and it survives a reply that gets lost, so that
`AlreadyExistsError` is never about the caller's own bytes. `open_input` reads parts of one. An
input is meant for objects that are never overwritten, as data files are (INV-57); on an object that
is deleted meanwhile it may raise `NotFoundError`.

A round trip to a store takes the time of thousands of instructions. What does not depend on each
other goes out at once: `read_many`, `put_many`, `create_many`, `delete_many`, and `at_once` for all
else.

There is no rename, no append and no conditional delete. `replace` (compare-and-swap) exists only
where `can_replace` says so; the protocol uses it for leases, never for the timeline. The version
it compares may be a hash of the bytes: equal bytes written twice can have one version.

No path is both an object and a folder of other objects; the stores differ on what that would mean.

Errors: `NotFoundError` for an absent object, `AlreadyExistsError` from `put_if_absent`,
`ConflictError` from `replace`, `InvalidInputError` for what `storage_arguments` refuses, and
`StorageError` for everything else. After a `StorageError` from a write the outcome is *unknown*:
it may have landed, and it may still land (see `txn.write_once`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple, Protocol, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


class ObjectInfo(NamedTuple):
    """What a listing tells about one object."""

    path: str
    size_bytes: int
    modified_ms: int


class StoredObject(NamedTuple):
    """An object's bytes with the version tag that `replace` compares."""

    data: bytes
    version: str


class Storage(Protocol):
    """Objects under one base location."""

    @property
    def uri(self) -> str:
        """The base location, for messages and for records that need absolute paths."""
        ...

    @property
    def page_size(self) -> int:
        """How many names one listing returns atomically (S5)."""
        ...

    @property
    def can_replace(self) -> bool:
        """Whether `replace` works on this store."""
        ...

    @property
    def is_distant(self) -> bool:
        """Whether a call takes so long that it pays to read small objects whole, and ahead."""
        ...

    def read(self, path: str) -> bytes: ...

    def read_versioned(self, path: str) -> StoredObject: ...

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; shorter only at the end of the object."""
        ...

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        """Read several objects, concurrently where that helps; None stands for an absent one."""
        ...

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        """Open an object for reading parts of it, in any order; the caller closes it.

        Who knows its size saves asking for it; an object that is absent then shows when it is read.
        """
        ...

    def info(self, path: str) -> ObjectInfo: ...

    def list_names(self, folder: str, after: str = "") -> list[str]:
        """Return the names of the objects directly in `folder`, unordered; [] if it is absent.

        Args:
            after: only names that sort behind it are meant, which is less for a store to tell. If
                the folder has others in it their objects may be listed too, and are left out here.
        """
        ...

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """Return every object below `folder`, ordered by path; [] if it is absent."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Create or overwrite."""
        ...

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Put several objects, by their paths; concurrently where that helps, in no order.

        Each is put as `put` does, and all are there when this returns. After an error any of them
        may be there.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create; raise `AlreadyExistsError` if the name is taken."""
        ...

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Create an object from what the `with` block writes.

        It appears whole when the block ends, and not at all if the block raises.

        Raises:
            AlreadyExistsError: the name is taken; at the end of the block at the latest.
        """
        ...

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        """Create several data files, by their paths; concurrently where that helps, in no order.

        Each is created as `open_output` does, and all are there when this returns. After an error
        any of them may be there.

        Raises:
            AlreadyExistsError: a name is taken.
        """
        ...

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        """Overwrite if the object still has `version`; return the new version.

        Raises:
            ConflictError: the object changed or vanished.
            UnsupportedError: the store has no conditional overwrite.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete; succeed also when there is nothing to delete."""
        ...

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete several objects, each as `delete` does; in few requests where the store can.

        After an error any of them may be gone.
        """
        ...

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return what `call` gives for each item, in their order; several at a time if that helps.

        The calls are about this storage and do not depend on each other. None is under way any
        more when this returns. If one raises, those that have not begun are not made, and the error
        of the first item that has one is raised.
        """
        ...


def create_each(storage: Storage, objects: Mapping[str, bytes]) -> None:
    """Create several data files, each with calls of its own: what `create_many` does by default."""

    def create(each: tuple[str, bytes]) -> None:
        path, data = each
        with storage.open_output(path) as sink:
            sink.write(data)

    storage.at_once(create, [*objects.items()])


def both_at_once(storage: Storage, first: Callable[[], T], second: Callable[[], R]) -> tuple[T, R]:
    """Return what two loads give that do not depend on each other."""
    loads: list[Callable[[], object]] = [first, second]
    one, other = storage.at_once(lambda load: load(), loads)
    return cast("T", one), cast("R", other)
