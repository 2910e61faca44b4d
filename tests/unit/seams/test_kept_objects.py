from __future__ import annotations

from headwater.seams.kept_objects import KeptObjects


def test_what_was_kept_is_found() -> None:
    kept = KeptObjects()
    kept.keep({"a": b"1", "b": b"2"})
    assert kept.find(["b", "c"]) == {"b": b"2"}


def test_what_was_used_last_stays() -> None:
    kept = KeptObjects(bytes_max=4)
    kept.keep({"a": b"11", "b": b"22"})
    kept.find(["a"])
    kept.keep({"c": b"3"})
    assert kept.find("abc") == {"a": b"11", "c": b"3"}


def test_an_object_that_is_kept_again_counts_once() -> None:
    kept = KeptObjects(bytes_max=4)
    for _ in range(3):
        kept.keep({"a": b"11"})
    kept.keep({"b": b"22"})
    assert kept.find("ab") == {"a": b"11", "b": b"22"}


def test_one_that_is_too_large_is_not_kept() -> None:
    kept = KeptObjects(bytes_max=4)
    kept.keep({"a": b"12345"})
    assert kept.find("a") == {}
