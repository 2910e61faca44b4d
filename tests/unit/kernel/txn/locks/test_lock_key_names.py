"""Keys of locks as names of files."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from headwater.kernel.txn.locks.names import QUOTED_LENGTH_MAX, quote_lock_key

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(KEYS)
@example("../..")
@example("x" * 10_000)
def test_a_name_is_one_short_component_of_plain_characters(key: str) -> None:
    name = quote_lock_key(key)
    assert re.fullmatch(r"[A-Za-z0-9.%-]+(~[0-9a-f]{64})?", name)
    assert len(name) <= QUOTED_LENGTH_MAX


@given(KEYS, KEYS)
@example("table_lock", "table%5Flock")
@example("x" * 200, "x" * 201)
def test_different_keys_have_different_names(one: str, other: str) -> None:
    assert (quote_lock_key(one) == quote_lock_key(other)) == (one == other)


def test_a_short_key_stays_readable() -> None:
    assert quote_lock_key("city=sf/00000003-0") == "city%3Dsf%2F00000003-0"
