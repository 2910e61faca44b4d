"""Which file slices hold which record keys: the look-up of simple and bloom indexes.

A file is asked in three steps, each dearer than the one before and only for the keys that the one
before left over:

1. the smallest and largest key in its footer;
2. its bloom filter, in a table with a bloom index;
3. its column of record keys.

The first two may come from the metadata table, for all files at once (`indexed_summaries`).

In a table with such an index inserts go to base files only, and logs hold updates of the base file
below them, or of the one before it: those of writes that had begun when a compaction completed may
bring a key back that it has left out (N-172), so they are asked as well. Keys of deletes that were
kept beside the base file are found, too: a record that comes late must meet them (INV-50). A slice
without base file, which another writer may have started as a log, is asked for the keys of its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.log_parts import DataPart
from headwater.arrow.meta_columns import RECORD_KEY
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.model.files import BaseFile, FileSlice, LogFile
from headwater.operations.routing.byte_cache import ByteCache
from headwater.operations.routing.indexed_summaries import IndexedSummaries
from headwater.operations.routing.key_summary import (
    NOWHERE,
    KeySummary,
    Positions,
    summary_of_footer,
)
from headwater.seams.storage import Storage


class KeyLookup:
    """Looks keys up for one task, and remembers what it read of the files within a bound."""

    def __init__(
        self,
        storage: Storage,
        *,
        uses_bloom_filters: bool,
        cache_bytes: int,
        indexed: IndexedSummaries | None = None,
    ) -> None:
        """Make a look-up.

        Args:
            indexed: knows of many files what their footers say, if there is an index to ask.
        """
        self._storage = storage
        self._indexed = indexed
        self._uses_bloom_filters = uses_bloom_filters
        self._summaries = ByteCache[KeySummary](cache_bytes // 2)
        self._keys = ByteCache[pa.ChunkedArray](cache_bytes // 2)

    @property
    def storage(self) -> Storage:
        return self._storage

    def find(
        self, keys: pa.StringArray, slices: Mapping[int, FileSlice]
    ) -> Iterator[tuple[int, Positions]]:
        """Give the number of each slice that holds some of the keys, and their positions.

        Args:
            keys: record keys of one partition, each once. A key that was inserted more than once
                may be in several slices.

        Raises:
            CorruptTableError: a file is missing or damaged.
        """
        self._ask_index(slices.values())
        for number, file_slice in slices.items():
            logs = file_slice.logs_of_other_keys
            positions = self._in_logs(keys, logs) if logs else NOWHERE
            if file_slice.base is not None:
                in_base = self._in_base_file(keys, file_slice.base)
                positions = np.union1d(positions, in_base) if len(positions) else in_base
            if len(positions):
                yield number, positions

    def _ask_index(self, slices: Iterable[FileSlice]) -> None:
        if self._indexed is None:
            return
        bases = (one.base for one in slices)
        unknown = [one for one in bases if one is not None and not self._summaries.get(one.path)]
        for path, summary in self._indexed.load(unknown).items():
            self._summaries.put(path, summary, summary.size_bytes)

    def _in_base_file(self, keys: pa.StringArray, file: BaseFile) -> Positions:
        summary = self._summaries.get(file.path)
        if summary is not None:
            candidates = summary.candidates(keys)
            held = self._keys.get(file.path) if len(candidates) else None
            if not len(candidates) or held is not None:
                return _matching(keys, candidates, held)
        with open_base_file(self._storage, file) as reader:
            if summary is None:
                summary = summary_of_footer(reader, has_bloom=self._uses_bloom_filters)
                self._summaries.put(file.path, summary, summary.size_bytes)
                candidates = summary.candidates(keys)
                if not len(candidates):
                    return NOWHERE
            held = reader.read([RECORD_KEY])[RECORD_KEY]
        self._keys.put(file.path, held, held.nbytes)
        return _matching(keys, candidates, held)

    def _in_logs(self, keys: pa.StringArray, logs: Sequence[LogFile]) -> Positions:
        name = logs[-1].path
        held = self._keys.get(name)
        if held is None:
            parts = read_log_parts(self._storage, logs, columns={RECORD_KEY})
            columns = [
                part.record_keys if isinstance(part, DataPart) else part.ordered_keys
                for part in parts
            ]
            held = pa.chunked_array(columns, pa.string())
            self._keys.put(name, held, held.nbytes)
        return _matching(keys, np.arange(len(keys)), held)


def _matching(
    keys: pa.StringArray, candidates: Positions, held: pa.ChunkedArray | None
) -> Positions:
    """Return the candidates that are among the keys a file holds."""
    if held is None or not len(candidates):
        return NOWHERE
    # The keys of the write are the smaller side, so they become the hash table.
    wanted = keys if len(candidates) == len(keys) else keys.take(pa.array(candidates))
    found = pc.index_in(held.cast(wanted.type), value_set=wanted).drop_null()
    return candidates[np.unique(found.to_numpy()).astype(np.int64)]
