"""Storage in an object store, through obstore: S3 and what speaks its language, GCS, Azure.

The stores keep the guarantees by themselves: creation and overwriting are conditional requests
(`If-None-Match`, `If-Match`, or a generation), every read and listing is strongly consistent, and
an object appears when its upload ends.

One thing they cannot hide. obstore repeats a request whose reply was lost, and the repetition of a
creation that did land is answered "exists already". So `AlreadyExistsError` from `put_if_absent`,
and `ConflictError` from `replace`, may be about the caller's own bytes. Whoever must know reads the
object back and looks for its own id in it (M4); nothing here can tell. `open_output` does so by
itself (`new_object`).

What obstore gives up on and may be asked again is asked again here: answers that were cut off, and
writes that S3 did not decide because two of them met.

Tools that pretend to have folders (the S3 console, Hadoop's S3A) keep empty objects named `folder/`
for them. `list_names` does not show them; `list_tree` shows one as an empty object `folder`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from headwater.errors import HeadwaterError, NotFoundError, Retry, StorageError, UnsupportedError
from headwater.seams.metrics import STORAGE_RETRIES
from headwater.seams.new_object import (
    PART_BYTES,
    PARTS_AT_ONCE,
    UPLOADS,
    new_object,
)
from headwater.seams.parallel_map import parallel_map, waiting_threads
from headwater.seams.range_input import RangeInput
from headwater.seams.storage import ObjectInfo, StoredObject, create_each
from headwater.seams.storage_arguments import check_folder, check_path, check_range
from headwater.seams.storage_metrics import storage_request, store_of
from headwater.seams.store_errors import FAILURES, Answer, storage_error
from headwater.seams.store_settings import REQUESTS_AT_ONCE
from headwater.seams.store_threads import STORE_THREADS

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion, WritableFile

T = TypeVar("T")
R = TypeVar("R")

ConditionalStore = AzureStore | GCSStore | MemoryStore | S3Store
"""The stores of obstore that have conditional requests."""

# The least number of names that one page of S3, GCS or Azure holds.
PAGE_SIZE = 1000

# Of more bytes nobody can say how soon they are sent.
_LITTLE_BYTES = 1024 * 1024

# Requests that do no harm when an earlier one of the same call has come through.
_REPEATABLE = frozenset({"read", "look up", "list", "delete"})

_TRIES_MAX = 5
_PAUSE_S = 0.05  # Doubled after every try.


class ObjectStorage:
    """Objects below the prefix that `store` was made with; `uri` is how people call that place."""

    def __init__(
        self,
        store: ConditionalStore,
        uri: str,
        *,
        bulk: ConditionalStore | None = None,
        requests_at_once: int = REQUESTS_AT_ONCE,
    ) -> None:
        """Reach objects through `store`, and those of many bytes through `bulk`.

        The two differ in how long a request may take: whoever asks for little hears soon that
        nobody answers, and whoever sends much is not cut off in the middle.
        """
        self._store = store
        self._bulk = bulk or store
        self._uri = uri.rstrip("/")
        self._requests_at_once = requests_at_once
        self._kind = store_of(self._uri)
        # GCS overwrites by the number of the version that is there, the others by its entity tag.
        self._compares_generations = isinstance(store, GCSStore)

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def page_size(self) -> int:
        return PAGE_SIZE

    @property
    def can_replace(self) -> bool:
        return True

    @property
    def is_distant(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"ObjectStorage({self._uri!r})"

    def read(self, path: str) -> bytes:
        check_path(path)
        return self._call("read", path, lambda: self._store.get(path).bytes().to_bytes())

    def read_versioned(self, path: str) -> StoredObject:
        check_path(path)

        def get() -> StoredObject:
            found = self._store.get(path)
            return StoredObject(found.bytes().to_bytes(), self._version_of(found.meta))

        return self._call("read", path, get)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        check_path(path)
        check_range(path, start, length)

        if length == 0:  # Which object stores refuse, and which must still find the object.
            self.info(path)
            return b""
        if length <= PART_BYTES:
            return self._read_part(path, start, length)
        parts = [
            (first, min(PART_BYTES, start + length - first))
            for first in range(start, start + length, PART_BYTES)
        ]
        return b"".join(self.at_once(lambda part: self._read_part(path, *part), parts))

    def _read_part(self, path: str, start: int, length: int) -> bytes:
        def get_range() -> bytes:
            try:
                return self._bulk.get_range(path, start=start, length=length).to_bytes()
            except exceptions.GenericError as error:
                # A range behind the end is an error to object stores, and not one of its own kind.
                if Answer.of(error).is_cut_off or self._store.head(path)["size"] > start:
                    raise
                return b""

        return self._call("read", path, get_range)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        return self.at_once(self._read_or_none, [*paths])

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        if size_bytes is None:
            size_bytes = self.info(path).size_bytes
        source = RangeInput(lambda start, length: self.read_range(path, start, length), size_bytes)
        # A raw file has all of a BinaryIO but the name.
        return cast("BinaryIO", source)

    def info(self, path: str) -> ObjectInfo:
        check_path(path)
        return self._call("look up", path, lambda: _info(self._store.head(path)))

    def list_names(self, folder: str, after: str = "") -> list[str]:
        check_folder(folder)

        def list_all() -> Iterable[ObjectMeta]:
            return self._store.list_with_delimiter(folder)["objects"]

        def list_behind() -> Iterable[ObjectMeta]:
            offset = f"{folder}/{after}" if folder else after
            return self._store.list(folder, offset=offset, chunk_size=PAGE_SIZE).collect()

        found = self._call("list", folder, list_behind if after else list_all)
        start = len(folder) + 1 if folder else 0
        names = [listed["path"][start:] for listed in found]
        # Some servers of Azure's API list from the beginning all the same.
        return [name for name in names if name > after and "/" not in name]

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        check_folder(folder)
        found = self._call(
            "list", folder, lambda: self._store.list(folder, chunk_size=PAGE_SIZE).collect()
        )
        return sorted(_info(listed) for listed in found if listed["path"] != folder)

    def put(self, path: str, data: bytes) -> None:
        check_path(path)
        self._call("write", path, lambda: self._store_for(data).put(path, data))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self.at_once(lambda each: self.put(*each), [*objects.items()])

    def put_if_absent(self, path: str, data: bytes) -> None:
        check_path(path)
        self._call("write", path, lambda: self._store_for(data).put(path, data, mode="create"))

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        check_path(path)
        return new_object(_Target(self, path))

    def _store_for(self, data: bytes) -> ConditionalStore:
        return self._store if len(data) < _LITTLE_BYTES else self._bulk

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        create_each(self, objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        check_path(path)
        expected: UpdateVersion = (
            {"version": version} if self._compares_generations else {"e_tag": version}
        )
        return self._call(
            "replace", path, lambda: self._version_of(self._store.put(path, data, mode=expected))
        )

    def delete(self, path: str) -> None:
        check_path(path)
        with suppress(NotFoundError):  # GCS and Azure say so where S3 is silent.
            self._call("delete", path, lambda: self._store.delete(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        unwanted = [*paths]
        for path in unwanted:
            check_path(path)
        if len(unwanted) < 2:
            for path in unwanted:
                self.delete(path)
            return
        try:
            self._call("delete", unwanted[0], lambda: self._store.delete(unwanted))
        except (NotFoundError, StorageError) as error:
            if error.retry is Retry.NEVER and isinstance(error, StorageError):
                raise
            # GCS and Azure stop at what is gone already; and many at once can be too many.
            self.at_once(self.delete, unwanted)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        helpers = waiting_threads()
        return parallel_map(call, items, width=self._requests_at_once, helpers=helpers)

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFoundError:
            return None

    def _version_of(self, found: ObjectMeta | PutResult) -> str:
        version = found["version"] if self._compares_generations else found["e_tag"]
        if version is None:
            raise UnsupportedError(
                f"{self._uri} does not tell the versions of its objects, so none can be replaced "
                "safely. Use a store that returns entity tags"
            )
        return version

    def _call(self, verb: str, path: str, request: Callable[[], T]) -> T:
        """Make a request; again if its answer was cut off, or the store decided nothing."""
        STORE_THREADS.use(f"{self._uri}/{path}")
        may_have_landed = False
        with storage_request(self._kind, verb):
            for tried in range(_TRIES_MAX):
                try:
                    return request()
                except FAILURES as error:
                    answer = Answer.of(error, may_have_landed=may_have_landed)
                    is_last = tried == _TRIES_MAX - 1
                    is_cut_off = answer.is_cut_off and verb in _REPEATABLE
                    if is_last or not (answer.is_undecided or is_cut_off):
                        raise storage_error(answer, verb, f"{self._uri}/{path}") from error
                may_have_landed = answer.is_repeated
                reason = "undecided" if answer.is_undecided else "cut_off"
                STORAGE_RETRIES.add(1, self._kind, verb, reason)
                time.sleep(_PAUSE_S * 2**tried)
        raise AssertionError  # The last try returns or raises.


class _Target:
    """One name in the store, for `new_object`."""

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._staged = f"{UPLOADS}/{path.rpartition('/')[2]}-{uuid.uuid4().hex}"
        self._writer: WritableFile | None = None

    @property
    def where(self) -> str:
        return f"{self._storage.uri}/{self._path}"

    def create(self, data: bytes) -> None:
        self._storage.put_if_absent(self._path, data)

    def stage(self) -> Callable[[bytes], None]:
        STORE_THREADS.use(self.where)
        writer = self._writer = obstore.open_writer(
            self._storage._bulk, self._staged, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )

        def send(data: bytes) -> None:
            self._call(lambda: writer.write(data))

        return send

    def complete(self, size_bytes: int) -> None:
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        try:
            self._call(writer.close)
        except StorageError:
            # The store forgets an upload when it completes it, so that a repetition finds none.
            try:
                is_whole = self._storage.info(self._staged).size_bytes == size_bytes
            except HeadwaterError:
                is_whole = False
            if not is_whole:
                raise

    def publish(self) -> None:
        storage = self._storage
        self._call(lambda: storage._bulk.copy(self._staged, self._path, overwrite=False))

    def unstage(self) -> None:
        if self._writer is not None:
            # Which drops the parts in a store that keeps them until an upload ends.
            with suppress(*FAILURES):
                self._writer.close()
        self._storage.delete(self._staged)

    def size_bytes(self) -> int:
        return self._storage.info(self._path).size_bytes

    def read_range(self, start: int, length: int) -> bytes:
        return self._storage.read_range(self._path, start, length)

    def _call(self, request: Callable[[], T]) -> T:
        return self._storage._call("write", self._path, request)


def _info(found: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(
        found["path"], found["size"], round(found["last_modified"].timestamp() * 1000)
    )
