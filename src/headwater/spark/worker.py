"""Python workers of Spark: making each task cheap.

A Python task in stock Spark costs about a quarter of a second even in a reused worker: every task
start looks through every archive on the import path again and collects all garbage. So does every
question that Spark asks a data source where it plans and commits. `warm` ends both, once for each
process. It changes how that process imports (an archive replaced in
place is not read again), so `headwater.spark.warm.workers=false` turns it off.
"""

from __future__ import annotations

import gc
import sys
import zipimport

_WARM = "_headwater_is_warm"


def warm() -> None:
    """Prepare this worker process; does nothing the second time."""
    # Spark may load this module anew for each task; the process itself remembers.
    if getattr(sys, _WARM, False):
        return
    setattr(sys, _WARM, True)
    zipimport.zipimporter.invalidate_caches = _keep_caches  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()


def _keep_caches(self: zipimport.zipimporter) -> None:
    """Archives on the import path do not change while a worker lives."""
