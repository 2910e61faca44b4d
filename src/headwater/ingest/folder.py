"""Files of a folder, each taken once.

Names that begin with `_` or `.` are left alone, and so is all below such a folder: they are of
whoever is still writing. What changes while it is read is left for later; what changes after it was
taken is said, and not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from types import MappingProxyType
from typing import Any, BinaryIO, cast

import pyarrow as pa

from headwater.errors import InvalidInputError, NotFoundError
from headwater.ingest.bad_rows import WHOLE_FILE, BadRow, BadRows
from headwater.ingest.checkpoint import Note
from headwater.ingest.formats.avro_rows import read_avro
from headwater.ingest.formats.csv_rows import read_csv
from headwater.ingest.formats.json_rows import read_json
from headwater.ingest.formats.parquet_rows import read_parquet
from headwater.ingest.formats.reading import Reading
from headwater.ingest.job import FileFormat, FolderSource
from headwater.ingest.rows import SourceRows, reason_of
from headwater.ingest.source import check_same_source
from headwater.ingest.taken_files import TakenFiles, taken_in
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.storage import ObjectInfo, Storage
from headwater.seams.storage_arguments import check_path

_KIND = "folder"
_WARNED_MAX = 5
_READERS: Mapping[FileFormat, Callable[[BinaryIO, Reading], Iterator[SourceRows]]] = (
    MappingProxyType(
        {
            FileFormat.PARQUET: read_parquet,
            FileFormat.JSON: read_json,
            FileFormat.CSV: read_csv,
            FileFormat.AVRO: read_avro,
        }
    )
)
_COMPRESSED = MappingProxyType({".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder that is being read."""

    source: FolderSource
    storage: Storage
    clock: Clock
    columns: pa.Schema
    zone: str = "UTC"
    unsettled: set[str] = field(default_factory=set)
    """Files that changed while they were read."""
    noticed: list[str] = field(default_factory=list)
    """What the last look for files found, for people."""
    known: list[tuple[InstantTime | None, TakenFiles]] = field(default_factory=list)
    """What was taken as of the newest note, and its commit, so that no note is read twice."""

    @property
    def warnings(self) -> Sequence[str]:
        return self.noticed

    def load_schema(self) -> pa.Schema:
        return self.columns

    def next_batch(self, notes: Iterator[Note]) -> FolderBatch | None:
        found = [info for info in self.storage.list_tree("") if self._is_ours(info)]
        listed = [info for info in found if _can_be_named(info.path)]
        taken = self._taken(notes)
        self.noticed[:] = chain(self._notice(listed, taken), _notice_unnamed(found))
        files = chosen_files(
            [info for info in listed if info.path not in self.unsettled],
            taken,
            files_max=self.source.files_max,
            bytes_max=self.source.bytes_max,
            modified_max_ms=self._modified_max_ms(),
        )
        self.unsettled.clear()
        if not files:
            return None
        return FolderBatch(self, tuple(files), tuple(listed), taken)

    def _notice(self, listed: Sequence[ObjectInfo], taken: TakenFiles) -> Iterator[str]:
        if not listed:
            names = ", ".join(self.source.patterns)
            yield f"There is no file {names} in {self.storage.uri}"
        changed = [info.path for info in listed if taken.has_changed(info)]
        if changed:
            yield (
                f"{len(changed)} files have changed since they were taken, and are not read again: "
                f"{_some(changed)}. Give what is new a name of its own"
            )

    def _modified_max_ms(self) -> int | None:
        # Whoever does not ask for an age does not depend on how clocks differ.
        age_ms = self.source.min_age_ms
        return self.clock.now_ms() - age_ms if age_ms else None

    def _taken(self, notes: Iterator[Note]) -> TakenFiles:
        newest = next(notes, None)
        if newest is None:
            return TakenFiles({})
        check_same_source(newest, _KIND, self.storage.uri)
        taken = taken_in(chain([newest], notes), self.known[0] if self.known else None)
        self.known[:] = [(newest.instant, taken)]
        return taken

    def _is_ours(self, info: ObjectInfo) -> bool:
        parts = info.path.split("/")
        if any(part.startswith(("_", ".")) for part in parts):
            return False
        return any(
            fnmatchcase(info.path, pattern) or fnmatchcase(parts[-1], pattern)
            for pattern in self.source.patterns
        )


@dataclass(frozen=True, slots=True)
class FolderBatch:
    """Files that go into one commit."""

    folder: Folder
    files: tuple[ObjectInfo, ...]
    listed: tuple[ObjectInfo, ...]
    taken: TakenFiles

    @property
    def summary(self) -> str:
        size = sum(file.size_bytes for file in self.files)
        return f"{len(self.files)} file{'s' if len(self.files) > 1 else ''}, {size} bytes"

    @property
    def schema(self) -> pa.Schema:
        return self.folder.columns

    @property
    def content(self) -> Mapping[str, Any]:
        _, entries = self.taken.after(self.files, self.listed)
        return {"kind": _KIND, "place": self.folder.storage.uri, **entries}

    def read(self, bad: BadRows) -> Iterator[SourceRows]:
        source = self.folder.source
        for file in self.files:
            reading = Reading(
                origin=file.path,
                columns=self.folder.columns,
                bad=bad,
                zone=self.folder.zone,
                delimiter=source.delimiter,
                has_header=source.has_header,
            )
            try:
                yield from self._read_file(file, reading)
            except NotFoundError:
                self.folder.unsettled.add(file.path)
            except InvalidInputError as error:
                if error.kind is not InvalidInputError.default_kind:
                    raise
                bad.add(BadRow(file.path, WHOLE_FILE, reason_of(error), None))

    def _read_file(self, file: ObjectInfo, reading: Reading) -> Iterator[SourceRows]:
        if not file.size_bytes and self.folder.source.format in (FileFormat.JSON, FileFormat.CSV):
            return
        with closing(self.folder.storage.open_input(file.path, file.size_bytes)) as opened:
            data = _decompressed(opened, file.path)
            yield from _READERS[self.folder.source.format](data, reading)

    def is_unchanged(self) -> bool:
        now = {info.path: info for info in self.folder.storage.list_tree("")}
        changed = [file.path for file in self.files if now.get(file.path) != file]
        self.folder.unsettled.update(changed)
        return not self.folder.unsettled

    def is_overtaken(self) -> bool:
        return False  # `is_unchanged` tells before the commit.


def chosen_files(
    listed: Iterable[ObjectInfo],
    taken: TakenFiles,
    *,
    files_max: int,
    bytes_max: int,
    modified_max_ms: int | None = None,
) -> list[ObjectInfo]:
    """Return the oldest files that were not taken, at least one and as many as a batch may have."""
    new = [
        info
        for info in listed
        if (modified_max_ms is None or info.modified_ms <= modified_max_ms) and not taken.has(info)
    ]
    new.sort(key=lambda info: (info.modified_ms, info.path))
    chosen: list[ObjectInfo] = []
    size_bytes = 0
    for info in new[:files_max]:
        size_bytes += info.size_bytes
        if chosen and size_bytes > bytes_max:
            break
        chosen.append(info)
    return chosen


def _notice_unnamed(found: Iterable[ObjectInfo]) -> Iterator[str]:
    """Say which files are left out for their names: no store, note or table could keep these."""
    names = [ascii(info.path) for info in found if not _can_be_named(info.path)]
    if names:
        yield (
            f"{len(names)} files are not read, as their names hold control characters or are no "
            f"UTF-8: {_some(names)}. Rename them"
        )


def _can_be_named(path: str) -> bool:
    try:
        path.encode()  # Bytes of a name that are no UTF-8 come as halves of characters.
        check_path(path)
    except (UnicodeEncodeError, InvalidInputError):
        return False
    return True


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _WARNED_MAX} more" if len(names) > _WARNED_MAX else ""
    return f"{', '.join(names[:_WARNED_MAX])}{more}"


def _decompressed(opened: BinaryIO, path: str) -> BinaryIO:
    codec = next((codec for ending, codec in _COMPRESSED.items() if path.endswith(ending)), None)
    if codec is None:
        return opened
    return cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(opened, "r"), codec))
