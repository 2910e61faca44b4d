"""Rollbacks of ours beside those of real Hudi: the same files, the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.kernel.txn.rollback_plan import (
    decode_rollback_plan,
    listed_paths,
    plan_deletions,
    rollback_metadata,
    rollback_plan,
)
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.service_metadata import RollbackMetadata

BASE = "/opt/data/warehouse/v9_nonpartitioned_rollback_mor"
TARGET = InstantTime("20260403184242950")
ROLLBACK = InstantTime("20260403184259077")
FILE = f"cefd0149-a1ea-4981-abda-34e0b9d9ef12-0_0-33-86_{TARGET}.parquet"
LOGS = [
    f"record_index/.record-index-0005-0_{TARGET}.log.1_6-35-89",
    f"record_index/.record-index-0008-0_{TARGET}.log.1_9-35-90",
    f"column_stats/.col-stats-0001-0_{TARGET}.log.1_1-39-106",
    f"column_stats/.col-stats-0000-0_{TARGET}.log.1_0-39-105",
    f"files/.files-0000-0_{TARGET}.log.1_2-39-107",
]
SYNC_SIZE = 16  # A random marker of that many bytes ends every block.

HudiTable = Callable[[str], Path]


@pytest.fixture
def timeline(hudi_table: HudiTable) -> Path:
    return hudi_table("mor-avro-v9_nonpartitioned_rollback") / ".hoodie/timeline"


@pytest.fixture
def metadata_timeline(hudi_table: HudiTable) -> Path:
    table = hudi_table("mor-avro-v9_nonpartitioned_rollback")
    return table / ".hoodie/metadata/.hoodie/timeline"


def without_sync_marker(data: bytes) -> bytes:
    return data.replace(data[-SYNC_SIZE:], b"")


def test_our_plan_of_the_same_rollback_has_the_same_bytes(timeline: Path) -> None:
    theirs = (timeline / f"{ROLLBACK}.rollback.requested").read_bytes()
    requests = plan_deletions(TARGET, [Marker(FILE, MarkerKind.CREATE)], BASE)
    target = Instant(TARGET, Action.DELTA_COMMIT, State.INFLIGHT)
    ours = encode_record(rollback_plan(target, requests))
    assert without_sync_marker(ours) == without_sync_marker(theirs)


def test_our_metadata_of_the_same_rollback_has_the_same_bytes(timeline: Path) -> None:
    (path,) = timeline.glob(f"{ROLLBACK}_*.rollback")
    theirs = path.read_bytes()
    plan = decode_rollback_plan(
        (timeline / f"{ROLLBACK}.rollback.requested").read_bytes(), path="plan"
    )
    taken_ms = decode_record(RollbackMetadata, theirs, path="metadata").time_taken_in_millis
    ours = encode_record(rollback_metadata(plan, ROLLBACK, taken_ms))
    assert without_sync_marker(ours) == without_sync_marker(theirs)
    assert (timeline / f"{ROLLBACK}.rollback.inflight").read_bytes() == b""


def test_a_plan_with_several_partitions_says_what_hudi_says(metadata_timeline: Path) -> None:
    """Hudi lists files and partitions in the order its tasks came to them, we by path."""
    plan = decode_rollback_plan(
        (metadata_timeline / f"{ROLLBACK}.rollback.requested").read_bytes(), path="plan"
    )
    assert listed_paths(plan) == LOGS
    base = f"{BASE}/.hoodie/metadata"
    ours = plan_deletions(TARGET, [Marker(path, MarkerKind.CREATE) for path in LOGS], base)
    theirs = plan.rollback_requests or ()
    assert ours == tuple(sorted(theirs, key=lambda request: request.files_to_be_deleted))
    (path,) = metadata_timeline.glob(f"{ROLLBACK}_*.rollback")
    done = decode_record(RollbackMetadata, path.read_bytes(), path="metadata")
    assert rollback_metadata(plan, ROLLBACK, done.time_taken_in_millis) == done
