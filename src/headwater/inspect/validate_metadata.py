"""Whether the indexes of a table say what its files say (INV-71).

Every partition of the metadata table that is in use is derived again from the data, with the code
that builds it, and compared. Files are found by listing storage and reading commits, never by
asking the index that is in question. What differs is one of

    missing   the index lacks an entry, so readers and writers that trust it miss rows
    wrong     an entry says what is not so, or the index cannot be read
    stale     an entry names more than there is. Indexes may: readers look at the rows themselves

Statistics are held in memory as the index has them. Of indexes over rows only hashes are, 16 bytes
for each row, so tables of many millions of rows can be validated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import schema_with_meta_columns
from headwater.arrow.time_text import time_text
from headwater.context import TableContext
from headwater.errors import CorruptTableError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.metadata.column_stats import decode_column_stats, stats_column, typed_bounds
from headwater.format.metadata.records import decode_bloom_filters, decode_record_locations
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.metadata.column_ranges import leaf_type
from headwater.metadata.derive import Deriver
from headwater.metadata.files_partition import MetadataFiles
from headwater.metadata.index_keys import xxhash64
from headwater.metadata.partition_kinds import FILES, PartitionKind, kind_of
from headwater.metadata.records import MetadataRecords
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.model.files import BaseFile, DataFile, FileSlice, LogFile
from headwater.model.instant import Action

log = logging.getLogger(__name__)

Hashes: TypeAlias = npt.NDArray[np.uint64]

MISSING = "missing"
WRONG = "wrong"
STALE = "stale"

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("held", pa.string()),
        pa.field("expected", pa.string()),
    ]
)

_TRIES_MAX = 3
"""How often a table that is in use is validated, if there seem to be problems."""

TOLD_MAX = 1_000
"""How many problems of one kind are told for each index. The others are only counted, in the log:
whoever sees a thousand builds the index again."""


def validate_metadata(table: TableContext) -> pa.Table:
    """Return how the indexes differ from the data: one row for each entry, none if they are right.

    The table may be in use: what others do meanwhile is no problem of an index.

    Raises:
        CorruptTableError: the table itself, not an index of it, is damaged.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    for _ in range(_TRIES_MAX):
        view = load_listed_view(table.storage, table.config)
        metadata = load_metadata_table(table.storage, table.config, view.timeline)
        if not metadata.usable:
            return SCHEMA.empty_table()
        deriver = Deriver(
            table=table,
            storage=table.storage,
            schema=view.schema(),
            definitions=metadata.definitions,
        )
        found = _validate(metadata, view, deriver)
        # A clean may have deleted files that were looked at, and a compaction of the metadata table
        # may have taken in what a later commit told.
        timeline = table.load_timeline()
        if not found.are_serious or timeline.instants == view.timeline.instants:
            break
    return found.to_table()


def _validate(table: MetadataTable, view: TableView, deriver: Deriver) -> _Problems:
    found = _Problems()
    for partition in sorted(table.usable):
        validate = _VALIDATORS.get(kind_of(partition))
        if validate is None:
            log.warning("index is not validated, its kind is not known here index=%s", partition)
            continue
        try:
            reason = table.is_behind if partition == FILES else table.uncovered(partition)
            if reason is not None:
                found.add(partition, WRONG, "", expected=reason)
            validate(partition, table, view, deriver, found)
        except (CorruptTableError, MalformedAvroError) as error:
            found.add(partition, WRONG, "", held=str(error))
    return found


@dataclass
class _Problems:
    """What was found so far."""

    rows: list[tuple[str, str, str, str | None, str | None]] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def are_serious(self) -> bool:
        return any(problem != STALE for _, problem in self.counts)

    def add(
        self,
        partition: str,
        problem: str,
        key: str,
        *,
        held: str | None = None,
        expected: str | None = None,
    ) -> None:
        count = self.counts[partition, problem] = self.counts.get((partition, problem), 0) + 1
        if count <= TOLD_MAX:
            self.rows.append((partition, key, problem, held, expected))

    def add_keys(self, partition: str, problem: str, keys: pa.StringArray) -> None:
        for key in keys[:TOLD_MAX].to_pylist():
            self.add(partition, problem, key)
        if len(keys) > TOLD_MAX:
            self.counts[partition, problem] += len(keys) - TOLD_MAX

    def to_table(self) -> pa.Table:
        for (partition, problem), count in self.counts.items():
            log.info("index differs index=%s problem=%s count=%s", partition, problem, count)
        columns = list(zip(*self.rows, strict=True)) or [()] * len(SCHEMA)
        return pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)


def _validate_files(
    partition: str, table: MetadataTable, view: TableView, deriver: Deriver, found: _Problems
) -> None:
    files = MetadataFiles(table)
    stored = {file.path: file for file in _stored_files(view)}
    held = {file.path: file for file in files.list_data_files()}
    for path in sorted(stored.keys() - held.keys()):
        found.add(partition, MISSING, path, expected=f"{stored[path].size_bytes} bytes")
    # A clean deletes files before it completes, which takes their entries away.
    is_cleaned = any(instant.action is Action.CLEAN for instant in view.timeline.pending)
    for path in sorted(held.keys() - stored.keys()):
        found.add(partition, STALE if is_cleaned else WRONG, path, expected="no committed file")
    for path in sorted(held.keys() & stored.keys()):
        sizes = held[path].size_bytes, stored[path].size_bytes
        if sizes[0] != sizes[1]:
            found.add(
                partition, WRONG, path, held=f"{sizes[0]} bytes", expected=f"{sizes[1]} bytes"
            )
    partitions = {file.partition for file in stored.values()}
    listed = set(files.list_partitions())
    for name in sorted(partitions - listed):
        found.add(partition, MISSING, name, expected="partition")
    for name in sorted(listed - partitions):
        found.add(partition, STALE, name, held="partition")


def _validate_column_stats(
    partition: str, table: MetadataTable, view: TableView, deriver: Deriver, found: _Problems
) -> None:
    held = _whole(table.read(partition))
    readable = {file.path for one in view.slices() for file in one.files()}
    files = [file for file in _stored_files(view) if not _is_cdc(file)]
    expected_keys = []
    # Files that only past moments need may have been there before the index was.
    for is_required in (True, False):
        some = [file for file in files if (file.path in readable) is is_required]
        for piece in deriver.of_files(partition, _slices_of(some)):
            expected_keys.append(piece.keys)
            _compare_stats(partition, held, piece, deriver, found, is_required=is_required)
    _add_stale(partition, held.keys, expected_keys, found)


def _validate_partition_stats(
    partition: str, table: MetadataTable, view: TableView, deriver: Deriver, found: _Problems
) -> None:
    held = _whole(table.read(partition))
    expected = _whole(deriver.of_files(partition, view.slices()))
    _compare_stats(partition, held, expected, deriver, found, is_required=True)
    _add_stale(partition, held.keys, [expected.keys], found)


def _validate_bloom_filters(
    partition: str, table: MetadataTable, view: TableView, deriver: Deriver, found: _Problems
) -> None:
    expected_keys = []
    readable = {one.base.path for one in view.slices() if one.base is not None}
    bases = [file for file in _stored_files(view) if isinstance(file, BaseFile)]
    for is_required in (True, False):
        some = [file for file in bases if (file.path in readable) is is_required]
        for piece in deriver.of_files(partition, _slices_of(some)):
            expected_keys.append(piece.keys)
            held = table.look_up(partition, piece.keys)
            missing, at = _matched(piece.keys, held.keys)
            if is_required:
                found.add_keys(partition, MISSING, missing)
            known = decode_bloom_filters(held.values)["bloom_filter"].take(at.drop_null())
            ours = decode_bloom_filters(piece.values.filter(at.is_valid()))["bloom_filter"]
            differs = pc.not_equal(known, ours)
            found.add_keys(partition, WRONG, piece.keys.filter(at.is_valid()).filter(differs))
    for one in table.read(partition):
        _add_stale(partition, one.keys, expected_keys, found)


def _validate_record_index(
    partition: str, table: MetadataTable, view: TableView, deriver: Deriver, found: _Problems
) -> None:
    slices = view.slices()
    if not deriver.is_partitioned(partition):
        _validate_locations(partition, table, slices, deriver, found)
        return
    # A key may be in several partitions of the table, so each is looked at alone.
    there = {one.group.partition for one in slices}
    for apart in sorted({*there, *table.data_partitions(partition)}):
        some = [one for one in slices if one.group.partition == apart]
        _validate_locations(partition, table, some, deriver, found, data_partition=apart)


def _validate_locations(
    partition: str,
    table: MetadataTable,
    slices: Sequence[FileSlice],
    deriver: Deriver,
    found: _Problems,
    *,
    data_partition: str | None = None,
) -> None:
    held_keys, held_places = _hashes(
        table.read(partition, data_partition=data_partition), _place_texts
    )
    expected_keys, right = [_no_hashes()], [_no_hashes()]
    suspects: dict[str, set[str]] = {}
    for placed in deriver.live_index_keys(partition, slices):
        keys = xxhash64(placed.index_keys)
        expected_keys.append(keys)
        is_held = _are_among(keys, held_keys)
        found.add_keys(partition, MISSING, placed.index_keys.filter(pa.array(~is_held)))
        place = str(placed.group)
        is_here = _are_among(xxhash64(_with_place(place, placed.index_keys)), held_places)
        right.append(keys[is_here])
        for key in placed.index_keys.filter(pa.array(is_held & ~is_here)).to_pylist():
            suspects.setdefault(key, set()).add(place)
    # A key that the table holds twice is right in either place.
    names = pa.array(list(suspects), pa.string())
    is_right = _are_among(xxhash64(names), np.sort(np.concatenate(right)))
    wrong = names.filter(pa.array(~is_right))
    entries = table.look_up(partition, wrong[:TOLD_MAX], data_partition=data_partition)
    for key, place in zip(entries.keys.to_pylist(), _places(entries).to_pylist(), strict=True):
        expected = ", ".join(sorted(suspects[key]))
        found.add(partition, WRONG, key, held=place, expected=expected)
    held = table.read(partition, data_partition=data_partition)
    _add_stale_hashed(partition, held, np.sort(np.concatenate(expected_keys)), found)


def _validate_secondary_index(
    partition: str, table: MetadataTable, view: TableView, deriver: Deriver, found: _Problems
) -> None:
    held_keys, _ = _hashes(table.read(partition), None)
    expected_keys = [_no_hashes()]
    for placed in deriver.live_index_keys(partition, view.slices()):
        keys = xxhash64(placed.index_keys)
        expected_keys.append(keys)
        is_missing = pa.array(~_are_among(keys, held_keys))
        found.add_keys(partition, MISSING, placed.index_keys.filter(is_missing))
    _add_stale_hashed(
        partition, table.read(partition), np.sort(np.concatenate(expected_keys)), found
    )


_Validator: TypeAlias = Callable[[str, MetadataTable, TableView, Deriver, _Problems], None]

_VALIDATORS: Mapping[PartitionKind, _Validator] = {
    PartitionKind.FILES: _validate_files,
    PartitionKind.COLUMN_STATS: _validate_column_stats,
    PartitionKind.PARTITION_STATS: _validate_partition_stats,
    PartitionKind.BLOOM_FILTERS: _validate_bloom_filters,
    PartitionKind.RECORD_INDEX: _validate_record_index,
    PartitionKind.SECONDARY_INDEX: _validate_secondary_index,
}


def _compare_stats(
    partition: str,
    held: MetadataRecords,
    expected: MetadataRecords,
    deriver: Deriver,
    found: _Problems,
    *,
    is_required: bool,
) -> None:
    """Compare bounds: narrower than the data is wrong, wider is stale.

    Of what has no rows, as deletes leave files and partitions, nothing need be known.
    """
    _, at = _matched(expected.keys, held.keys)
    if is_required:
        counts = decode_column_stats(expected.values)["value_count"].combine_chunks()
        is_missing = pc.and_(at.is_null(), pc.greater(counts, 0))
        found.add_keys(partition, MISSING, expected.keys.filter(is_missing))
    keys = expected.keys.filter(at.is_valid())
    ours = decode_column_stats(expected.values.filter(at.is_valid()))
    known = decode_column_stats(held.values.take(at.drop_null()))
    schema = schema_with_meta_columns(deriver.schema)
    for column in pc.unique(ours["column_name"]).to_pylist():
        kind = leaf_type(schema, column)
        if kind is None:
            continue
        is_meant = pc.equal(ours["column_name"], column)
        some, others = ours.filter(is_meant), known.filter(is_meant)
        names = keys.filter(pa.array(is_meant.to_numpy()))
        (low, high), (held_low, held_high) = typed_bounds(some, kind), typed_bounds(others, kind)
        is_empty = pc.and_(low.is_null(), high.is_null())
        counts = (stats_column(others, name) for name in ("null_count", "value_count"))
        claims_nothing = pc.equal(*counts).fill_null(False)
        narrower = pc.and_(
            pc.invert(is_empty),
            pc.or_(
                _is_narrower(held_low, low, pc.greater, claims_nothing),
                _is_narrower(held_high, high, pc.less, claims_nothing),
            ),
        )
        wider = pc.or_(pc.not_equal(held_low, low), pc.not_equal(held_high, high))
        wider = pc.and_(wider.fill_null(pa.scalar(False)), pc.invert(narrower))
        for problem, mask in ((WRONG, narrower), (STALE, wider)):
            for row in np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()[:TOLD_MAX]:
                name = f"{some['file_name'][row].as_py()} {column}"
                found.add(
                    partition,
                    problem,
                    names[row].as_py(),
                    held=f"{name}: {_shown(held_low[row])} to {_shown(held_high[row])}",
                    expected=f"{name}: {_shown(low[row])} to {_shown(high[row])}",
                )


def _shown(bound: pa.Scalar) -> str:
    try:
        return str(bound)
    except (OverflowError, ValueError):
        return time_text(bound)


def _is_narrower(
    held: pa.Array, expected: pa.Array, is_beyond: Callable[..., Any], claims_nothing: pa.Array
) -> pa.Array:
    """Return where a held bound leaves out data.

    A bound is null for NaN, which leaves nothing out, and where there is no value but nulls.
    """
    is_unknown = pc.and_(expected.is_null(), held.is_valid())
    is_denied = pc.and_(pc.and_(held.is_null(), expected.is_valid()), claims_nothing)
    is_narrower = is_beyond(held, expected).fill_null(False)
    return pc.or_(pc.or_(is_unknown, is_denied), is_narrower)


def _matched(keys: pa.StringArray, held: pa.StringArray) -> tuple[pa.StringArray, pa.Int32Array]:
    """Return the keys that are not held, and where each key is among those held."""
    at = pc.index_in(keys, value_set=held)
    return keys.filter(at.is_null()), at


def _add_stale(
    partition: str, held: pa.StringArray, expected: Sequence[pa.StringArray], found: _Problems
) -> None:
    known = pa.chunked_array(expected, pa.string())
    found.add_keys(partition, STALE, held.filter(pc.invert(pc.is_in(held, value_set=known))))


def _add_stale_hashed(
    partition: str, held: Iterable[MetadataRecords], expected: Hashes, found: _Problems
) -> None:
    for one in held:
        is_stale = ~_are_among(xxhash64(one.keys), expected)
        found.add_keys(partition, STALE, one.keys.filter(pa.array(is_stale)))


def _hashes(
    pieces: Iterable[MetadataRecords], text: Callable[[MetadataRecords], pa.StringArray] | None
) -> tuple[Hashes, Hashes]:
    """Return hashes of all keys, and of another text of the entries, each in order."""
    keys, others = [_no_hashes()], [_no_hashes()]
    for one in pieces:
        keys.append(xxhash64(one.keys))
        if text is not None:
            others.append(xxhash64(text(one)))
    return np.sort(np.concatenate(keys)), np.sort(np.concatenate(others))


def _are_among(hashes: Hashes, ordered: Hashes) -> npt.NDArray[np.bool_]:
    """Return which hashes are among others that are in order."""
    if not len(ordered):
        return np.zeros(len(hashes), np.bool_)
    at = np.searchsorted(ordered, hashes)
    return np.asarray(ordered[np.minimum(at, len(ordered) - 1)] == hashes)


def _places(entries: MetadataRecords) -> pa.StringArray:
    """Return the file group of each record, as groups are written."""
    places = decode_record_locations(entries.values)
    named = pc.binary_join_element_wise(places["partition_path"], places["file_id"], "/")
    # The group of a table without partitions is its file id alone.
    return pc.utf8_ltrim(named, "/").combine_chunks()


def _place_texts(entries: MetadataRecords) -> pa.StringArray:
    return _with_place(_places(entries), entries.keys)


def _with_place(place: str | pa.StringArray, keys: pa.StringArray) -> pa.StringArray:
    """Return one text for a record and where it is."""
    return pc.binary_join_element_wise(place, keys, "\0")


def _no_hashes() -> Hashes:
    return np.zeros(0, np.uint64)


def _whole(pieces: Iterator[MetadataRecords]) -> MetadataRecords:
    parts = [MetadataRecords.none(), *pieces]
    return MetadataRecords(
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        pa.array([], pa.string()),
    )


def _stored_files(view: TableView) -> list[DataFile]:
    """Return every committed file that storage has."""
    files = [file for history in view.histories() for file in history.files]
    return [file for file in files if view.is_stored(file)]


def _slices_of(files: Iterable[DataFile]) -> list[FileSlice]:
    """Return files as slices of their own, for an index that has entries by file."""
    return [
        FileSlice(file.group, file.instant_time, file)
        if isinstance(file, BaseFile)
        else FileSlice(file.group, file.instant_time, None, (file,))
        for file in files
    ]


def _is_cdc(file: DataFile) -> bool:
    return isinstance(file, LogFile) and file.is_cdc
