"""What a task of a write does: rows in, data files out, one write stat for each file.

Runs wherever the engine runs it, and possibly twice. Every file carries the task's own write token
and is announced by a marker first; what a failed or doubled task left behind is in no returned
stat, so no reader ever takes it for data, and the commit removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby, islice

import numpy as np
import pyarrow as pa

from headwater.arrow.keys import KeyGenerator
from headwater.engine.engine import TaskContext
from headwater.engine.group_buffer import GroupBuffer
from headwater.files.ahead import with_files_at_hand
from headwater.kernel.txn.markers import DirectMarkers, Markers
from headwater.markers.abort_signal import AbortSignal
from headwater.markers.client import MarkerClient
from headwater.markers.detection import detecting_markers
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import FileSlice
from headwater.operations.plan import INSERTS, WritePlan
from headwater.operations.routing.route import GroupKey, Numbers, assign_groups
from headwater.operations.tasks.group_writer import GroupWriter, slices_to_fill
from headwater.operations.tasks.partition_update import PartitionUpdate
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
from headwater.seams.storage import Storage


def execute_write(
    plan: WritePlan, context: TaskContext, batches: Iterator[pa.RecordBatch]
) -> list[WriteStat]:
    """Write the rows of one task.

    Raises:
        InvalidInputError: a key is null or empty, a column is missing or does not fit.
        CorruptTableError: a file to merge with is missing or damaged.
        EarlyConflictError: another writer holds what this one was about to write.
        StorageError: storage failed, or the service that keeps the markers.
    """
    storage = plan.location.open()
    keys = KeyGenerator.from_config(plan.config)
    stats: list[WriteStat] = []
    stop = (
        None
        if plan.announcing.detection is None
        else AbortSignal(storage, SystemClock(), plan.instant_time)
    )
    if stop is not None:
        stop.check()
        batches = stop.watched(batches)
    with ExitStack() as stack:
        markers = stack.enter_context(_markers_of(plan, context, storage))
        buffer = stack.enter_context(GroupBuffer[GroupKey](plan.files.task_memory_bytes))
        for batch in batches:
            buffer.add(*_written_now(plan, *assign_groups(plan, keys, batch)))
        if plan.settles_partitions:
            buffer = stack.enter_context(_settled(plan, storage, keys, buffer))
        read = list(_slices_read(plan, context, buffer.groups))
        near = {one.group: at_hand for at_hand, one in with_files_at_hand(storage, read)}
        writer = GroupWriter(plan, context, storage, markers, keys, stop, near)
        for partition, groups in groupby(buffer.drain(), key=lambda item: item[0].partition):
            numbered = ((group.number, rows) for group, rows in groups)
            stats += writer.write_partition(partition, numbered)
        writer.flush()
    return stats


def _slices_read(
    plan: WritePlan, context: TaskContext, groups: Iterable[GroupKey]
) -> Iterator[FileSlice]:
    """Give the slices that rows of some groups are merged with, and those that new rows fill first.

    Whether they are read is seen later: where rows go to logs, most are not.
    """
    for partition, number in groups:
        if number == INSERTS:
            yield from islice(slices_to_fill(plan, context, partition).values(), 1)
        elif (one := plan.groups.slice_of(partition, number)) is not None:
            yield one


def _written_now(
    plan: WritePlan, rows: pa.RecordBatch, numbers: Numbers, groups: list[GroupKey]
) -> tuple[pa.RecordBatch, Numbers, list[GroupKey]]:
    """Return the rows that are written, of a batch of which a part has been kept."""
    is_written = np.array([plan.is_written(*group) for group in groups], np.bool_)
    if is_written.all():
        return rows, numbers, groups
    is_kept = is_written[numbers]
    return rows.filter(pa.array(is_kept)), numbers[is_kept], groups


@contextmanager
def _settled(
    plan: WritePlan, storage: Storage, keys: KeyGenerator, buffer: GroupBuffer[GroupKey]
) -> Iterator[GroupBuffer[GroupKey]]:
    """Give the rows of a buffer by the groups that they are written to; see `settle`."""
    settler = PartitionUpdate(plan, storage, keys)
    with GroupBuffer[GroupKey](plan.files.task_memory_bytes) as settled:
        for unsettled, rows in buffer.drain():
            for group, some in settler.settle(unsettled, rows):
                for batch in some.to_batches():
                    settled.add(batch, np.zeros(batch.num_rows, np.int64), [group])
        yield settled


@contextmanager
def _markers_of(plan: WritePlan, context: TaskContext, storage: Storage) -> Iterator[Markers]:
    clock, ids = SystemClock(), SystemIds()
    with ExitStack() as stack:
        markers: Markers = DirectMarkers(storage, plan.instant_time)
        if plan.announcing.marker_service is not None:
            markers = stack.enter_context(MarkerClient(plan.announcing.marker_service, clock, ids))
        if plan.announcing.detection is not None:
            name = plan.write_token(context)
            markers = stack.enter_context(
                detecting_markers(
                    plan.announcing.detection, markers, storage, clock, ids, task=name
                )
            )
        yield markers
