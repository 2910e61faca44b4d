from __future__ import annotations

from headwater.seams.byte_cache import ByteCache


def test_a_full_cache_forgets_what_was_not_used_for_the_longest_time() -> None:
    cache = ByteCache[str, str](10)
    cache.put("a", "A", 4)
    cache.put("b", "B", 4)
    assert cache.get("a") == "A"
    cache.put("c", "C", 4)
    assert [cache.get(name) for name in "abc"] == ["A", None, "C"]
    cache.put("huge", "H", 11)
    assert [cache.get(name) for name in ("a", "c", "huge")] == ["A", "C", None]
    cache.put("a", "AA", 7)
    assert [cache.get(name) for name in "ac"] == ["AA", None]
