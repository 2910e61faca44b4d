"""Tables in an object store, through every door that needs no Spark: moto's S3 on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pyarrow as pa
import pytest
from obstore.store import S3Store
from tests.support.store_servers import moto_server
from tests.unit.cli.conftest import Ask

import headwater as hw
from headwater.seams.object_store import ObjectStorage
from headwater.seams.open_storage import open_storage

Options = Mapping[str, str]

ROWS = pa.table({"id": ["a"], "fare": [1.5]})


@pytest.fixture(scope="module")
def options() -> Iterator[Options]:
    with moto_server() as server:
        server.request("PUT", "/tables")
        yield server.options


def create(uri: str, options: Options) -> hw.Table:
    return hw.create_table(uri, schema="id string, fare double", record_key="id", options=options)


def asked(options: Options) -> list[str]:
    return [word for item in options.items() for word in ("-o", "=".join(item))]


def keys(options: Options, bucket: str = "tables") -> set[str]:
    """All keys of a bucket, as the store itself has them."""
    whole = open_storage(f"s3://{bucket}", options)
    store = cast("S3Store", cast("ObjectStorage", whole)._store)
    return {listed["path"] for listed in store.list().collect()}


@pytest.mark.parametrize("key", ["a%20b", "50% a+b#c ", "u\u0308/\u00fc"])
def test_every_door_finds_a_table_where_its_address_says(
    options: Options, key: str, ask: Ask
) -> None:
    before = keys(options)
    table = create(f"s3://tables/odd/{key}", options)
    table.upsert(ROWS)
    made = keys(options) - before
    assert made
    assert all(one.startswith(f"odd/{key}/") for one in made)
    assert hw.open_table(f"s3a://tables/odd/{key}/", options).read_arrow().num_rows == 1
    assert ask("table", "read", table.uri, *asked(options)) == [{"id": "a", "fare": 1.5}]


def test_the_doctor_sees_a_table_in_a_store(options: Options, ask: Ask) -> None:
    def said(key: str) -> str:
        found = ask("doctor", f"s3://tables/{key}", *asked(options))
        return str(next(row["detail"] for row in found if row["check"] == "list"))

    assert said("seen").endswith("no table there")
    create("s3://tables/seen", options)
    assert said("seen").endswith("a table is there")


def test_a_table_within_a_dropped_one_stays_whole(options: Options, ask: Ask) -> None:
    outer = create("s3://tables/outer", options)
    inner = create("s3://tables/outer/deep/inner", options)
    for table in (outer, inner):
        table.upsert(ROWS)
    ask("table", "drop", outer.uri, "--yes", *asked(options))
    left = {key for key in keys(options) if key.startswith("outer/")}
    assert left
    assert all(key.startswith("outer/deep/inner/") for key in left)
    assert hw.open_table(inner.uri, options).read_arrow().num_rows == 1


@pytest.mark.parametrize("count", [0, 2, 9])
def test_a_table_in_the_place_of_another_is_safe_in_a_store(
    options: Options, ask: Ask, count: int
) -> None:
    uri = f"s3://tables/again{count}"
    old = create(uri, options)
    for _ in range(3):
        old.upsert(ROWS)
    ask("table", "drop", uri, "--yes", *asked(options))
    new = create(uri, options)
    for _ in range(count):
        new.upsert(ROWS)
    with pytest.raises(hw.NotFoundError, match="Another table"):
        old.upsert(ROWS)
    new.upsert(ROWS)
    assert hw.open_table(uri, options).read_arrow().num_rows == 1
    assert ask("fsck", uri, *asked(options)) == []


def test_a_store_that_creates_an_object_twice_gets_no_table() -> None:
    with moto_server(honours_preconditions=False) as server:
        server.request("PUT", "/blind")
        for _ in range(2):  # The second finds what the first left.
            with pytest.raises(hw.UnsupportedError, match=r"created twice.*If-None-Match"):
                create("s3://blind/t", server.options)
        with pytest.raises(hw.NotFoundError, match="There is no table"):
            hw.open_table("s3://blind/t", server.options)


def test_a_store_that_creates_an_object_twice_gets_no_journal() -> None:
    unfenced = {"headwater.timeline.fenced": "false"}
    with moto_server() as server:
        server.request("PUT", "/turns")
        create("s3://turns/t", {**server.options, **unfenced})
    # What moto holds outlives its server.
    with moto_server(honours_preconditions=False) as server:
        for _ in range(2):
            with pytest.raises(hw.UnsupportedError, match=r"created twice.*If-None-Match"):
                hw.upgrade_table("s3://turns/t", server.options, fenced=True)
        assert not hw.open_table("s3://turns/t", server.options).config.is_fenced
