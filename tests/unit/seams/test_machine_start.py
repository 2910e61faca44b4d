"""What the system says of its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.seams import machine_start
from headwater.seams.machine_start import started_at_s


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("cpu 1 2\nbtime 1795000000\nprocesses 9\n", 1_795_000_000),
        ("cpu 1 2\n", None),
        (None, None),
    ],
    ids=["it says so", "it does not", "it says nothing at all"],
)
def test_when_the_machine_was_started(
    said: str | None, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "stat"
    if said is not None:
        system.write_text(said)
    monkeypatch.setattr(machine_start, "_SYSTEM", system)
    assert started_at_s() == expected
