"""Defects for the demo to find: with this folder on PYTHONPATH every Python process has one.

HEADWATER_PLANTED says which: cancellation, rollback or merge.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np


def plant_in_cancellation() -> None:
    """An executor of a cancelled clustering does not notice, and commits."""
    from headwater.kernel.txn import cancel
    from headwater.kernel.txn.steps import Complete

    plant(cancel.CancelWatch, "check", lambda self: None)
    plant(cancel.Cancellations, "_completion_of", lambda self, time: Complete)


def plant_in_rollback() -> None:
    """A rollback completes without having deleted the files of the write."""
    from headwater.kernel.txn import rollback

    plant(rollback, "listed_paths", lambda plan: [])
    plant(rollback, "own_files", lambda markers, time: [])


def plant_in_merge() -> None:
    """A log wins over its base file, however late it is."""
    from headwater.arrow import merge

    plant(merge, "is_not_less", lambda new, old, count: np.ones(count, np.bool_))


def plant(where: Any, name: str, defect: Callable[..., Any]) -> None:
    assert hasattr(where, name), f"{where} has no {name} any more; plant the defect elsewhere"
    setattr(where, name, defect)


match os.environ.get("HEADWATER_PLANTED"):
    case "cancellation":
        plant_in_cancellation()
    case "rollback":
        plant_in_rollback()
    case "merge":
        plant_in_merge()
