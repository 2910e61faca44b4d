"""Every block of Python or of commands in README and guides runs; every link leads somewhere.

Those for Spark run in `tests/spark/test_quick_start.py`, in the session that is there.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from tests.support.store_servers import moto_server

from headwater.cli.main import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
STORES = ROOT / "docs" / "guide" / "object-stores.md"
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
BESIDE = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [README, *GUIDES, *BESIDE]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SPARK = "SparkSession"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks_of(*pages: Path) -> list[ParameterSet]:
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}:{number}")
        for page in pages
        for number, block in enumerate(BLOCK.findall(page.read_text()), start=1)
    ]


def test_there_are_blocks_to_run() -> None:
    assert blocks_of(README)
    assert blocks_of(*GUIDES)


@pytest.fixture
def s3_in_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with moto_server() as server:
        server.request("PUT", "/tables")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.host}:{server.port}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.mark.usefixtures("s3_in_environment")
def test_blocks_of_the_guide_to_object_stores_run() -> None:
    """Those about S3, in order; make test-stores has a server for the others too."""
    for block in BLOCK.findall(STORES.read_text()):
        if "az://" not in block:
            exec(compile(block, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    "block",
    [
        one
        for one in blocks_of(README, *(page for page in GUIDES if page != STORES))
        if SPARK not in str(one.values[0])
    ],
)
@pytest.mark.by_default
def test_block_of_a_page_runs(block: str) -> None:
    """Here, because to start Python and to import all of it takes longer than the block."""
    exec(compile(block, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_from_top_to_bottom_and_is_kept_without_output(notebook: Path) -> None:
    cells = [one for one in json.loads(notebook.read_text())["cells"] if one["cell_type"] == "code"]
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells, start=1):
        assert cell["outputs"] == []
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if CONSOLE.search(page.read_text())],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_commands_of_a_page_succeed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a page, in order, in one folder."""
    monkeypatch.chdir(tmp_path)
    for block in CONSOLE.findall(page.read_text()):
        for line in block.splitlines():
            command = line.removeprefix("$ ")
            assert command != line, f"no command: {line}"
            if command.startswith("headwater "):
                assert main(shlex.split(command)[1:]) == 0, command
            else:
                subprocess.run(["sh", "-c", command], check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue  # What lies elsewhere is not ours to keep.
        target = (page.parent / path).resolve() if path else page
        is_dead = not target.exists() or (anchor and anchor not in anchors_of(target))
        dead += [link] if is_dead else []
    assert dead == []


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return what headings are linked by, as GitHub and the site make it."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text(), spans=False), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return frozenset(heading.strip().replace(" ", "-") for heading in plain)


def without_code(text: str, *, spans: bool = True) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text) if spans else text


def test_a_dead_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n\n## Two words, `code`\n\n[a](#two-words-code) [b](#three)\n")
    assert anchors_of(page) == {"one", "two-words-code"}
    with pytest.raises(AssertionError, match="#three"):
        test_links_between_pages_lead_somewhere(page)


def test_the_site_has_every_page() -> None:
    listed = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in GUIDES]
    assert sorted(listed) == sorted(pages)


def test_the_page_on_scale_has_the_tables_of_the_model() -> None:
    model = runpy.run_path(str(ROOT / "benchmarks/scale_model.py"))
    page = (ROOT / "docs/scale.md").read_text()
    tables = model["render"]().split("\n\n")
    assert len(tables) == 2
    assert all(table in page for table in tables)
