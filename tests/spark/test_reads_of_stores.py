"""Which of Spark and our tasks reads the files of a table in a store: moto's on loopback."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.store_servers import moto_server

import headwater as hw


def test_tasks_read_where_spark_has_no_client_for_the_store(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with moto_server() as server:
        server.request("PUT", "/tables")
        given = server.options
        hadoop = {
            "fs.s3a.endpoint": given["headwater.storage.endpoint"],
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": "test",
            "fs.s3a.secret.key": "test",
        }
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, server.host)
        table = hw.create_table(
            "s3a://tables/t", schema="id string", record_key="id", options=hadoop
        )
        table.upsert(pa.table({"id": ["a"]}))
        assert table.read().inputFiles() == []

        for name, value in {
            "AWS_ENDPOINT_URL": given["headwater.storage.endpoint"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        assert hw.open_table("s3://tables/t").read().inputFiles() == []
