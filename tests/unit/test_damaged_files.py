"""Whatever happens to one file of a table: rows as they were, or an error of ours; never others.

A table with every kind of file is made once, by every action. Then

* every single bit of a small file of each kind falls over, and it is cut at every length: what is
  read of it is what was written, or an error. `UNNOTICED` has the kinds for which Hudi's format
  leaves no room for a checksum, as `docs/protocol/damage.md` has; `test_flipped_bits` does the same
  with the rows of data files;
* every file is deleted, emptied, and has the content of another of its kind: queries answer as
  before, or fail with an error of ours, and then `fsck` finds something. In the cases of `LOST`
  only `fsck` does.

The short form takes some bits, lengths and files, the long one all.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.memory_storage import MemoryStorage
from tests.support.parsers import PARSERS
from tests.support.record_types import record_type
from tests.support.tables import MOR, columns, rows_of, table_at

import headwater as hw
from headwater.config.files import LogBlockFormat
from headwater.errors import HeadwaterError
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.format.hfile.reader import HFile
from headwater.format.properties import check_table_checksum, parse_properties
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.history.rows import (
    CONTENT_COLUMNS,
    INSTANT_COLUMNS,
    decode_contents,
    decode_instants,
    decode_table,
)
from headwater.kernel.timeline.names import parse_file_name
from headwater.kernel.txn.cancel_records import CancelCount
from headwater.kernel.txn.locks.lock_file import LockFile
from headwater.metadata.log_files import read_metadata_log
from headwater.model.files import BaseFile, LogFile, parse_data_file
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "storage",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.metadata.compact.max.delta.commits": "4",
}
AVRO = {"hoodie.logfile.data.block.format": LogBlockFormat.AVRO.value}
PARTITION = "city=sf"

Read = Callable[[bytes], object]
Answers = dict[str, Any]


@dataclass(frozen=True)
class Damaged:
    """A table in a folder, and what it answered when it was whole."""

    folder: Path
    answers: Answers
    kinds: Mapping[str, list[str]]
    """The files of each kind, relative to the folder."""


def _write(table: Table, number: int) -> None:
    table.upsert(rows(("a", "sf", number, number), (f"k{number % 3}", "sf", number, number)))


def _make(folder: Path) -> Table:
    """Make a table by every action, whose timeline is partly archived."""
    table = table_at(
        folder,
        SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=MOR,
        buckets=1,
        options=OPTIONS,
    ).create()
    for number in range(4):
        _write(table, number)
    table.services.compact()
    table.services.clean()
    table.services.archive()
    table.indexes.create(["column_stats", "record_index"])
    _write(table, 5)
    _write(table, 6)
    table.services.log_compact()
    table.services.cluster()
    saved = table.services.savepoint()
    _write(table, 7)
    table.services.rollback(table.inspect.timeline()["requested_time"].to_pylist()[-1])
    _write(table, 8)
    table.services.restore(saved.instant)
    avro = hw.open_table(folder, {**OPTIONS, **AVRO})
    _write(avro, 9)
    avro.delete(rows(("k0", "sf", 10, 0)))
    _write(table, 11)
    return table


def answers_of(folder: Path) -> Answers:
    """Ask a table in every way that files can answer differently."""
    table = hw.open_table(folder, OPTIONS)
    return {
        "rows": _sorted(table.read_arrow(columns=SCHEMA.names)),
        "by key": _sorted(table.read_arrow(columns=SCHEMA.names, where="id = 'a'")),
        "by range": _sorted(table.read_arrow(columns=SCHEMA.names, where="fare >= 9")),
        "changes": _sorted(table.changes_arrow("0").select(SCHEMA.names)),
    }


def _sorted(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=str)


_KINDS: tuple[tuple[str, str], ...] = (
    (r"\.hoodie/hoodie\.properties", "properties"),
    (r"\.hoodie/timeline/history/manifest_\d+", "manifest"),
    (r"\.hoodie/timeline/history/.*\.parquet", "archived timeline"),
    (r"\.hoodie/timeline/[^/]+", "timeline"),
    (r"\.hoodie/\.index_defs/index\.json", "index definitions"),
    (r"\.hoodie/metadata/\.hoodie/timeline/[^/]+", "timeline of the metadata table"),
    (r"\.hoodie/metadata/\.hoodie/hoodie\.properties", "properties of the metadata table"),
    (r"\.hoodie/metadata/[^.][^/]*/[^/]*\.hfile", "HFile"),
    (r"\.hoodie/metadata/[^.][^/]*/\..*\.log\..*", "log of the metadata table"),
    (r".*/\.hoodie_partition_metadata", "partition metadata"),
    (r"[^/.][^/]*/[^/]*\.parquet", "base file"),
    (r"[^/.][^/]*/\..*\.log\..*", "log file"),
    (r"\.hoodie/\.locks/table_lock\.json", "lock in storage"),
)


def _kind_of(path: str) -> str | None:
    found = next((kind for pattern, kind in _KINDS if re.fullmatch(pattern, path)), None)
    if found in ("timeline", "timeline of the metadata table"):
        parsed = parse_file_name(Path(path).name)
        if parsed is None:
            return None
        found = f"{found}: {parsed.action} {parsed.state}"
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    folder = tmp_path_factory.mktemp("damaged") / "trips"
    _make(folder)
    kinds: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and (kind := _kind_of(name)) is not None:
            kinds[kind].append(name)
    return Damaged(folder, answers_of(folder), kinds)


# Bits and lengths, of what is parsed as a whole.


def _read_properties(data: bytes) -> object:
    properties = parse_properties(data, path="p")
    check_table_checksum(properties, path="p")
    return properties


def _read_archive(data: bytes) -> object:
    instants = decode_instants(decode_table(data, "p", INSTANT_COLUMNS), "p")
    return instants, list(decode_contents(decode_table(data, "p", CONTENT_COLUMNS), "p"))


def _read_hfile(data: bytes) -> object:
    entries = HFile.of_bytes(data, path="p").read_all()
    return entries.keys.to_pylist(), entries.values.to_pylist()


def _read_metadata_log(path: str) -> Read:
    def read(data: bytes) -> object:
        found = read_metadata_log(data, path)
        return [(one.keys.to_pylist(), one.values.to_pylist()) for one in found]

    return read


def _read_data_file(path: str) -> Read:
    file = parse_data_file(path)
    assert file is not None

    def read(data: bytes) -> object:
        storage = MemoryStorage()
        storage.put(path, data)
        if isinstance(file, BaseFile):
            with open_base_file(storage, file) as reader:
                return reader.read().to_pylist()
        assert isinstance(file, LogFile)
        return repr(read_log_parts(storage, [file]))

    return read


def _reader_of(kind: str, path: str) -> Read:
    if kind.startswith("timeline"):
        parsed = parse_file_name(Path(path).name)
        assert parsed is not None
        record = record_type(parsed.action, parsed.state)
        assert record is not None, path
        return lambda data: decode_record(record, data, path=path)
    match kind:
        case "archived timeline":
            return _read_archive
        case "HFile":
            return _read_hfile
        case "log of the metadata table":
            return _read_metadata_log(path)
        case "base file" | "log file":
            return _read_data_file(path)
        case "properties" | "properties of the metadata table":
            return _read_properties
        case _:
            return PARSERS[kind].parse


LOCK_FILE = LockFile(
    owner="o", acquisition="a", token=1, acquired_ms=1, written_ms=1, lease_ms=1, write=1
).encode()
FROM_PARSERS = ("markers", "attempt", "cancel entry", "abort", "cancel count", "epoch")
"""Kinds of files that come and go, so that the table has none when it is quiet."""

NOTHING = (None, CancelCount())
"""What is said of a file that says nothing, and only to be looked at."""

UNNOTICED = {
    "markers": "names of files, one a line, as Hudi reads them",
    "manifest": "JSON of Hudi's; each name and size in it is compared with the file",
    "index definitions": "JSON of Hudi's, whose reader takes no other fields",
}
"""Kinds of which a bit may change what is read in silence, and why."""


def contents_of(whole: Damaged) -> Iterator[tuple[str, bytes, Read]]:
    """Give the smallest file of each kind that is not empty, and how it is read."""
    for kind, paths in whole.kinds.items():
        sized = [(size, path) for path in paths if (size := (whole.folder / path).stat().st_size)]
        if sized:
            path = min(sized)[1]
            yield kind, (whole.folder / path).read_bytes(), _reader_of(kind, path)
    for kind in FROM_PARSERS:
        yield kind, PARSERS[kind].seeds[0], PARSERS[kind].parse
    yield "lock file", LOCK_FILE, PARSERS["lock file"].parse


def silent_bits(data: bytes, read: Read, *, every: int) -> list[int]:
    """Return the bits that change what is read in silence; errors of others are raised."""
    expected = _known(read(data))
    silent = []
    for place in range(0, len(data) * 8, every):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        with suppress(HeadwaterError):
            if _known(read(bytes(damaged))) not in (expected, *NOTHING):
                silent.append(place)
    return silent


def silent_lengths(data: bytes, read: Read, *, every: int) -> list[int]:
    expected = _known(read(data))
    silent = []
    for length in range(0, len(data), every):
        with suppress(HeadwaterError):
            if _known(read(data[:length])) not in (expected, *NOTHING):
                silent.append(length)
    return silent


def _known(value: Any) -> Any:
    """Return a value without the fields that this release does not know and only carries along.

    A name of ours that is damaged, that of the checksum too, becomes such a field.
    """
    carried = ("unknown", "unknown_of_owner")
    names = [name for name in carried if hasattr(value, name)]
    return replace(value, **dict.fromkeys(names, "")) if names else value


_PARTS = 16
"""All of it takes half an hour on a busy machine, so workers share it."""


@pytest.mark.parametrize(
    ("share", "part"),
    [(40, None), *(pytest.param(0, part, marks=pytest.mark.long) for part in range(_PARTS))],
)
def test_no_bit_and_no_length_of_a_file_changes_what_it_says(
    whole: Damaged, share: int, part: int | None
) -> None:
    silent = {}
    step = 1 if part is None else _PARTS
    for kind, data, read in islice(contents_of(whole), part, None, step):
        # Odd, so that every bit of a byte has its turn.
        every = max(1, len(data) * 8 // share) | 1 if share else 1
        bits = silent_bits(data, read, every=every)
        lengths = silent_lengths(data, read, every=max(1, len(data) * 4 // share) if share else 1)
        if (bits or lengths) and kind not in UNNOTICED:
            silent[kind] = (len(data), bits[:5], lengths[:5])
    assert silent == {}


# Whole files, of a table that is asked.


def _swapped(whole: Damaged, kind: str, path: str) -> bytes | None:
    data = (whole.folder / path).read_bytes()
    others = ((whole.folder / one).read_bytes() for one in whole.kinds[kind] if one != path)
    return next((other for other in others if other != data), None)


LOST = {
    r"timeline: (commit|deltacommit|replacecommit) completed .* deleted": "it never completed",
    r"base file .* \d+ bytes": "no byte of a Parquet file says which file it is",
}
"""Damage that changes rows, which readers cannot notice, and how it looks to them."""


def damages(whole: Damaged) -> Iterator[tuple[str, str, bytes | None]]:
    """Give every file with what becomes of it: None is that it is deleted."""
    for kind, paths in whole.kinds.items():
        for path in paths:
            yield kind, path, None
            if (whole.folder / path).stat().st_size:
                yield kind, path, b""
            if (swapped := _swapped(whole, kind, path)) is not None:
                yield kind, path, swapped


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)])
def test_a_file_that_is_lost_or_another_changes_no_rows(
    whole: Damaged, tmp_path: Path, every: int
) -> None:
    folder = tmp_path / "trips"
    shutil.copytree(whole.folder, folder)
    wrong = []
    for number, (kind, path, data) in enumerate(damages(whole)):
        if number % every:
            continue
        what = f"{kind} {path} {'deleted' if data is None else f'{len(data)} bytes'}"
        with replaced(folder / path, data):
            try:
                wrong += [f"{what}: {found}" for found in check_answers(whole, folder, what)]
            except Exception as error:
                error.add_note(what)
                raise
    assert wrong == []


@contextmanager
def replaced(path: Path, data: bytes | None) -> Iterator[None]:
    """Delete a file, or give it other content, for as long as the block runs."""
    before = path.read_bytes()
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    yield
    path.write_bytes(before)


def check_answers(whole: Damaged, folder: Path, what: str) -> Iterator[str]:
    """Say what is wrong with the answers of a damaged table."""
    try:
        found = answers_of(folder)
    except HeadwaterError as error:
        if not is_found(folder):
            yield f"fsck says nothing, and {error!r}"
        return
    other = [name for name, answer in whole.answers.items() if found[name] != answer]
    if other and not any(re.fullmatch(pattern, what) for pattern in LOST):
        yield f"other answers: {other}"
    if other and not is_found(folder):
        yield f"fsck says nothing, and these answers are others: {other}"


def is_found(folder: Path) -> bool:
    """Whether fsck finds something. A table that cannot be opened is a finding by itself."""
    try:
        table = hw.open_table(folder, OPTIONS)
    except HeadwaterError:
        return True
    return bool(table.inspect.problems(deep=True).num_rows)
