"""The table of faults: each of them, for each kind of object, in each kind of work.

Whatever happens, it is absorbed or it is a typed error that says rightly whether to try again; then
the rows are right, and nothing is left that blocks anybody.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.stores.conftest import BUCKET, Store
from tests.support.faulty_proxy import Action, Fault, Proxy, faulty_proxy
from tests.support.tables import LOCKED

import headwater as hw
from headwater.errors import CommitUnknownError, ErrorKind, HeadwaterError, Retry

KINDS = {
    "data file": r"/city(=|%3D)\w+/[^/]+(parquet|log\.)",
    "marker": r"/\.temp/",
    "attempt": r"/\.attempts/",
    "heartbeat": r"/\.heartbeat/",
    "commit": r"/f-[^/]*/\.hoodie/timeline/\d+_\d+\.",
    "plan": r"/f-[^/]*/\.hoodie/timeline/\d+\.",
    "metadata file": r"/metadata/(files|column_stats)/",
    "metadata commit": r"/metadata/\.hoodie/timeline/\d+_",
    "table config": r"hoodie\.properties",
    "slot": r"/\.journal/\d+\.slot",
    "listing": r"list-type=2.*timeline",
    "lock": r"table_lock",
}
FAULTS: dict[str, dict[str, Any]] = {
    "lost reply": {"action": Action.LOSE},
    "late landing": {"action": Action.LATE, "status": 500, "code": "InternalError"},
    "409": {"action": Action.ANSWER, "status": 409, "code": "ConditionalRequestConflict"},
    "412 of its own": {"action": Action.DENY, "status": 412, "code": "PreconditionFailed"},
    "500": {"action": Action.ANSWER, "status": 500, "code": "InternalError"},
    "500 for good": {"action": Action.ANSWER, "status": 500, "code": "InternalError", "times": 99},
    "500 that landed": {"action": Action.DENY, "status": 500, "code": "InternalError"},
    "503 burst": {"action": Action.ANSWER, "times": 3},
    "reset": {"action": Action.RESET},
    "cut off": {"action": Action.CUT, "method": "GET", "times": 2},
    "time-out": {"action": Action.STALL},
    "expired token": {"action": Action.ANSWER, "status": 400, "code": "ExpiredToken", "times": 99},
    "denied": {"action": Action.ANSWER, "status": 403, "code": "AccessDenied", "times": 99},
}
REFUSED = ("expired token", "denied")
"""What no client may try again by itself, and nothing was written."""

WORK: dict[str, Callable[[hw.Table], object]] = {
    "write": lambda table: table.upsert(rows(3)),
    "compaction": lambda table: table.services.compact(),
    "clustering": lambda table: table.services.cluster(),
    "clean": lambda table: table.services.clean(),
    "archive": lambda table: table.services.archive(),
    "index build": lambda table: table.indexes.create(["column_stats"]),
}

ONLY_OF_PUTS = ("late landing", "409", "412 of its own", "500 that landed")

EVERY = [
    (work, kind, fault)
    for work, kind, fault in itertools.product(WORK, KINDS, FAULTS)
    if kind != "listing" or fault not in ONLY_OF_PUTS
]
SAMPLE = set(EVERY[::29])


def rows(value: int) -> pa.Table:
    number = pa.array([value, value], pa.int64())
    return pa.table({"id": ["a", "b"], "city": ["sf", "la"], "v": number, "ts": number})


def stored(table: hw.Table) -> list[int]:
    return sorted(table.read_arrow()["v"].to_pylist())


@pytest.fixture(scope="module")
def proxy(s3_store: Store) -> Iterator[Proxy]:
    endpoint = s3_store.options["headwater.storage.endpoint"]
    with faulty_proxy(int(endpoint.rpartition(":")[2])) as between:
        between.options = {
            **s3_store.options,
            "headwater.storage.endpoint": between.endpoint,
            "headwater.storage.timeout": "1s",
        }
        yield between


@pytest.fixture
def table(proxy: Proxy, request: pytest.FixtureRequest, kind: str) -> Iterator[hw.Table]:
    """A table with logs to compact, files to clean and instants to archive."""
    proxy.set()
    name = "".join(letter for letter in request.node.name if letter.isalnum())
    table = hw.create_table(
        f"s3://{BUCKET}/f-{name}",
        schema="id string, city string, v long, ts long",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={
            **proxy.options,
            **(LOCKED if kind == "lock" else {}),
            "hoodie.clean.commits.retained": "1",
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
        },
    )
    table.upsert(rows(1))
    table.services.compact()
    table.upsert(rows(2))
    yield table
    proxy.set()


@pytest.mark.parametrize(
    ("work", "kind", "fault"),
    [
        pytest.param(*one, marks=() if one in SAMPLE else pytest.mark.long, id="-".join(one))
        for one in EVERY
    ],
)
def test_a_fault_is_absorbed_or_told_rightly(
    proxy: Proxy, table: hw.Table, work: str, kind: str, fault: str
) -> None:
    expected = [2, 2]
    said = {"method": "GET" if kind == "listing" else "PUT", **FAULTS[fault]}
    struck = Fault(path=KINDS[kind], **said)
    proxy.set(struck)
    error: HeadwaterError | None = None
    try:
        WORK[work](table)
    except HeadwaterError as failed:
        error = failed
    proxy.set()
    if error is not None:
        # An error leaves no doubt: it is one of the store, and says what to do next.
        assert struck.hits
        assert error.kind in (ErrorKind.STORAGE, ErrorKind.STORAGE_DENIED, ErrorKind.COMMIT_UNKNOWN)
        if fault in REFUSED:
            assert error.kind is ErrorKind.STORAGE_DENIED
            assert error.retry is Retry.NEVER
    # As somebody else finds it, who has never seen this process.
    found = hw.open_table(table.uri, proxy.options)
    if work == "write":
        is_done = error is None
        if isinstance(error, CommitUnknownError):
            assert stored(found) in ([2, 2], [3, 3])
            is_done = stored(found) == [3, 3]
        expected = [3, 3] if is_done else [2, 2]
    assert stored(found) == expected
    if work == "index build":
        # It is tried again by the same call, whether it left a plan or none.
        table.indexes.create(["column_stats"])
    table.services.clean()
    table.upsert(rows(4))
    table.services.compact()
    table.services.clean()
    assert stored(hw.open_table(table.uri, proxy.options)) == [4, 4]
    assert not table.context.load_timeline().pending
    assert table.inspect.validate_metadata().num_rows == 0
