"""Sources and targets in an object store: a server that speaks S3, on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from tests.support.store_servers import moto_server
from tests.support.tables import columns

import headwater as hw
from headwater.ingest.job import FileFormat, FolderSource, Job, TableSource, Target
from headwater.ingest.run import opened_job
from headwater.seams.open_storage import open_storage

Options = Mapping[str, str]


@pytest.fixture(scope="module")
def options() -> Iterator[Options]:
    with moto_server() as server:
        server.request("PUT", "/tables")
        yield server.options


def run(job: Job) -> list[int]:
    with opened_job(job) as ingestion:
        return [report.written for report in iter(ingestion.run_batch, None)]


@pytest.mark.long
def test_files_and_changes_in_a_store(options: Options) -> None:
    schema = columns("id string, value long")
    first, second = (
        hw.create_table(f"s3://tables/{name}", schema=schema, record_key="id", options=options)
        for name in ("first", "second")
    )
    files = open_storage("s3://tables/landing", options)
    files.put("deep/a.csv", b"id,value\na,1\nb,2\n")
    job = Job(
        name="files",
        source=FolderSource(
            path="s3://tables/landing",
            format=FileFormat.CSV,
            patterns=("*.csv",),
            options=options,
        ),
        target=Target(path=first.uri, options=options),
    )
    follow = Job(
        name="follow",
        source=TableSource(path=first.uri, options=options),
        target=Target(path=second.uri, options=options),
    )

    assert run(job) == [2]
    assert run(job) == []
    files.put("b.csv", b"id,value\nb,3\n")
    assert run(job) == [1]
    assert run(follow) == [2]
    assert run(follow) == []

    found = second.read_arrow().sort_by("id")
    assert found == pa.table({"id": ["a", "b"], "value": [1, 3]}, schema=found.schema)
