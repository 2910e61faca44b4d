"""Blocks of rows and deletes, and which of a slice's blocks count (format rule 5.5)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.memory_storage import MemoryStorage

from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.config.files import Compression, LogBlockFormat
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.files.log_files import read_log_blocks, read_log_parts
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import (
    decode_part,
    decode_rows,
    encode_data_block,
    encode_delete_block,
    log_file_bytes,
)
from headwater.format.log.frames import BlockType, HeaderKey, encode_block, iter_blocks
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime

META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
TIMES = [InstantTime(f"2026010100000000{digit}") for digit in range(10)]
FORMATS = list(LogBlockFormat)


def rows(*keys: str, value: int = 0) -> pa.Table:
    meta = {name: list(keys) if name == META[2] else [f"{name[-4:]}"] * len(keys) for name in META}
    columns = {name: pa.array(values, pa.string()) for name, values in meta.items()}
    return pa.table({**columns, "value": pa.array([value] * len(keys), pa.int64())})


SCHEMA = encode_avro_schema(rows("a").schema, table="t")


def data_block(
    time: InstantTime,
    *keys: str,
    value: int = 0,
    block_format: LogBlockFormat = LogBlockFormat.PARQUET,
    compacted: Sequence[InstantTime] = (),
) -> bytes:
    return encode_data_block(
        rows(*keys, value=value),
        instant_time=time,
        avro_schema_json=SCHEMA,
        block_format=block_format,
        compacted_block_times=compacted,
    )


def delete_block(time: InstantTime, *keys: str) -> bytes:
    partitions = pa.array([""] * len(keys), pa.string())
    return encode_delete_block(
        pa.array(keys, pa.string()), partitions, None, instant_time=time, avro_schema_json=SCHEMA
    )


def rollback_block(time: InstantTime, target: InstantTime) -> bytes:
    header = {
        HeaderKey.INSTANT_TIME: time,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
        HeaderKey.TARGET_INSTANT_TIME: target,
    }
    return encode_block(BlockType.COMMAND, header, b"")


def retried_block(time: InstantTime, identifier: str, key: str) -> bytes:
    data = data_block(time, key, block_format=LogBlockFormat.AVRO)
    (block,) = iter_blocks(data, path="")
    header = {**block.header, HeaderKey.BLOCK_IDENTIFIER: identifier}
    return encode_block(block.type, header, block.content)


def read(
    *files: tuple[InstantTime, list[bytes]],
    columns: Sequence[str] | None = None,
    is_visible: Callable[[InstantTime], bool] | None = None,
    skip_corrupt: bool = False,
) -> list[LogPart]:
    storage = MemoryStorage()
    logs = []
    for time, blocks in files:
        log = LogFile("p", "group-0", time, 1, "0-1-0", False, 0)
        storage.put(log.path, log_file_bytes(blocks))
        logs.append(log)
    found = read_log_blocks(storage, logs, is_visible_instant=is_visible, skip_corrupt=skip_corrupt)
    return [decode_part(block, columns, path=path) for block, path in found]


def keys_of(parts: list[LogPart]) -> list[list[str]]:
    return [
        part.rows[META[2]].to_pylist()
        if isinstance(part, DataPart)
        else part.record_keys.to_pylist()
        for part in parts
    ]


class TestBlocks:
    @pytest.mark.parametrize("block_format", FORMATS)
    def test_rows_come_back_as_they_were_written(self, block_format: LogBlockFormat) -> None:
        table = rows("a", "b", value=7)
        (part,) = read(
            (TIMES[1], [data_block(TIMES[1], "a", "b", value=7, block_format=block_format)])
        )
        assert part == DataPart(TIMES[1], table, is_partial=False)

    @pytest.mark.parametrize("block_format", FORMATS)
    def test_only_the_columns_asked_for_are_read(self, block_format: LogBlockFormat) -> None:
        block = data_block(TIMES[1], "a", value=7, block_format=block_format)
        (part,) = read((TIMES[1], [block]), columns=["value", META[2], "added_later"])
        assert isinstance(part, DataPart)
        assert part.rows.to_pylist() == [{META[2]: "a", "value": 7}]

    @pytest.mark.parametrize("block_format", FORMATS)
    def test_a_partial_block_has_fewer_columns_and_says_so(
        self, block_format: LogBlockFormat
    ) -> None:
        table = rows("a").select(META)
        block = encode_data_block(
            table,
            instant_time=TIMES[1],
            avro_schema_json=encode_avro_schema(table.schema, table="t"),
            block_format=block_format,
            is_partial=True,
        )
        assert read((TIMES[1], [block])) == [DataPart(TIMES[1], table, is_partial=True)]

    @pytest.mark.parametrize("codec", Compression)
    def test_parquet_blocks_take_any_codec_and_hold_a_plain_file(self, codec: Compression) -> None:
        encoded = encode_data_block(
            rows("a"), instant_time=TIMES[1], avro_schema_json=SCHEMA, compression=codec
        )
        (block,) = iter_blocks(encoded, path="")
        assert block.type is BlockType.PARQUET_DATA
        footer = pq.read_metadata(pa.BufferReader(block.content))
        assert footer.row_group(0).column(0).compression == codec.upper()
        assert b"ARROW:schema" not in (footer.metadata or {})

    def test_dictionaries_and_narrow_numbers_become_the_types_of_the_schema(self) -> None:
        table = rows("a", "b")
        encoded = table.set_column(0, META[0], table[META[0]].dictionary_encode()).set_column(
            5, "value", table["value"].cast(pa.int32())
        )
        block = encode_data_block(encoded, instant_time=TIMES[1], avro_schema_json=SCHEMA)
        assert read((TIMES[1], [block])) == [DataPart(TIMES[1], table)]

    def test_rows_that_do_not_fit_the_schema_are_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="lack the columns value"):
            encode_data_block(
                rows("a").drop_columns(["value"]), instant_time=TIMES[1], avro_schema_json=SCHEMA
            )

    @pytest.mark.parametrize("block_format", FORMATS)
    def test_nulls_that_the_schema_does_not_allow_are_refused(
        self, block_format: LogBlockFormat
    ) -> None:
        schema = pa.schema([pa.field("value", pa.int64(), nullable=False)])
        with pytest.raises(InvalidInputError, match="value"):
            encode_data_block(
                pa.table({"value": pa.array([1, None], pa.int64())}),
                instant_time=TIMES[1],
                avro_schema_json=encode_avro_schema(schema, table="t"),
                block_format=block_format,
            )

    def test_dictionaries_are_written_as_they_are(self) -> None:
        table = pa.concat_tables([rows("a", "b"), rows("c", "d")])
        parts = [part.dictionary_encode() for part in table[META[4]].chunks]
        different = pa.chunked_array([*parts[:1], pa.array(["x", "y"]).dictionary_encode()])
        block = encode_data_block(
            table.set_column(4, META[4], different), instant_time=TIMES[1], avro_schema_json=SCHEMA
        )
        (part,) = read((TIMES[1], [block]))
        assert isinstance(part, DataPart)
        assert part.rows[META[4]].to_pylist() == ["name", "name", "x", "y"]

    def test_deletes_carry_their_ordering_values(self) -> None:
        keys, partitions = pa.array(["a", "b"]), pa.array(["p", "p"])
        ordering = pa.array([5, 6])
        block = encode_delete_block(
            keys, partitions, [ordering], instant_time=TIMES[1], avro_schema_json=SCHEMA
        )
        assert read((TIMES[1], [block])) == [DeletePart(TIMES[1], keys, partitions, (ordering,))]

    def test_a_cdc_block_decodes_to_a_table(self) -> None:
        (avro,) = iter_blocks(data_block(TIMES[1], "a", block_format=LogBlockFormat.AVRO), path="")
        (block,) = iter_blocks(encode_block(BlockType.CDC_DATA, avro.header, avro.content), path="")
        assert decode_rows(block, path="").equals(rows("a"))

    def test_an_hfile_block_is_refused(self) -> None:
        header = {HeaderKey.INSTANT_TIME: TIMES[1], HeaderKey.SCHEMA: SCHEMA}
        (block,) = iter_blocks(encode_block(BlockType.HFILE_DATA, header, b""), path="")
        with pytest.raises(UnsupportedError, match="HFILE_DATA"):
            decode_part(block, path="a.log")

    @pytest.mark.parametrize("kind", [BlockType.DELETE, BlockType.AVRO_DATA])
    def test_contents_of_old_versions_are_refused(self, kind: BlockType) -> None:
        header = {HeaderKey.INSTANT_TIME: TIMES[1], HeaderKey.SCHEMA: SCHEMA}
        content = struct.pack(">ii", 1, 0)
        (block,) = iter_blocks(encode_block(kind, header, content), path="")
        with pytest.raises(UnsupportedError, match="version 1"):
            decode_part(block, path="a.log")

    @pytest.mark.parametrize(
        ("kind", "content"),
        [
            (BlockType.DELETE, b"\x00"),
            (BlockType.DELETE, struct.pack(">ii", 3, 5) + b"\x00"),
            (BlockType.DELETE, struct.pack(">ii", 3, 1) + b"\x02"),
            (BlockType.AVRO_DATA, struct.pack(">ii", 3, 1)),
            (BlockType.PARQUET_DATA, b"PAR1 no file PAR1"),
        ],
    )
    def test_malformed_contents_name_path_and_offset(self, kind: BlockType, content: bytes) -> None:
        header = {HeaderKey.INSTANT_TIME: TIMES[1], HeaderKey.SCHEMA: SCHEMA}
        first = delete_block(TIMES[1], "x")
        block = list(iter_blocks(first + encode_block(kind, header, content), path=""))[1]
        with pytest.raises(CorruptTableError) as caught:
            decode_part(block, path="a.log")
        assert caught.value.kind is ErrorKind.CORRUPT_LOG
        assert caught.value.context == {"path": "a.log", "offset": len(first)}

    def test_a_block_without_instant_is_corrupt(self) -> None:
        with pytest.raises(CorruptTableError, match="INSTANT_TIME"):
            read((TIMES[1], [encode_block(BlockType.DELETE, {}, b"")]))


class TestReading:
    def test_parts_come_in_the_order_of_files_and_blocks(self) -> None:
        parts = read(
            (TIMES[1], [data_block(TIMES[1], "a"), delete_block(TIMES[1], "b")]),
            (TIMES[2], [delete_block(TIMES[2], "c"), data_block(TIMES[2], "d")]),
        )
        assert keys_of(parts) == [["a"], ["b"], ["c"], ["d"]]

    def test_blocks_of_invisible_instants_are_left_out(self) -> None:
        files = [(time, [data_block(time, time[-1])]) for time in TIMES[:3]]
        assert keys_of(read(*files, is_visible=lambda time: time != TIMES[1])) == [["0"], ["2"]]

    def test_a_rollback_discards_the_blocks_before_it_in_all_files(self) -> None:
        parts = read(
            (TIMES[1], [data_block(TIMES[1], "a")]),
            (TIMES[2], [data_block(TIMES[2], "b"), data_block(TIMES[2], "c")]),
            (TIMES[3], [rollback_block(TIMES[3], TIMES[2]), data_block(TIMES[3], "d")]),
        )
        assert keys_of(parts) == [["a"], ["d"]]

    def test_the_log_of_another_instant_is_corruption(self) -> None:
        with pytest.raises(CorruptTableError, match="says that instant") as caught:
            read((TIMES[1], [data_block(TIMES[2], "a")]))
        assert caught.value.context["offset"] == 0

    def test_a_missing_log_is_corruption(self) -> None:
        log = LogFile("p", "group-0", TIMES[1], 1, "0-1-0", False, 0)
        with pytest.raises(CorruptTableError, match="does not exist"):
            read_log_parts(MemoryStorage(), [log])

    @pytest.mark.parametrize(
        ("damaged", "problem"),
        [
            ([data_block(TIMES[1], "a")[:-3]], "ends with"),
            ([data_block(TIMES[1], "a"), b"garbage", data_block(TIMES[1], "b")], "the next one"),
        ],
    )
    def test_bytes_that_are_no_block_are_an_error_unless_they_may_be_skipped(
        self, damaged: list[bytes], problem: str
    ) -> None:
        files = [(TIMES[0], [data_block(TIMES[0], "z")]), (TIMES[1], damaged)]
        with pytest.raises(CorruptTableError, match=problem) as caught:
            read(*files)
        assert caught.value.context["offset"] == 0
        left = [["z"]] if len(damaged) == 1 else [["z"], ["b"]]
        assert keys_of(read(*files, skip_corrupt=True)) == left

    def test_of_a_retried_append_one_set_of_blocks_counts(self) -> None:
        parts = read(
            (
                TIMES[1],
                [
                    data_block(TIMES[1], "plain"),
                    retried_block(TIMES[1], "0,0", "a"),
                    retried_block(TIMES[1], "1,0", "a"),
                    retried_block(TIMES[1], "1,1", "b"),
                    retried_block(TIMES[1], "1,1", "b"),
                ],
            ),
            (TIMES[2], [retried_block(TIMES[2], "0,0", "c"), retried_block(TIMES[2], "1,0", "d")]),
        )
        assert keys_of(parts) == [["plain"], ["a"], ["b"], ["d"]]


class TestLogCompaction:
    def test_a_compacted_block_takes_the_place_of_its_inputs(self) -> None:
        parts = read(
            (TIMES[1], [data_block(TIMES[1], "1")]),
            (TIMES[2], [data_block(TIMES[2], "2")]),
            (TIMES[3], [data_block(TIMES[3], "3")]),
            (TIMES[5], [data_block(TIMES[5], "1+2", compacted=TIMES[1:3])]),
        )
        # The log of instant 3 was not compacted, so it comes after what was.
        assert keys_of(parts) == [["1+2"], ["3"]]

    def test_it_does_so_without_its_inputs_too(self) -> None:
        parts = read(
            (TIMES[3], [data_block(TIMES[3], "3")]),
            (TIMES[5], [data_block(TIMES[5], "1+2", compacted=TIMES[1:3])]),
        )
        assert keys_of(parts) == [["1+2"], ["3"]]

    def test_a_log_requested_early_that_completed_late_comes_after_it(self) -> None:
        parts = read(
            (TIMES[5], [data_block(TIMES[5], "2+3", compacted=TIMES[2:4])]),
            (TIMES[1], [data_block(TIMES[1], "1")]),
        )
        assert keys_of(parts) == [["2+3"], ["1"]]

    def test_inputs_may_be_compacted_blocks(self) -> None:
        parts = read(
            (TIMES[1], [data_block(TIMES[1], "1")]),
            (TIMES[2], [data_block(TIMES[2], "2")]),
            (TIMES[3], [data_block(TIMES[3], "1+2", compacted=TIMES[1:3])]),
            (TIMES[4], [data_block(TIMES[4], "4")]),
            (TIMES[5], [data_block(TIMES[5], "1+2+4", compacted=TIMES[3:5])]),
            (TIMES[6], [data_block(TIMES[6], "6")]),
        )
        assert keys_of(parts) == [["1+2+4"], ["6"]]

    def test_an_invisible_one_replaces_nothing(self) -> None:
        parts = read(
            (TIMES[1], [data_block(TIMES[1], "1")]),
            (TIMES[5], [data_block(TIMES[5], "compacted", compacted=[TIMES[1]])]),
            is_visible=lambda time: time != TIMES[5],
        )
        assert keys_of(parts) == [["1"]]

    def test_its_data_and_delete_blocks_stay_together(self) -> None:
        deletes = encode_delete_block(
            pa.array(["gone"]),
            pa.array([""]),
            None,
            instant_time=TIMES[5],
            avro_schema_json=SCHEMA,
            compacted_block_times=TIMES[1:3],
        )
        parts = read(
            (TIMES[2], [data_block(TIMES[2], "2")]),
            (TIMES[3], [data_block(TIMES[3], "3")]),
            (TIMES[5], [data_block(TIMES[5], "2", compacted=TIMES[1:3]), deletes]),
        )
        assert keys_of(parts) == [["2"], ["gone"], ["3"]]
