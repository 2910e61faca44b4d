"""Six writers of both modes, services and an index build on an S3 server, with faults and kills.

HEADWATER_STORE_CHAOS_MINUTES sets how long; `make chaos-stores` takes ten minutes. Rows are held to
what writers were told, and to hudi-rs; indexes to the files.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hudi import HudiTableBuilder
from tests.stores import store_chaos_job as job
from tests.stores.conftest import BUCKET, Store
from tests.support.faulty_proxy import Action, Fault, Proxy, faulty_proxy

import headwater as hw
from headwater.kernel.layout import METADATA

MINUTES = float(os.environ.get("HEADWATER_STORE_CHAOS_MINUTES", "0.5"))
KINDS = (*(str(number) for number in range(job.WRITERS)), "services", "indexes")
KILL_EVERY_S = 5.0
FAULTS: tuple[dict[str, Any], ...] = (
    {"action": Action.LOSE, "method": "PUT"},
    {"action": Action.RESET},
    {"action": Action.CUT, "method": "GET"},
    {"action": Action.LATE, "method": "PUT", "status": 500, "code": "InternalError"},
    {"action": Action.ANSWER, "status": 500, "code": "InternalError"},
    {"action": Action.ANSWER, "times": 5},
    {
        "action": Action.ANSWER,
        "method": "PUT",
        "status": 409,
        "code": "ConditionalRequestConflict",
    },
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(60 * MINUTES + 1800)]


@pytest.fixture
def proxy(s3_store: Store) -> Iterator[Proxy]:
    endpoint = s3_store.options["headwater.storage.endpoint"]
    with faulty_proxy(int(endpoint.rpartition(":")[2])) as between:
        between.options = {**s3_store.options, "headwater.storage.endpoint": between.endpoint}
        yield between


def test_many_writers_on_a_faulty_store(proxy: Proxy, tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/chaos"
    os.environ["HEADWATER_STORE_OPTIONS"] = json.dumps(proxy.options)
    hw.create_table(
        uri,
        schema="id string, number long",
        record_key="id",
        ordering="number",
        table_type="MERGE_ON_READ",
        buckets=4,
        options=job.options_of("0"),
    )
    chance = random.Random(7)
    with ExitStack() as stack:
        running = {kind: _start(stack, uri, kind, tmp_path) for kind in KINDS}
        ends, kills_at = time.monotonic() + 60 * MINUTES, time.monotonic() + KILL_EVERY_S
        while time.monotonic() < ends:
            proxy.set(*(Fault(skip=chance.randrange(40), **one) for one in _some(chance)))
            time.sleep(0.5)
            for kind, process in running.items():
                assert process.poll() is None, (
                    f"{kind}: {process.communicate()[1].decode()[-4000:]}"
                )
            if time.monotonic() > kills_at:
                kills_at += KILL_EVERY_S
                victim = chance.choice(KINDS)
                running[victim].send_signal(signal.SIGKILL)
                running[victim].communicate()
                running[victim] = _start(stack, uri, victim, tmp_path)
        proxy.set()
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for kind, process in running.items():
            _, problems = process.communicate(timeout=900)
            assert process.returncode in (0, -signal.SIGTERM), (
                f"{kind}: {problems.decode()[-4000:]}"
            )
    table = hw.open_table(uri, job.options_of("0"))
    _settle(table)
    _check_notes(tmp_path)
    found = _check_rows(table, tmp_path)
    assert table.inspect.validate_metadata().num_rows == 0
    assert not table.context.load_timeline().pending
    assert _rows_by_hudi_rs(table, tmp_path / "copy") == found


def _some(chance: random.Random) -> list[dict[str, Any]]:
    return chance.sample(FAULTS, k=2)


def _start(stack: ExitStack, uri: str, kind: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, job.__file__, uri, kind, str(folder / f"{kind}.txt")]
    process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE))
    stack.callback(process.kill)
    return process


def _settle(table: hw.Table) -> None:
    """Let a last process finish what the killed ones left."""
    table.services.rollback_failed_writes(wait=True)
    table.indexes.run()
    while table.services.compact() is not None:
        pass
    for row in table.inspect.timeline().to_pylist():
        if row["action"] == "clustering" and row["state"] in ("requested", "inflight"):
            table.services.cluster(str(row["requested_time"]))
    table.services.clean()
    table.services.archive()


def _check_notes(folder: Path) -> None:
    noted = [
        line for kind in job.WORK for line in (folder / f"{kind}.txt").read_text().splitlines()
    ]
    wrong = [line for line in noted if line not in ("done", "left to another", "failed for now")]
    assert not wrong, "\n".join(wrong[-60:])
    assert "done" in noted


def _check_rows(table: hw.Table, folder: Path) -> dict[str, int]:
    rows = table.read_arrow()
    found = dict(zip(rows["id"].to_pylist(), rows["number"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key is there twice"
    for writer in range(job.WRITERS):
        noted = [int(line) for line in (folder / f"{writer}.txt").read_text().split()]
        assert noted, f"writer {writer} never got through"
        possible: dict[str, set[int]] = {}
        certain: dict[str, int] = {}
        for number in range(noted[-1] + 2):
            for key in job.batch(writer, number)["id"].to_pylist():
                possible.setdefault(key, set()).add(number)
                if number in set(noted):
                    certain[key] = number
        for key, number in certain.items():
            assert found.get(key, -1) >= number, f"{key} of batch {number} was acknowledged"
        mine = {key: number for key, number in found.items() if key.startswith(f"{writer}-")}
        assert all(number in possible[key] for key, number in mine.items())
    return found


def _rows_by_hudi_rs(table: hw.Table, copy: Path) -> dict[str, int]:
    """Read a copy without the metadata table: hudi-rs passes over groups of logs alone with it."""
    for info in table.storage.list_tree(""):
        if not info.path.startswith(METADATA):
            path = copy / info.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(table.storage.read(info.path))
    read = HudiTableBuilder.from_base_uri(str(copy)).build().read()
    return {row["id"]: row["number"] for rows in read for row in rows.to_pylist()}
