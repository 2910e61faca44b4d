"""Faults of a store under a table: absorbed, or an error that says rightly what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.stores.conftest import BUCKET, Store
from tests.support.faulty_proxy import Action, Fault, Proxy, faulty_proxy
from tests.support.tables import FENCED, LOCKED

import headwater as hw
from headwater.errors import CommitUnknownError, ErrorKind, Retry, StorageError

KINDS = {
    "data file": r"/city(=|%3D)\w+/[^/]+(parquet|log\.1)",
    "marker": r"/\.temp/",
    "attempt": r"/\.attempts/",
    "commit": r"/t-[^/]*/\.hoodie/timeline/\d+_\d+\.",
    "plan": r"/\.hoodie/timeline/\d+\.",
    "metadata file": r"/metadata/files/",
    "metadata commit": r"/metadata/\.hoodie/timeline/\d+_",
    "slot": r"/\.journal/\d+\.slot",
    "lock": r"table_lock",
}
FAULTS: dict[str, dict[str, Any]] = {
    "lost": {"action": Action.LOSE},
    "reset": {"action": Action.RESET},
    "busy": {"action": Action.ANSWER, "times": 2},
    "internal": {"action": Action.ANSWER, "status": 500, "code": "InternalError"},
    "undecided": {"action": Action.ANSWER, "status": 409, "code": "ConditionalRequestConflict"},
}
EXPIRED: dict[str, Any] = {
    "action": Action.ANSWER,
    "method": "PUT",
    "status": 400,
    "code": "ExpiredToken",
    "times": 99,
}
MODES = {"lock": LOCKED, "journal": FENCED}
WITHOUT = {"lock": ("slot",), "journal": ("lock",)}


@pytest.fixture(scope="module")
def proxy(s3_store: Store) -> Iterator[Proxy]:
    endpoint = s3_store.options["headwater.storage.endpoint"]
    with faulty_proxy(int(endpoint.rpartition(":")[2])) as between:
        between.options = {
            **s3_store.options,
            "headwater.storage.endpoint": between.endpoint,
        }
        yield between


@pytest.fixture(params=MODES)
def table(proxy: Proxy, request: pytest.FixtureRequest) -> Iterator[hw.Table]:
    proxy.set()
    name = "".join(letter for letter in request.node.name if letter.isalnum())
    yield hw.create_table(
        f"s3://{BUCKET}/t-{name}",
        schema="id string, city string, v long, ts long",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={**proxy.options, **MODES[request.param]},
    )
    proxy.set()


def rows(value: int) -> pa.Table:
    number = pa.array([value, value], pa.int64())
    return pa.table({"id": ["a", "b"], "city": ["sf", "la"], "v": number, "ts": number})


def stored(proxy: Proxy, table: hw.Table) -> list[int]:
    proxy.set()
    return sorted(hw.open_table(table.uri, proxy.options).read_arrow()["v"].to_pylist())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("table", "kind"),
    [(mode, kind) for mode in MODES for kind in KINDS if kind not in WITHOUT[mode]],
    indirect=["table"],
)
def test_a_write_and_a_compaction_come_through(
    proxy: Proxy, table: hw.Table, kind: str, fault: str
) -> None:
    table.upsert(rows(1))
    struck = Fault(method="PUT", path=KINDS[kind], **FAULTS[fault])
    proxy.set(struck)
    table.upsert(rows(2))
    assert struck.hits, f"no {kind} was written"
    assert stored(proxy, table) == [2, 2]
    proxy.set(Fault(method="PUT", path=KINDS[kind], **FAULTS[fault]))
    table.services.compact()
    assert stored(proxy, table) == [2, 2]
    assert not table.context.load_timeline().pending


@pytest.mark.parametrize(
    ("table", "decided"),
    # The slot before it begins the write.
    [
        ("lock", Fault(path=KINDS["commit"], **EXPIRED)),
        ("journal", Fault(path=KINDS["slot"], skip=1, **EXPIRED)),
    ],
    indirect=["table"],
    ids=["lock", "journal"],
)
def test_expired_credentials_at_the_commit_are_a_refusal(
    proxy: Proxy, table: hw.Table, decided: Fault
) -> None:
    table.upsert(rows(1))
    proxy.set(decided)
    with pytest.raises(StorageError) as caught:
        table.upsert(rows(2))
    assert caught.value.kind is ErrorKind.STORAGE_DENIED
    assert caught.value.retry is Retry.NEVER
    assert stored(proxy, table) == [1, 1]
    table.upsert(rows(3))
    assert stored(proxy, table) == [3, 3]


@pytest.mark.parametrize("table", ["lock"], indirect=True)
def test_a_commit_whose_reply_is_lost_and_that_cannot_be_read_back_is_unknown(
    proxy: Proxy, table: hw.Table
) -> None:
    table.upsert(rows(1))
    proxy.set(
        Fault(Action.LOSE, "PUT", KINDS["commit"]),
        # The write reads the commit before its own, for the columns of the table.
        Fault(
            Action.ANSWER, "GET", KINDS["commit"], status=403, code="AccessDenied", times=99, skip=1
        ),
    )
    with pytest.raises(CommitUnknownError):
        table.upsert(rows(2))
    assert stored(proxy, table) == [2, 2]


def test_cut_off_answers_do_not_stop_a_read(proxy: Proxy, table: hw.Table) -> None:
    table.upsert(rows(1))
    table.upsert(rows(2))
    cut = Fault(Action.CUT, "GET", times=3)
    proxy.set(cut)
    assert sorted(table.read_arrow()["v"].to_pylist()) == [2, 2]
    assert cut.hits == 3
