"""One Spark session for the whole run: local, or on a standalone cluster of two workers.

HEADWATER_TEST_SPARK=standalone starts a master and two workers on the loopback interface. The same
session serves Spark Connect, where the packages for it are installed.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import StatusTracker, cloudpickle
from pyspark.sql import SparkSession
from tests.support.server_processes import free_port

ROOT = Path(__file__).resolve().parents[2]

LOCAL_MASTER = "local[2,2]"
"""Two cores, and a task may fail once."""

SESSION_ZONE = "America/New_York"
"""Not UTC, so that a zone that is lost shows."""

CONNECT_PACKAGES = ("grpc", "grpc_status", "google.rpc", "pandas", "zstandard")
CONNECT_PORT = "spark.connect.grpc.binding.port"
STARTED_WITHIN_S = 600
STOPPED_WITHIN_S = 60
TOLD_WITHIN_MS = 600_000

_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            # PySpark leaves the sockets it collects results through to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collect PySpark's sockets here, and not during a test that knows nothing of them."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with ExitStack() as stack:
        kind = os.environ.get("HEADWATER_TEST_SPARK", "local")
        master = LOCAL_MASTER if kind == "local" else stack.enter_context(_cluster(folder))
        # Workers run this interpreter, which has our packages; a path on the cluster otherwise.
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_HOME", str(_home_without_archive(folder)))
        # Workers of a cluster start in folders of their own, where nobody finds the tests by name.
        tests = sys.modules[__name__.rpartition(".")[0]]
        cloudpickle.register_pickle_by_value(tests)  # type: ignore[no-untyped-call]
        stack.callback(cloudpickle.unregister_pickle_by_value, tests)
        session = _session(master, folder)
        stack.callback(session.stop)
        yield session


@pytest.fixture
def job_status(spark: SparkSession) -> Callable[[], StatusTracker]:
    """Return a function that gives what Spark knows of its jobs, once it knows all."""

    def tell() -> StatusTracker:
        # Events of jobs reach the tracker some time after the jobs have ended.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(TOLD_WITHIN_MS)
        return spark.sparkContext.statusTracker()

    return tell


@pytest.fixture(scope="session")
def connect(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of Spark Connect, served by the session of the run."""
    if not _has_connect():
        pytest.skip('Spark Connect needs pip install "pyspark[connect]"')
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    port = spark.conf.get(CONNECT_PORT)
    session: Any = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    yield session
    session.client.close()


def _has_connect() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in CONNECT_PACKAGES)
    except ModuleNotFoundError:
        return False


def _home_without_archive(folder: Path) -> Path:
    """Make a home of Spark in which workers find no `pyspark.zip`, but the installed package.

    They prefer the archive if there is one, and nothing keeps what was compiled out of an archive:
    each kind of worker, of each session, compiled PySpark again, for one to three seconds.
    """
    home = folder / "home"
    home.mkdir()
    for part in ("bin", "sbin", "jars"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home


def _session(master: str, folder: Path) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .appName("headwater-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", SESSION_ZONE)
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.task.maxFailures", "2")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        # A merge function goes to workers by its name, as a module of users that is installed.
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
    )
    if _has_connect():
        builder = builder.config(
            "spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin"
        ).config(CONNECT_PORT, str(free_port()))
    return builder.getOrCreate()


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """Run a master and two workers of one core each; give the master's address."""
    with ExitStack() as stack:
        master_log = stack.enter_context(
            _daemon(folder, "master", ["master.Master", "--port", "0", "--webui-port", "0"])
        )
        address = _wait_for(master_log, _MASTER_URL)
        size = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
        worker_logs = []
        for name in ("worker-1", "worker-2"):
            place = ["--work-dir", str(folder / name)]
            worker = _daemon(folder, name, ["worker.Worker", *size, *place, address])
            worker_logs.append(stack.enter_context(worker))
        for worker_log in worker_logs:
            _wait_for(worker_log, _REGISTERED)
        yield address


@contextmanager
def _daemon(folder: Path, name: str, arguments: list[str]) -> Iterator[Path]:
    """Run a class of `org.apache.spark.deploy` and give the path of its log."""
    home = Path(pyspark.__file__).parent
    java = Path(os.environ["JAVA_HOME"]) / "bin/java" if "JAVA_HOME" in os.environ else "java"
    main, *rest = arguments
    command = [str(java), "-cp", f"{home}/jars/*", "-Xmx256m"]
    command += [f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *rest]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # An installation by pip does not say so by itself.
        "SPARK_SCALA_VERSION": "2.13",
    }
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, pattern: re.Pattern[str]) -> str:
    """Return what a daemon says in its log, in the first group of the pattern if it has one."""
    for _ in range(STARTED_WITHIN_S * 10):
        found = pattern.search(log.read_text(errors="replace"))
        if found is not None:
            return found[found.lastindex or 0]
        time.sleep(0.1)
    pytest.fail(f"{log.name} did not say {pattern.pattern!r}:\n{log.read_text()[-2000:]}")
