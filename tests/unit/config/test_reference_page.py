"""The reference page is made from the declarations, and must not be older than they are."""

from __future__ import annotations

from pathlib import Path

from headwater.config.reference import render
from headwater.config.registry import ALL_OPTIONS
from headwater.config.source import SOURCE_OPTIONS
from headwater.config.unsupported import UNSUPPORTED_OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "options.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "run: python -m headwater.config.reference > docs/reference/options.md"
    )


def test_every_option_has_its_row() -> None:
    page = render()
    for option in (*ALL_OPTIONS, *SOURCE_OPTIONS):
        assert f"| `{option.key}` |" in page
        assert all(f"`{alias}`" in page for alias in option.aliases)
    for refused in UNSUPPORTED_OPTIONS:
        assert f"| `{refused.key}` |" in page
