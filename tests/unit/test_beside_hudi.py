"""The page of features beside Apache Hudi is made from the marks of its tests."""

from __future__ import annotations

import pytest
from tests.support.beside_hudi import PAGE, QUESTIONS, YES, all_shown, matrix, render, shows


def test_the_page_says_what_tests_show() -> None:
    assert PAGE.read_text() == render(), "run python -m tests.support.beside_hudi"


def test_every_answer_is_one_of_three_kinds() -> None:
    found = list(all_shown())
    assert len(found) > len(matrix()) > 10
    for shown in found:
        kind, _, why = shown.answer.partition(": ")
        assert (kind, bool(why)) in [(YES, False), ("refused", True), ("their limit", True)], shown


def test_of_each_feature_every_question_is_answered() -> None:
    missing = [(name, QUESTIONS.keys() - cells.keys()) for name, cells in matrix().items()]
    assert [one for one in missing if one[1]] == []


def test_a_question_that_nobody_asks_is_refused() -> None:
    with pytest.raises(AssertionError, match="they_like"):
        shows("a feature", they_like=YES)
