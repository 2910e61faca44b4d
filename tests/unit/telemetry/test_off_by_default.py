"""Who asks for nothing pays for nothing: no module is loaded, and nobody is told anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WRITES = """
import json, sys
import pyarrow as pa
import headwater as hw
from headwater.seams import log_context, meters, spans

calls = []
meters.Measured.__enter__ = lambda _: calls.append("timed")
meters.seconds = lambda: calls.append("clock") or 0.0

t = hw.create_table(sys.argv[1], schema="id string, v long", record_key="id",
                    options={"headwater.storage.fsync": "false"})
t.upsert(pa.table({"id": ["a"], "v": [1]}))
t.services.clean()
print(json.dumps({
    "modules": sorted(sys.modules),
    "calls": calls,
    "listening": meters.is_listening(),
    "span": spans.span("write", {}) is meters.NOTHING,
    "storage": type(t.storage.stored).__name__,
    "subject": log_context.subject().fields(),
}))
"""


def test_a_write_loads_no_listener_and_measures_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    loaded = {name for name in found["modules"] if name.startswith("headwater.telemetry")}
    loaded |= {name for name in found["modules"] if name.partition(".")[0] == "opentelemetry"}
    loaded |= {"headwater.seams.metered_local"} & set(found["modules"])
    assert loaded == set()
    assert found["calls"] == []
    assert found["listening"] is False
    assert found["span"] is True
    assert found["storage"] == "LocalStorage"
    assert found["subject"] == {}
