"""A loss before the commit ends a write, so it must not rest on what is not proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import FENCED

import headwater as hw
from headwater.errors import ConflictError
from headwater.kernel.txn.conflicts import ConflictCheck


def test_a_loss_is_found_on_a_state_that_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": ["a"], "value": [1]})
    table = hw.create_table(
        tmp_path / "t",
        schema=rows.schema,
        record_key="id",
        options={
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.write.lock.provider": "in_process",
            "hoodie.write.num.retries.on.conflict.failures": "0",
            **FENCED,
        },
    )
    found = 0

    def find_at_first(*_: Any) -> ConflictError | None:
        nonlocal found
        found += 1
        return ConflictError("Lost to a slot that was none") if found == 1 else None

    table.upsert(rows)
    monkeypatch.setattr(ConflictCheck, "find", find_at_first)
    table.upsert(rows)
    assert found > 1
