"""The index of a table that nobody names: Apache Hudi does not record it.

A bucket index shows in the names of files: a file id begins with the number of its bucket. How many
buckets there are the keys in them tell: a key with hash h lies in bucket h mod n, so n divides h
less the bucket for every key. If exactly one number does that leaves every bucket its place, it is
that one. A name that is a bucket's by chance does not pass.

Every other index only those know who write the table. Buckets that are not all alike, which Hudi
makes by consistent hashing, have files of their own that say so. Nobody may write to them by any
other index: the next job of Hudi's would not find the records, and write them twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headwater.arrow.buckets import list_hashes
from headwater.config.table_options import BUCKET_COUNT, INDEX_TYPE, IndexType
from headwater.context import TableContext
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError
from headwater.files.record_keys import load_record_keys
from headwater.kernel.file_ids import named_bucket
from headwater.kernel.layout import BUCKET_INDEX
from headwater.metadata.view import view_of
from headwater.model.files import DataFile, FileSlice

log = logging.getLogger(__name__)

_FILES_READ_MAX = 16
"""Their keys tell more than enough, unless the table has more buckets than rows."""
_BUCKETS_MAX = 1_000_000


def with_inferred_index(table: TableContext) -> TableContext:
    """Return the table with the index that its files tell, if it needs one and nobody names it.

    Raises:
        InvalidInputError: the files do not tell.
        UnsupportedError: kind UNSUPPORTED_OPTION; see `check_buckets`.
    """
    check_buckets(table)
    config = table.config
    if config.index_type is not None or not config.record_key_fields:
        return table
    if table.buckets_by_files.count is None:
        table.buckets_by_files.count = _count_buckets(table)
    stored = table.stored_config
    return table.with_stored_config(
        replace(stored, index_type=IndexType.BUCKET, bucket_count=table.buckets_by_files.count)
    )


def check_buckets(table: TableContext) -> None:
    """Refuse a table whose buckets are not all alike.

    Raises:
        UnsupportedError: kind UNSUPPORTED_OPTION.
    """
    if table.stored_config.index_type is not None:
        return  # It is one of ours.
    known = table.buckets_by_files
    if known.are_plain is None:
        known.are_plain = not table.storage.list_tree(BUCKET_INDEX)
    if not known.are_plain:
        raise UnsupportedError(
            f"Table {table.config.name} has buckets of consistent hashing, or as many as each "
            f"partition says ({BUCKET_INDEX}), which this release reads but does not write. Leave "
            "its writes and its clustering to Apache Hudi",
            kind=ErrorKind.UNSUPPORTED_OPTION,
            path=BUCKET_INDEX,
        )


def _count_buckets(table: TableContext) -> int:
    """Ask the files: all of their names, and the keys of some."""
    config = table.config
    slices = view_of(table).slices()
    buckets = [named_bucket(one.group.file_id) for one in slices]
    known = [bucket for bucket in buckets if bucket is not None]
    if slices and len(known) == len(slices):
        counts = _bucket_counts(table, slices, known)
        if len(counts) == 1:
            log.info("index told by files table=%s buckets=%d", config.name, counts[0])
            return counts[0]
        if counts or max(known) < _BUCKETS_MAX:
            raise InvalidInputError(
                f"Table {config.name} does not say by which index its records were written. Its "
                f"files are named as those of a bucket index, the largest of which is "
                f"{max(known)}, but not how many buckets there are. Open it with "
                f"{INDEX_TYPE.key}=BUCKET and the {BUCKET_COUNT.key} that its other writers use; "
                "Apache Hudi's default is 256"
            )
    raise InvalidInputError(
        f"Table {config.name} has a record key but does not say by which index its records were "
        f"written. Open it with the option {INDEX_TYPE.key} that its other writers use: Apache "
        "Hudi's default on Spark is SIMPLE; a job that sets GLOBAL_SIMPLE, GLOBAL_BLOOM or a "
        "record index keeps keys unique across partitions"
    )


def _bucket_counts(
    table: TableContext, slices: Sequence[FileSlice], buckets: Sequence[int]
) -> list[int]:
    """Return the numbers of buckets for which every key of some files is where it belongs."""
    files: list[DataFile] = []
    of_files: list[int] = []
    for one, bucket in zip(slices, buckets, strict=True):
        file = one.base or next(iter(one.logs), None)
        if file is not None and len(files) < _FILES_READ_MAX:
            files.append(file)
            of_files.append(bucket)
    gaps = [np.zeros(0, np.int64)]
    for keys, bucket in zip(load_record_keys(table.storage, files), of_files, strict=True):
        if keys is not None:
            hashes = (list_hashes(keys) & np.int32(0x7FFFFFFF)).astype(np.int64)
            gaps.append(hashes - bucket)
    divided = int(np.gcd.reduce(np.abs(np.concatenate(gaps)), initial=0))
    counts = np.arange(max(buckets) + 1, min(divided, _BUCKETS_MAX) + 1)
    return [int(count) for count in counts[divided % counts == 0]]
