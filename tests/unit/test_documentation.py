"""Every block of Python or of commands in the README and the guides runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from tests.support.store_servers import moto_server

from headwater.cli.main import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
STORES = ROOT / "docs" / "guide" / "object-stores.md"
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, *GUIDES]
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


@pytest.mark.parametrize("block", blocks_of(*(page for page in GUIDES if page != STORES)))
def test_block_of_a_guide_runs(block: str) -> None:
    """Here, because to start Python and to import all of it takes longer than the block."""
    assert "spark" not in block, "a session needs a process of its own"
    exec(compile(block, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", blocks_of(README))
def test_block_runs(block: str) -> None:
    """In a process of its own: a reader's first lines start and stop Spark as they please.

    The environment is not activated: its interpreter is not the one on the path.
    """
    environment = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    folders = environment["PATH"].split(os.pathsep)
    others = [folder for folder in folders if Path(folder) != Path(sys.executable).parent]
    environment["PATH"] = os.pathsep.join(others)
    ran = subprocess.run(
        [sys.executable, "-c", block], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr


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
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
