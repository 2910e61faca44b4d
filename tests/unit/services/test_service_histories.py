"""Any three table services, one after the other, on any small history: no reader notices.

Nor does hudi-rs: where it read what we read, it does so after each of them. Writes go on between
them, and plans may be executed after writes that came later.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.answers import answers_of
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.tables import columns

import headwater as hw
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, value long, _hoodie_is_deleted boolean")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "storage",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
    "headwater.clustering.copy.row.group.rows": "1",
    "hoodie.clean.commits.retained": "6",  # Services commit, too.
    "hoodie.keep.min.commits": "7",
    "hoodie.keep.max.commits": "8",
}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}
COLUMNS = ["id", "city", "ts", "value"]
RETAINED = 2
"""How many of the last commits every service must leave readable."""

KEYS = st.sampled_from("abcdef")
RECORDS = st.tuples(KEYS, st.integers(1, 6), st.integers(0, 99), st.booleans())
WRITES = st.one_of(
    st.tuples(
        st.just("upsert"), st.lists(RECORDS, min_size=1, max_size=4, unique_by=lambda r: r[0])
    ),
    st.tuples(
        st.just("delete"), st.lists(RECORDS, min_size=1, max_size=2, unique_by=lambda r: r[0])
    ),
)

BOUNDED = settings(
    max_examples=max(1, settings().max_examples // 50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

Service = Callable[[Table], object]
SERVICES: Mapping[str, Service] = {
    "compact": lambda table: table.services.compact(),
    "log_compact": lambda table: table.services.log_compact(),
    "cluster": lambda table: table.services.cluster(),
    "sort": lambda table: table.services.cluster(
        table.services.schedule_clustering(sort_by=["value", "ts"], order="hilbert")
    ),
    "clean": lambda table: table.services.clean(),
    "archive": lambda table: table.services.archive(),
}


def write(table: Table, kind: str, records: list[tuple[str, int, int, bool]]) -> str:
    rows = pa.Table.from_pylist(
        [
            {
                "id": key,
                "city": "sf" if key < "d" else "ny",
                "ts": ts,
                "value": value,
                "_hoodie_is_deleted": is_deleted,
            }
            for key, ts, value, is_deleted in records
        ],
        schema=SCHEMA,
    )
    done = table.upsert(rows) if kind == "upsert" else table.delete(rows)
    return done.completion_time


def read_by_us(table: Table) -> list[dict[str, Any]]:
    return _in_order(table.read_arrow())


def read_by_listing(table: Table) -> list[dict[str, Any]]:
    options = {"headwater.storage.fsync": "false", "hoodie.metadata.enable": "false"}
    return read_by_us(hw.open_table(table.uri, options))


def read_by_hudi_rs(table: Table) -> list[dict[str, Any]]:
    found = HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build().read(None)
    return [] if not found else _in_order(pa.Table.from_batches(found))


def _in_order(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.select(COLUMNS).sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        {"table_type": "MERGE_ON_READ", "ordering": "ts", "buckets": 1},
        {"table_type": "MERGE_ON_READ", "buckets": 2},
        {"table_type": "MERGE_ON_READ", "ordering": "ts", "buckets": 1, "options": NON_BLOCKING},
        {"table_type": "MERGE_ON_READ", "ordering": "ts", "index": "simple"},
        {"table_type": "COPY_ON_WRITE", "ordering": "ts", "index": "bloom"},
    ],
    ids=[
        "event-time buckets",
        "commit-time buckets",
        "buckets that start as logs",
        "merge-on-read simple",
        "copy-on-write bloom",
    ],
)
@BOUNDED
@given(
    before=st.lists(WRITES, min_size=4, max_size=7),
    services=st.lists(st.sampled_from(sorted(SERVICES)), min_size=3, max_size=3),
    between=st.lists(st.none() | WRITES, min_size=2, max_size=2),
)
@pytest.mark.some(2)
def test_inv_48_three_services_in_a_row_are_invisible(
    arguments: dict[str, Any],
    before: list[tuple[str, list[Any]]],
    services: list[str],
    between: list[tuple[str, list[Any]] | None],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = hw.create_table(
            Path(folder) / "trips",
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            **{**arguments, "options": {**OPTIONS, **arguments.get("options", {})}},
        )
        times = [write(table, *one) for one in before]
        for name, later in zip(services, (*between, None), strict=True):
            since, *recent = times[-RETAINED - 1 :]
            expected = answers_of(table, recent, since=since)
            # Where a key has deletes of both kinds in several logs, hudi-rs judges otherwise.
            is_agreed = read_by_hudi_rs(table) == read_by_us(table)
            done = SERVICES[name](table)
            assert answers_of(table, recent, since=since) == expected, (name, done)
            assert read_by_listing(table) == read_by_us(table), (name, done)
            assert not is_agreed or read_by_hudi_rs(table) == read_by_us(table), (name, done)
            if later is not None:
                times.append(write(table, *later))


@pytest.mark.parametrize("ordering", ["ts", None])
@BOUNDED
@given(
    before=st.lists(WRITES, min_size=2, max_size=4),
    service=st.sampled_from(["compaction", "log_compaction"]),
    meanwhile=st.lists(WRITES, min_size=1, max_size=3),
)
def test_inv_48_a_plan_that_is_executed_late_is_invisible(
    ordering: str | None,
    before: list[tuple[str, list[Any]]],
    service: str,
    meanwhile: list[tuple[str, list[Any]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = hw.create_table(
            Path(folder) / "trips",
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering=ordering,
            table_type="MERGE_ON_READ",
            buckets=1,
            options=OPTIONS,
        )
        times = [write(table, *one) for one in before]
        plan = getattr(table.services, f"schedule_{service}")()
        times += [write(table, *one) for one in meanwhile]
        expected = answers_of(table, times)
        execute = table.services.compact if service == "compaction" else table.services.log_compact
        execute(plan)
        assert answers_of(table, times) == expected
