"""What holds for all tests: how far they go, and how Spark is started.

`make test` tries the same examples every time, so that it says the same of the same code. `make
test-more` takes `--hypothesis-profile=long`: others every time, and more of them.
"""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headwater.kernel import new_table

# How long an example takes says nothing of the code: a slow machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Tests of which one example takes long ask for a share of what the profile says.
settings.register_profile("same", PATIENT, derandomize=True, max_examples=25)
settings.register_profile("long", PATIENT, max_examples=500)
settings.load_profile("same")

# A JVM of the tests runs most of its code a few times: to optimise that takes longer than it saves.
# Nobody looks at its pages either. Processes that the tests start get to know it, too.
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'"
    " --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=4 pyspark-shell",
)


# What is imported and collected stays, so the garbage collector has nothing to look for until then.
gc.disable()

# Tests make some hundred thousand small files: in memory, where there is enough, that costs little.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 8 * 1024**3:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most cases of a test that is marked `some(count)` to the long suites.

    The cases that stay are spread evenly over all of them: so the first and the last of a matrix
    are looked at every time, and the rest every night.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("some") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in cases.values():
        marker = same[0].get_closest_marker("some")
        assert marker is not None
        (count,) = marker.args
        last = len(same) - 1
        kept = {round(place * last / max(1, count - 1)) for place in range(count)}
        for place, item in enumerate(same):
            if place not in kept:
                item.add_marker("long")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all that was imported, over and over."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def tables_with_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new tables have no journal, for tests of the lock and of what lies under the journal."""
    monkeypatch.setattr(new_table, "has_journal", lambda _options: False)


@pytest.fixture(autouse=True)
def tables_of_this_run(request: pytest.FixtureRequest) -> None:
    """`make test-locks` lets new tables of all tests have a lock."""
    is_about_default = request.node.get_closest_marker("by_default") is not None
    if os.environ.get("HEADWATER_TEST_TABLES") == "lock" and not is_about_default:
        request.getfixturevalue("tables_with_a_lock")
