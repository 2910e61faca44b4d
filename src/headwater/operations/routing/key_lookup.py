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

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.log_parts import DataPart
from headwater.arrow.meta_columns import RECORD_KEY
from headwater.files.ahead import AHEAD_BYTES_MAX, windows
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.model.files import BaseFile, FileSlice, LogFile
from headwater.operations.routing.indexed_summaries import IndexedSummaries
from headwater.operations.routing.key_summary import (
    NOWHERE,
    KeySummary,
    Positions,
    summary_of_footer,
)
from headwater.seams.byte_cache import ByteCache
from headwater.seams.storage import Storage

Found: TypeAlias = tuple[int, Positions]
"""The number of a slice that holds some keys, and their positions."""


class Search(NamedTuple):
    """Record keys of one partition or of the whole table, each once, and where they may be.

    A key that was inserted more than once may be in several slices.
    """

    keys: pa.StringArray
    slices: Mapping[int, FileSlice]


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
        self._summaries = ByteCache[str, KeySummary](cache_bytes // 2)
        self._keys = ByteCache[str, pa.ChunkedArray](cache_bytes // 2)

    @property
    def storage(self) -> Storage:
        return self._storage

    def find(self, searches: Sequence[Search]) -> list[list[Found]]:
        """Return, for each search, the slices that hold some of its keys.

        Raises:
            CorruptTableError: a file is missing or damaged.
        """
        self._ask_index([one for search in searches for one in search.slices.values()])
        asked = [
            (at, number, one)
            for at, search in enumerate(searches)
            for number, one in search.slices.items()
        ]

        def positions_of(question: tuple[int, int, FileSlice]) -> Positions:
            at, _, one = question
            return self._in_slice(searches[at].keys, one)

        found: list[list[Found]] = [[] for _ in searches]
        # Together, where an answer is waited for; files that are large by themselves, for memory.
        for window in windows(asked, [one.size_bytes for _, _, one in asked], AHEAD_BYTES_MAX):
            answers = self._storage.at_once(positions_of, window)
            for (at, number, _), positions in zip(window, answers, strict=True):
                if len(positions):
                    found[at].append((number, positions))
        return found

    def _in_slice(self, keys: pa.StringArray, file_slice: FileSlice) -> Positions:
        logs = file_slice.logs_of_other_keys
        positions = self._in_logs(keys, logs) if logs else NOWHERE
        if file_slice.base is None:
            return positions
        in_base = self._in_base_file(keys, file_slice.base)
        return np.union1d(positions, in_base) if len(positions) else in_base

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
