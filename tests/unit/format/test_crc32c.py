"""CRC32C: published values, and a twin that goes bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.format.hfile.crc32c import crc32c_of_chunks


def naive(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# RFC 3720, appendix B.4, and the usual check value.
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_values(data: bytes, crc: int) -> None:
    assert crc32c_of_chunks(data, 16384).tolist() == [crc]


@given(st.binary(max_size=700), st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_every_chunk_has_its_own(data: bytes, chunk: int) -> None:
    expected = [naive(data[at : at + chunk]) for at in range(0, len(data), chunk)]
    assert crc32c_of_chunks(data, chunk).tolist() == expected
