"""Storage in an object store, through obstore: S3 and what speaks its language, GCS, Azure.

The stores keep the guarantees by themselves: creation and overwriting are conditional requests
(`If-None-Match`, `If-Match`, or a generation), every read and listing is strongly consistent, and
an object appears when its upload ends.

One thing they cannot hide. obstore repeats a request whose reply was lost, and the repetition of a
creation that did land is answered "exists already". So `AlreadyExistsError` from `put_if_absent`,
and `ConflictError` from `replace`, may be about the caller's own bytes. Whoever must know reads the
object back and looks for its own id in it (M4); nothing here can tell.

Tools that pretend to have folders (the S3 console, Hadoop's S3A) keep empty objects named `folder/`
for them. `list_names` does not show them; `list_tree` shows one as an empty object `folder`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    HeadwaterError,
    NotFoundError,
    Retry,
    StorageError,
    UnsupportedError,
)
from headwater.seams.buffered_output import buffered_output
from headwater.seams.parallel_map import parallel_map
from headwater.seams.range_input import RangeInput
from headwater.seams.storage import ObjectInfo, StoredObject
from headwater.seams.storage_arguments import check_folder, check_path, check_range

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion

T = TypeVar("T")

ConditionalStore = AzureStore | GCSStore | MemoryStore | S3Store
"""The stores of obstore that have conditional requests."""

# The least number of names that one page of S3, GCS or Azure holds.
PAGE_SIZE = 1000

# Enough to hide the latency of a request, and few enough not to be told to slow down.
_REQUESTS_AT_ONCE = 16

# A query may hold a signature, which has no business in a message.
_QUERY = re.compile(r"\?\S*")
_STORE_CODE = re.compile(r"<Code>(\w+)</Code>")
_HTTP_STATUS = re.compile(r"status code: (\d{3})")


class ObjectStorage:
    """Objects below the prefix that `store` was made with; `uri` is how people call that place."""

    def __init__(self, store: ConditionalStore, uri: str) -> None:
        self._store = store
        self._uri = uri.rstrip("/")
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

        def get_range() -> bytes:
            try:
                return self._store.get_range(path, start=start, length=length).to_bytes()
            except exceptions.GenericError:
                # A range behind the end is an error to object stores, and not one of its own kind.
                if self._store.head(path)["size"] > start:
                    raise
                return b""

        if length == 0:  # Which object stores refuse, and which must still find the object.
            self.info(path)
            return b""
        return self._call("read", path, get_range)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        return parallel_map(self._read_or_none, [*paths], width=_REQUESTS_AT_ONCE)

    def open_input(self, path: str) -> BinaryIO:
        size_bytes = self.info(path).size_bytes
        source = RangeInput(lambda start, length: self.read_range(path, start, length), size_bytes)
        # A raw file has all of a BinaryIO but the name.
        return cast("BinaryIO", source)

    def info(self, path: str) -> ObjectInfo:
        check_path(path)
        return self._call("look up", path, lambda: _info(self._store.head(path)))

    def list_names(self, folder: str) -> list[str]:
        check_folder(folder)
        found = self._call(
            "list", folder, lambda: self._store.list_with_delimiter(folder)["objects"]
        )
        paths = (listed["path"] for listed in found)
        return [path.rpartition("/")[2] for path in paths if path != folder]

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        check_folder(folder)
        found = self._call(
            "list", folder, lambda: self._store.list(folder, chunk_size=PAGE_SIZE).collect()
        )
        return sorted(_info(listed) for listed in found if listed["path"] != folder)

    def put(self, path: str, data: bytes) -> None:
        check_path(path)
        self._call("write", path, lambda: self._store.put(path, data))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        parallel_map(lambda each: self.put(*each), [*objects.items()], width=_REQUESTS_AT_ONCE)

    def put_if_absent(self, path: str, data: bytes) -> None:
        check_path(path)
        self._call("write", path, lambda: self._store.put(path, data, mode="create"))

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        check_path(path)
        return buffered_output(lambda data: self.put_if_absent(path, data))

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
        try:
            return request()
        except (exceptions.BaseError, OSError, NotImplementedError) as error:
            raise self._error(error, verb, path) from error

    def _error(self, error: Exception, verb: str, path: str) -> HeadwaterError:
        where = f"{self._uri}/{path}"
        what = f"Cannot {verb} {where}: {_summary(error)}"
        match error:
            case FileNotFoundError() if verb in ("read", "look up", "delete"):
                return NotFoundError(f"There is no object {where}")
            case FileNotFoundError() if verb != "replace":
                return _no_bucket(what)
            case FileNotFoundError() | exceptions.PreconditionError():
                return ConflictError(
                    f"{where} changed or vanished since it was read. Read it again and decide anew"
                )
            case exceptions.AlreadyExistsError():
                return AlreadyExistsError(f"{where} exists already; it was left as it is")
            case exceptions.PermissionDeniedError() | exceptions.UnauthenticatedError():
                return _denied(what)
            case exceptions.NotSupportedError() | NotImplementedError():
                return UnsupportedError(f"{what}. Use a store that has conditional requests")
        # A failed listing has no kind in obstore; only its text tells what the store said.
        status = _HTTP_STATUS.search(str(error))
        match status[1] if status else None:
            case "401" | "403":
                return _denied(what)
            case "404":
                return _no_bucket(what)
            case _:
                return StorageError(f"{what}. Try again")


def _denied(what: str) -> StorageError:
    return StorageError(
        f"{what}. Check the credentials and what they are allowed to do",
        kind=ErrorKind.STORAGE_DENIED,
        retry=Retry.NEVER,
    )


def _no_bucket(what: str) -> StorageError:
    return StorageError(f"{what}. Create the bucket or container first", retry=Retry.NEVER)


def _info(found: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(
        found["path"], found["size"], round(found["last_modified"].timestamp() * 1000)
    )


def _summary(error: Exception) -> str:
    """Cut obstore's message down to what people can use: its first line and the store's code."""
    text = str(error)
    first_line = _QUERY.sub("", text.partition("\n")[0].partition(": <")[0]).rstrip(": ")
    code = _STORE_CODE.search(text)
    return f"{first_line} ({code[1]})" if code else first_line
