"""Fuzzing that follows coverage: inputs that reach new branches of a parser are changed further.

    python -m tests.support.coverage_fuzz [--inputs 40000] [--keep] [PARSER ...]

Each parser runs in a process of its own, with limits on memory and on the time of one input. It
begins with the contents of `parsers` and with its folder of tests/corpus; `--keep` puts there what
reached something new and is small, so that the next run begins where this one ended.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent.parent / "corpus"
KEPT_BYTES_MAX = 2_048
"""Larger inputs tell nothing that a smaller one does not, and the repository keeps them."""
KEPT_MAX = 16
INPUT_SECONDS_MAX = 20
MEMORY_MB_MAX = 2_048
_MODULE = "tests.support.coverage_fuzz"
_RUN = "--run-one"
_DONE = re.compile(r"Done (\d+) runs in")
_COVERED = re.compile(r"cov: (\d+)")


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What became of one parser."""

    parser: str
    inputs: int
    branches: int
    seconds: float
    problem: str | None


def corpus_of(parser: str) -> list[bytes]:
    """Return what earlier runs have kept for a parser."""
    folder = folder_of(parser)
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []


def folder_of(parser: str) -> Path:
    return CORPUS / re.sub(r"\W+", "-", parser).strip("-").lower()


def fuzz(parser: str, inputs: int, *, keeps: bool) -> Fuzzed:
    """Run a parser on so many inputs, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="headwater-fuzz-") as scratch:
        found = Path(scratch, "found")
        found.mkdir()
        _write_seeds(parser, found)
        known = {path.name for path in found.iterdir()}
        command = [sys.executable, "-m", _MODULE, _RUN, parser]
        limits = [
            f"-runs={inputs}",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-rss_limit_mb={MEMORY_MB_MAX}",
            f"-artifact_prefix={scratch}/",
            "-seed=20",
        ]
        began = time.monotonic()
        done = subprocess.run(
            [*command, *limits, str(found)], capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        said = done.stdout + done.stderr
        if keeps:
            _keep(parser, [path for path in found.iterdir() if path.name not in known])
        runs, branches = _DONE.findall(said), _COVERED.findall(said)
        problem = None if done.returncode == 0 else _problem(said, Path(scratch))
        return Fuzzed(
            parser, int(runs[-1]) if runs else 0, int(branches[-1]) if branches else 0, seconds,
            problem,
        )  # fmt: skip


def _write_seeds(parser: str, folder: Path) -> None:
    from tests.support.parsers import PARSERS

    for number, seed in enumerate(PARSERS[parser].seeds):
        Path(folder, f"seed-{number}").write_bytes(seed)
    if folder_of(parser).is_dir():
        for path in folder_of(parser).iterdir():
            shutil.copy(path, folder)


def _keep(parser: str, new: list[Path]) -> None:
    small = sorted((p for p in new if p.stat().st_size <= KEPT_BYTES_MAX), key=lambda p: p.name)
    folder = folder_of(parser)
    folder.mkdir(parents=True, exist_ok=True)
    room = KEPT_MAX - sum(1 for _ in folder.iterdir())
    for path in small[: max(0, room)]:
        shutil.copy(path, folder)


def _problem(said: str, scratch: Path) -> str:
    broken = [path for path in scratch.iterdir() if path.is_file()]
    shown = "; ".join(f"{path.name}: {path.read_bytes()[:200]!r}" for path in broken)
    return f"{shown}\n{said[-3000:]}"


def run_one(parser: str, arguments: list[str]) -> None:
    """Fuzz in this process; does not return."""
    import atheris

    with atheris.instrument_imports(include=["headwater"]):
        from tests.support.parsers import PARSERS, TYPED_ERRORS

    parse = PARSERS[parser].parse

    def try_one(data: bytes) -> None:
        with suppress(*TYPED_ERRORS):
            parse(data)

    atheris.Setup([sys.argv[0], *arguments], try_one)
    atheris.Fuzz()


def main() -> int:
    from tests.support.parsers import PARSERS

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parsers", nargs="*", default=list(PARSERS))
    options.add_argument("--inputs", type=int, default=40_000)
    options.add_argument("--keep", action="store_true")
    given = options.parse_args()
    failed, total = 0, 0
    for parser in given.parsers:
        done = fuzz(parser, given.inputs, keeps=given.keep)
        total += done.inputs
        verdict = "held" if done.problem is None else "BROKE"
        print(
            f"{parser:35} {done.inputs:>9,} inputs {done.branches:>6} branches "
            f"{done.seconds:7.1f} s  {verdict}",
            flush=True,
        )
        if done.problem is not None:
            failed += 1
            print(done.problem, flush=True)
    print(f"{total:,} inputs, {failed} parsers broke")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == [_RUN]:
        run_one(sys.argv[2], sys.argv[3:])
    sys.exit(main())
