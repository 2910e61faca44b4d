"""What a task of a clustering does: file slices in, new file groups out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.curves import sorted_positions
from headwater.arrow.fold import Tombstones, concat_tombstones
from headwater.arrow.meta_columns import RECORD_KEY, replace_file_name
from headwater.config.clustering import ClusteringConfig
from headwater.engine.engine import TaskContext
from headwater.kernel.file_ids import generation_file_id, seeded_file_id
from headwater.kernel.txn.markers import MarkerKind
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import FileGroupId, FileSlice
from headwater.operations.plan import bucket_of
from headwater.services.clustering.copy import CopyableFiles, files_to_copy
from headwater.services.rewrite_files import (
    RewriteJob,
    RewriteOutput,
    base_stat,
    put_kept_deletes,
)
from headwater.slice.merged_slice import encoded_schema, open_merged


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringTask:
    """Slices of one partition to rewrite together."""

    job: RewriteJob
    config: ClusteringConfig
    number: int
    """Of the task's group in the plan."""
    slices: tuple[FileSlice, ...]
    output_count: int
    is_bucketed: bool

    def new_groups(self) -> Iterator[FileGroupId]:
        """Give the names of new file groups, the same whenever the task runs."""
        partition = self.slices[0].group.partition
        if self.is_bucketed:
            bucket = bucket_of(self.slices[0].group)
            yield FileGroupId(partition, generation_file_id(bucket, self.job.instant_time))
            return
        for serial in count():
            seed = f"{self.job.instant_time}/{self.job.attempt}/{self.number}/{serial}"
            yield FileGroupId(partition, seeded_file_id(seed))


def execute_clustering_task(context: TaskContext, task: ClusteringTask) -> list[WriteStat]:
    """Write slices anew, as new file groups; idempotent, safe to run twice or on two machines.

    Raises:
        CorruptTableError: a file is missing or damaged.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    output = RewriteOutput(task.job, context)
    files = files_to_copy(task.slices)
    if files is not None and not task.config.sort_columns and not task.is_bucketed:
        with ExitStack() as stack:
            copyable = CopyableFiles(output.storage, files, stack)
            if copyable.fit(task.config.copied_row_group_rows_min):
                return copyable.copy(
                    output, task.job, task.new_groups(), file_bytes=task.config.file_bytes
                )
    return _Rewriting(task, output).run()


class _Rewriting:
    """Rows are decoded, put in order if they are to be, and encoded again."""

    def __init__(self, task: ClusteringTask, output: RewriteOutput) -> None:
        self._task = task
        self._output = output
        self._schema = encoded_schema(output.slice_reader, task.slices)
        self._deletes: list[Tombstones] = []

    def run(self) -> list[WriteStat]:
        config, job = self._task.config, self._task.job
        # All rows at once: sorting needs them, and what is not sorted is one group of files.
        batches = list(self._batches())
        rows = pa.Table.from_batches(batches, self._schema).unify_dictionaries().combine_chunks()
        if config.sort_columns:
            rows = rows.take(sorted_positions(rows, config.sort_columns, config.order))
        deletes = self._kept_deletes(rows)
        per_file = max(1, -(-rows.num_rows // self._task.output_count))
        starts = list(range(0, rows.num_rows, per_file)) or [0] * (deletes is not None)
        groups = [group for group, _ in zip(self._task.new_groups(), starts, strict=False)]
        stats = [
            self._write(group, rows.slice(start, per_file))
            for group, start in zip(groups, starts, strict=True)
        ]
        if deletes is not None:
            stats.append(put_kept_deletes(self._output, job, groups[0], deletes))
        return stats

    def _kept_deletes(self, rows: pa.Table) -> Tombstones | None:
        """Return the deletes that records may still meet.

        A table whose inserts look nothing up may have the record of a deleted key in another file
        group. It was not hidden before, and whatever comes meets it first.
        """
        if not self._deletes:
            return None
        deletes = concat_tombstones(self._deletes)
        keys = rows[RECORD_KEY].cast(pa.string())
        found = deletes.filter(pc.invert(pc.is_in(deletes.record_keys, value_set=keys)))
        return found if len(found.record_keys) else None

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for one in self._task.slices:
            with open_merged(self._output.slice_reader, one, self._schema) as found:
                yield from found.batches
            if len(found.batches.tombstones.record_keys):
                self._deletes.append(found.batches.tombstones)

    def _write(self, group: FileGroupId, rows: pa.Table) -> WriteStat:
        base = self._output.base_file(group)
        written = self._output.write_base(
            base,
            MarkerKind.CREATE,
            [replace_file_name(rows, base.name)],
            row_count_max=rows.num_rows,
        )
        return base_stat(base, row_count=written.row_count, size_bytes=written.size_bytes)
