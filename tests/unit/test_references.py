"""The reference pages say what the code says, and all of it."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from tests.support.scripts import load_script

import headwater as hw
from headwater.cli.explanations import EXPLANATIONS
from headwater.cli.main import main
from headwater.errors import ErrorKind, HeadwaterError
from headwater.kernel import layout

ROOT = Path(__file__).parents[2]


REFERENCE = load_script(ROOT / "scripts" / "reference.py")


@pytest.mark.parametrize("name", REFERENCE.PAGES)
def test_a_page_is_as_the_code_is(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == REFERENCE.PAGES[name](), "run `make docs`"


def test_every_public_name_is_in_the_api() -> None:
    page = REFERENCE.api_page()
    names = [name for name in hw.__all__ if name not in ("__version__", "ErrorKind", "Retry")]
    assert [name for name in names if name not in page] == []
    undocumented = [
        f"{kind.__name__}.{name}"
        for kind, _ in REFERENCE.CLASSES.values()
        for name, value in REFERENCE._members(kind)
        if inspect.isfunction(value) and not inspect.getdoc(value)
    ]
    assert undocumented == []


def test_every_command_says_what_it_does() -> None:
    commands = list(REFERENCE.commands_of(REFERENCE.app, ("headwater",)))
    assert len(commands) > 30
    assert [words for words, command in commands if not inspect.getdoc(command)] == []


def test_every_kind_of_error_has_a_cause_a_remedy_and_a_class() -> None:
    assert set(EXPLANATIONS) == set(ErrorKind)
    for kind in ErrorKind:
        cls = REFERENCE.class_of(kind)
        assert issubclass(cls, HeadwaterError)
        assert all(text.endswith(".") for text in EXPLANATIONS[kind])


def test_every_path_of_the_layout_is_in_the_list_of_files() -> None:
    paths = [value for name, value in vars(layout).items() if name.isupper()]
    covered = (layout.HOODIE, layout.METADATA_TIMELINE)  # Folders of what is listed.
    listed = " ".join(REFERENCE.FILES)
    assert [path for path in paths if path not in listed and path not in covered] == []


def test_explain_says_cause_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "conflict.early"]) == 0
    assert "announced files of the same file group" in " ".join(capsys.readouterr().out.split())
    assert main(["explain", "conflict.early", "--output", "json"]) == 0
    assert '"remedy"' in capsys.readouterr().out
    assert main(["explain", "no.such"]) == 2
    assert "There is no kind 'no.such'" in capsys.readouterr().err
