"""The marker service over HTTP: what it answers, and whom it refuses."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from typing import Any, NamedTuple

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import EarlyConflictError
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers.batches import load_every_marker
from headwater.markers.client import MarkerServiceAddress
from headwater.markers.limits import MARKERS_PER_REQUEST_MAX, REQUEST_BYTES_MAX
from headwater.markers.service import NoConflictWatch

Serve = Callable[..., MarkerServiceAddress]

T = "20260101000000000"
MARKERS = f"/instants/{T}/markers"


def path(name: str, partition: str = "city=sf") -> str:
    return f"{partition}/{name}_0-1-0_{T}.parquet"


def body(*paths: str, kind: str = "CREATE") -> bytes:
    return json.dumps({"markers": [{"path": each, "kind": kind} for each in paths]}).encode()


class Answer(NamedTuple):
    status: int
    content: Any
    headers: dict[str, str]


def ask(
    address: MarkerServiceAddress,
    method: str,
    where: str,
    data: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    connection = HTTPConnection(address.host, address.port, timeout=300)
    try:
        authorization = {"Authorization": f"Bearer {address.token}"}
        connection.request(method, where, data, authorization if headers is None else headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, json.loads(response.read()), found)
    finally:
        connection.close()


def test_created_markers_are_in_storage_and_listed(serve: Serve) -> None:
    storage = MemoryStorage()
    address = serve(storage)
    assert ask(address, "POST", MARKERS, body(path("a"), path("b"))).content == {"created": 2}
    assert ask(address, "POST", MARKERS, body(path("a", "x/y"), kind="MERGE")).status == 200
    expected = [
        Marker(path("a"), MarkerKind.CREATE),
        Marker(path("b"), MarkerKind.CREATE),
        Marker(path("a", "x/y"), MarkerKind.MERGE),
    ]
    assert load_every_marker(storage, address.instant_time) == expected
    assert storage.read(f".hoodie/.temp/{T}/MARKERS.type") == b"TIMELINE_SERVER_BASED"
    listed = ask(address, "GET", MARKERS)
    assert listed.content == {"markers": [{"path": m.data_path, "kind": m.kind} for m in expected]}
    group = ask(address, "GET", f"{MARKERS}?partition=x%2Fy&file_id=a").content["markers"]
    assert group == [{"path": path("a", "x/y"), "kind": "MERGE"}]
    assert ask(address, "GET", f"{MARKERS}?file_id=a").content["markers"] == []


def test_creating_again_is_no_harm_and_writes_nothing(serve: Serve) -> None:
    storage = CountingStorage(MemoryStorage())
    address = serve(storage)
    ask(address, "POST", MARKERS, body(path("a")))
    storage.reset()
    assert ask(address, "POST", MARKERS, body(path("a"))).status == 200
    assert storage.counts == {}


def test_deleting_forgets_all_and_ends_the_service(serve: Serve) -> None:
    storage = MemoryStorage()
    address = serve(storage)
    ask(address, "POST", MARKERS, body(path("a")))
    assert ask(address, "DELETE", MARKERS).status == 200
    assert storage.list_tree("") == []
    late = ask(address, "POST", MARKERS, body(path("b")))
    assert late.status == 410
    assert T in late.content["error"]
    assert storage.list_tree("") == []
    assert ask(address, "DELETE", MARKERS).status == 200


def test_anybody_may_ask_whether_it_is_there(serve: Serve) -> None:
    assert ask(serve(MemoryStorage()), "GET", "/health", headers={}).content == {"status": "up"}


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer a-token2"},
        {"Authorization": "a-token"},
        {"Authorization": "Basic a-token"},
        {"Authorization": "Bearer \u00fc"},
    ],
    ids=lambda headers: headers.get("Authorization", "none"),
)
def test_only_the_token_opens(serve: Serve, method: str, headers: dict[str, str]) -> None:
    storage = MemoryStorage()
    address = serve(storage)
    ask(address, "POST", MARKERS, body(path("a")))
    before = storage.list_tree("")
    # Not even which instant is served here is told.
    for where in (MARKERS, "/instants/20260101000000009/markers"):
        answer = ask(address, method, where, body(path("b")), headers)
        assert answer.status == 401
        assert T not in answer.content["error"]
    assert storage.list_tree("") == before


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_other_instants_are_not_served(serve: Serve, method: str) -> None:
    storage = MemoryStorage()
    address = serve(storage)
    before = storage.list_tree("")
    answer = ask(address, method, "/instants/20260101000000009/markers", body(path("a")))
    assert answer.status == 404
    assert T in answer.content["error"]
    assert storage.list_tree("") == before


@pytest.mark.parametrize(
    "bad",
    [
        f"../a_0-1-0_{T}.parquet",
        f"/a_0-1-0_{T}.parquet",
        f"x/../../a_0-1-0_{T}.parquet",
        f"./a_0-1-0_{T}.parquet",
        f"x//a_0-1-0_{T}.parquet",
        f"x\ny/a_0-1-0_{T}.parquet",
        f"x\r/a_0-1-0_{T}.parquet",
        f"x\x00/a_0-1-0_{T}.parquet",
        f"x\x1b/a_0-1-0_{T}.parquet",
        f"\ud800/a_0-1-0_{T}.parquet",
        f".hoodie/metadata/a_0-1-0_{T}.parquet",
        ".hoodie/hoodie.properties",
        "city=sf/a_0-1-0_20250101000000000.parquet",
        "city=sf/README.md",
        f"{'x' * 1_024}/a_0-1-0_{T}.parquet",
        "",
    ],
)
def test_names_that_are_no_data_files_of_the_instant(serve: Serve, bad: str) -> None:
    storage = MemoryStorage()
    address = serve(storage)
    answer = ask(address, "POST", MARKERS, body(path("good"), bad))
    assert answer.status == 400
    assert answer.content["error"]
    # One bad name spoils the request, and nothing of it is stored.
    assert load_every_marker(storage, address.instant_time) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"\xff",
        b"[]",
        b"{}",
        b'{"markers": null}',
        b'{"markers": {}}',
        b'{"markers": "abc"}',
        b'{"markers": ["abc"]}',
        b'{"markers": [{}]}',
        b'{"markers": [{"path": 1, "kind": "CREATE"}]}',
        b'{"markers": [{"path": "a"}]}',
        body(path("a"), kind="create"),
        body(path("a"), kind="RENAME"),
        b'{"markers": [{"path": "a", "kind": []}]}',
        b"[" * 200_000,
    ],
    ids=lambda data: data[:40].decode(errors="replace"),
)
def test_bodies_that_make_no_sense(serve: Serve, data: bytes) -> None:
    answer = ask(serve(MemoryStorage()), "POST", MARKERS, data)
    assert answer.status == 400
    assert "The body must be" in answer.content["error"]


def test_what_is_not_there_is_refused_in_the_same_form(serve: Serve) -> None:
    address = serve(MemoryStorage())
    assert "error" in ask(address, "GET", "/").content
    assert ask(address, "GET", "/").status == 404
    assert ask(address, "PUT", MARKERS).status == 405


def raw(address: MarkerServiceAddress, head: str, *chunks: bytes) -> bytes:
    """Send bytes as they are, and return the first line of the answer."""
    with socket.create_connection((address.host, address.port), timeout=300) as connection:
        lines = [f"POST {MARKERS} HTTP/1.1", "Host: x", f"Authorization: Bearer {address.token}"]
        connection.sendall("\r\n".join([*lines, head, "", ""]).encode())
        for chunk in chunks:
            connection.sendall(chunk)
        with connection.makefile("rb") as answer:
            return answer.readline()


def test_an_announced_body_that_is_too_large_is_not_waited_for(serve: Serve) -> None:
    head = f"Content-Length: {REQUEST_BYTES_MAX + 1}"
    assert b" 413 " in raw(serve(MemoryStorage()), head)


def test_a_body_that_turns_out_too_large_is_not_held(serve: Serve) -> None:
    address = serve(MemoryStorage())
    chunk = b"%x\r\n%s\r\n" % (1 << 16, b" " * (1 << 16))
    assert b" 413 " in raw(address, "Transfer-Encoding: chunked", *[chunk] * 17)


def test_too_many_markers_in_one_request(serve: Serve) -> None:
    storage = MemoryStorage()
    address = serve(storage)
    most = [path(str(n)) for n in range(MARKERS_PER_REQUEST_MAX)]
    assert ask(address, "POST", MARKERS, body(*most, path("more"))).status == 413
    assert load_every_marker(storage, address.instant_time) == []
    assert ask(address, "POST", MARKERS, body(*most)).status == 200


def test_a_client_that_goes_away_in_the_middle_disturbs_nobody(serve: Serve) -> None:
    address = serve(MemoryStorage())
    with socket.create_connection((address.host, address.port), timeout=300) as connection:
        head = f"POST {MARKERS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {address.token}\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode() + b"{")
    assert ask(address, "POST", MARKERS, body(path("a"))).status == 200


# Conflicts -------------------------------------------------------------------------------------


class Finding(NoConflictWatch):
    found: EarlyConflictError | None = None

    async def admit(self, markers: Sequence[Marker]) -> EarlyConflictError | None:
        return self.found


def test_after_a_conflict_nothing_is_created(serve: Serve) -> None:
    storage, watch = MemoryStorage(), Finding()
    address = serve(storage, conflicts=watch)
    assert ask(address, "POST", MARKERS, body(path("a"))).status == 200
    watch.found = EarlyConflictError("Instant 1 of host/1/x writes city=sf/a", other="1")
    answer = ask(address, "POST", MARKERS, body(path("b")))
    error = {"error": watch.found.message, "conflict": {"other": "1"}}
    assert (answer.status, answer.content) == (409, error)
    assert [m.data_path for m in load_every_marker(storage, address.instant_time)] == [path("a")]
