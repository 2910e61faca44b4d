"""A process of Apache Hudi that stands still before one of its changes of a table, for a while.

Hudi's file system is one of ours there, `java/gate`: the local one, which counts what it creates,
renames and deletes below a folder, and waits before the change that is asked for. Reads and
heartbeats go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.compiled_java import compile_java
from tests.support.hudi_peer import Bundle

LOOKS_EVERY_S = 0.005


class HudiGate:
    """What a process with the settings of this gate is told, and tells, by files in a folder."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        """Compile the file system into the folder.

        Raises:
            NoHudiError: there is no compiler for Java.
        """
        self._folder = folder
        self._armed = 0
        compile_java("gate", bundle.spark_jars.glob("hadoop-client-*.jar"), folder)
        self.settings = {
            "spark.driver.extraClassPath": f"{bundle.jar}:{folder}",
            "spark.hadoop.fs.file.impl": "headwater.GatedFileSystem",
            "spark.hadoop.headwater.gate": str(folder),
        }

    @contextmanager
    def before_change(self, table: Path, number: int) -> Iterator[None]:
        """Stand still before the change of this number below a folder, from 0, until `go`."""
        self._armed += 1
        for name in ("stopped", "go", "calls"):
            (self._folder / name).unlink(missing_ok=True)
        (self._folder / "armed").write_text(f"{table}\n{number}\n{self._armed}")
        try:
            yield
        finally:
            self.go()
            (self._folder / "armed").unlink()

    def wait(self, is_over: Callable[[], bool]) -> bool:
        """Wait until it stands still or all is over, and return whether it stands still."""
        while not (self.is_stopped or is_over()):
            time.sleep(LOOKS_EVERY_S)
        return self.is_stopped

    @property
    def is_stopped(self) -> bool:
        return (self._folder / "stopped").exists()

    @property
    def calls(self) -> list[str]:
        """Return the changes so far; the last one is still to be made where it stands still."""
        calls = self._folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def go(self) -> None:
        (self._folder / "go").touch()
