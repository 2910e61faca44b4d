"""Log files, read through storage: what they add to their file slice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.log.blocks import decode_part, select_blocks
from headwater.format.log.frames import BlockType, LogBlock
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage


def read_log_parts(
    storage: Storage,
    logs: Sequence[LogFile],
    *,
    columns: Collection[str] | None = None,
) -> list[LogPart]:
    """Load what the logs of a file slice, given in merge order, add to it.

    `columns` are all that the merge and the query need, meta columns included; those that a block
    lacks are missing in its part.

    Raises:
        CorruptTableError: a log is missing, or its bytes break the format.
        UnsupportedError: a block of a kind this release does not read.
    """
    blocks = read_log_blocks(storage, logs)
    return [decode_part(block, columns, path=path) for block, path in blocks]


def read_data_parts(
    storage: Storage, log: LogFile, columns: Collection[str] | None = None
) -> list[DataPart]:
    """Load the rows of one log, whatever it deletes.

    Raises: as `read_log_parts`.
    """
    blocks = read_data_blocks(storage, log)
    parts = (decode_part(block, columns, path=path) for block, path in blocks)
    return [part for part in parts if isinstance(part, DataPart)]


def read_data_blocks(storage: Storage, log: LogFile) -> list[tuple[LogBlock, str]]:
    """Load the blocks with rows of one log, not decoded.

    Raises: as `read_log_parts`.
    """
    blocks = read_log_blocks(storage, [log])
    return [(block, path) for block, path in blocks if block.type is not BlockType.DELETE]


def read_delete_parts(storage: Storage, log: LogFile) -> list[DeletePart]:
    """Load the deletes of one log.

    Raises: as `read_log_parts`.
    """
    blocks = read_log_blocks(storage, [log])
    parts = (
        decode_part(block, None, path=path)
        for block, path in blocks
        if block.type is BlockType.DELETE
    )
    return [part for part in parts if isinstance(part, DeletePart)]


def read_log_blocks(
    storage: Storage,
    logs: Sequence[LogFile],
    *,
    is_visible_instant: Callable[[InstantTime], bool] | None = None,
    skip_corrupt: bool = False,
) -> list[tuple[LogBlock, str]]:
    """Load the blocks that count of the logs of a file slice; see `select_blocks`.

    Raises:
        CorruptTableError: a log is missing, or its bytes break the format.
        UnsupportedError: a block of a kind this release does not read.
    """
    if any(log.old is not None for log in logs):
        is_visible_instant = partial(_counts, logs)
    return select_blocks(
        _contents(storage, logs),
        is_visible_instant=is_visible_instant,
        skip_corrupt=skip_corrupt,
    )


def _counts(logs: Sequence[LogFile], time: InstantTime) -> bool:
    """Whether blocks of an instant count in a slice that has logs of before version 8 (N-111)."""
    return any(
        log.instant_time == time if log.old is None else log.old.counts(time) for log in logs
    )


def _contents(
    storage: Storage, logs: Sequence[LogFile]
) -> Iterator[tuple[str, InstantTime | None, bytes]]:
    for log, data in zip(logs, storage.read_many([log.path for log in logs]), strict=True):
        if data is None:
            raise CorruptTableError(
                f"The log file {storage.uri}/{log.path} of a completed instant does not exist. "
                "If a clean ran meanwhile, read again; otherwise restore it from a copy",
                kind=ErrorKind.MISSING_DATA_FILE,
                path=log.path,
            )
        yield log.path, log.instant_time if log.old is None else None, data
