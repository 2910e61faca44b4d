"""Runs suites of the Makefile, and writes down when each one last passed.

    suites.py beside MAKE TARGET...     run targets side by side, each line behind its target
    suites.py all MAKE TARGET...        run them in turn, go on after a failure, list what failed
    suites.py record SUITE COMMAND...   run a command; if it passes, docs/suites.json says so
    suites.py page                      write docs/suites.md again, from docs/suites.json

Only `record` changes files, so that tests leave a checkout as it was unless they are asked to.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "suites.json"
PAGE = ROOT / "docs" / "suites.md"
SLOWEST_COUNT = 10

_PASSED = re.compile(r"\b(\d+) passed|^(\d+) jobs, 0 bad", re.MULTILINE)
_SKIPPED = re.compile(r"\b(\d+) skipped")
_DURATION = re.compile(r"^(\d+\.\d+)s (?:call|setup|teardown) +\S")
# What pytest, the simulator and mypy end with.
_CLOSING = re.compile(
    r"^(=+ )?(no tests ran|\d+ [a-z]+\b.*) in [\d.]+s\b|^\d+ jobs, \d+ bad$"
    r"|^(Success|Found \d+ errors?\b).* source files?\b"
)

Record = Mapping[str, Any]

PAGE_HEAD = """\
# When each suite last passed

`make test-all` writes this page, and so does any target here with `RECORD=1`: only whole suites,
and only when they pass. It is made from [suites.json](suites.json). Times are UTC; a commit with
a + had changes on top that were not committed.

| suite | last passed | commit | passed | skipped | seconds | cores | Python | Spark |
|---|---|---|---:|---:|---:|---:|---|---|
"""


def render_page(records: Mapping[str, Record]) -> str:
    """Return the page that shows the records."""
    return PAGE_HEAD + "".join(
        f"| `make {suite}` | {one['passed_at']} | {one['commit']}{'+' * one['is_changed']} "
        f"| {one['passed']} | {one['skipped']} | {one['seconds']} | {one['cores']} "
        f"| {one['python']} | {one['spark']} |\n"
        for suite, one in sorted(records.items())
    )


def parse_counts(output: Iterable[str]) -> tuple[int, int]:
    """Return how many passed and were skipped, as the closing line of a suite has it."""
    closing = closing_line(output)
    passed = _PASSED.search(closing)
    skipped = _SKIPPED.search(closing)
    return (
        int(next(filter(None, passed.groups()))) if passed else 0,
        int(skipped[1]) if skipped else 0,
    )


def closing_line(output: Iterable[str]) -> str:
    """Return the last line that counts what passed, or nothing."""
    return next((line for line in reversed(list(output)) if _CLOSING.match(line)), "")


def slowest(output: Iterable[str]) -> list[str]:
    """Return the lines about the slowest tests, the slowest first."""
    found = [(float(match[1]), line) for line in output if (match := _DURATION.match(line))]
    return [line for _, line in sorted(found, key=lambda one: -one[0])][:SLOWEST_COUNT]


def add_record(suite: str, record: Record, *, records: Path = RECORDS, page: Path = PAGE) -> None:
    """Put what is known of a suite in the place of what was; suites may end at the same time."""
    with records.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        known[suite] = dict(record)
        file.truncate(0)
        file.write(json.dumps(known, indent=2, sort_keys=True) + "\n")
        file.flush()
        page.write_text(render_page(known))


def load_records(*, records: Path = RECORDS, page: Path = PAGE) -> tuple[dict[str, Record], str]:
    """Return the records and the page as they were at one moment."""
    with records.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        return json.load(file), page.read_text()


def run_beside(make: str, targets: Sequence[str]) -> int:
    """Run targets side by side; every line shows at once, behind the name of its target."""
    width = max(map(len, targets))
    outputs: dict[str, list[str]] = {target: [] for target in targets}
    turn = threading.Lock()

    def show(target: str, running: subprocess.Popen[str]) -> None:
        for line in _lines(running):
            outputs[target].append(line)
            with turn:
                print(f"{target:{width}} | {line}", flush=True)

    running = {target: _start(_make(make, target)) for target in targets}
    threads = [threading.Thread(target=show, args=one, daemon=True) for one in running.items()]
    for thread in threads:
        thread.start()
    codes = {target: process.wait() for target, process in running.items()}
    for thread in threads:
        thread.join()

    print(f"\nThe {SLOWEST_COUNT} slowest tests:")
    print("\n".join(slowest(line for output in outputs.values() for line in output)))
    print()
    for target, code in codes.items():
        verdict = closing_line(outputs[target]).strip("= ") or "said nothing about its tests"
        print(f"{target:{width}}  {'FAILED: ' if code else ''}{verdict}")
    return _code_of(codes.values())


def run_all(make: str, targets: Sequence[str]) -> int:
    """Run targets one after the other, each to be recorded, and list what became of them."""
    width = max(map(len, targets))
    codes, lines = [], []
    for target in targets:
        print(f"\n=== make {target}\n", flush=True)
        began = time.monotonic()
        codes.append(subprocess.run(_make(make, "RECORD=1", target), check=False).returncode)
        verdict = "FAILED" if codes[-1] else "passed"
        lines.append(f"{verdict}  {target:{width}}  {time.monotonic() - began:6.0f} s")
    print("\n" + "\n".join(lines), flush=True)
    return _code_of(codes)


def run_recorded(suite: str, command: Sequence[str]) -> int:
    """Run a command, and record it if it passes."""
    commit, is_changed = _git("rev-parse", "--short=9", "HEAD") or "unknown", _is_changed()
    began = time.monotonic()
    running = _start(command)
    output = _shown(running)
    if running.wait() != 0:
        return _code_of([running.returncode])
    passed, skipped = parse_counts(output)
    if passed == 0:
        # A suite may skip all it has, and says nothing then of the code.
        print(f"{suite} is not recorded: nothing in it passed")
        return 0
    record = {
        "passed_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": commit,
        "is_changed": is_changed,
        "passed": passed,
        "skipped": skipped,
        "seconds": round(time.monotonic() - began),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "spark": importlib.metadata.version("pyspark"),
    }
    add_record(suite, record)
    return 0


def _make(make: str, *arguments: str) -> list[str]:
    return [*shlex.split(make), "--no-print-directory", *arguments]


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    # Make hands its jobs on through open files.
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        close_fds=False,
    )


def _lines(running: subprocess.Popen[str]) -> Iterator[str]:
    assert running.stdout is not None
    with running.stdout as output:
        for line in output:
            yield line.rstrip("\n")


def _shown(running: subprocess.Popen[str]) -> list[str]:
    """Pass on what a command says, within lines as well: of long tests each dot is news."""
    assert running.stdout is not None
    said = []
    with running.stdout as output:
        for piece in iter(lambda: output.read(1), ""):
            said.append(piece)
            print(piece, end="", flush=True)
    return "".join(said).splitlines()


def _code_of(codes: Iterable[int]) -> int:
    return 1 if any(codes) else 0


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def _is_changed() -> bool:
    ours = (f":!{path.relative_to(ROOT)}" for path in (RECORDS, PAGE))
    return bool(_git("status", "--porcelain", "--", ".", *ours))


def main(arguments: Sequence[str]) -> int:
    try:
        match list(arguments):
            case ["beside", make, *targets] if targets:
                return run_beside(make, targets)
            case ["all", make, *targets] if targets:
                return run_all(make, targets)
            case ["record", suite, *command] if command:
                return run_recorded(suite, command)
            case ["page"]:
                PAGE.write_text(render_page(json.loads(RECORDS.read_text())))
                return 0
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except KeyboardInterrupt:
        # The terminal has told all of them; they end by themselves.
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
