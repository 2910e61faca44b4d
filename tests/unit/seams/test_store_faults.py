"""A store that fails between a request and its reply: what is absorbed, and what is said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.faulty_proxy import Action, Fault, Proxy, faulty_proxy
from tests.support.store_servers import moto_server

from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    Retry,
    StorageError,
)
from headwater.kernel.write_once import put_once
from headwater.seams import new_object
from headwater.seams.clock import SystemClock
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage

MEGABYTE = 1024 * 1024


def expired(times: int = 100) -> Fault:
    return Fault(Action.ANSWER, status=400, code="ExpiredToken", times=times)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with pytest.MonkeyPatch.context() as patch, moto_server() as s3:
        patch.setenv("S3_UPLOAD_PART_MIN_SIZE", "1")
        s3.request("PUT", "/bucket")
        with faulty_proxy(s3.port) as between:
            between.options = s3.behind(between.port).options
            yield between


@pytest.fixture
def storage(proxy: Proxy, request: pytest.FixtureRequest) -> Iterator[Storage]:
    proxy.set()
    yield open_storage(f"s3://bucket/{request.node.name}", proxy.options)
    proxy.set()


def write(storage: Storage, data: bytes = b"rows") -> None:
    with storage.open_output("file") as sink:
        sink.write(data)


def puts(proxy: Proxy) -> int:
    return sum(method == "PUT" for method, _ in proxy.requests)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Action.LOSE, "PUT"),
        Fault(Action.LOSE, "PUT", times=3),
        Fault(Action.RESET, "PUT"),
        Fault(Action.ANSWER, "PUT", times=2),
        Fault(Action.ANSWER, "PUT", status=500, code="InternalError"),
        Fault(Action.ANSWER, "PUT", status=409, code="ConditionalRequestConflict", times=2),
    ],
    ids=["lost", "lost thrice", "reset", "busy", "internal", "undecided"],
)
def test_a_data_file_is_there_whatever_became_of_the_reply(
    proxy: Proxy, storage: Storage, fault: Fault
) -> None:
    proxy.set(fault)
    write(storage)
    assert fault.hits == fault.times
    assert storage.read("file") == b"rows"


def test_a_data_file_is_known_again_if_its_repetition_was_undecided(
    proxy: Proxy, storage: Storage
) -> None:
    """The third request is refused for what the first one made, and does not look repeated."""
    lost = Fault(Action.LOSE, "PUT")
    undecided = Fault(Action.ANSWER, "PUT", status=409, code="ConditionalRequestConflict")
    proxy.set(lost, undecided)
    write(storage)
    assert lost.hits == undecided.hits == 1
    assert storage.read("file") == b"rows"


def test_a_name_that_another_took_is_taken_also_after_a_lost_reply(
    proxy: Proxy, storage: Storage
) -> None:
    storage.put("file", b"others")
    proxy.set(Fault(Action.LOSE, "PUT"))
    with pytest.raises(AlreadyExistsError, match=f"{storage.uri}/file"):
        write(storage)
    assert storage.read("file") == b"others"


def test_of_two_that_write_the_same_without_a_fault_one_is_told(
    proxy: Proxy, storage: Storage
) -> None:
    write(storage)
    with pytest.raises(AlreadyExistsError):
        write(storage)


def test_expired_credentials_are_a_refusal_and_not_a_doubt(proxy: Proxy, storage: Storage) -> None:
    for fault in (expired(), Fault(Action.ANSWER, status=403, code="AccessDenied", times=100)):
        proxy.set(fault)
        with pytest.raises(StorageError) as caught:
            put_once(storage, SystemClock(), "commit", b"done")
        assert caught.value.kind is ErrorKind.STORAGE_DENIED
        assert caught.value.retry is Retry.NEVER
        assert puts(proxy) == 1
    assert "Check the credentials" in str(caught.value)


def test_a_refusal_after_a_lost_reply_leaves_a_doubt(proxy: Proxy, storage: Storage) -> None:
    proxy.set(Fault(Action.LOSE, "PUT"), expired())
    with pytest.raises(CommitUnknownError):
        put_once(storage, SystemClock(), "commit", b"done")
    proxy.set()
    assert storage.read("commit") == b"done"


def test_a_commit_that_the_store_did_not_decide_is_sent_again(
    proxy: Proxy, storage: Storage
) -> None:
    proxy.set(Fault(Action.ANSWER, "PUT", status=409, code="ConditionalRequestConflict"))
    storage.put_if_absent("commit", b"done")
    assert puts(proxy) == 2


def test_a_lease_that_the_store_did_not_decide_is_sent_again(
    proxy: Proxy, storage: Storage
) -> None:
    storage.put("lease", b"1")
    version = storage.read_versioned("lease").version
    proxy.set(Fault(Action.ANSWER, "PUT", status=409, code="ConditionalRequestConflict"))
    storage.replace("lease", b"2", version=version)
    assert storage.read("lease") == b"2"
    with pytest.raises(ConflictError):
        storage.replace("lease", b"3", version=version)


def test_an_answer_that_is_cut_off_is_asked_for_again(proxy: Proxy, storage: Storage) -> None:
    for name in "abc":
        storage.put(f"folder/{name}", b"0123456789")
    for times in (1, 2):
        proxy.set(Fault(Action.CUT, "GET", times=times))
        assert sorted(storage.list_names("folder")) == ["a", "b", "c"]
        proxy.set(Fault(Action.CUT, "GET", times=times))
        assert len(storage.list_tree("folder")) == 3
        proxy.set(Fault(Action.CUT, "GET", times=times))
        assert storage.read("folder/a") == b"0123456789"
        proxy.set(Fault(Action.CUT, "GET", times=times))
        assert storage.read_range("folder/a", 2, 5) == b"23456"


def test_answers_that_are_always_cut_off_are_given_up(proxy: Proxy, storage: Storage) -> None:
    storage.put("folder/a", b"0123456789")
    proxy.set(Fault(Action.CUT, "GET", times=1000))
    with pytest.raises(StorageError) as caught:
        storage.list_names("folder")
    assert caught.value.retry is Retry.SAME_CALL


def test_many_objects_are_deleted_in_one_request(proxy: Proxy, storage: Storage) -> None:
    storage.put_many({f"folder/{n}": b"x" for n in range(40)})
    proxy.set()
    storage.delete_many([f"folder/{n}" for n in range(39)] + ["absent"])
    assert [method for method, _ in proxy.requests] == ["POST"]
    assert storage.list_names("folder") == ["39"]


class TestParts:
    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(new_object, "SINGLE_BYTES_MAX", 6 * MEGABYTE)

    DATA = bytes(range(256)) * (64 * 1024)  # 16 MiB

    def write(self, storage: Storage) -> None:
        with storage.open_output("file") as sink:
            for start in range(0, len(self.DATA), MEGABYTE):
                sink.write(self.DATA[start : start + MEGABYTE])

    @pytest.mark.parametrize(
        "fault",
        [
            Fault(Action.LOSE, "PUT", times=0),
            Fault(Action.LOSE, "PUT"),
            Fault(Action.ANSWER, "PUT", times=3),
            Fault(Action.LOSE, "POST", "file-.*uploadId"),
            Fault(Action.LOSE, "POST", r"file\?uploadId"),
        ],
        ids=["none", "part lost", "busy", "completion lost", "name lost"],
    )
    def test_a_large_file_appears_whole(self, proxy: Proxy, storage: Storage, fault: Fault) -> None:
        proxy.set(fault)
        self.write(storage)
        assert fault.hits == fault.times
        assert storage.read("file") == self.DATA
        assert [info.path for info in storage.list_tree("")] == ["file"]

    def test_an_exception_leaves_nothing(self, proxy: Proxy, storage: Storage) -> None:
        def stop_in_the_middle() -> None:
            with storage.open_output("file") as sink:
                sink.write(self.DATA)
                raise RuntimeError("stop")

        with pytest.raises(RuntimeError):
            stop_in_the_middle()
        assert storage.list_tree("") == []


def test_a_refusal_of_a_condition_that_nobody_made_is_no_conflict(
    proxy: Proxy, storage: Storage
) -> None:
    proxy.set(Fault(Action.ANSWER, method="PUT", status=412, code="PreconditionFailed", times=100))
    with pytest.raises(StorageError, match="Try again"):
        storage.put("file", b"rows")
