"""`key_order` beside Arrow's own sort of the same keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.arrow import key_order as module
from headwater.arrow.key_order import key_order


@pytest.fixture(autouse=True)
def _no_key_is_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_KEYS", 0)


# Few letters, so that keys have much in common; zeros and bytes over 127 are where orders differ.
LETTERS = st.sampled_from(["a", "b", "\0", "z", "é", "\U0001f600", "ab" * 7])
KEYS = st.lists(st.lists(LETTERS, max_size=12).map("".join), min_size=1, max_size=60)


@given(KEYS, st.sampled_from(["", "k", "prefix-of-all-"]), st.integers(0, 3))
def test_keys_are_in_the_order_of_their_bytes(texts: list[str], prefix: str, skipped: int) -> None:
    keys = pa.array([prefix + text for text in texts], pa.string())[min(skipped, len(texts) - 1) :]
    expected = pc.sort_indices(keys.view(pa.binary())).to_pylist()
    assert key_order(keys).tolist() == expected


def test_many_keys_that_differ_late_are_in_order() -> None:
    rng = np.random.default_rng(3)
    countries = ["DE", "FR", "IT"]
    keys = pa.array(
        [f"country:{countries[n % 3]},id:{n:09}" for n in rng.integers(0, 4_000, 10_000)]
    )
    assert key_order(keys).tolist() == pc.sort_indices(keys).to_pylist()
