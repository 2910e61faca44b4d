"""Apache Hudi in a process of its own, as a peer for tests and benchmarks.

`make hudi` lays Hudi's bundle for Spark into a folder outside the project, with a file `peer.json`
that names it and the Python interpreter whose Spark fits it. Where that is not there, or
HUDI_SPARK_BUNDLE names a bundle for the Spark of this interpreter, `find_bundle` says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

STOPPED_WITHIN_S = 30


class HudiError(Exception):
    """Hudi failed; the text is its stack trace."""


class HudiEndedError(HudiError):
    """Hudi's process ended, between two calls or in one; the text is the end of its log."""


class NoHudiError(Exception):
    """There is no bundle to run."""


@dataclass(frozen=True)
class Bundle:
    """A jar of Hudi and the interpreter whose Spark it is made for."""

    jar: Path
    python: Path

    @property
    def name(self) -> str:
        return self.jar.stem

    @property
    def spark_jars(self) -> Path:
        """The folder of the jars of the interpreter's Spark."""
        found = "import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / 'jars')"
        told = subprocess.run(
            [self.python, "-c", found], check=True, capture_output=True, text=True
        )
        return Path(told.stdout.strip())


def cache_folder() -> Path:
    """Return where `make hudi` puts what it fetched."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "headwater" / "hudi"


def find_bundle() -> Bundle:
    """Return the bundle to run.

    Raises:
        NoHudiError: none was fetched, or what was named is not there.
    """
    named = os.environ.get("HUDI_SPARK_BUNDLE")
    if named:
        if not Path(named).is_file():
            raise NoHudiError(f"HUDI_SPARK_BUNDLE names {named}, which is no file.")
        return Bundle(Path(named), Path(sys.executable))
    found = cache_folder() / "peer.json"
    if not found.is_file():
        raise NoHudiError(
            "Apache Hudi's bundle for Spark is not here. Run `make hudi`, or set HUDI_SPARK_BUNDLE."
        )
    peer = json.loads(found.read_text())
    return Bundle(Path(peer["jar"]), Path(peer["python"] or sys.executable))


class HudiPeer:
    """A running Spark session with Hudi. Calls block until Hudi has answered.

    Whatever Hudi logs goes to the file `log`. Tests kill the process; whenever that was, a call
    then raises HudiEndedError, and `stop` has nothing left to do but to clean up.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        master: str = "local[2]",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hudi-peer-"))
        self._files = 0
        self.log = self._folder / "log.txt"
        options = [f"{key}={value}" for key, value in (settings or {}).items()]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": str(bundle.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("SPARK_HOME", None)
        script = Path(__file__).with_name("hudi_session.py")
        warehouse = str(self._folder / "warehouse")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(bundle.python), str(script), str(bundle.jar), warehouse, master, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=self._folder,
                text=True,
            )
        try:
            self.spark_version = str(self._answer())
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the session and delete its files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # If it ended before it was asked, the question is still to be sent, and nobody takes it.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(
        self, rows: pa.Table, path: str, options: Mapping[str, str], mode: str = "append"
    ) -> None:
        """Write rows with `format("hudi")`."""
        file = self._new_path()
        pq.write_table(rows, file)
        self._ask("write", rows=str(file), path=path, options=dict(options), mode=mode)

    def read(
        self,
        path: str,
        options: Mapping[str, str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """Read a table with `format("hudi")`."""
        into = self._new_path()
        chosen = None if columns is None else list(columns)
        given = dict(options or {})
        self._ask("read", path=path, into=str(into), options=given, columns=chosen, where=where)
        return pq.read_table(into)

    def sql(self, text: str) -> pa.Table:
        """Run a statement and return its rows."""
        into = self._new_path()
        self._ask("sql", text=text, into=str(into))
        return pq.read_table(into)

    def execute(self, text: str) -> None:
        """Run a statement whose rows nobody wants, such as MERGE INTO."""
        self._ask("sql", text=text)

    def run(self, source: str, **arguments: Any) -> Any:
        """Run Python in Hudi's process with `spark` in reach; return what it leaves in `result`."""
        return self._ask("run", source=source, arguments=arguments)

    def _new_path(self) -> Path:
        self._files += 1
        return self._folder / f"rows-{self._files}.parquet"

    def _ask(self, command: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": command, **fields}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):  # Nothing, or what there was of it when the process ended.
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            raise HudiError(answer["error"])
        return answer["ok"]

    def _ended(self) -> HudiEndedError:
        tail = self.log.read_text(errors="replace")[-4000:]
        return HudiEndedError(f"Hudi's process ended.\n{tail}")
