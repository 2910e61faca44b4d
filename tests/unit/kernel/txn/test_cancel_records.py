"""What is written down about cancellations, and what becomes of it when it is damaged."""

from __future__ import annotations

import pytest

from headwater.errors import CorruptTableError, ErrorKind
from headwater.kernel.txn.cancel_records import (
    AbortRecord,
    CancelCount,
    CancelEntry,
    decode_abort,
    decode_count,
    decode_entry,
    encode_abort,
    encode_count,
    encode_entry,
)
from headwater.model.instant import InstantTime

ENTRY = CancelEntry(owner="host/1/w", requested_ms=5, reason="too slow")
FIRST, SECOND = InstantTime("20260101000000000"), InstantTime("20260101000000001")


def test_an_entry_survives_its_bytes() -> None:
    assert decode_entry(encode_entry(ENTRY)) == ENTRY


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"owner": 1}', b"\xff"])
def test_an_entry_that_says_nothing_is_none(data: bytes) -> None:
    assert decode_entry(data) is None


@pytest.mark.parametrize("entry", [ENTRY, None])
def test_an_abort_survives_its_bytes(entry: CancelEntry | None) -> None:
    record = AbortRecord(entry=entry, owner="o", aborted_ms=7, token="t", plan=b"\x00\xffplan")
    assert decode_abort(encode_abort(record), path="") == record


@pytest.mark.parametrize("data", [b"", b"{}", b'{"plan": "not base64!", "entry": null}'])
def test_a_damaged_abort_names_its_file(data: bytes) -> None:
    with pytest.raises(CorruptTableError) as caught:
        decode_abort(data, path="the aborted file")
    assert caught.value.kind is ErrorKind.CORRUPT_TIMELINE
    assert "the aborted file" in str(caught.value)


def test_a_count_survives_its_bytes_and_begins_at_zero() -> None:
    count = CancelCount(times=3, counted=(FIRST,))
    assert decode_count(encode_count(count)) == count
    assert decode_count(None) == CancelCount()


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"times": "many"}', b"\xff"])
def test_a_damaged_count_stops_nobody(data: bytes) -> None:
    assert decode_count(data) == CancelCount()


def test_a_plan_counts_once_and_is_forgotten_when_it_has_left_the_timeline() -> None:
    once = CancelCount().with_plan(FIRST, {FIRST})
    assert once == CancelCount(times=1, counted=(FIRST,))
    assert once.with_plan(FIRST, {FIRST}) == once
    both = once.with_plan(SECOND, {FIRST, SECOND})
    assert both == CancelCount(times=2, counted=(FIRST, SECOND))
    assert once.with_plan(SECOND, {SECOND}) == CancelCount(times=2, counted=(SECOND,))
