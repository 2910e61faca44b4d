"""Every Python block in the README and the guides runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()), start=1)
]


def test_there_are_blocks_to_run() -> None:
    assert any(page.name == "README.md" and BLOCK.search(page.read_text()) for page in PAGES)


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str) -> None:
    """In a process of its own: a reader's first lines start and stop Spark as they please."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(
        [sys.executable, "-c", block], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
