"""`headwater doctor`: whether this machine can do what the jobs of a table need."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, parse_options
from headwater.cli.exit_codes import PROBLEMS_FOUND
from headwater.cli.output import Format, output_of
from headwater.errors import AlreadyExistsError, HeadwaterError

if TYPE_CHECKING:
    from headwater.seams.storage import Storage

_JAVA_WITHIN_S = 30
_CLOCK_OFF_MS_MAX = 5_000
_PROBE = ".headwater-doctor"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    result: str  # ok, warning or problem.
    detail: str
    remedy: str = ""


def doctor(
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="A folder to keep tables in, or a table.")
    ] = None,
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Check Python, Java, Spark and storage. Exit code 1 if something will not work."""
    import pyarrow as pa

    found = list(_look_around())
    if path is not None:
        found += _look_at_storage(path, parse_options(options))
    rows = [
        {"check": one.check, "result": one.result, "detail": one.detail, "remedy": one.remedy}
        for one in found
    ]
    output_of(output).show_rows(pa.Table.from_pylist(rows), nothing="")
    if any(one.result == "problem" for one in found):
        raise typer.Exit(PROBLEMS_FOUND)


def _look_around() -> Iterator[Finding]:
    # Here, because every command imports this file, and few are this one.
    from importlib.metadata import PackageNotFoundError, version

    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    for package in ("headwater", "pyarrow", "pyspark"):
        try:
            yield Finding(package, "ok", version(package))
        except PackageNotFoundError:
            remedy = f"pip install {package}"
            yield Finding(package, "problem", "is not installed", remedy)
    yield _java()
    yield _worker_python()


def _java() -> Finding:
    import subprocess

    home = os.environ.get("JAVA_HOME")  # noqa: TID251 - what Spark itself will look at
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    remedy = "Install a JDK 17 or newer, or set JAVA_HOME; work on Arrow needs none"
    if not java or not os.path.exists(java):
        return Finding("java", "warning", "not found", remedy)
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", "warning", f"{java}: {error}", remedy)
    lines = (ran.stderr or ran.stdout).strip().splitlines()
    first = lines[0] if lines else "says nothing"
    if ran.returncode:
        return Finding("java", "warning", f"{java}: {first}", remedy)
    quoted = first.split('"')
    major = quoted[1].split(".")[0] if len(quoted) > 1 else ""
    if major.isdigit() and int(major) < 17:
        return Finding("java", "warning", first, remedy)
    return Finding("java", "ok", first)


def _worker_python() -> Finding:
    chosen = os.environ.get("PYSPARK_PYTHON")  # noqa: TID251 - what Spark itself will look at
    if chosen is None:
        return Finding("workers", "ok", "local sessions start their workers with this Python")
    if shutil.which(chosen) is None:
        return Finding(
            "workers",
            "problem",
            f"PYSPARK_PYTHON is {chosen}, which is not there",
            f"Set PYSPARK_PYTHON={sys.executable}, or unset it",
        )
    return Finding("workers", "ok", f"PYSPARK_PYTHON is {chosen}")


def _look_at_storage(path: str, options: dict[str, str]) -> Iterator[Finding]:
    from headwater.config.registry import check_options
    from headwater.seams.open_storage import open_storage

    try:
        storage = open_storage(path, check_options(options).known)
    except HeadwaterError as error:
        yield Finding("storage", "problem", str(error), "Check the address and the options")
        return
    checks: list[tuple[str, Callable[[Storage], Finding]]] = [
        ("list", _can_list),
        ("write once", _can_put_if_absent),
        ("clock", _clock_agrees),
    ]
    absent = _absent_folders(storage)
    try:
        for name, check in checks:
            try:
                yield check(storage)
            except HeadwaterError as error:
                yield Finding(name, "problem", str(error), "Check credentials and permissions")
                return
    finally:
        _forget_probe(storage)
        for folder in absent:
            with suppress(OSError):  # Somebody else has use for it by now.
                folder.rmdir()


def _absent_folders(storage: Storage) -> list[Path]:
    """Return the folders of this machine that a write would create, the deepest first."""
    from headwater.seams.open_storage import is_object_store

    if is_object_store(storage.uri):
        return []
    folder = Path(storage.uri)
    return [one for one in (folder, *folder.parents) if not one.exists()]


def _can_list(storage: Storage) -> Finding:
    from headwater.kernel.table_config import is_table

    storage.list_names("")
    has_table = is_table(storage)
    detail = f"{storage.uri} answers; " + ("a table is there" if has_table else "no table there")
    return Finding("list", "ok", detail)


def _can_put_if_absent(storage: Storage) -> Finding:
    """Two writers must not both create one file; everything rests on that."""
    storage.put_if_absent(_PROBE, b"headwater doctor")
    try:
        storage.put_if_absent(_PROBE, b"headwater doctor, again")
    except AlreadyExistsError:
        return Finding("write once", "ok", "a second creation of one file is refused")
    return Finding(
        "write once",
        "problem",
        "storage let one file be created twice",
        "Use a store with conditional puts, or a newer version of this one",
    )


def _clock_agrees(storage: Storage) -> Finding:
    from headwater.seams.clock import SystemClock

    off = abs(SystemClock().now_ms() - storage.info(_PROBE).modified_ms)
    if off > _CLOCK_OFF_MS_MAX:
        remedy = "Set this machine's clock by NTP: instants are issued by it"
        return Finding("clock", "warning", f"off by {off / 1000:.0f} s from storage", remedy)
    return Finding("clock", "ok", "agrees with storage")


def _forget_probe(storage: Storage) -> None:
    with suppress(HeadwaterError):  # It says so above, or somebody else's doctor was quicker.
        storage.delete(_PROBE)
