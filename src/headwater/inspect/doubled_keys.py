"""Record keys that a table has more than once although its index says that they are there once.

Optimistic writers of earlier releases, and those of other engines, may have left such keys: a
look-up finds one of the records, a scan finds all (INV-94). Of every row 16 bytes are held, a hash
of its key and the number of its slice; the keys themselves are read again where hashes meet.

Inserts of tables with a simple or bloom index look nothing up, so there a key may be meant to be
there more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import RECORD_KEY
from headwater.config.table_options import GLOBAL_INDEXES
from headwater.context import TableContext
from headwater.files.ahead import with_files_at_hand
from headwater.kernel.view.table_view import load_listed_view
from headwater.metadata.index_keys import xxhash64
from headwater.model.files import FileSlice
from headwater.slice.reader import SliceReader

Hashes: TypeAlias = npt.NDArray[np.uint64]
Numbers: TypeAlias = npt.NDArray[np.int64]

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
    ]
)


def find_doubled_keys(table: TableContext) -> pa.Table:
    """Return each place of each key that is there more than once, in the order of keys.

    A key counts within its partition, or in the whole table if the index says so. A table without
    record key has none, and in one without meta columns no row says what its key is.

    Raises:
        CorruptTableError: the table is damaged.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    if not table.config.record_key_fields or not table.config.has_meta_fields:
        return SCHEMA.empty_table()
    view = load_listed_view(table.storage, table.config)
    reader = SliceReader.of_table(
        table.storage, table.config, view.schema(), merge_function=table.merge_function
    )
    is_global = table.config.index_type in GLOBAL_INDEXES
    slices = sorted(view.slices(), key=lambda one: one.group)
    at_hand = (
        (one, replace(reader, storage=near))
        for near, one in with_files_at_hand(reader.storage, slices)
    )
    # A key is there once within these.
    scopes = groupby(at_hand, lambda pair: None if is_global else pair[0].group.partition)
    found = [SCHEMA.empty_table(), *(_doubled_in(reader, scope) for _, scope in scopes)]
    return pa.concat_tables(found).sort_by([(name, "ascending") for name in SCHEMA.names[:3]])


def _doubled_in(reader: SliceReader, scope: Iterable[tuple[FileSlice, SliceReader]]) -> pa.Table:
    slices: list[FileSlice] = []
    hashes: list[Hashes] = []
    numbers: list[Numbers] = []
    for one, near in scope:
        for keys in _keys_of(near, one):
            hashes.append(xxhash64(keys))
            numbers.append(np.full(len(keys), len(slices), np.int64))
        slices.append(one)
    if not hashes:
        return SCHEMA.empty_table()
    all_hashes, all_numbers = np.concatenate(hashes), np.concatenate(numbers)
    order = np.argsort(all_hashes, kind="stable")
    ordered = all_hashes[order]
    is_repeated = ordered[1:] == ordered[:-1]
    if not is_repeated.any():
        return SCHEMA.empty_table()
    repeated = np.unique(ordered[1:][is_repeated])
    concerned = np.unique(all_numbers[np.isin(all_hashes, repeated)])
    places = [_places(reader, slices[number], repeated) for number in concerned.tolist()]
    rows = pa.concat_tables(places)
    counts = rows.group_by("key").aggregate([("records", "sum")])
    doubled = counts.filter(pc.greater(counts["records_sum"], 1))["key"]
    return rows.filter(pc.is_in(rows["key"], value_set=doubled))


def _places(reader: SliceReader, one: FileSlice, hashes: Hashes) -> pa.Table:
    """Return the keys of a slice that have one of some hashes, and how often each is there."""
    chunks = [
        keys.filter(pa.array(np.isin(xxhash64(keys), hashes))) for keys in _keys_of(reader, one)
    ]
    counted = pa.chunked_array(chunks, pa.string()).value_counts()
    keys = counted.field("values")
    return pa.table(
        {
            "key": keys,
            "partition": pa.repeat(pa.scalar(one.group.partition), len(keys)),
            "file_id": pa.repeat(pa.scalar(one.group.file_id), len(keys)),
            "records": counted.field("counts"),
        },
        SCHEMA,
    )


def _keys_of(reader: SliceReader, one: FileSlice) -> Iterator[pa.StringArray]:
    with closing(reader.read(one, [RECORD_KEY])) as batches:
        for batch in batches:
            yield batch.column(0).cast(pa.string())
