"""What `t.inspect` answers, on a real table on local disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError
from headwater.kernel.layout import ATTEMPTS, heartbeat_path
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.writes import StartedWrite, request_write
from headwater.model.instant import Action, InstantTime

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> hw.Table:
    return hw.create_table(tmp_path / "trips", schema=SCHEMA, record_key="id")


def begin_write(table: hw.Table) -> StartedWrite:
    components = table.context.components
    claim = Claim(owner=components.ids.owner, token="token", interval_ms=60_000, tolerable_misses=2)
    return request_write(components, table.context.txn, Action.COMMIT, claim)


def test_a_new_table_has_nothing_to_show(table: hw.Table) -> None:
    for answer in (table.inspect.timeline(), table.inspect.heartbeats(), table.inspect.locks()):
        assert answer.num_rows == 0


def test_a_write_shows_its_instant_and_its_heartbeat(table: hw.Table) -> None:
    started = begin_write(table)
    (instant,) = table.inspect.timeline().to_pylist()
    assert instant == {
        "requested_time": started.instant_time,
        "action": "commit",
        "state": "requested",
        "completion_time": None,
    }
    (heartbeat,) = table.inspect.heartbeats().to_pylist()
    owner = table.context.ids.owner
    assert (heartbeat["host"], heartbeat["pid"]) == (owner.host, owner.pid)
    assert (heartbeat["instant"], heartbeat["attempt"]) == (started.instant_time, 1)
    assert (heartbeat["purpose"], heartbeat["expiry_ms"]) == ("write", 120_000)
    assert heartbeat["age_ms"] < 60_000

    done = started.enter_inflight().commit(b"")
    (instant,) = table.inspect.timeline().to_pylist()
    assert instant["state"] == "completed"
    assert instant["completion_time"] == done.instant.completion_time
    assert table.inspect.heartbeats().num_rows == 0


def test_checksums_that_hadoop_puts_beside_heartbeats_are_none(table: hw.Table) -> None:
    """They stay when Hudi deletes its heartbeat."""
    table.storage.put(".hoodie/.heartbeat/.20260101000000000.crc", b"crc")
    assert table.inspect.heartbeats().num_rows == 0
    assert table.inspect.plans().num_rows == 0
    assert table.services.rollback_failed_writes() == []


def test_a_heartbeat_of_another_engine_is_shown_too(table: hw.Table) -> None:
    table.storage.put(heartbeat_path(InstantTime("20260101000000000")), b"")
    (heartbeat,) = table.inspect.heartbeats().to_pylist()
    assert heartbeat["instant"] == "20260101000000000"
    assert heartbeat["attempt"] is None


def test_an_unreadable_heartbeat_is_named(table: hw.Table) -> None:
    table.storage.put(f"{ATTEMPTS}/20260101000000000/00001.json", b"garbage")
    with pytest.raises(CorruptTableError, match=r"20260101000000000/00001\.json"):
        table.inspect.heartbeats()


def test_a_held_lock_is_shown_with_its_owner(table: hw.Table) -> None:
    held = table.context.components.locks.acquire(timeout_ms=0)
    (lock,) = table.inspect.locks().to_pylist()
    held.release()
    assert lock["key"] == "table"
    assert lock["provider"] == "storage"
    assert table.context.ids.owner.writer_id in lock["owner"]
    assert not lock["is_expired"]
    assert lock["expires"] > lock["acquired"]
    assert table.inspect.locks().num_rows == 0


@pytest.mark.parametrize(
    "mode", ["optimistic_concurrency_control", "non_blocking_concurrency_control"]
)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_many_writers_without_a_lock_provider_are_refused(table: hw.Table, mode: str) -> None:
    with pytest.raises(InvalidInputError, match=r"hoodie\.write\.lock\.provider") as raised:
        hw.open_table(table.uri, options={"hoodie.write.concurrency.mode": mode})
    assert raised.value.kind is ErrorKind.INVALID_OPTION
