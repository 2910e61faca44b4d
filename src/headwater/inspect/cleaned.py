"""Which files were cleaned: those that commits list and that are rightly not in storage."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.context import TableContext
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.view.commits import CommitReader
from headwater.model.instant import Action, InstantTime, State
from headwater.model.plans import CleanerPlan
from headwater.model.service_metadata import CleanMetadata


def load_cleaned(table: TableContext, timeline: Timeline, since: InstantTime) -> frozenset[str]:
    """Return the paths that cleans requested since a time have deleted, or may have begun to.

    Raises:
        CorruptTableError: the record of a clean is damaged.
    """
    reader = CommitReader(table.storage, table.layout)
    known = {i.requested_time: i for i in (*reader.history.instants(), *timeline.instants)}
    cleans = [i for i in known.values() if i.action is Action.CLEAN and i.requested_time >= since]
    done = [clean for clean in cleans if clean.is_completed]
    pending = [clean for clean in cleans if clean.is_pending]
    found: set[str] = set()
    for clean, data in zip(done, reader.load_contents(done), strict=True):
        found.update(_deleted(decode_record(CleanMetadata, data, path=str(clean))))
    plans = reader.load_contents(pending, State.REQUESTED)
    for clean, data in zip(pending, plans, strict=True):
        found.update(_planned(decode_record(CleanerPlan, data, path=str(clean))))
    return frozenset(found)


def _deleted(metadata: CleanMetadata) -> Iterator[str]:
    for partition, cleaned in metadata.partition_metadata.items():
        for name in cleaned.success_delete_files:
            yield _path(partition, name)


def _planned(plan: CleanerPlan) -> Iterator[str]:
    for partition, infos in (plan.file_paths_to_be_deleted_per_partition or {}).items():
        for info in infos:
            yield _path(partition, info.file_path or "")


def _path(partition: str, name: str) -> str:
    """Return a path in the table; some engines note the name, others a whole path."""
    short = name.rpartition("/")[2]
    return f"{partition}/{short}" if partition else short
