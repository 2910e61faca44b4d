"""Putting files together by copying their row groups, where no row has to move or change.

That takes base files without logs and with the very same columns, and row groups that are large
enough to be kept as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack

from headwater.arrow.meta_columns import FILE_NAME, RECORD_KEY
from headwater.errors import CorruptTableError, ErrorKind, NotFoundError
from headwater.files.base_files import new_bloom_filter, open_base_file
from headwater.format.parquet.base_file import BaseFileReader, key_entries, without_key_entries
from headwater.format.parquet.columns import codec_name
from headwater.format.parquet.row_group_copy import (
    RawFooter,
    SourceGroup,
    common_entries,
    copy_row_groups,
    read_raw_footer,
)
from headwater.kernel.txn.markers import MarkerKind
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import BaseFile, FileGroupId, FileSlice
from headwater.seams.storage import Storage
from headwater.services.rewrite_files import RewriteJob, RewriteOutput, base_stat

AVRO_SCHEMA = "parquet.avro.schema"


class CopyableFiles:
    """Base files that are open for copying, in their order."""

    def __init__(self, storage: Storage, files: Sequence[BaseFile], stack: ExitStack) -> None:
        self._groups: list[SourceGroup] = []
        self._readers: dict[str, BaseFileReader] = {}
        self._footers: list[RawFooter] = []
        for file in files:
            reader = stack.enter_context(open_base_file(storage, file))
            try:
                source = stack.enter_context(storage.open_input(file.path))
            except NotFoundError as error:
                raise CorruptTableError(
                    f"The base file {storage.uri}/{file.path} of a completed instant does not "
                    "exist. Restore it from a copy",
                    kind=ErrorKind.CORRUPT_BASE_FILE,
                    path=file.path,
                ) from error
            footer = read_raw_footer(source, path=file.path)
            self._readers[file.path] = reader
            self._footers.append(footer)
            self._groups += [
                SourceGroup(source, file.path, footer, number)
                for number in range(len(footer.groups))
            ]

    def fit(self, row_group_rows_min: int) -> bool:
        """Whether they can be copied, and had better be."""
        first, *others = self._footers
        rows = sum(group.row_count for group in self._groups)
        return (
            rows > 0
            and rows >= row_group_rows_min * len(self._groups)
            and all(footer.is_copyable for footer in self._footers)
            and all(footer.columns == first.columns for footer in others)
            and AVRO_SCHEMA in common_entries(self._footers)
        )

    def copy(
        self,
        output: RewriteOutput,
        job: RewriteJob,
        names: Iterator[FileGroupId],
        *,
        file_bytes: int,
    ) -> list[WriteStat]:
        """Write new base files of about so many bytes each."""
        stats = []
        for some in self._portions(file_bytes):
            base = output.base_file(next(names))
            output.announce(base, MarkerKind.CREATE)
            entries = {
                **without_key_entries(common_entries(self._footers)),
                **self._key_entries(job, some),
            }
            with output.storage.open_output(base.path) as sink:
                copied = copy_row_groups(
                    some,
                    sink,
                    constants={FILE_NAME: base.name},
                    entries=entries,
                    codec=codec_name(job.files.compression),
                )
            stats.append(base_stat(base, row_count=copied.row_count, size_bytes=copied.size_bytes))
        return stats

    def _portions(self, file_bytes: int) -> Iterator[list[SourceGroup]]:
        portion: list[SourceGroup] = []
        size = 0
        for group in self._groups:
            # A group goes where it comes nearest to the size.
            if portion and size + group.size_bytes // 2 > file_bytes:
                yield portion
                portion, size = [], 0
            portion.append(group)
            size += group.size_bytes
        yield portion

    def _key_entries(self, job: RewriteJob, groups: Collection[SourceGroup]) -> dict[str, str]:
        """Return what the footer of a new file says of its keys; only a bloom filter needs them."""
        ranges = [self._readers[path].key_range for path in {group.path for group in groups}]
        known = [one for one in ranges if one is not None]
        is_known = len(known) == len(ranges)
        row_count = sum(group.row_count for group in groups)
        bloom = new_bloom_filter(job.config, job.files, row_count)
        if bloom is not None:
            for group in groups:
                reader = self._readers[group.path]
                for batch in reader.iter_batches([RECORD_KEY], row_groups=[group.number]):
                    bloom.add(batch.column(0))
        return key_entries(
            min(low for low, _ in known) if is_known else None,
            max(high for _, high in known) if is_known else None,
            bloom,
        )


def files_to_copy(slices: Collection[FileSlice]) -> list[BaseFile] | None:
    """Return the base files of slices, None if one of them is not all of its slice."""
    files = [one.base for one in slices if one.base is not None and not one.logs]
    is_parquet = all(file.extension == "parquet" for file in files)
    return files if len(files) == len(slices) and is_parquet else None
