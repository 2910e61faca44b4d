"""The indexes of a table, and how far each has come, as an Arrow table.

usable      reads may use it
building    a plan is being executed, or was when its process died
planned     a plan waits for somebody to run it
unpublished it is complete, and table config does not say so yet; the next call of any method of
            `t.indexes` does
left over   nobody looks at its files; `t.indexes.drop` or a new plan removes them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import CorruptTableError
from headwater.format.metadata.index_definitions import IndexDefinition
from headwater.kernel.index_definitions import defined_indexes, load_index_definitions
from headwater.kernel.layout import METADATA
from headwater.kernel.table_config import load_table_config, table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.attempts import load_attempt, load_newest_number
from headwater.kernel.txn.index_plan import load_pending_plans, pending_before
from headwater.metadata.partition_files import is_initial_log
from headwater.metadata.services import load_held_back
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.model.files import BaseFile, DataFile, LogFile, parse_data_file
from headwater.model.instant import InstantTime, State
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage

SCHEMA = pa.schema(
    [
        ("index", pa.string()),
        ("state", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("file_groups", pa.int32()),
        ("file_groups_built", pa.int32()),
        ("logs_unfolded", pa.int32()),
        ("plan", pa.string()),
        ("owner", pa.string()),
        ("waits_for", pa.list_(pa.string())),
        ("compaction_waits_for", pa.list_(pa.string())),
        ("problem", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class _Plan:
    time: InstantTime
    state: State
    owner: str | None
    waits_for: tuple[str, ...]


def list_indexes(storage: Storage, clock: Clock) -> pa.Table:
    """Return one row for each index that the table has, builds, or has remains of.

    Raises:
        CorruptTableError: table config or a plan is damaged. Damage of an index, or of what
            defines it, is in its row.
    """
    config = load_table_config(storage, clock)
    layout = table_layout(config)
    timeline = load_active(storage, layout.timeline)
    plans: dict[str, _Plan] = {}
    for time, planned in load_pending_plans(storage, layout.timeline, timeline).items():
        waits_for = tuple(str(instant) for instant in pending_before(timeline, time))
        state = timeline.get(time).state
        plan = _Plan(time, state, _owner_of(storage, time), waits_for)
        plans |= {each.partition: plan for each in planned}
    table = load_metadata_table(storage, config, timeline)
    definitions: Mapping[str, IndexDefinition] = {}
    undefined: dict[str, str] = {}
    try:
        definitions = load_index_definitions(storage, config)
    except CorruptTableError as error:
        undefined = dict.fromkeys(defined_indexes(config), error.message)
    files = _files_by_partition(storage)
    names = {*config.metadata_partitions, *config.metadata_partitions_inflight, *plans, *files}
    held = [str(instant) for instant in load_held_back(storage, layout, timeline, table.timeline)]
    rows = []
    for name in sorted(names):
        found = plans.get(name)
        rows.append(
            {
                "index": name,
                "state": _state(
                    name,
                    found,
                    config.metadata_partitions,
                    config.metadata_partitions_inflight,
                ),
                "columns": _columns(definitions.get(name)),
                **_counts(files.get(name, []), found),
                "plan": None if found is None else found.time,
                "owner": None if found is None else found.owner,
                "waits_for": [] if found is None else list(found.waits_for),
                "compaction_waits_for": held,
                "problem": undefined.get(name) or _problem(table, name, config.metadata_partitions),
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


def _state(
    name: str, plan: _Plan | None, in_use: tuple[str, ...], inflight: tuple[str, ...]
) -> str:
    if plan is not None:
        return "building" if plan.state is State.INFLIGHT else "planned"
    if name in in_use:
        return "usable"
    return "unpublished" if name in inflight else "left over"


def _columns(definition: IndexDefinition | None) -> list[str]:
    return [] if definition is None else list(definition.source_fields)


def _counts(files: list[DataFile], plan: _Plan | None) -> dict[str, int]:
    bases = [file for file in files if isinstance(file, BaseFile)]
    if plan is not None:
        bases = [file for file in bases if file.instant_time == plan.time]
    logs = [file for file in files if isinstance(file, LogFile) and not is_initial_log(file)]
    newest = {file.file_id: file.instant_time for file in sorted(bases, key=_by_time)}
    return {
        "file_groups": len({file.file_id for file in files}),
        "file_groups_built": len(newest),
        # By requested time, so one that completed beside a compaction may be missing here.
        "logs_unfolded": sum(log.instant_time >= newest.get(log.file_id, "") for log in logs),
    }


def _by_time(file: DataFile) -> InstantTime:
    return file.instant_time


def _problem(table: MetadataTable, name: str, in_use: tuple[str, ...]) -> str | None:
    if name not in in_use:
        return None
    try:
        return table.uncovered(name)
    except CorruptTableError as error:
        return error.message


def _files_by_partition(storage: Storage) -> dict[str, list[DataFile]]:
    found: dict[str, list[DataFile]] = {}
    for info in storage.list_tree(METADATA):
        file = parse_data_file(info.path.removeprefix(f"{METADATA}/"), info.size_bytes)
        if file is not None and not file.partition.startswith("."):
            found.setdefault(file.partition, []).append(file)
    return found


def _owner_of(storage: Storage, time: InstantTime) -> str | None:
    number = load_newest_number(storage, time)
    attempt = load_attempt(storage, time, number) if number else None
    return None if attempt is None or attempt.is_released else str(attempt.owner)
