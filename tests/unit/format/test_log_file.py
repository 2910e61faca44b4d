"""The frames of log blocks: format rules 5.1, 5.2, 5.4 and the corruption rules of 5.5."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, ErrorKind, UnsupportedError
from headwater.format.log.frames import (
    MAGIC,
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    iter_blocks,
)

WRITTEN = [kind for kind in BlockType if kind is not BlockType.CORRUPT]
TIME = {HeaderKey.INSTANT_TIME: "20260101000000000"}


def parse(data: bytes) -> list[LogBlock]:
    return list(iter_blocks(data, path="a.log"))


def kinds(data: bytes) -> list[BlockType]:
    return [block.type for block in parse(data)]


def framed(body: bytes) -> bytes:
    """Frame a body from the format version to the footer, whatever it says."""
    size = struct.pack(">q", len(body) + 8)
    return MAGIC + size + body + struct.pack(">q", len(body) + 14)


def test_the_smallest_block_of_the_format_has_the_bytes_of_rule_5_4() -> None:
    content = struct.pack(">ii", 3, 1) + b"\x00"
    encoded = encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "0" * 17}, content)
    assert len(encoded) == 80
    assert encoded.hex(" ").startswith(
        "23 48 55 44 49 23 00 00 00 00 00 00 00 42 00 00 00 01 00 00 00 01 "
        "00 00 00 01 00 00 00 00 00 00 00 11 30"
    )
    assert encoded.hex(" ").endswith(
        "00 00 00 00 00 00 00 09 00 00 00 03 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 48"
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(WRITTEN),
            st.dictionaries(st.sampled_from(list(HeaderKey)), st.text(max_size=40)),
            # Neither a length nor the magic may confuse the reader of whole files.
            st.binary(max_size=60) | st.just(MAGIC * 2),
        ),
        max_size=4,
    )
)
def test_blocks_come_back_as_they_were_written(
    written: list[tuple[BlockType, dict[HeaderKey, str], bytes]],
) -> None:
    blocks = [encode_block(*block) for block in written]
    data = b"".join(blocks)
    found = parse(data)
    assert [(block.type, block.header, bytes(block.content)) for block in found] == written
    offsets = [sum(map(len, blocks[:at])) for at in range(len(blocks))]
    assert [block.offset for block in found] == offsets


def test_the_content_is_a_view_of_the_file() -> None:
    data = encode_block(BlockType.AVRO_DATA, TIME, b"rows")
    (block,) = parse(data)
    assert block.content.obj is data


class TestCorruption:
    first = encode_block(BlockType.AVRO_DATA, TIME, b"first")
    second = encode_block(BlockType.DELETE, TIME, b"second")

    def test_every_cut_is_a_corrupt_tail_or_the_end(self) -> None:
        whole = self.first + self.second
        for cut in range(len(whole)):
            found = parse(whole[:cut])
            left = cut - len(self.first)
            if cut == 0:
                assert found == []
            elif left < 0:
                assert [block.type for block in found] == [BlockType.CORRUPT]
                assert bytes(found[0].content) == whole[:cut]
            elif left == 0:
                assert [block.type for block in found] == [BlockType.AVRO_DATA]
            else:
                assert [block.type for block in found] == [BlockType.AVRO_DATA, BlockType.CORRUPT]
                assert found[1].offset == len(self.first)

    def test_lengths_that_disagree_make_a_block_corrupt(self) -> None:
        broken = self.first[:-1] + bytes([self.first[-1] ^ 1])
        found = parse(broken + self.second)
        assert [block.type for block in found] == [BlockType.CORRUPT, BlockType.DELETE]
        assert (found[0].offset, len(found[0].content)) == (0, len(broken))
        assert found[1].offset == len(broken)

    def test_a_good_block_before_garbage_is_dropped_with_it(self) -> None:
        found = parse(self.first + b"garbage" + self.second)
        assert [block.type for block in found] == [BlockType.CORRUPT, BlockType.DELETE]
        assert len(found[0].content) == len(self.first) + 7

    def test_a_file_that_does_not_begin_with_a_block_is_searched_for_one(self) -> None:
        assert kinds(b"nonsense" + self.second) == [BlockType.CORRUPT, BlockType.DELETE]
        assert kinds(b"nonsense") == [BlockType.CORRUPT]
        assert kinds(b"") == []

    @pytest.mark.parametrize("size", [-1, 0, 31, 2**62])
    def test_a_size_that_cannot_be_is_corrupt(self, size: int) -> None:
        damaged = MAGIC + struct.pack(">q", size) + self.first[14:]
        assert kinds(damaged + self.second) == [BlockType.CORRUPT, BlockType.DELETE]

    @given(st.binary(max_size=120), st.integers(0, 200))
    def test_any_bytes_are_read_to_the_end_or_refused(self, noise: bytes, at: int) -> None:
        data = self.first[:at] + noise + self.second
        try:
            found = parse(data)
        except (CorruptTableError, UnsupportedError):
            return
        assert found[-1].type in (BlockType.DELETE, BlockType.CORRUPT)


class TestRefusals:
    def test_an_unknown_header_key_is_refused(self) -> None:
        body = struct.pack(">iiiii", 1, 3, 1, 9, 0) + struct.pack(">qi", 0, 0)
        with pytest.raises(UnsupportedError, match=r"unknown header key 9.*a\.log"):
            parse(framed(body))

    @pytest.mark.parametrize("ordinal", [-1, 2, 7])
    def test_an_unknown_type_is_refused(self, ordinal: int) -> None:
        body = struct.pack(">iii", 1, ordinal, 0) + struct.pack(">qi", 0, 0)
        with pytest.raises(UnsupportedError, match=f"type {ordinal}"):
            parse(framed(body))

    def test_another_format_version_is_refused(self) -> None:
        body = struct.pack(">iii", 2, 3, 0) + struct.pack(">qi", 0, 0)
        with pytest.raises(UnsupportedError, match="log format version 2"):
            parse(framed(body))

    @pytest.mark.parametrize(
        "inside",
        [
            struct.pack(">i", 1) + struct.pack(">qi", 0, 0),  # A header that is not there.
            struct.pack(">iii", 1, 0, 1000) + struct.pack(">qi", 0, 0),
            struct.pack(">iii", 1, 0, -1) + struct.pack(">qi", 0, 0),
            struct.pack(">iii", 1, 0, 1) + b"\xff" + struct.pack(">qi", 0, 0),  # No UTF-8.
            struct.pack(">i", 0) + struct.pack(">qi", 5, 0),  # Content behind the end.
            struct.pack(">i", 0) + struct.pack(">q", 0) + b"more" + struct.pack(">i", 0),
            struct.pack(">i", 0) + struct.pack(">qi", 0, 1),  # A footer with an entry.
        ],
    )
    def test_a_block_that_is_malformed_inside_names_path_and_offset(self, inside: bytes) -> None:
        good = encode_block(BlockType.DELETE, TIME, b"")
        with pytest.raises(CorruptTableError) as caught:
            parse(good + framed(struct.pack(">ii", 1, 3) + inside))
        assert caught.value.kind is ErrorKind.CORRUPT_LOG
        assert caught.value.context == {"path": "a.log", "offset": len(good)}
