"""When this machine was started: what it wrote before that a power cut may have taken."""

from __future__ import annotations

import re
from pathlib import Path

_STARTED = re.compile(r"^btime (\d+)$", re.MULTILINE)
_SYSTEM = Path("/proc/stat")


def started_at_s() -> int | None:
    """When this machine was started, by its clock; None where the system does not say."""
    try:
        found = _STARTED.search(_SYSTEM.read_text())
    except OSError:
        return None
    return None if found is None else int(found[1])
