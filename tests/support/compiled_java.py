"""Java of ours that runs in Apache Hudi's process, compiled when it is needed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support.hudi_peer import NoHudiError

COMPILED_WITHIN_S = 300


def compile_java(name: str, jars: Iterable[Path], folder: Path) -> Path:
    """Compile a folder of `java/`, and return where its classes are.

    Raises:
        NoHudiError: there is no compiler for Java.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise NoHudiError(f"There is no compiler for Java (javac) for {name}.")
    sources = Path(__file__).with_name("java").joinpath(name).rglob("*.java")
    path = ":".join(map(str, jars))
    subprocess.run(
        [compiler, "-d", str(folder), "-cp", path, *map(str, sources)],
        check=True,
        timeout=COMPILED_WITHIN_S,
    )
    return folder
