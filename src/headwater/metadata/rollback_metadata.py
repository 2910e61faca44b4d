"""Which indexes cannot forget an instant that is taken back.

As long as what an instant said lies in logs, deleting its logs and its delta commit takes it back.
Once a base file was made after the instant had completed, by a compaction or by the build of an
index, the base file holds it for good. A log by which a build caught up holds a run of instants, so
that deleting it takes the others of its run away too (N-58). Such an index is dropped before the
instant leaves the data table's timeline, and built again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.config.table import TableConfig
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.metadata.partition_files import is_bootstrap_time, is_catchup_log
from headwater.metadata.partition_kinds import FILES
from headwater.metadata.table import (
    METADATA_TABLE_TIMELINE,
    MetadataTable,
    load_metadata_table,
)
from headwater.model.files import BaseFile, LogFile
from headwater.model.instant import Action, InstantTime, State
from headwater.model.plans import CompactionPlan
from headwater.seams.storage import Storage


def load_partitions_holding(
    storage: Storage, config: TableConfig, timeline: Timeline, times: Iterable[InstantTime]
) -> frozenset[str]:
    """Return the partitions of the metadata table that hold one of the instants for good.

    `storage`, `config` and `timeline` are the data table's. Ask under the table lock, right before
    the instants are withdrawn: a compaction that is planned counts, for it may be executed at any
    moment, and so does an index that is being built.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE.
    """
    names = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    instants = [timeline.find(time) for time in times]
    done = [i.completion_time for i in instants if i is not None and i.completion_time]
    if not names or not done:
        return frozenset()
    table = load_metadata_table(storage, config, timeline)
    # On the metadata table of another engine an instant completes a little earlier than on the
    # data table, so the first of them is looked for by the earlier of the two.
    told = (table.timeline.find(i.requested_time) for i in instants if i is not None)
    first = min([*done, *(i.completion_time for i in told if i is not None and i.completion_time)])
    holding = {name for name in names if _has_made_after(table, name, first)}
    return frozenset(holding | _planned_after(table, first) | table.planned)


def load_indexes_holding(
    storage: Storage, config: TableConfig, timeline: Timeline, time: InstantTime
) -> frozenset[str]:
    """Return the indexes to take out of use because they cannot forget an instant.

    Raises: see `load_partitions_holding`.
    """
    holding = load_partitions_holding(storage, config, timeline, [time])
    if FILES in holding:
        # Without the list of files no other engine looks at the rest.
        return frozenset((*config.metadata_partitions, *config.metadata_partitions_inflight))
    return holding


def _has_made_after(table: MetadataTable, partition: str, completion_time: InstantTime) -> bool:
    """Whether a base file, or the log of a run, was made of what completed at a time or later."""
    files = [
        file
        for file in table.list_files(partition)
        if isinstance(file, BaseFile) or is_catchup_log(file)
    ]
    completed = table.completion_times(files)
    for file in files:
        made = file.instant_time
        if is_bootstrap_time(made):
            made = completed(made) or made
        if isinstance(file, LogFile):
            if (completed(made) or "") >= completion_time:
                return True
        elif made > completion_time:
            return True
    return False


def _planned_after(table: MetadataTable, completion_time: InstantTime) -> frozenset[str]:
    plans = [
        instant
        for instant in table.timeline.pending
        if instant.action is Action.COMPACTION and instant.requested_time > completion_time
    ]
    contents = load_contents(table.storage, METADATA_TABLE_TIMELINE, plans, State.REQUESTED)
    names: set[str] = set()
    for instant, data in zip(plans, contents, strict=True):
        path = instant_path(METADATA_TABLE_TIMELINE, instant, State.REQUESTED)
        plan = decode_record(CompactionPlan, data, path=path)
        names.update(operation.partition_path or "" for operation in plan.operations or ())
    return frozenset(names)
