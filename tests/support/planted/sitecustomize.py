"""Defects for the demo to find: with this folder on PYTHONPATH every Python process has one.

HEADWATER_PLANTED says which: cancellation, rollback or merge.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np


def plant_in_cancellation() -> None:
    """An executor of a cancelled clustering does not notice, and commits."""
    from headwater.kernel.txn import cancel
    from headwater.kernel.txn.steps import Complete

    cancel.CancelWatch.check = lambda self: None  # type: ignore[method-assign]
    cancel.Cancellations._completion_of = lambda self, time: Complete  # type: ignore[method-assign]


def plant_in_rollback() -> None:
    """A rollback completes without having deleted the files of the write."""
    from headwater.kernel.txn import rollback

    rollback.listed_paths = lambda plan: iter(())  # type: ignore[attr-defined]
    rollback.parse_data_file = lambda path: None  # type: ignore[attr-defined]


def plant_in_merge() -> None:
    """A log wins over its base file, however late it is."""
    from headwater.arrow import merge

    def is_not_less(new: Any, old: Any, count: int) -> Any:
        return np.ones(count, np.bool_)

    merge.is_not_less = is_not_less  # type: ignore[attr-defined]


match os.environ.get("HEADWATER_PLANTED"):
    case "cancellation":
        plant_in_cancellation()
    case "rollback":
        plant_in_rollback()
    case "merge":
        plant_in_merge()
