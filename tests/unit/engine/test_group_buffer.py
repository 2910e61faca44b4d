"""Rows leave the buffer by group, in order, whether they were moved to disk or not."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.engine.group_buffer import GroupBuffer


@pytest.mark.parametrize("memory_bytes", [0, 40, 1 << 30])
def test_groups_come_in_ascending_order_with_rows_as_they_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_bytes: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    batches = [
        (pa.record_batch({"n": [0, 1, 2, 3]}), np.array([1, 0, 1, 0]), [("b", 5), ("a", 7)]),
        (pa.record_batch({"n": [4, 5]}), np.array([0, 0]), [("a", -1)]),
        (pa.record_batch({"n": [6, 7]}), np.array([0, 1]), [("a", 7), ("b", 5)]),
    ]
    with GroupBuffer[tuple[str, int]](memory_bytes) as buffer:
        for batch in batches:
            buffer.add(*batch)
        assert any(tmp_path.iterdir()) == (memory_bytes < 1 << 30)
        found = [(group, rows["n"].to_pylist()) for group, rows in buffer.drain()]
    assert found == [(("a", -1), [4, 5]), (("a", 7), [0, 2, 6]), (("b", 5), [1, 3, 7])]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
def test_batches_of_a_group_come_one_by_one_with_the_size_of_all(memory_bytes: int) -> None:
    first, second = pa.record_batch({"n": [0, 1]}), pa.record_batch({"n": [2]})
    with GroupBuffer[tuple[str, int]](memory_bytes) as buffer:
        buffer.add(first, np.array([0, 0]), [("a", 0)])
        buffer.add(second, np.array([0]), [("a", 0)])
        (held,) = buffer.drain_batches()
        assert held.group == ("a", 0)
        assert held.size_bytes == first.nbytes + second.nbytes
        assert [batch["n"].to_pylist() for batch in held.batches] == [[0, 1], [2]]
        assert list(buffer.drain_batches()) == []
