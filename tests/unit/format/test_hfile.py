"""HFiles: round trips, reads of parts, and damage of every kind."""

from __future__ import annotations

import zlib
from contextlib import suppress
from itertools import pairwise
from struct import Struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.files import hfiles
from headwater.files.hfiles import open_hfile
from headwater.format.hfile import reader as hfile_module
from headwater.format.hfile import reader as hfile_reader
from headwater.format.hfile.blocks import (
    BYTES_PER_CHECKSUM,
    HEADER,
    Checksum,
    Codec,
    Magic,
    encode_block,
    encode_vint,
    read_vint,
)
from headwater.format.hfile.protobuf import (
    encode_field,
    encode_varint,
    encode_with_length,
    parse_message,
    read_with_length,
)
from headwater.format.hfile.reader import TRAILER_BYTES, HFile
from headwater.format.hfile.writer import (
    BLOCK_BYTES_MAX,
    KEY_BYTES_MAX,
    encode_hfile,
    sort_entries,
)

SCHEMA = '{"type":"bytes"}'
PATH = "files/files-0000-0_0-0-0_00000000000000000.hfile"
TEXTS = st.text(max_size=20)
ENTRIES = st.dictionaries(TEXTS, st.binary(max_size=40), max_size=30)


def encode(entries: dict[str, bytes], **options: object) -> bytes:
    keys, values = sort_entries(
        pa.array(list(entries), pa.string()), pa.array(list(entries.values()), pa.binary())
    )
    arguments: dict[str, object] = {"schema": SCHEMA, "is_base_file": True, **options}
    return encode_hfile(keys, values, **arguments)  # type: ignore[arg-type]


def read(data: bytes) -> dict[str, bytes]:
    return as_dict(HFile.of_bytes(data, path=PATH).read_all())


def as_dict(entries: tuple[pa.Array, pa.Array]) -> dict[str, bytes]:
    keys, values = entries
    return dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))


def many(count: int = 2000) -> dict[str, bytes]:
    return {f"key-{number:05d}": b"value-%d" % number for number in range(count)}


@given(ENTRIES, st.sampled_from([Codec.GZ, Codec.NONE]), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_entries_come_back(entries: dict[str, bytes], codec: Codec, block_bytes: int) -> None:
    data = encode(entries, codec=codec, block_bytes_max=block_bytes)
    file = HFile.of_bytes(data, path=PATH)
    assert as_dict(file.read_all()) == entries
    assert file.read_all().keys.to_pylist() == sorted(entries, key=str.encode)
    assert (file.entry_count, file.schema) == (len(entries), SCHEMA)


@given(ENTRIES, st.lists(TEXTS, max_size=5), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_look_ups_and_scans_are_those_of_a_dict(
    entries: dict[str, bytes], asked: list[str], block_bytes: int
) -> None:
    file = HFile.of_bytes(encode(entries, block_bytes_max=block_bytes), path=PATH)
    asked = [*asked, *list(entries)[::3]]
    assert as_dict(file.look_up(asked)) == {key: entries[key] for key in asked if key in entries}
    for prefix in [*asked, *(key[:1] for key in entries)]:
        expected = {key: value for key, value in entries.items() if key.startswith(prefix)}
        assert as_dict(file.scan_prefixes([prefix])) == expected
    expected = {key: value for key, value in entries.items() if any(map(key.startswith, asked))}
    assert as_dict(file.scan_prefixes(asked)) == expected


def test_many_blocks_are_walked_in_step_as_few_are_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = many()
    file = HFile.of_bytes(encode(entries, block_bytes_max=100), path=PATH)
    assert as_dict(file.read_all()) == entries
    monkeypatch.setattr(hfile_module, "LOCK_STEP_BLOCKS_MIN", 10**6)
    assert as_dict(file.read_all()) == entries


def test_a_key_with_a_char_0_at_its_end_is_not_the_key_without() -> None:
    entries = {"a": b"1", "a\0": b"2", "b": b"3"}
    file = HFile.of_bytes(encode(entries, block_bytes_max=1), path=PATH)
    assert as_dict(file.look_up(["a\0"])) == {"a\0": b"2"}
    assert as_dict(file.look_up(["a"])) == {"a": b"1"}
    assert as_dict(file.scan_prefixes(["a"])) == {"a": b"1", "a\0": b"2"}


def test_an_empty_file_has_no_entries() -> None:
    file = HFile.of_bytes(encode({}), path=PATH)
    assert file.entry_count == 0
    assert as_dict(file.read_all()) == {}
    assert as_dict(file.look_up(["a"])) == {}
    assert as_dict(file.scan_prefixes([""])) == {}
    assert file.info["minRecordKey"] == file.info["hfile.LASTKEY"] == b""


def test_a_base_file_knows_its_first_and_last_key() -> None:
    info = HFile.of_bytes(encode(many(5), create_time_ms=7), path=PATH).info
    assert (info["minRecordKey"], info["maxRecordKey"]) == (b"key-00000", b"key-00004")
    assert info["hfile.LASTKEY"] == b"\x00\x09key-00004"
    assert info["hfile.CREATE_TIME_TS"] == (7).to_bytes(8)
    assert "minRecordKey" not in HFile.of_bytes(encode({}, is_base_file=False), path=PATH).info


def test_a_block_is_larger_than_the_limit_only_for_a_single_entry() -> None:
    entries = {f"k{number:04d}": bytes(900) for number in range(200)}
    entries["k0050x"] = bytes(3 * BLOCK_BYTES_MAX)
    data = encode(entries, codec=Codec.NONE)
    sizes, at = [], 0
    while data[at : at + 8] == b"DATABLK*":
        _, behind, raw, *_ = HEADER.unpack_from(data, at)
        sizes.append(raw)
        at += HEADER.size + behind
    assert max(sizes) > 3 * BLOCK_BYTES_MAX
    assert sorted(sizes)[-2] <= BLOCK_BYTES_MAX
    assert len(sizes) > 3
    assert read(data) == entries


@pytest.mark.parametrize("length", [0, 1, 117, 125, 126, 127, 128, 300, 20_000])
def test_keys_of_any_length_are_found_by_the_index(length: int) -> None:
    entries = {"k" * length: b"a", "k" * length + "m": b"b"}
    file = HFile.of_bytes(encode(entries, block_bytes_max=1), path=PATH)
    assert as_dict(file.look_up(list(entries))) == entries


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8f80"), (255, "8fff"), (300, "8e012c"), (70_000, "8d011170")],
)
def test_vint_examples_of_format_rule_9_4(number: int, encoded: str) -> None:
    assert encode_vint(number).hex() == encoded
    assert read_vint(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


def test_index_lengths_of_the_first_native_writers_are_understood() -> None:
    row = b"k" * 200
    length = len(row) + 2
    data = encode({row.decode(): b"v"}, codec=Codec.NONE)
    wanted = encode_vint(length) + len(row).to_bytes(2)
    old = encode_varint(length) + len(row).to_bytes(2)
    assert len(old) == len(wanted)
    assert data.count(wanted) == 1
    assert read(data.replace(wanted, old)) == {row.decode(): b"v"}


# Which parts are read -------------------------------------------------------------------------


def stored(data: bytes) -> CountingStorage:
    storage = MemoryStorage()
    storage.put(PATH, data)
    return CountingStorage(storage, keep_trace=True)


@pytest.mark.parametrize("is_size_known", [True, False])
def test_a_small_file_is_read_in_one_request(is_size_known: bool) -> None:
    data = encode(many())
    storage = stored(data)
    file = open_hfile(storage, PATH, len(data) if is_size_known else None)
    assert len(as_dict(file.look_up(["key-00000", "key-01999"]))) == 2
    assert len(as_dict(file.read_all())) == 2000
    assert storage.count() == 1


class RangesOf(CountingStorage):
    """Keeps the ranges that were read."""

    def __init__(self, data: bytes) -> None:
        storage = MemoryStorage()
        storage.put(PATH, data)
        super().__init__(storage)
        self.ranges: list[tuple[int, int]] = []

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self.ranges.append((start, start + length))
        return super().read_range(path, start, length)


@pytest.fixture
def large_file(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, bytes], bytes]:
    """Entries and a file that counts as large, with a block for each entry."""
    monkeypatch.setattr(hfiles, "WHOLE_FILE_BYTES_MAX", 2 * TRAILER_BYTES)
    monkeypatch.setattr(hfiles, "TAIL_BYTES", 40_000)
    monkeypatch.setattr(hfile_module, "GAP_BYTES_MAX", 1000)
    monkeypatch.setattr(hfile_module, "RANGES_MAX", 4)
    entries = {f"key-{number:04d}": bytes([number % 256]) * 1000 for number in range(300)}
    return entries, encode(entries, codec=Codec.NONE, block_bytes_max=1)


def test_a_large_file_is_read_where_it_is_asked_for(
    large_file: tuple[dict[str, bytes], bytes],
) -> None:
    entries, data = large_file
    storage = RangesOf(data)
    file = open_hfile(storage, PATH, len(data))
    assert storage.ranges == [(len(data) - 40_000, len(data))]
    storage.ranges.clear()
    wanted = ["key-0003", "key-0004", "key-0100"]
    assert as_dict(file.look_up(wanted)) == {key: entries[key] for key in wanted}
    assert len(storage.ranges) == 2
    assert sum(end - start for start, end in storage.ranges) < 4000
    storage.ranges.clear()
    assert list(as_dict(file.scan_prefixes(["key-012"]))) == [f"key-012{n}" for n in range(10)]
    assert len(storage.ranges) == 1
    assert as_dict(file.look_up(["absent"])) == {}
    assert as_dict(file.read_all()) == entries


def test_a_look_up_makes_few_requests_however_scattered_the_keys(
    large_file: tuple[dict[str, bytes], bytes],
) -> None:
    entries, data = large_file
    storage = RangesOf(data)
    file = open_hfile(storage, PATH, None)
    storage.ranges.clear()
    wanted = [f"key-{number:04d}" for number in range(0, 250, 10)]
    assert as_dict(file.look_up(wanted)) == {key: entries[key] for key in wanted}
    assert len(storage.ranges) == 4


def test_a_missing_file_is_damage() -> None:
    with pytest.raises(CorruptTableError, match="does not exist") as caught:
        open_hfile(MemoryStorage(), PATH, 10)
    assert caught.value.kind is ErrorKind.CORRUPT_METADATA_TABLE
    with pytest.raises(CorruptTableError, match="does not exist"):
        open_hfile(MemoryStorage(), PATH)


def test_a_large_file_that_was_cut_is_damage(large_file: tuple[dict[str, bytes], bytes]) -> None:
    _, data = large_file
    with pytest.raises(CorruptTableError):
        open_hfile(stored(data[:-1000]), PATH, len(data))


def test_a_large_file_that_vanishes_is_damage(large_file: tuple[dict[str, bytes], bytes]) -> None:
    _, data = large_file
    storage = stored(data)
    file = open_hfile(storage, PATH, len(data))
    storage.delete(PATH)
    with pytest.raises(CorruptTableError, match="deleted"):
        file.look_up(["key-0003"])


# Damage ---------------------------------------------------------------------------------------


def check_is_noticed(data: bytes, entries: dict[str, bytes]) -> bool:
    """Return whether damage was noticed; if not, it must not matter."""
    try:
        file = HFile.of_bytes(data, path=PATH)
        assert as_dict(file.read_all()) == entries
        assert as_dict(file.look_up(list(entries))) == entries
        assert as_dict(file.scan_prefixes(["k"])) == entries
    except CorruptTableError as error:
        return (error.kind, error.context["path"]) == (ErrorKind.CORRUPT_METADATA_TABLE, PATH)
    except UnsupportedError:
        return True
    return False


def test_no_flipped_bit_changes_what_is_read() -> None:
    entries = many(40)
    data = encode(entries, block_bytes_max=300)
    noticed = 0
    # The padding of the trailer is not looked at.
    for place in [*range(len(data) - TRAILER_BYTES + 160), *range(len(data) - 4, len(data))]:
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        noticed += check_is_noticed(bytes(flipped), entries)
    # Headers have numbers that nobody needs: the place of the block before, for example.
    assert noticed > 0.6 * (len(data) - TRAILER_BYTES)


def test_a_cut_file_is_noticed_wherever_it_is_cut() -> None:
    entries = many(40)
    data = encode(entries, block_bytes_max=300)
    for size in [*range(0, len(data), 61), len(data) - 1]:
        assert check_is_noticed(data[:size], entries)
        assert check_is_noticed(data[size + 1 :], entries)


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_arbitrary_bytes_are_damage(garbage: bytes) -> None:
    assert check_is_noticed(garbage, {"k": b""})
    padded = Magic.TRAILER.encode() + garbage + bytes(TRAILER_BYTES)
    assert check_is_noticed(padded[: TRAILER_BYTES - 4] + b"\0\0\0\x03", {"k": b""})


@given(st.integers(0, 2**20), st.binary(min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_overwritten_bytes_of_raw_blocks_never_raise_anything_else(at: int, by: bytes) -> None:
    data = bytearray(encode(many(40), block_bytes_max=300, codec=Codec.NONE))
    at %= len(data)
    data[at : at + len(by)] = by
    with suppress(CorruptTableError, UnsupportedError):
        HFile.of_bytes(bytes(data), path=PATH).read_all()


def entries_block(entries: list[tuple[bytes, bytes]]) -> bytes:
    suffix = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
    return b"".join(
        (len(row) + 12).to_bytes(4)
        + len(value).to_bytes(4)
        + len(row).to_bytes(2)
        + row
        + suffix
        + value
        + b"\0"
        for row, value in entries
    )


def index_entry(row: bytes, size: int, offset: int = 0) -> bytes:
    head = Struct(">qi").pack(offset, size)
    return head + encode_vint(len(row) + 2) + len(row).to_bytes(2) + row


def by_hand(
    block: bytes,
    *,
    count: int = 2,
    index_row: bytes = b"a",
    index_data: bytes | None = None,
    index_count: int = 1,
) -> bytes:
    """Return a file of one data block."""
    data = encode_block(Magic.DATA, block, Codec.NONE)
    entries = index_entry(index_row, len(data)) if index_data is None else index_data
    index = encode_block(Magic.ROOT_INDEX, entries, Codec.NONE)
    meta = encode_block(Magic.ROOT_INDEX, b"", Codec.NONE)
    info = encode_block(Magic.FILE_INFO, b"PBUF\0", Codec.NONE)
    body = data + index + meta
    fields = {1: len(body), 2: len(data), 5: index_count, 7: count, 8: 1, 12: 2}
    message = b"".join(encode_field(tag, value) for tag, value in fields.items())
    trailer = Magic.TRAILER.encode() + encode_with_length(message)
    return body + info + trailer + bytes(TRAILER_BYTES - 4 - len(trailer)) + b"\0\0\0\x03"


def test_what_is_made_by_hand_is_read() -> None:
    assert read(by_hand(entries_block([(b"a", b"1"), (b"b", b"2")]))) == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (by_hand(entries_block([(b"b", b"1"), (b"a", b"2")])), "out of order"),
        (by_hand(entries_block([(b"a", b"1"), (b"a", b"2")])), "out of order"),
        (by_hand(entries_block([(b"a", b"1"), (b"b", b"2")]), count=3), "trailer says 3"),
        (by_hand(entries_block([(b"a", b"1"), (b"b", b"2")]), index_row=b"b"), "index does not"),
        (by_hand(entries_block([(b"a", b"1"), (b"\xff", b"2")])), "no UTF-8"),
        (by_hand(entries_block([(b"a", b"1"), (b"b", b"2")])[:-1]), "beyond the end"),
        (by_hand(entries_block([(b"a", b"1")]) + b"\xff" * 30), "beyond the end"),
        (by_hand(entries_block([(b"a", b"1"), (b"b", b"2")])[:-1] + b"\1"), "another kind"),
        (by_hand(b"", count=0), "is empty"),
    ],
)
@pytest.mark.parametrize("few", [64, -1])
def test_entries_that_break_the_format_are_named(
    data: bytes, problem: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hfile_reader, "_FEW", few)
    with pytest.raises(CorruptTableError, match=problem):
        read(data)


@given(
    st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), min_size=1, max_size=4),
    st.integers(0, 2**10),
    st.binary(max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_few_entries_are_read_one_by_one_as_many_are_together(
    entries: list[tuple[bytes, bytes]], at: int, by: bytes
) -> None:
    """Also if they are damaged: the same rows, or an error."""
    block = bytearray(entries_block(sorted(dict(entries).items())))
    at %= len(block)
    block[at : at + len(by)] = by
    data = by_hand(bytes(block), count=len(dict(entries)), index_row=b"")

    def outcome(few: int) -> dict[str, bytes] | None:
        with pytest.MonkeyPatch.context() as patch, suppress(CorruptTableError):
            patch.setattr(hfile_reader, "_FEW", few)
            return read(data)
        return None

    assert outcome(64) == outcome(-1)


PAIR = entries_block([(b"a", b"1"), (b"b", b"2")])
ENTRY = index_entry(b"a", len(encode_block(Magic.DATA, PAIR, Codec.NONE)))


@pytest.mark.parametrize(
    ("index_data", "index_count", "problem"),
    [
        (ENTRY, 2, "has 1 blocks, its trailer says 2"),
        (ENTRY + ENTRY[:12], 1, "cut short"),
        (ENTRY + ENTRY[:-1], 2, "cut short"),
        (ENTRY + index_entry(b"a", 40), 2, "out of order"),
        (ENTRY + index_entry(b"A", 40), 2, "out of order"),
        (ENTRY + index_entry(b"b", 40), 2, "outside of the data blocks"),
        (index_entry(b"a", 0), 1, "outside of the data blocks"),
        (ENTRY[:12] + b"\4\0\1ab", 1, "impossible key"),
        (ENTRY[:12] + b"\3\0\2a", 1, "impossible key"),
        (ENTRY[:12] + b"\xff\0\1a", 1, "impossible key"),
        (ENTRY[:12] + b"\0", 1, "beyond the end"),
    ],
)
def test_an_index_that_breaks_the_format_is_named(
    index_data: bytes, index_count: int, problem: str
) -> None:
    assert read(by_hand(PAIR, index_data=ENTRY)) == {"a": b"1", "b": b"2"}
    with pytest.raises(CorruptTableError, match=problem):
        read(by_hand(PAIR, index_data=index_data, index_count=index_count))


def with_checksums(data: bytes, kind: Checksum, *, crc: int) -> bytes:
    """Return a file whose first block has a checksum."""
    block_bytes = HEADER.unpack_from(data)[6]
    assert block_bytes <= BYTES_PER_CHECKSUM
    changed = bytearray(data)
    changed[24] = kind
    if kind is Checksum.CRC32:
        crc ^= zlib.crc32(changed[:block_bytes])
    changed[block_bytes : block_bytes + 4] = crc.to_bytes(4)
    return bytes(changed)


def test_checksums_are_verified_where_there_are_any() -> None:
    entries = many(3)
    data = encode(entries, codec=Codec.NONE)
    assert read(with_checksums(data, Checksum.CRC32, crc=0)) == entries
    with pytest.raises(CorruptTableError, match="checksums"):
        read(with_checksums(data, Checksum.CRC32, crc=1))
    with pytest.raises(CorruptTableError, match="checksums"):
        read(with_checksums(data, Checksum.CRC32C, crc=0))


def test_an_unknown_compression_is_not_supported() -> None:
    data = bytearray(encode(many(3)))
    message, _ = read_with_length(bytes(data[-TRAILER_BYTES:]), 8)
    assert parse_message(message)[-1] == (12, Codec.GZ)
    data[len(data) - TRAILER_BYTES + 9 + len(message) - 1] = Codec.ZSTD
    with pytest.raises(UnsupportedError, match="ZSTD"):
        read(bytes(data))


# What cannot be written -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "values", "codec"),
    [
        (["b", "a"], [b"", b""], Codec.GZ),
        (["a", "a"], [b"", b""], Codec.GZ),
        (["a", None], [b"", b""], Codec.GZ),
        (["a"], [None], Codec.GZ),
        (["a"], [], Codec.GZ),
        (["k" * (KEY_BYTES_MAX + 1)], [b""], Codec.GZ),
        (["a"], [b""], Codec.SNAPPY),
    ],
)
def test_what_no_reader_would_understand_is_refused(
    keys: list[str], values: list[bytes], codec: Codec
) -> None:
    with pytest.raises(InvalidInputError):
        encode_hfile(
            pa.array(keys, pa.string()),
            pa.array(values, pa.binary()),
            schema=SCHEMA,
            is_base_file=True,
            codec=codec,
        )


@given(st.lists(st.tuples(TEXTS, st.binary(max_size=5)), max_size=30))
@settings(deadline=None)
def test_entries_are_sorted_by_the_bytes_of_their_keys(pairs: list[tuple[str, bytes]]) -> None:
    keys, values = sort_entries(
        pa.array([key for key, _ in pairs], pa.string()),
        pa.array([value for _, value in pairs], pa.binary()),
    )
    found = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    assert sorted(found) == sorted(pairs)
    assert all(left[0].encode() <= right[0].encode() for left, right in pairwise(found))
