"""Dividing work among tasks."""

from __future__ import annotations

from headwater.spark.shares import balanced_shares


def test_shares_are_balanced_and_complete() -> None:
    sizes = [100, 1, 1, 60, 40, 0]
    shares = balanced_shares(sizes, 2, lambda size: size)

    assert sorted(size for share in shares for size in share) == sorted(sizes)
    assert sorted(sum(share) for share in shares) == [101, 101]


def test_no_share_is_empty() -> None:
    assert balanced_shares([0, 0], 5, lambda size: size) == [[0], [0]]
    assert balanced_shares([], 5, lambda size: size) == []
