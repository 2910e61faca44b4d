"""Parquet base files: what is written comes back, in good row groups and with Hudi's footer."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.memory_storage import MemoryStorage

from headwater.config.files import Compression
from headwater.errors import AlreadyExistsError, CorruptTableError, ErrorKind, InvalidInputError
from headwater.files.base_files import open_base_file
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.bloom import BloomFilterBuilder
from headwater.format.parquet import base_file
from headwater.format.parquet.base_file import BaseFileStats, write_base_file
from headwater.model.files import BaseFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

FILE = BaseFile("region=eu", "group-0", "0-1-0", InstantTime("20260101000000000"))
KEY = "_hoodie_record_key"
SCHEMA = pa.schema(
    {"_hoodie_commit_time": pa.string(), KEY: pa.string(), "city": pa.string(), "value": pa.int64()}
)


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "_hoodie_commit_time": ["20260101000000000"] * count,
            KEY: [f"key-{number:06d}" for number in numbers],
            "city": [None if number % 7 == 0 else f"city-{number % 3}" for number in numbers],
            "value": list(numbers),
        },
        schema=SCHEMA,
    )


def write(
    storage: Storage,
    batches: Iterable[pa.Table | pa.RecordBatch],
    *,
    schema: pa.Schema = SCHEMA,
    codec: Compression = Compression.ZSTD,
    row_group_rows: int = 100,
    bloom: BloomFilterBuilder | None = None,
    avro_schema_json: str | None = None,
) -> BaseFileStats:
    with storage.open_output(FILE.path) as sink:
        return write_base_file(
            batches,
            schema,
            sink=sink,
            codec=codec,
            row_group_rows=row_group_rows,
            bloom=bloom,
            avro_schema_json=avro_schema_json,
        )


def footer_of(storage: Storage) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(storage.read(FILE.path)))


def encoded_columns(storage: Storage) -> set[str]:
    group = footer_of(storage).row_group(0)
    chunks = [group.column(at) for at in range(group.num_columns)]
    return {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}


def group_sizes(storage: Storage) -> list[int]:
    footer = footer_of(storage)
    return [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]


class TestWriting:
    def test_what_was_written_is_read_back(self) -> None:
        storage = MemoryStorage()
        stats = write(storage, [rows(0, 30), *rows(30, 50).to_batches(max_chunksize=7)])
        assert (stats.row_count, stats.min_key, stats.max_key) == (80, "key-000000", "key-000079")
        assert stats.size_bytes == storage.info(FILE.path).size_bytes
        assert stats.footer.num_rows == 80
        with open_base_file(storage, FILE) as reader:
            assert reader.row_count == 80
            assert reader.read().equals(rows(0, 80))

    @pytest.mark.parametrize(
        ("counts", "expected"),
        [
            ([10] * 25, [100, 100, 50]),
            ([250], [100, 150]),
            ([99, 1], [100]),
            ([60, 60, 60], [120, 60]),
            ([1], [1]),
            ([], []),
            ([0, 0], []),
        ],
    )
    def test_batches_are_gathered_and_tables_cut_into_row_groups(
        self, counts: list[int], expected: list[int]
    ) -> None:
        storage = MemoryStorage()
        starts = [sum(counts[:at]) for at in range(len(counts))]
        write(storage, [rows(start, n) for start, n in zip(starts, counts, strict=True)])
        assert group_sizes(storage) == expected
        with open_base_file(storage, FILE) as reader:
            assert reader.read(["value"])["value"].to_pylist() == list(range(sum(counts)))

    def test_wide_rows_are_in_smaller_groups_and_batches(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wide = rows(0, 100).set_column(
            2, "city", [[f"{number:04d}" * 250 for number in range(100)]]
        )
        storage = MemoryStorage()
        monkeypatch.setattr(base_file, "ROW_GROUP_BYTES", 20_000)
        write(storage, [wide])
        assert group_sizes(storage) == [20] * 5
        write_of_others = MemoryStorage()
        monkeypatch.setattr(base_file, "ROW_GROUP_BYTES", 1_000_000)
        write(write_of_others, [wide])
        assert group_sizes(write_of_others) == [100]
        monkeypatch.setattr(base_file, "ROW_GROUP_BYTES", 20_000)
        monkeypatch.setattr(base_file, "BATCH_BYTES", 10_000)
        with open_base_file(write_of_others, FILE) as reader:
            batches = list(reader.iter_batches())
            assert [batch.num_rows for batch in batches] == [10] * 10
            assert pa.Table.from_batches(batches).equals(wide)
            narrow = list(reader.iter_batches(["value"]))
            assert [batch.num_rows for batch in narrow] == [100]

    def test_batches_are_taken_one_at_a_time(self) -> None:
        written: list[int] = []
        sink = BytesIO()

        def give() -> Iterable[pa.Table]:
            for at in range(4):
                written.append(sink.tell())
                yield rows(100 * at, 100)

        write_base_file(give(), SCHEMA, sink=sink, row_group_rows=100)
        # Each group was in the file before the next batch was asked for.
        assert written[0] == 0
        assert all(before < after for before, after in pairwise(written))

    def test_the_footer_has_hudis_keys(self) -> None:
        storage = MemoryStorage()
        text = encode_avro_schema(SCHEMA, table="t")
        bloom = BloomFilterBuilder(keys_per_row=100)
        write(storage, [rows(0, 20)], bloom=bloom, avro_schema_json=text)
        values = footer_of(storage).metadata
        assert values[b"hoodie_min_record_key"] == b"key-000000"
        assert values[b"hoodie_max_record_key"] == b"key-000019"
        assert values[b"hoodie_bloom_filter_type_code"] == b"DYNAMIC_V0"
        assert values[b"parquet.avro.schema"].decode() == text
        assert values[b"writer.model.name"] == b"avro"
        assert b"ARROW:schema" not in values
        with open_base_file(storage, FILE) as reader:
            assert reader.key_range == ("key-000000", "key-000019")
            found = reader.bloom_filter()
        assert found is not None
        assert found.might_contain(pa.array(["key-000019", "other"])).tolist() == [True, False]

    def test_a_file_without_keys_has_no_range(self) -> None:
        storage = MemoryStorage()
        blank = rows(0, 3).set_column(1, KEY, pa.nulls(3, pa.string()))
        stats = write(storage, [blank])
        assert (stats.min_key, stats.max_key) == (None, None)
        with open_base_file(storage, FILE) as reader:
            assert reader.key_range is None
            assert reader.bloom_filter() is None

    @pytest.mark.parametrize("codec", Compression)
    def test_the_codec_can_be_chosen(self, codec: Compression) -> None:
        storage = MemoryStorage()
        write(storage, [rows(0, 10)], codec=codec)
        found = footer_of(storage).row_group(0).column(0).compression
        assert found == codec.upper()

    def test_only_text_that_repeats_is_dictionary_encoded(self) -> None:
        storage = MemoryStorage()
        write(storage, [rows(0, 100)])
        assert encoded_columns(storage) == {"_hoodie_commit_time", "city"}

    def test_wide_numbers_that_repeat_are_too_and_keep_every_bit(self) -> None:
        storage = MemoryStorage()
        table = pa.table(
            {
                "seen": pa.array([10**15, None] * 50, pa.timestamp("us", "UTC")),
                "number": pa.array([0, -(2**63)] * 50),
                "real": pa.array([0.0, -0.0] * 50),
                "unique": pa.array(range(100)),
                "narrow": pa.array([1] * 100, pa.int32()),
            }
        )
        write(storage, [table], schema=table.schema)
        assert encoded_columns(storage) == {"seen", "number", "real"}
        with open_base_file(storage, FILE) as reader:
            found = reader.read()
        assert found.equals(table)
        assert np.signbit(found["real"].to_numpy()).tolist() == [False, True] * 50

    def test_dictionaries_and_plain_text_may_be_mixed(self) -> None:
        storage = MemoryStorage()

        def encoded(table: pa.Table) -> pa.Table:
            return table.set_column(2, "city", table["city"].dictionary_encode())

        parts = [rows(0, 40), rows(40, 40), rows(80, 40), rows(120, 40)]
        for first_is_encoded in (True, False):
            storage.delete(FILE.path)
            mixed = [
                encoded(part) if (at % 2 == 0) == first_is_encoded else part
                for at, part in enumerate(parts)
            ]
            write(storage, mixed)
            with open_base_file(storage, FILE) as reader:
                assert reader.schema.field("city").type == pa.string()
                assert reader.read().equals(rows(0, 160))

    def test_rows_that_do_not_fit_the_schema_are_refused(self) -> None:
        for wrong in (
            rows(0, 5).drop_columns(["city"]),
            rows(0, 5).set_column(3, "value", pa.array(["text"] * 5)),
        ):
            with pytest.raises(InvalidInputError, match=r"city|value"):
                write(MemoryStorage(), [wrong])

    def test_a_path_is_never_written_twice(self) -> None:
        storage = MemoryStorage()
        write(storage, [rows(0, 5)])
        with pytest.raises(AlreadyExistsError):
            write(storage, [rows(5, 5)])


class TestReading:
    def test_columns_come_in_file_order_and_absent_ones_not_at_all(self) -> None:
        storage = MemoryStorage()
        write(storage, [rows(0, 10)])
        with open_base_file(storage, FILE) as reader:
            (batch,) = reader.iter_batches(["value", "absent", KEY])
        assert batch.schema.names == [KEY, "value"]

    def test_batches_are_no_larger_than_asked_and_groups_can_be_chosen(self) -> None:
        storage = MemoryStorage()
        write(storage, [rows(0, 250)])
        with open_base_file(storage, FILE) as reader:
            batches = list(reader.iter_batches(["value"], batch_rows=60, row_groups=[1]))
        assert [batch.num_rows for batch in batches] == [60, 60, 30]
        assert batches[0]["value"][0].as_py() == 100

    def test_text_that_repeats_may_stay_a_dictionary(self) -> None:
        storage = MemoryStorage()
        # A dictionary is small for each value only in a file of some size.
        write(storage, [rows(0, 2000)], row_group_rows=2000)
        with open_base_file(storage, FILE) as reader:
            (batch,) = reader.iter_batches(keeps_dictionaries=True)
            (plain,) = reader.iter_batches()
        kinds = {field.name: pa.types.is_dictionary(field.type) for field in batch.schema}
        assert kinds == {"_hoodie_commit_time": True, KEY: False, "city": True, "value": False}
        assert pa.Table.from_batches([batch]).cast(SCHEMA).equals(rows(0, 2000))
        assert pa.Table.from_batches([plain]).equals(rows(0, 2000))

    def test_row_groups_are_pruned_by_their_statistics(self) -> None:
        storage = MemoryStorage()
        nulls = rows(300, 100).set_column(3, "value", pa.nulls(100, pa.int64()))
        write(storage, [rows(0, 100), rows(100, 100), rows(200, 100), nulls])
        with open_base_file(storage, FILE) as reader:
            assert reader.row_groups_overlapping("value", 150, 200) == [1, 2]
            assert reader.row_groups_overlapping("value", None, 99) == [0]
            assert reader.row_groups_overlapping("value", 299, None) == [2]
            assert reader.row_groups_overlapping("value", 1000, None) == []
            assert reader.row_groups_overlapping(KEY, "key-000350", "key-000350") == [3]
            assert reader.row_groups_overlapping("absent", 0, 0) == [0, 1, 2, 3]

    def test_a_missing_file_is_corruption(self) -> None:
        with pytest.raises(CorruptTableError, match=r"group-0_0-1-0.*does not exist") as caught:
            open_base_file(MemoryStorage(), FILE)
        assert caught.value.kind is ErrorKind.MISSING_DATA_FILE

    @pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet file at all, whatever its length"])
    def test_a_file_that_is_no_parquet_is_corruption(self, data: bytes) -> None:
        storage = MemoryStorage()
        storage.put(FILE.path, data)
        with pytest.raises(CorruptTableError, match="group-0_0-1-0") as caught:
            open_base_file(storage, FILE)
        assert caught.value.context == {"path": FILE.path}

    def test_a_damaged_page_is_corruption(self) -> None:
        storage = MemoryStorage()
        write(storage, [rows(0, 100)])
        data = bytearray(storage.read(FILE.path))
        data[4:400] = b"\xff" * 396
        storage.put(FILE.path, bytes(data))
        with (
            open_base_file(storage, FILE) as reader,
            pytest.raises(CorruptTableError, match="group-0_0-1-0"),
        ):
            reader.read()

    def test_a_damaged_bloom_filter_is_corruption(self) -> None:
        storage = MemoryStorage()
        with storage.open_output(FILE.path) as sink:
            writer = pq.ParquetWriter(sink, SCHEMA)
            writer.add_key_value_metadata(
                {
                    "org.apache.hudi.bloomfilter": "AAAA",
                    "hoodie_bloom_filter_type_code": "DYNAMIC_V0",
                }
            )
            writer.close()
        with open_base_file(storage, FILE) as reader, pytest.raises(CorruptTableError):
            reader.bloom_filter()


def test_row_groups_with_nan_have_no_bounds() -> None:
    """Spark takes NaN for the largest number, and skips row groups by their bounds."""
    nan = float("nan")
    kind = pa.struct([("x", pa.float32())])
    table = pa.table(
        {
            "x": [1.0, 2.0, nan, 3.0, 4.0, None],
            "s": pa.array([{"x": nan}, None, *[{"x": 1.5}] * 4], kind),
            "n": [1, 2, 3, 4, 5, 6],
        }
    )
    storage = MemoryStorage()
    with storage.open_output(FILE.path) as sink:
        stats = write_base_file([table], table.schema, sink=sink, row_group_rows=2)
    assert stats.size_bytes == len(storage.read(FILE.path))
    with open_base_file(storage, FILE) as file:
        found = pa.Table.from_batches(file.iter_batches())
        assert str(found.to_pylist()) == str(table.to_pylist())
        for footer in (file.footer, stats.footer):
            chunks = [
                [footer.row_group(group).column(column).statistics for group in range(3)]
                for column in range(3)
            ]
            assert [[one.has_min_max for one in column] for column in chunks] == [
                [True, False, True],
                [False, True, True],
                [True, True, True],
            ]
            assert [[one.null_count for one in column] for column in chunks] == [
                [0, 0, 1],
                [1, 0, 0],
                [0, 0, 0],
            ]
            assert (chunks[0][2].min, chunks[0][2].max) == (4.0, 4.0)
