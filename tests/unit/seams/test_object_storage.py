"""What the behaviour suite does not reach: errors of the store, and folders that tools pretend."""

from __future__ import annotations

import http.server
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pytest
from obstore.store import MemoryStore

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
from headwater.seams.object_store import ObjectStorage
from headwater.seams.open_storage import open_storage

NO_BUCKET = b"<Error><Code>NoSuchBucket</Code></Error>"
LISTING = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult><IsTruncated>false</IsTruncated>
<Contents><Key>table/folder/</Key><Size>0</Size><LastModified>2026-01-01T00:00:00.123Z</LastModified>
<ETag>"1"</ETag></Contents>
<Contents><Key>table/folder/object</Key><Size>3</Size>
<LastModified>2026-01-01T00:00:00.123Z</LastModified><ETag>"2"</ETag></Contents>
</ListBucketResult>"""


class Request(NamedTuple):
    method: str
    headers: dict[str, str]


class Server(NamedTuple):
    """A server on loopback, and the requests that it was sent."""

    port: int
    requests: list[Request]

    def open(self, uri: str, **options: str) -> ObjectStorage:
        options |= {"allow_http": "true", "proxy_excludes": "127.0.0.1"}
        storage = open_storage(
            uri, {f"headwater.storage.{key}": value for key, value in options.items()}
        )
        assert isinstance(storage, ObjectStorage)
        return storage

    def open_s3(self) -> ObjectStorage:
        return self.open(
            "s3://bucket/table",
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
        )

    def open_gcs(self) -> ObjectStorage:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return self.open("gs://bucket/table", service_account_key=json.dumps(account))

    def open_azure(self) -> ObjectStorage:
        return self.open(
            "az://container/table",
            endpoint=f"http://127.0.0.1:{self.port}",
            account_name="account",
            access_key="a2V5",
        )


@contextmanager
def server_that_answers(
    status: int,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    *,
    loses_first_reply: bool = False,
) -> Iterator[Server]:
    """Serve the same answer to every request, or hang up on the first."""
    requests: list[Request] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append(Request(self.command, {k.lower(): v for k, v in self.headers.items()}))
            if loses_first_reply and len(requests) == 1:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Server(server.server_port, requests)
        finally:
            server.shutdown()
            thread.join()


def errors_of_every_call(storage: ObjectStorage) -> dict[str, HeadwaterError]:
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: storage.read("a"),
        "read_versioned": lambda: storage.read_versioned("a"),
        "read_range": lambda: storage.read_range("a", 0, 1),
        "read_many": lambda: storage.read_many(["a", "b", "c"]),
        "info": lambda: storage.info("a"),
        "list_names": lambda: storage.list_names("folder"),
        "list_tree": lambda: storage.list_tree("folder"),
        "put": lambda: storage.put("a", b"1"),
        "put_if_absent": lambda: storage.put_if_absent("a", b"1"),
        "replace": lambda: storage.replace("a", b"1", version='"tag"'),
        "delete": lambda: storage.delete("a"),
    }
    errors = {}
    for name, call in calls.items():
        with pytest.raises(HeadwaterError) as caught:
            call()
        errors[name] = caught.value
    return errors


def test_access_denied_is_not_worth_a_retry() -> None:
    with server_that_answers(403, b"<Error><Code>AccessDenied</Code></Error>") as server:
        errors = errors_of_every_call(server.open_s3())
    for name, error in errors.items():
        assert isinstance(error, StorageError), name
        assert error.kind is ErrorKind.STORAGE_DENIED, name
        assert error.retry is Retry.NEVER, name
        assert "s3://bucket/table/" in str(error), name
        assert "\n" not in str(error), name


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (403, b"RequestTimeTooSkewed", "clock of this machine is off"),
        (400, b"AuthorizationHeaderMalformed", "region of the bucket"),
    ],
)
def test_what_is_set_wrongly_is_named(status: int, code: bytes, advice: str) -> None:
    with server_that_answers(status, b"<Error><Code>%s</Code></Error>" % code) as server:
        storage = server.open_s3()
        for call in (partial(storage.list_names, "a"), partial(storage.put_if_absent, "a", b"")):
            with pytest.raises(StorageError, match=advice) as caught:
                call()
            assert caught.value.retry is Retry.NEVER


def test_any_other_refusal_leaves_the_outcome_open() -> None:
    with server_that_answers(400, b"<Error><Code>Puzzling</Code></Error>") as server:
        errors = errors_of_every_call(server.open_s3())
    for name, error in errors.items():
        assert isinstance(error, StorageError), name
        assert error.kind is ErrorKind.STORAGE, name
        assert error.retry is Retry.SAME_CALL, name
        assert "400 Bad Request" in str(error), name
    assert "Puzzling" in str(errors["put"])


def test_a_missing_bucket_is_no_missing_object_to_a_writer() -> None:
    with server_that_answers(404, NO_BUCKET) as server:
        storage = server.open_s3()
        for write in (storage.put, storage.put_if_absent):
            with pytest.raises(StorageError, match=r"NoSuchBucket.*Create the bucket") as caught:
                write("a", b"1")
            assert caught.value.retry is Retry.NEVER
        for list_ in (storage.list_names, storage.list_tree):
            with pytest.raises(StorageError, match=r"NoSuchBucket.*Create the bucket"):
                list_("")
        with pytest.raises(NotFoundError):
            storage.read("a")
        with pytest.raises(ConflictError):
            storage.replace("a", b"1", version='"tag"')


def refused_delete(code: str) -> bytes:
    """The answer to a bulk delete that did not delete this."""
    return (
        f"<DeleteResult><Error><Key>table/a</Key><Code>{code}</Code>"
        "<Message>so it is</Message></Error></DeleteResult>"
    ).encode()


def test_what_another_deleted_at_the_same_time_is_deleted() -> None:
    with server_that_answers(200, refused_delete("NoSuchKey")) as server:
        storage = server.open_s3()
        storage.delete("a")
        storage.delete_many(["a", "a"])  # The server knows no other.
    assert {request.method for request in server.requests} == {"POST"}


def test_a_bulk_delete_that_is_denied_is_not_worth_a_retry() -> None:
    with server_that_answers(200, refused_delete("AccessDenied")) as server:
        storage = server.open_s3()
        for paths in (["a"], ["a", "a"]):
            with pytest.raises(StorageError) as caught:
                storage.delete_many(paths)
            assert caught.value.kind is ErrorKind.STORAGE_DENIED
            assert caught.value.retry is Retry.NEVER
    assert len(server.requests) == 2


def test_no_query_gets_into_a_message() -> None:
    with server_that_answers(400) as server, pytest.raises(StorageError) as caught:
        server.open_s3().list_names("folder")
    assert "list-type" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_the_object_that_stands_for_a_folder_is_not_listed_in_it() -> None:
    with server_that_answers(200, LISTING) as server:
        storage = server.open_s3()
        assert storage.list_names("folder") == ["object"]
        (info,) = storage.list_tree("folder")
    assert info == ("folder/object", 3, 1_767_225_600_123)


HEADERS = {
    "ETag": '"tag"',
    "x-goog-generation": "77",
    "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
}


@pytest.mark.parametrize(
    ("open_store", "version", "if_absent", "if_same"),
    [
        (Server.open_s3, '"tag"', ("if-none-match", "*"), ("if-match", '"tag"')),
        (Server.open_azure, '"tag"', ("if-none-match", "*"), ("if-match", '"tag"')),
        (
            Server.open_gcs,
            "77",
            ("x-goog-if-generation-match", "0"),
            ("x-goog-if-generation-match", "77"),
        ),
    ],
    ids=["s3", "azure", "gcs"],
)
def test_each_store_is_asked_in_its_own_words(
    open_store: Callable[[Server], ObjectStorage],
    version: str,
    if_absent: tuple[str, str],
    if_same: tuple[str, str],
) -> None:
    with server_that_answers(200, b"data", HEADERS) as server:
        storage = open_store(server)
        assert storage.read_versioned("a") == (b"data", version)
        storage.put_if_absent("a", b"1")
        assert storage.replace("a", b"2", version=version) == version
        storage.put("a", b"3")
    _, create, replace, overwrite = server.requests
    assert if_absent in create.headers.items()
    assert if_same in replace.headers.items()
    assert not {if_absent[0], if_same[0]} & set(overwrite.headers)


def test_a_store_without_versions_is_refused_where_one_is_needed() -> None:
    without = {name: value for name, value in HEADERS.items() if name != "x-goog-generation"}
    with server_that_answers(200, b"data", without) as server:
        storage = server.open_gcs()
        assert storage.read("a") == b"data"
        with pytest.raises(UnsupportedError, match="gs://bucket/table"):
            storage.read_versioned("a")


def test_a_lost_reply_looks_as_if_another_had_won() -> None:
    with server_that_answers(412, loses_first_reply=True) as server:
        with pytest.raises(AlreadyExistsError):
            server.open_s3().put_if_absent("a", b"1")
        assert len(server.requests) == 2
    with server_that_answers(412, loses_first_reply=True) as server:
        with pytest.raises(ConflictError):
            server.open_s3().replace("a", b"1", version='"tag"')
        assert len(server.requests) == 2


def test_read_many_asks_for_several_objects_at_once() -> None:
    together = threading.Barrier(4)

    class WaitingStorage(ObjectStorage):
        def read(self, path: str) -> bytes:
            together.wait(300)  # Returns only if four reads are under way.
            return path.encode()

    storage = WaitingStorage(MemoryStore(), "memory://obstore")
    assert storage.read_many(["a", "b", "c", "d"]) == [b"a", b"b", b"c", b"d"]


def test_put_many_writes_several_objects_at_once() -> None:
    together = threading.Barrier(4)

    class WaitingStorage(ObjectStorage):
        def put(self, path: str, data: bytes) -> None:
            together.wait(300)  # Returns only if four writes are under way.
            super().put(path, data)

    storage = WaitingStorage(MemoryStore(), "memory://obstore")
    storage.put_many({"a": b"1", "b": b"2", "c": b"3", "d": b"4"})
    assert storage.read_many("abcd") == [b"1", b"2", b"3", b"4"]


def test_it_travels_to_another_process() -> None:
    with server_that_answers(200, b"data", HEADERS) as server:
        storage = server.open_s3()
        copy = pickle.loads(pickle.dumps(storage))
        assert copy.read("a") == b"data"
        assert repr(copy) == repr(storage)
