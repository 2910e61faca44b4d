"""A real ZooKeeper server for tests, from the jars that come with PySpark."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 60.0
START_COUNT_MAX = 3
# The shell ends the server when its standard input ends: also when the test process was killed.
RUN_UNTIL_INPUT_ENDS = '"$@" & cat > /dev/null; kill -9 $!; wait $!'
TICK_MS = 200  # The shortest session is two ticks.
SESSION_MS_MAX = 60_000  # Not twenty ticks: a busy machine may be silent for as long.


class CannotRunZookeeper(Exception):
    """Something that the server needs is missing on this machine; the message says what."""


@contextmanager
def run_zookeeper(folder: Path) -> Iterator[str]:
    """Run a server on a free port of loopback, with its data in `folder`; give its `host:port`.

    Raises:
        CannotRunZookeeper: there is no java, no PySpark, or no ZooKeeper among its jars.
    """
    java, jars = find_java(), find_spark_jars()
    for attempt in range(START_COUNT_MAX):
        port = _free_port()
        server = _start(java, jars, folder / str(attempt), port)
        try:
            # Another process may have taken the port meanwhile; then this server never answers.
            if _answers(port):
                yield f"127.0.0.1:{port}"
                return
        finally:
            _stop(server)
    raise CannotRunZookeeper(f"the server did not start; see the logs in {folder}")


def find_java() -> str:
    java = shutil.which("java")
    if java is None:
        raise CannotRunZookeeper("there is no java on the path")
    return java


def find_spark_jars() -> Path:
    """Return PySpark's folder of jars, without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CannotRunZookeeper("PySpark is not installed")
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob("zookeeper-3*.jar")):
        raise CannotRunZookeeper("there is no ZooKeeper among the jars of PySpark")
    return jars


def _start(java: str, jars: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    config = folder / "zoo.cfg"
    config.write_text(
        f"dataDir={folder / 'data'}\n"
        "clientPortAddress=127.0.0.1\n"
        f"clientPort={port}\n"
        f"tickTime={TICK_MS}\n"
        f"maxSessionTimeout={SESSION_MS_MAX}\n"
        "admin.enableServer=false\n"
    )
    main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [java, "-Xmx128m", "-cp", f"{jars}/*", main_class, str(config)]
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(
            ["sh", "-c", RUN_UNTIL_INPUT_ENDS, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _answers(port: int) -> bool:
    give_up_s = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < give_up_s:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                # The port is open some time before the server serves; clients would hang there.
                connection.sendall(b"srvr")
                if b"Mode: standalone" in connection.makefile("rb").read():
                    return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.stdin is not None:
        server.stdin.close()
    server.wait(STOP_SECONDS_MAX)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
