"""Creating and opening tables, on a real disk, with good and bad input."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import FENCED, LOCKED

import headwater as hw
from headwater.config.option import OptionAliasWarning, UnknownOptionWarning
from headwater.config.registry import check_options
from headwater.config.table_options import IndexType, MergeMode, TableType
from headwater.config.write import ConcurrencyMode
from headwater.errors import ErrorKind
from headwater.format.avro.schema import parse_avro_schema
from headwater.format.properties import encode_properties, parse_properties
from headwater.kernel.journal.journal import CHECKPOINT_EVERY
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.opening import Place
from headwater.seams.ids import SystemIds
from headwater.table import Table

HUDI_LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("fare", pa.decimal128(10, 2)),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def tree(folder: Path) -> dict[str, bytes]:
    """Return everything in a folder, byte for byte."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"(folder)"
        for path in folder.rglob("*")
    }


def properties_file(table: Path) -> Path:
    return table / ".hoodie" / "hoodie.properties"


def stored(table: Path) -> dict[str, str]:
    return parse_properties(properties_file(table).read_bytes(), path="")


def trips(folder: Path, **changes: Any) -> hw.Table:
    arguments = {"schema": SCHEMA, "record_key": "id", "partition_by": "city", "ordering": "ts"}
    return hw.create_table(folder, **{**arguments, **changes})


@pytest.mark.by_default
def test_a_new_table_states_every_choice(tmp_path: Path) -> None:
    table = trips(tmp_path / "trips", table_type="MERGE_ON_READ", index="bucket", buckets=8)
    found = stored(tmp_path / "trips")
    schema = found.pop("hoodie.table.create.schema")
    assert parse_avro_schema(schema).equals(SCHEMA)
    assert json.loads(schema)["name"] == "trips_record"
    assert found == {
        "headwater.timeline.fenced": "true",
        "hoodie.archivelog.folder": "archived",
        "hoodie.bucket.index.num.buckets": "8",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.index.type": "BUCKET",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.metadata.partitions": "files",
        "hoodie.table.checksum": str(zlib.crc32(b".trips")),
        "hoodie.table.format": "native",
        "hoodie.table.initial.version": "9",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.table.name": "trips",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.partition.fields": "city",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.timeline.history.path": "history",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
    }
    assert table.config.table_type is TableType.MERGE_ON_READ
    assert table.config.index_type is IndexType.BUCKET
    assert table.config.bucket_count == 8
    # Stock Hudi wants these folders, also of a table without instants.
    assert (tmp_path / "trips/.hoodie/timeline/history").is_dir()


@pytest.mark.parametrize(
    ("options", "has_journal"),
    [
        ({}, True),
        ({"hoodie.write.lock.provider": "storage"}, True),
        ({"hoodie.write.lock.provider": HUDI_LOCK}, False),
        ({"hoodie.write.lock.provider": HUDI_LOCK, "headwater.timeline.fenced": "true"}, True),
        ({"headwater.timeline.fenced": "false"}, False),
    ],
)
@pytest.mark.by_default
def test_new_tables_need_no_lock_unless_hudi_writes_too(
    tmp_path: Path, options: dict[str, str], has_journal: bool
) -> None:
    table = trips(tmp_path / "trips", options=options)
    assert table.config.is_fenced is has_journal
    assert isinstance(table.storage, JournaledStorage) is has_journal


def test_what_was_created_is_opened(tmp_path: Path) -> None:
    created = trips(tmp_path / "trips")
    opened = hw.open_table(str(tmp_path / "trips"))
    assert opened.config == created.config
    assert opened.name == "trips"
    assert opened.uri == created.uri
    assert opened.reload().config == created.config
    assert pickle.loads(pickle.dumps(opened.config)) == created.config


def test_the_defaults_of_a_table_with_a_key_and_nothing_else(tmp_path: Path) -> None:
    config = hw.create_table(tmp_path / "t", schema=SCHEMA, record_key=["id"]).config
    assert config.table_type is TableType.COPY_ON_WRITE
    assert config.key_generator_type == "NON_PARTITION"
    assert config.merge_mode is MergeMode.COMMIT_TIME_ORDERING
    assert (config.index_type, config.bucket_count) == (IndexType.BUCKET, 4)
    assert config.partition_fields == config.ordering_fields == ()
    assert config.database is None


def test_a_table_without_a_key_has_no_bucket_index(tmp_path: Path) -> None:
    config = hw.create_table(tmp_path / "t", schema=SCHEMA).config
    assert config.record_key_fields == ()
    assert (config.index_type, config.bucket_count) == (None, None)


@pytest.mark.parametrize(
    ("record_key", "partition_by", "key_generator"),
    [
        ("id", None, "NON_PARTITION"),
        (["id", "city"], None, "NON_PARTITION"),
        ("id", "city", "SIMPLE"),
        (["id", "ts"], "city", "COMPLEX"),
        ("id", ["city", "ts"], "COMPLEX"),
    ],
)
def test_the_key_generator_follows_from_the_columns(
    tmp_path: Path, record_key: Any, partition_by: Any, key_generator: str
) -> None:
    table = trips(tmp_path / "t", record_key=record_key, partition_by=partition_by)
    assert table.config.key_generator_type == key_generator


def test_a_schema_may_be_avro_and_is_kept_as_it_is(tmp_path: Path) -> None:
    avro = {
        "type": "record",
        "name": "Trip",
        "namespace": "com.example",
        "doc": "A trip.",
        "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["int", "null"]}],
    }
    for name, schema in (("parsed", avro), ("text", json.dumps(avro, indent=2))):
        hw.create_table(tmp_path / name, schema=schema, record_key="id")
        assert json.loads(stored(tmp_path / name)["hoodie.table.create.schema"]) == avro


def test_name_and_database_are_taken_from_arguments_options_and_path(tmp_path: Path) -> None:
    by_path = hw.create_table(f"{tmp_path}/by_path/", schema=SCHEMA)
    assert by_path.name == "by_path"
    by_argument = hw.create_table(tmp_path / "a", schema=SCHEMA, name="trips", database="city")
    assert (by_argument.name, by_argument.config.database) == ("trips", "city")
    options = {"hoodie.table.name": "rides", "hoodie.database.name": "lake"}
    by_option = hw.create_table(tmp_path / "o", schema=SCHEMA, options=options)
    assert (by_option.name, by_option.config.database) == ("rides", "lake")


def test_options_about_the_table_are_stored_as_stock_hudi_reads_them(tmp_path: Path) -> None:
    options = {
        "hoodie.table.type": "merge_on_read",
        "hoodie.datasource.write.hive_style_partitioning": "FALSE",
        "hoodie.record.merge.mode": "commit_time_ordering",
        "hoodie.bucket.index.num.buckets": 16,
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "in_process",
    }
    table = trips(tmp_path / "t", options=options)
    found = stored(tmp_path / "t")
    assert found["hoodie.table.type"] == "MERGE_ON_READ"
    assert found["hoodie.datasource.write.hive_style_partitioning"] == "false"
    assert found["hoodie.record.merge.mode"] == "COMMIT_TIME_ORDERING"
    assert found["hoodie.bucket.index.num.buckets"] == "16"
    # How this process writes is its own affair, not the table's.
    assert "hoodie.write.concurrency.mode" not in found
    assert "hoodie.write.lock.provider" not in found
    assert table.context.write_config.concurrency_mode is ConcurrencyMode.OPTIMISTIC


def test_options_that_are_refused_create_no_table(tmp_path: Path) -> None:
    without_lock = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "headwater.timeline.fenced": "false",
    }
    with pytest.raises(hw.InvalidInputError, match=r"hoodie\.write\.lock\.provider"):
        trips(tmp_path / "t", options=without_lock)
    assert not (tmp_path / "t" / ".hoodie").exists()
    trips(tmp_path / "t")


def test_options_of_the_tables_families_are_stored(tmp_path: Path) -> None:
    options = {
        "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
        "hoodie.record.merge.property.hoodie.payload.delete.marker": "D",
        "headwater.storage.fsync": "false",
    }
    trips(tmp_path / "t", options=options)
    found = stored(tmp_path / "t")
    assert found["hoodie.record.merge.property.hoodie.payload.delete.field"] == "op"
    assert found["hoodie.record.merge.property.hoodie.payload.delete.marker"] == "D"
    # How this process reaches storage is its own affair.
    assert "headwater.storage.fsync" not in found


def test_options_reach_the_components(tmp_path: Path) -> None:
    trips(tmp_path / "t")
    table = hw.open_table(
        tmp_path / "t",
        options={
            "headwater.writer.id": "loader-3",
            "hoodie.write.lock.provider": "filesystem",
            "hoodie.write.lock.wait_time_ms": 5,
        },
    )
    assert table.context.ids.owner.writer_id == "loader-3"
    assert table.context.lock_config.provider == "filesystem"
    assert table.context.lock_config.acquire_timeout_ms == 5
    assert table.context.options["hoodie.write.lock.wait_time_ms"] == "5"


def test_each_process_has_a_writer_id_unless_given_one(tmp_path: Path) -> None:
    trips(tmp_path / "t")
    first, second = (hw.open_table(tmp_path / "t") for _ in range(2))
    assert first.context.ids.owner.writer_id != second.context.ids.owner.writer_id


def test_unknown_options_are_kept_and_warned_about(tmp_path: Path) -> None:
    with pytest.warns(UnknownOptionWarning, match=r"hoodie\.my\.own"):
        table = trips(tmp_path / "t", options={"hoodie.my.own": True})
    assert table.context.unknown_options == {"hoodie.my.own": "true"}


def test_the_older_name_of_ordering_works(tmp_path: Path) -> None:
    with pytest.warns(OptionAliasWarning):
        table = trips(
            tmp_path / "t", ordering=None, options={"hoodie.table.precombine.field": "ts"}
        )
    assert table.config.ordering_fields == ("ts",)
    assert "hoodie.table.precombine.field" not in stored(tmp_path / "t")


# Bad input to create_table: a typed error, and not a byte written.


@pytest.mark.parametrize(
    ("arguments", "reasons"),
    [
        ({"record_key": "nobody"}, ["record_key names the column nobody", "id, city, ts"]),
        ({"partition_by": ["city", "day"]}, ["partition_by names the column day"]),
        ({"ordering": "tags"}, ["ordering names the column tags", "nested type"]),
        ({"record_key": ["id", "id"]}, ["record_key names a column twice"]),
        ({"table_type": "HEAP"}, ["table_type must be one of COPY_ON_WRITE", "'HEAP'"]),
        ({"index": "hash"}, ["index must be one of BUCKET", "'hash'"]),
        ({"buckets": 0}, ["buckets must be a whole number, at least 1", "'0'"]),
        ({"record_key": None, "index": "bucket"}, ["a bucket index needs a record_key"]),
        ({"record_key": None, "index": "bloom"}, ["a bloom index needs a record_key"]),
        ({"index": "simple", "buckets": 8}, ["buckets are of no use without a bucket index"]),
        ({"record_key": None, "buckets": 4}, ["buckets are of no use without"]),
        ({"name": "  "}, ["name must be text that is not blank"]),
        (
            {"ordering": None, "options": {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}},
            ["EVENT_TIME_ORDERING needs ordering columns"],
        ),
        (
            {"options": {"hoodie.table.keygenerator.type": "NON_PARTITION"}},
            ["hoodie.table.keygenerator.type is NON_PARTITION", "make it SIMPLE"],
        ),
        (
            {"options": {"hoodie.table.recordkey.fields": "ts"}},
            ["record_key is 'id', but the option hoodie.table.recordkey.fields says 'ts'"],
        ),
        (
            {"record_key": "x", "partition_by": "y", "table_type": "z"},
            ["column x", "column y", "table_type must be"],
        ),
        (
            {"schema": pa.schema([("id", pa.int32()), ("ID", pa.int32())]), "ordering": None}
            | {"partition_by": None},
            ["column id differs from another one by case only"],
        ),
        (
            {"schema": SCHEMA.append(pa.field("_hoodie_record_key", pa.string()))},
            ["column _hoodie_record_key is one that the table adds by itself"],
        ),
        ({"schema": SCHEMA.append(pa.field("t", pa.uint64()))}, ["Column 't'", "uint64"]),
        ({"schema": SCHEMA.append(pa.field("a-b", pa.int32()))}, ["Column 'a-b'", "Rename"]),
        ({"schema": pa.schema([])}, ["the schema has no columns"]),
        ({"schema": "id STRING, ts"}, ["no DDL", "expected a type"]),
        ({"schema": "{"}, ["not JSON"]),
        ({"schema": object()}, ["builtins.object", "pyarrow.Schema"]),
        ({"options": {"hoodie.table.type": "HEAP"}}, ["hoodie.table.type must be one of"]),
        ({"options": {"hodie.table.type": "x"}}, ["did you mean hoodie.table.type?"]),
    ],
)
def test_bad_arguments_are_refused_with_every_reason(
    tmp_path: Path, arguments: dict[str, Any], reasons: list[str]
) -> None:
    with pytest.raises(hw.InvalidInputError) as caught:
        trips(tmp_path / "t", **arguments)
    for reason in reasons:
        assert reason in str(caught.value)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        {"index": "inmemory"},
        {"options": {"hoodie.table.base.file.format": "ORC"}},
        {"options": {"hoodie.datasource.write.drop.partition.columns": True}},
        {"options": {"hoodie.table.keygenerator.type": "GLOBAL_DELETE"}},
    ],
)
def test_what_is_not_implemented_is_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(hw.UnsupportedError) as caught:
        trips(tmp_path / "t", **arguments)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_OPTION
    assert tree(tmp_path) == {}


def test_a_location_without_a_name_needs_one() -> None:
    with pytest.raises(hw.InvalidInputError, match=r"pass name=\.\.\."):
        plan_table_config(NewTable(location="/", schema=SCHEMA), {})


def test_creating_over_a_table_changes_nothing(tmp_path: Path) -> None:
    trips(tmp_path / "t")
    before = tree(tmp_path)
    with pytest.raises(hw.AlreadyExistsError) as caught:
        trips(tmp_path / "t", table_type="MERGE_ON_READ")
    assert caught.value.kind is ErrorKind.TABLE_EXISTS
    assert str(tmp_path / "t") in str(caught.value)
    assert "open_table" in str(caught.value)
    assert tree(tmp_path) == before


def test_a_table_whose_update_stock_hudi_did_not_finish_is_a_table(tmp_path: Path) -> None:
    trips(tmp_path / "t")
    file = properties_file(tmp_path / "t")
    file.rename(file.with_name("hoodie.properties.backup"))
    before = tree(tmp_path)
    with pytest.raises(hw.AlreadyExistsError):
        trips(tmp_path / "t")
    assert hw.open_table(tmp_path / "t").name == "t"
    assert tree(tmp_path) == before


def test_of_racing_creators_exactly_one_wins(tmp_path: Path) -> None:
    start = threading.Barrier(6)
    results: list[object] = []

    def create(number: int) -> None:
        start.wait()
        try:
            results.append(trips(tmp_path / "t", buckets=number + 1))
        except hw.AlreadyExistsError as error:
            results.append(error.kind)

    creators = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join()
    winners = [result for result in results if isinstance(result, hw.Table)]
    assert results.count(ErrorKind.TABLE_EXISTS) == 5
    assert len(winners) == 1
    assert hw.open_table(tmp_path / "t").config == winners[0].config


def test_an_unwritable_location_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    before = tree(tmp_path)
    with pytest.raises(hw.StorageError) as caught:
        trips(tmp_path / "file" / "t")
    assert str(tmp_path / "file") in str(caught.value)
    assert tree(tmp_path) == before


class LosesReplies(MemoryStorage):
    """Applies each create, or drops it, and does not answer the first time."""

    def __init__(self, *, is_applied: bool) -> None:
        super().__init__()
        self.is_applied = is_applied
        self.is_first = True

    def put_if_absent(self, path: str, data: bytes) -> None:
        if not self.is_first:
            return super().put_if_absent(path, data)
        self.is_first = False
        if self.is_applied:
            super().put_if_absent(path, data)
        raise hw.StorageError("no answer")


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_lost_reply_does_not_make_a_table_somebody_elses(is_applied: bool) -> None:
    place = Place(
        storage=LosesReplies(is_applied=is_applied),
        clock=ManualClock(),
        ids=SystemIds(),
        options=check_options({}),
    )
    created = Table.create(place, NewTable(location="t", schema=SCHEMA))
    assert Table.load(place).config == created.config


# Bad input to open_table: a typed error that names path and reason, and not a byte changed.


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(table: Path) -> None:
        file = properties_file(table)
        file.write_bytes(change(file.read_bytes()))

    return apply


def with_property(key: str, text: str | None) -> Callable[[Path], None]:
    def change(data: bytes) -> bytes:
        changed = {**parse_properties(data, path=""), key: text}
        kept = {key: text for key, text in changed.items() if text is not None}
        return encode_properties(kept, comment="changed by hand")

    return damaged(change)


@pytest.mark.parametrize(
    ("damage", "kind", "reason"),
    [
        (damaged(lambda data: b""), "corrupt.properties", "hoodie.table.name is missing"),
        (damaged(lambda data: data[:-1]), "corrupt.properties", "cut short"),
        (damaged(lambda data: data[:200]), "corrupt.properties", "cut short"),
        (damaged(lambda data: data[:50] + b"\0" + data[50:]), "corrupt.properties", "control"),
        (damaged(lambda data: b"PAR1" * 100), "corrupt.properties", "cut short"),
        (damaged(lambda data: b"a=1\n\x1a=2\n"), "corrupt.properties", "control"),
        (damaged(lambda data: b"hello\nworld\n"), "corrupt.properties", "no = between"),
        (with_property("hoodie.table.name", None), "corrupt.properties", "name is missing"),
        (with_property("hoodie.table.type", None), "corrupt.properties", "type is missing"),
        (with_property("hoodie.table.type", "HEAP"), "corrupt.properties", "'HEAP'"),
        (with_property("hoodie.table.version", None), "corrupt.properties", "version is missing"),
        (with_property("hoodie.table.checksum", None), "corrupt.properties", "is missing"),
        (with_property("hoodie.table.checksum", "1"), "corrupt.checksum", "checksum is 1"),
        (with_property("hoodie.table.name", "other"), "corrupt.checksum", "name gives"),
        (with_property("hoodie.table.version", "5"), "unsupported.table_version", "Upgrade"),
        (with_property("hoodie.table.version", "7"), "unsupported.table_version", "Upgrade"),
        (with_property("hoodie.table.version", "10"), "unsupported.table_version", "newer"),
        (with_property("hoodie.table.base.file.format", "ORC"), "unsupported.option", "ORC"),
    ],
)
def test_a_bad_table_is_refused_and_left_alone(
    tmp_path: Path, damage: Callable[[Path], None], kind: str, reason: str
) -> None:
    trips(tmp_path / "t")
    damage(tmp_path / "t")
    before = tree(tmp_path)
    with pytest.raises(hw.HeadwaterError) as caught:
        hw.open_table(tmp_path / "t")
    assert caught.value.kind == kind
    assert isinstance(caught.value, hw.CorruptTableError | hw.UnsupportedError)
    assert str(properties_file(tmp_path / "t")) in str(caught.value)
    assert reason in str(caught.value)
    assert tree(tmp_path) == before


def test_what_is_no_table_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part.parquet").write_bytes(b"PAR1")
    (tmp_path / "half" / ".hoodie").mkdir(parents=True)
    before = tree(tmp_path)
    for name in ("nothing", "data", "half", "data/part.parquet"):
        with pytest.raises(hw.NotFoundError) as caught:
            hw.open_table(tmp_path / name)
        assert caught.value.kind is ErrorKind.NOT_A_TABLE
        assert str(tmp_path / name) in str(caught.value)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hoodie.client.heartbeat.interval_in_ms": "often"}, "'often'"),
        ({"nonsense": "1"}, "nonsense is no option"),
        ({"hoodie.table.version": "9"}, "set by Headwater"),
        ({"hoodie.table.name": "u"}, "hoodie.table.name is 'u', but the table has 't'"),
        ({"hoodie.table.recordkey.fields": "ts"}, "but the table has 'id'"),
        ({"hoodie.bucket.index.num.buckets": "5"}, "but the table has '4'"),
        ({"hoodie.table.type": "MERGE_ON_READ"}, "but the table has 'COPY_ON_WRITE'"),
        ({"hoodie.datasource.write.hive_style_partitioning": "false"}, "but the table has 'true'"),
        ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, "EVENT_TIME_ORDERING"),
    ],
)
def test_bad_options_do_not_open_a_table(
    tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    trips(tmp_path / "t")
    before = tree(tmp_path)
    with pytest.raises(hw.InvalidInputError) as caught:
        hw.open_table(tmp_path / "t", options=options)
    assert caught.value.kind is ErrorKind.INVALID_OPTION
    assert reason in str(caught.value)
    assert tree(tmp_path) == before


def test_options_that_repeat_what_the_table_says_are_fine(tmp_path: Path) -> None:
    trips(tmp_path / "t")
    options = {
        "hoodie.table.name": "t",
        "hoodie.record.merge.mode": "event_time_ordering",
        "hoodie.bucket.index.num.buckets": 4,
        "hoodie.datasource.write.drop.partition.columns": False,
    }
    assert hw.open_table(tmp_path / "t", options=options).name == "t"


def test_a_writer_may_choose_the_index_of_a_table_that_does_not_say(tmp_path: Path) -> None:
    hw.create_table(tmp_path / "t", schema=SCHEMA)
    options = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 5}
    assert hw.open_table(tmp_path / "t", options=options).config.bucket_count is None


def test_the_package_says_what_it_offers() -> None:
    assert hw.__version__
    assert {"create_table", "open_table", "Table", "HeadwaterError"} <= set(hw.__all__)
    assert not [name for name in hw.__all__ if not hasattr(hw, name)]


def test_importing_the_package_does_not_start_spark() -> None:
    code = "import sys, headwater; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


KEY_GENERATOR = "hoodie.table.keygenerator.type"


@pytest.mark.parametrize(
    ("partition_by", "options", "path"),
    [
        ("city", {KEY_GENERATOR: "COMPLEX"}, "city=sf"),
        (
            "day",
            {
                KEY_GENERATOR: "TIMESTAMP",
                "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
                "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
                "hoodie.keygen.timebased.timezone": "UTC",
                "hoodie.datasource.write.hive_style_partitioning": "false",
            },
            "2023/11",
        ),
        (
            "city:SIMPLE,day:TIMESTAMP",
            {
                KEY_GENERATOR: "CUSTOM",
                "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
                "hoodie.keygen.timebased.output.dateformat": "yyyy",
                "hoodie.keygen.timebased.timezone": "UTC",
            },
            "city=sf/day=2023",
        ),
    ],
    ids=["complex", "timestamp", "custom"],
)
def test_every_key_generator_can_be_chosen(
    tmp_path: Path, partition_by: str, options: dict[str, str], path: str
) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, city string, day long",
        record_key="id",
        partition_by=partition_by.split(","),
        options=options,
    )
    commit = table.upsert(pa.table({"id": ["a"], "city": ["sf"], "day": [1_700_000_000_000]}))
    assert [group.partition for group in commit.file_groups] == [path]
    assert table.reload().read_arrow(["id"]).to_pylist() == [{"id": "a"}]


def test_partial_update_modes_and_custom_merging_can_be_chosen(tmp_path: Path) -> None:
    partial = hw.create_table(
        tmp_path / "partial",
        schema="id string, a long, b long",
        record_key="id",
        table_type="MERGE_ON_READ",
        options={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
    )
    partial.upsert(pa.table({"id": ["k"], "a": [1], "b": [2]}))
    partial.upsert(pa.table({"id": ["k"], "a": pa.array([None], pa.int64()), "b": [3]}))
    assert partial.read_arrow().to_pylist() == [{"id": "k", "a": 1, "b": 3}]

    custom = hw.create_table(
        tmp_path / "custom",
        schema="id string, total long",
        record_key="id",
        table_type="MERGE_ON_READ",
        options={
            "hoodie.record.merge.mode": "CUSTOM",
            "headwater.merge.function": f"{__name__}:add_totals",
        },
    )
    for total in (1, 2, 4):
        custom.upsert(pa.table({"id": ["k"], "total": [total]}))
    assert custom.read_arrow().to_pylist() == [{"id": "k", "total": 7}]


def add_totals(old: pa.Table, new: pa.Table) -> pa.Table:
    total = pc.add(old["total"], new["total"])
    return new.set_column(new.schema.get_field_index("total"), "total", total)


class TestGone:
    """A table that is deleted while a process has it."""

    @pytest.fixture(params=["true", "false"])
    def table(self, tmp_path: Path, request: pytest.FixtureRequest) -> Table:
        fenced = {"headwater.timeline.fenced": request.param}
        table = hw.create_table(tmp_path / "t", schema="id string", record_key="id", options=fenced)
        table.upsert(pa.table({"id": ["a"]}))
        shutil.rmtree(tmp_path / "t")
        return table

    def test_it_is_not_written_to_any_more(self, table: Table) -> None:
        with pytest.raises(hw.NotFoundError) as caught:
            table.upsert(pa.table({"id": ["b"]}))
        assert caught.value.kind is ErrorKind.NOT_A_TABLE

    def test_it_is_not_read_any_more(self, table: Table) -> None:
        for read in (table.read_arrow, table.history, table.services.compact):
            with pytest.raises(hw.NotFoundError) as caught:
                read()
            assert caught.value.kind is ErrorKind.NOT_A_TABLE

    def test_its_writers_leave_nothing_to_a_new_table(self, table: Table) -> None:
        with pytest.raises(hw.NotFoundError):
            table.upsert(pa.table({"id": ["b"]}))
        again = hw.create_table(table.uri, schema="id string", record_key="id")
        again.upsert(pa.table({"id": ["c"]}))
        assert again.read_arrow()["id"].to_pylist() == ["c"]

    def test_what_is_left_of_a_deletion_that_died_becomes_no_part_of_a_new_table(
        self, tmp_path: Path
    ) -> None:
        table = hw.create_table(tmp_path / "t", schema="id string", record_key="id", options=FENCED)
        table.upsert(pa.table({"id": ["a"]}))
        (tmp_path / "t/.hoodie/hoodie.properties").unlink()
        with pytest.raises(hw.AlreadyExistsError, match="not deleted to the end"):
            hw.create_table(table.uri, schema="id string", record_key="id")


@pytest.mark.parametrize("count", [0, 1, 3, 12])
def test_a_table_in_the_place_of_another_is_safe_from_who_has_that_one(
    tmp_path: Path, count: int
) -> None:
    """However many decisions the new one has, fewer and more than the old one."""
    old = hw.create_table(tmp_path / "t", schema="id string", record_key="id", options=FENCED)
    for key in "abc":
        old.upsert(pa.table({"id": [key]}))
    shutil.rmtree(tmp_path / "t")
    new = hw.create_table(tmp_path / "t", schema="id string", record_key="id", options=FENCED)
    for number in range(count):
        new.upsert(pa.table({"id": [str(number)]}))

    with pytest.raises(hw.NotFoundError, match="Another table") as caught:
        old.upsert(pa.table({"id": ["late"]}))
    assert caught.value.kind is ErrorKind.NOT_A_TABLE
    with pytest.raises(hw.NotFoundError, match="Another table"):
        old.read_arrow()

    new.upsert(pa.table({"id": ["last"]}))
    for table in (new, hw.open_table(tmp_path / "t")):
        assert table.read_arrow().num_rows == count + 1


@pytest.mark.parametrize(
    "new", [{"record_key": "place"}, {"record_key": "id", "partition_by": "place"}]
)
@pytest.mark.parametrize("fenced", [True, False])
def test_so_is_one_that_cannot_be_told_but_by_where_its_records_are(
    tmp_path: Path, new: dict[str, Any], fenced: bool
) -> None:
    """One without a journal, or with one that has come past what an idle process knew."""
    schema, options = "id string, place string", {"headwater.timeline.fenced": str(fenced).lower()}
    rows = pa.table({"id": ["a"], "place": ["b"]})
    old = hw.create_table(tmp_path / "t", schema=schema, record_key="id", options=options)
    old.upsert(rows)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(hw.NotFoundError, match=r"There is no table|any more"):
        old.upsert(rows)
    shutil.rmtree(tmp_path / "t", ignore_errors=True)
    another = hw.create_table(tmp_path / "t", schema=schema, options=options, **new)
    for _ in range(CHECKPOINT_EVERY if fenced else 1):
        another.upsert(rows)

    with pytest.raises(hw.NotFoundError, match="Another table"):
        old.upsert(pa.table({"id": ["late"], "place": ["b"]}))
    assert hw.open_table(tmp_path / "t").read_arrow().num_rows == 1


def test_a_table_goes_to_another_process(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "t", schema="id string", record_key="id", options=FENCED)
    there = pickle.loads(pickle.dumps(table))
    there.upsert(pa.table({"id": ["a"]}))
    assert table.read_arrow().num_rows == 1
    assert there.context.options == table.context.options


def test_a_folder_is_named_by_what_it_is_and_not_by_how_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    made = hw.create_table("~/home", schema="id string", record_key="id")
    assert (made.uri, made.name) == (str(tmp_path / "home"), "home")
    monkeypatch.chdir(tmp_path / "here")
    assert hw.create_table(".", schema="id string", record_key="id").name == "here"


def test_a_lock_of_this_process_is_one_for_all_addresses_of_a_table(tmp_path: Path) -> None:
    options = {**LOCKED, "hoodie.write.lock.provider": "in_process"}
    table = hw.create_table(tmp_path / "t", schema="id string", record_key="id", options=options)
    (tmp_path / "link").symlink_to(table.uri)
    other = hw.open_table(tmp_path / "link", options)
    held = table.context.components.locks.acquire(timeout_ms=0)
    with pytest.raises(hw.ConflictError):
        other.context.components.locks.acquire(timeout_ms=0)
    held.release()
