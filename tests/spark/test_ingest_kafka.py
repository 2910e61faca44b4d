"""Jobs that read Kafka: their batches, from another stream of Spark.

Kafka itself is in `tests/processes/test_ingest_processes.py`, where a broker can be had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.tables import FAST, a_table

import headwater as hw
from headwater.errors import UnsupportedError
from headwater.ingest.job import Job, KafkaSource, QuarantineRule, Target
from headwater.ingest.run import opened_job
from headwater.spark import kafka_stream
from headwater.table import Table


def job_of(table: Table, tmp_path: Path, servers: str = "nowhere:9092", **more: Any) -> Job:
    return Job(
        name="records",
        source=KafkaSource(servers=servers, topic="trips", **more),
        target=Target(path=table.uri, options=FAST),
        quarantine=QuarantineRule(path=str(tmp_path / "bad"), share_max=1.0, options=FAST),
    )


def run(job: Job) -> list[int]:
    with opened_job(job) as ingestion:
        return [report.written for report in iter(ingestion.run_batch, None)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path, "id string not null, value long").create()


class Topic:
    """Files of records, and a stream of them that begins where it is told to, as Kafka's does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.begun: list[str] = []

    def put(self, partition: int, first: int, *values: str | None) -> None:
        rows = [
            {"partition": partition, "offset": first + step, "value": value}
            for step, value in enumerate(values)
        ]
        path = self.folder / f"{partition}-{first}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def open(
        self, spark: SparkSession, options: Mapping[str, str], records_max: int, starting: str
    ) -> DataFrame:
        self.begun.append(starting)
        schema = "partition int, offset bigint, value string"
        found = spark.readStream.schema(schema).json(str(self.folder))
        offsets = {} if starting == "earliest" else json.loads(starting)["trips"]
        for partition, offset in offsets.items():
            found = found.where(f"partition != {partition} OR offset >= {offset}")
        return found


def test_records_go_in_once(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(tmp_path / "topic")
    monkeypatch.setattr(kafka_stream, "open_stream", topic.open)
    job = job_of(table, tmp_path, partitions=3)
    topic.put(0, 0, '{"id": "a", "value": 1}', '{"id": "b", "value": 2}')
    topic.put(1, 0, '{"id": "c", "value": 3}', "no json", None)

    assert run(job) == [3]
    assert run(job) == []
    topic.put(1, 3, '{"id": "c", "value": 4}')
    topic.put(2, 0, '{"id": "d", "value": 5}')
    assert run(job) == [2]

    rows = {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}
    assert rows == {"a": 1, "b": 2, "c": 4, "d": 5}
    bad = hw.open_table(tmp_path / "bad").read_arrow().to_pylist()
    assert {(row["source"], row["position"], row["raw"]) for row in bad} == {
        ("trips/1", "1", "no json"),
        ("trips/1", "2", "null"),
    }
    assert topic.begun[0] == "earliest"
    assert json.loads(topic.begun[-1]) == {"trips": {"0": 2, "1": 4, "2": 1}}


def test_a_session_without_the_package_says_so(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="Spark has no package for Kafka here"):
        run(job_of(table, tmp_path))
