"""Summaries of the keys of base files from the metadata table, many files at once.

    bloom_filters    the filter over the keys of each base file
    column_stats     the smallest and largest key of each base file

So a write opens only the files that may hold one of its keys. A file without an entry is asked
itself; so are all of them if an entry is damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import RECORD_KEY
from headwater.errors import CorruptTableError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.bloom import MalformedBloomError, parse_bloom_filter
from headwater.format.metadata.column_stats import decode_column_stats, typed_bounds
from headwater.format.metadata.records import decode_bloom_filters
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.metadata.index_keys import bloom_filter_keys, column_stats_keys
from headwater.metadata.partition_kinds import BLOOM_FILTERS, COLUMN_STATS
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.model.files import BaseFile
from headwater.operations.plan import WritePlan
from headwater.operations.routing.key_summary import KeySummary
from headwater.seams.cached import cached_property
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

KeyRange = tuple[str, str]


class IndexedSummaries:
    """Asks the metadata table for one task."""

    def __init__(self, storage: Storage, plan: WritePlan) -> None:
        self._storage = storage
        self._plan = plan
        self._is_trusted = True

    def load(self, files: Sequence[BaseFile]) -> dict[str, KeySummary]:
        """Return the summaries of those of some base files that have a bloom filter, by path."""
        if not files or not self._is_trusted:
            return {}
        partitions = pa.array([file.partition for file in files], pa.string())
        names = pa.array([file.name for file in files], pa.string())
        try:
            found = self._load(partitions, names)
        except (CorruptTableError, MalformedAvroError, MalformedBloomError) as error:
            log.warning("bloom filters not used table=%s reason=%s", self._plan.config.name, error)
            self._is_trusted = False
            return {}
        summaries = zip(files, found, strict=True)
        return {file.path: summary for file, summary in summaries if summary is not None}

    def _load(self, partitions: pa.Array, names: pa.Array) -> list[KeySummary | None]:
        keys = bloom_filter_keys(partitions, names)
        entries = self._table.look_up(BLOOM_FILTERS, keys)
        decoded = decode_bloom_filters(entries.values)
        texts = decoded["bloom_filter"].to_pylist()
        types = decoded["type_code"].to_pylist()
        is_deleted = decoded["is_deleted"].to_pylist()
        ranges = self._load_ranges(partitions, names)
        summaries: list[KeySummary | None] = []
        places = pc.index_in(keys, value_set=entries.keys).to_pylist()
        for at, key_range in zip(places, ranges, strict=True):
            if at is None or is_deleted[at]:
                summaries.append(None)
            else:
                bloom = parse_bloom_filter(texts[at].decode(), types[at])
                summaries.append(KeySummary(None, key_range, bloom))
        return summaries

    def _load_ranges(self, partitions: pa.Array, names: pa.Array) -> list[KeyRange | None]:
        if not self._plan.key_search.has_key_ranges:
            return [None] * len(names)
        columns = pa.repeat(pa.scalar(RECORD_KEY), len(names))
        keys = column_stats_keys(columns, partitions, names)
        entries = self._table.look_up(COLUMN_STATS, keys)
        low, high = typed_bounds(decode_column_stats(entries.values), pa.string())
        at = pc.index_in(keys, value_set=entries.keys)
        bounds = zip(low.take(at).to_pylist(), high.take(at).to_pylist(), strict=True)
        return [None if one is None or last is None else (one, last) for one, last in bounds]

    @cached_property
    def _table(self) -> MetadataTable:
        config = self._plan.config
        timeline = load_active(self._storage, table_layout(config).timeline)
        return load_metadata_table(self._storage, config, timeline)
