"""What tests show of each feature of Apache Hudi's tables, and the page that is made of it.

A test that shows something says so:

    @shows("change logs", we_read=YES, we_write=refused("each write has to leave change logs"))

`docs/reference/beside-hudi.md` is made from these marks: `python -m tests.support.beside_hudi`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

QUESTIONS = {
    "we_read": "we read it",
    "we_write": "we write after Hudi",
    "they_read": "Hudi reads ours",
    "both": "both at once",
}
YES = "yes"
PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "reference" / "beside-hudi.md"


def refused(why: str) -> str:
    """Say that we refuse it, in a sentence."""
    return f"refused: {why}"


def their_limit(what: str) -> str:
    """Say that Hudi itself cannot do it."""
    return f"their limit: {what}"


def shows(feature: str, **answers: str) -> pytest.MarkDecorator:
    """Mark a test with what it shows of a feature, by question."""
    unknown = answers.keys() - QUESTIONS.keys()
    assert not unknown, unknown
    return pytest.mark.shows(feature, **answers)


class Shown(NamedTuple):
    feature: str
    question: str
    answer: str
    test: str


def all_shown() -> Iterator[Shown]:
    """Give what all tests beside Hudi show, in the order of their files."""
    for file in sorted((PROJECT / "tests" / "hudi").glob("test_*.py")):
        module = importlib.import_module(f"tests.hudi.{file.stem}")
        for name, test in vars(module).items():
            for mark in marks_of(test):
                for question, answer in mark.kwargs.items():
                    yield Shown(mark.args[0], question, answer, f"{file.stem}::{name}")


def marks_of(test: Any) -> Iterator[pytest.Mark]:
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "shows":
            yield mark


def matrix() -> Mapping[str, Mapping[str, Shown]]:
    """Return by feature what is answered to each question.

    Raises:
        AssertionError: two tests give two answers.
    """
    found: dict[str, dict[str, Shown]] = {}
    for shown in all_shown():
        cells = found.setdefault(shown.feature, {})
        other = cells.setdefault(shown.question, shown)
        assert other.answer == shown.answer, (other, shown)
    return found


def render() -> str:
    lines = [
        "# Beside Apache Hudi, feature by feature",
        "",
        "Made from the tests of `make test-hudi`, which run Apache Hudi 1.2 itself. Each test is",
        "marked with what it shows (`tests/support/beside_hudi.py` makes this page of the marks).",
        "How to work beside Hudi says [the guide](../guide/from-hudi.md).",
        "",
        f"| feature | {' | '.join(QUESTIONS.values())} |",
        f"|---|{'---|' * len(QUESTIONS)}",
    ]
    found = matrix()
    for feature in sorted(found, key=str.casefold):
        shown = [found[feature].get(question) for question in QUESTIONS]
        cells = ["no test shows it" if one is None else one.answer for one in shown]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    lines += ["", "## The tests", ""]
    for feature in sorted(found, key=str.casefold):
        tests = dict.fromkeys(shown.test for shown in found[feature].values())
        lines.append(f"- {feature}: {', '.join(f'`{test}`' for test in tests)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
