"""A real broker of Kafka for tests, from the cache that scripts/get-kafka.sh fills."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.server_processes import (
    CannotRunServer,
    answers,
    find_java,
    free_port,
    is_open,
    running,
)

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater" / "kafka"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PARTITIONS = 3


class Broker:
    """A broker at work."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self._log = log

    @contextmanager
    def producer(self, topic: str) -> Iterator[subprocess.Popen[str]]:
        """Give a process that sends each line of its input; all are sent when the block ends."""
        options = ["--bootstrap-server", self.address, "--topic", topic]
        with self._log.open("wb") as said:
            process = subprocess.Popen(
                [*_java(), "kafka.tools.ConsoleProducer", *options],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert process.stdin is not None
        try:
            yield process
            process.stdin.close()
            assert process.wait() == 0, self._log.read_text()
        finally:
            process.kill()
            process.wait()


def find_package(spark_version: str) -> list[Path]:
    """Return the jars with which Spark reads topics.

    Raises:
        CannotRunServer: they were not fetched.
    """
    jars = sorted((CACHE / f"spark-{spark_version}").glob("*.jar"))
    if not jars:
        raise CannotRunServer(f"scripts/get-kafka.sh has not fetched a package for {spark_version}")
    return jars


@contextmanager
def run_kafka(folder: Path) -> Iterator[Broker]:
    """Run a broker on a free port of loopback, with its data in `folder`.

    Raises:
        CannotRunServer: there is no java, or the broker was not fetched.
    """
    port = free_port()
    config = _config(folder, port, free_port())
    formatted = subprocess.run(
        [*_java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr
    with running([*_java(), "kafka.Kafka", str(config)], folder / "server.log"):
        if not answers(partial(is_open, port)):
            raise CannotRunServer(f"the broker did not start; see {folder}")
        yield Broker(f"127.0.0.1:{port}", folder / "producer.log")


def _java() -> list[str]:
    jars = CACHE / "broker"
    if not jars.is_dir():
        raise CannotRunServer("scripts/get-kafka.sh has not fetched a broker")
    return [find_java(), "-Xmx256m", "-cp", f"{jars}/*"]


def _config(folder: Path, port: int, control_port: int) -> Path:
    folder.mkdir(parents=True)
    config = folder / "server.properties"
    config.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{control_port}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control_port}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={folder / 'data'}\n"
        f"num.partitions={PARTITIONS}\n"
        "offsets.topic.replication.factor=1\n"
    )
    return config
