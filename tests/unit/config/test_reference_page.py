"""The reference page is made from the declarations, and must not be older than they are."""

from __future__ import annotations

from pathlib import Path

from headwater.config.hudi_keys import load_hudi_keys
from headwater.config.reference import render, render_hudi
from headwater.config.registry import ALL_OPTIONS
from headwater.config.source import SOURCE_OPTIONS

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
PAGE = FOLDER / "options.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "run: python -m headwater.config.reference > docs/reference/options.md"
    )


def test_every_option_has_its_row() -> None:
    page = render()
    for option in (*ALL_OPTIONS, *SOURCE_OPTIONS):
        assert f"| `{option.key}` |" in page
        assert all(f"`{alias}`" in page for alias in option.aliases)


def test_the_page_about_hudi_is_up_to_date_and_has_every_key() -> None:
    page = (FOLDER / "hudi-options.md").read_text(encoding="utf-8")
    assert page == render_hudi(), (
        "run: python -m headwater.config.reference hudi > docs/reference/hudi-options.md"
    )
    for keys in load_hudi_keys().values():
        for key in keys:
            assert f"| `{key.key}`" in page
            assert all(f"`{older}`" in page for older in key.older_names)
