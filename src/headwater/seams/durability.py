"""Which names on a disk must outlive a power cut.

All but those that speak of live processes: locks with their tokens, heartbeats, the probe of the
store's clock. A power cut ends the processes that they speak of, so nobody misses them; and they
are written twice in every transaction. Their bytes reach the disk before their names all the same,
so that what does outlive the cut is whole.
"""

from __future__ import annotations

import re

_OF_THE_LIVING = re.compile(
    r"(?:.*/)?\.hoodie/(?:lock(?:\.epoch|\.takeover)?|\.locks/.*|\.heartbeat/.*|\.clock)"
)


def must_outlive_power_cut(path: str) -> bool:
    """Whether a new name has to be on the disk before the write is over."""
    return _OF_THE_LIVING.fullmatch(path) is None
