"""A real ZooKeeper server for tests, from the jars that come with PySpark."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.server_processes import CannotRunServer, answers, find_java, free_port, running

START_COUNT_MAX = 3
TICK_MS = 200  # The shortest session is two ticks.
SESSION_MS_MAX = 60_000  # Not twenty ticks: a busy machine may be silent for as long.


@contextmanager
def run_zookeeper(folder: Path) -> Iterator[str]:
    """Run a server on a free port of loopback, with its data in `folder`; give its `host:port`.

    Raises:
        CannotRunServer: there is no java, no PySpark, or no ZooKeeper among its jars.
    """
    for attempt in range(START_COUNT_MAX):
        port = free_port()
        place = folder / str(attempt)
        command = _command(place, port)
        with running(command, place / "server.log"):
            # Another process may have taken the port meanwhile; then this server never answers.
            if answers(partial(_is_serving, port)):
                yield f"127.0.0.1:{port}"
                return
    raise CannotRunServer(f"the server did not start; see the logs in {folder}")


def find_spark_jars() -> Path:
    """Return PySpark's folder of jars, without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CannotRunServer("PySpark is not installed")
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob("zookeeper-3*.jar")):
        raise CannotRunServer("there is no ZooKeeper among the jars of PySpark")
    return jars


def _command(folder: Path, port: int) -> list[str]:
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
    return [find_java(), "-Xmx128m", "-cp", f"{find_spark_jars()}/*", main_class, str(config)]


def _is_serving(port: int) -> bool:
    """Ask: the port is open some time before the server serves, and clients would hang there."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"srvr")
        return b"Mode: standalone" in connection.makefile("rb").read()
