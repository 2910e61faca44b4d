"""What a task of a write does: rows in, data files out, one write stat for each file.

Runs wherever the engine runs it, and possibly twice. Every file carries the task's own write token
and is announced by a marker first; what a failed or doubled task left behind is in no returned
stat, so no reader ever takes it for data, and the commit removes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa

from headwater.engine.engine import TaskContext
from headwater.kernel.arrow.keys import KeyGenerator
from headwater.model.commit_metadata import WriteStat
from headwater.operations.group_buffer import GroupBuffer
from headwater.operations.group_writer import GroupWriter
from headwater.operations.plan import WritePlan
from headwater.operations.route import GroupKey, assign_groups
from headwater.seams.open_storage import open_storage


def execute_write(
    plan: WritePlan, context: TaskContext, batches: Iterator[pa.RecordBatch]
) -> list[WriteStat]:
    """Write the rows of one task.

    Raises:
        InvalidInputError: a key is null or empty, a column is missing or does not fit.
        CorruptTableError: a file to merge with is missing or damaged.
        StorageError: storage failed.
    """
    storage = open_storage(plan.storage_uri, plan.storage_options)
    keys = KeyGenerator.from_config(plan.config)
    writer = GroupWriter(plan, context, storage, keys)
    stats: list[WriteStat] = []
    with GroupBuffer[GroupKey](plan.files.task_memory_bytes) as buffer:
        for batch in batches:
            buffer.add(*assign_groups(plan, keys, batch))
        for partition, groups in groupby(buffer.drain(), key=lambda item: item[0].partition):
            numbered = ((group.number, rows) for group, rows in groups)
            stats += writer.write_partition(partition, numbered)
    return stats
