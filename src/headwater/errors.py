"""The one exception tree.

Every error says what happened, to which table, instant or file, and what to do about it. A class
exists only where a caller would act differently; everything finer is an `ErrorKind`, whose codes
are stable and append-only. Errors cross from executors to the driver, so all of them pickle.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Any, ClassVar, NoReturn


@unique
class Retry(StrEnum):
    """What a caller may do next."""

    NEVER = "never"  # The same call fails again until somebody changes something.
    SAME_CALL = "same_call"  # The same call may succeed later.
    FRESH_VIEW = "fresh_view"  # Re-plan from a freshly loaded timeline, then try again.


@unique
class ErrorKind(StrEnum):
    """Stable codes. Append only: scripts and dashboards match on them."""

    CONFLICT = "conflict"
    ALREADY_RUNNING = "conflict.already_running"
    LOCK_TIMEOUT = "conflict.lock_timeout"
    LIVE_WRITER = "conflict.live_writer"
    FENCED = "fenced"
    LOCK_LOST = "fenced.lock_lost"
    HEARTBEAT_LAPSED = "fenced.heartbeat_lapsed"
    ATTEMPT_SUPERSEDED = "fenced.attempt_superseded"
    COMMIT_UNKNOWN = "commit_unknown"
    NOT_FOUND = "not_found"
    NOT_A_TABLE = "not_found.table"
    INSTANT_NOT_FOUND = "not_found.instant"
    ALREADY_EXISTS = "already_exists"
    TABLE_EXISTS = "already_exists.table"
    INVALID_INPUT = "invalid_input"
    INVALID_OPTION = "invalid_input.option"
    INVALID_INSTANT_TIME = "invalid_input.instant_time"
    INVALID_STATE = "invalid_input.instant_state"
    UNSUPPORTED = "unsupported"
    UNSUPPORTED_TABLE_VERSION = "unsupported.table_version"
    UNSUPPORTED_OPTION = "unsupported.option"
    CORRUPT = "corrupt"
    CORRUPT_PROPERTIES = "corrupt.properties"
    CORRUPT_CHECKSUM = "corrupt.checksum"
    CORRUPT_AVRO = "corrupt.avro"
    CORRUPT_TIMELINE = "corrupt.timeline"
    CORRUPT_JOURNAL = "corrupt.journal"
    STORAGE = "storage"
    STORAGE_DENIED = "storage.denied"
    STORAGE_FULL = "storage.full"
    INTERNAL = "internal"
    CORRUPT_LOG = "corrupt.log"
    CORRUPT_BASE_FILE = "corrupt.base_file"
    CORRUPT_FILE_GROUP = "corrupt.file_group"
    MISSING_DATA_FILE = "corrupt.missing_data_file"
    BEFORE_FIRST_INSTANT = "not_found.before_first_instant"
    OUTSIDE_RETENTION = "not_found.outside_retention"
    SCHEMA_NOT_FOUND = "not_found.schema"
    WRITE_CONFLICT = "conflict.write"
    EARLY_CONFLICT = "conflict.early"
    KEYS_NOT_COMPARED = "conflict.keys_not_compared"
    CORRUPT_MARKERS = "corrupt.markers"
    MARKER_SERVICE = "storage.marker_service"
    PLAN_CANCELLED = "conflict.plan_cancelled"
    PLAN_TOO_YOUNG = "conflict.plan_too_young"
    PLAN_NOT_EXECUTABLE = "conflict.plan_not_executable"
    NOT_CANCELLABLE = "invalid_input.not_cancellable"
    NOT_CANCELLED = "invalid_input.not_cancelled"
    INDEXES_CHANGED = "conflict.indexes_changed"
    CORRUPT_METADATA_TABLE = "corrupt.metadata_table"
    INDEX_EXISTS = "already_exists.index"
    INDEX_NOT_FOUND = "not_found.index"
    INDEX_UNCOVERED = "conflict.index_uncovered"
    INDEX_TIMEOUT = "conflict.index_timeout"
    INDEX_OUTDATED = "conflict.index_outdated"
    INVALID_INDEX = "invalid_input.index"
    NO_LOCK_PROVIDER = "invalid_input.no_lock_provider"
    UNSUPPORTED_FILE_VERSION = "unsupported.file_version"
    CLOCK_AHEAD = "invalid_input.clock_ahead"
    COLUMNS_CHANGED = "conflict.columns_changed"
    KEYS_EXIST = "invalid_input.keys_exist"
    STORAGE_BROKEN = "storage.broken"
    LIMIT_REACHED = "unsupported.limit"
    BAD_ROWS = "invalid_input.bad_rows"
    FOREIGN_WRITER = "conflict.foreign_writer"
    TABLE_SWITCHED = "conflict.table_switched"


class HeadwaterError(Exception):
    """Root of the tree: a message, a stable kind, whether to retry, and the values involved."""

    default_kind: ClassVar[ErrorKind] = ErrorKind.INTERNAL
    default_retry: ClassVar[Retry] = Retry.NEVER

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind | None = None,
        retry: Retry | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.retry = retry or self.default_retry
        self.context = {name: value for name, value in context.items() if value is not None}

    def __str__(self) -> str:
        if not self.context:
            return self.message
        fields = ", ".join(f"{name}={value}" for name, value in self.context.items())
        return f"{self.message} [{fields}]"

    # Keyword-only arguments do not survive the default pickling of exceptions.
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.retry, self.context)


def _rebuild(
    cls: type[HeadwaterError], message: str, kind: ErrorKind, retry: Retry, context: dict[str, Any]
) -> HeadwaterError:
    return cls(message, kind=kind, retry=retry, **context)


class ConflictError(HeadwaterError):
    """Another writer or service won. Re-plan from a fresh view and retry."""

    default_kind = ErrorKind.CONFLICT
    default_retry = Retry.FRESH_VIEW


class EarlyConflictError(ConflictError):
    """Another writer is at work on the same file group, or was there first. Stop, then retry."""

    default_kind = ErrorKind.EARLY_CONFLICT


class FencedError(HeadwaterError):
    """The lease or heartbeat of this process was lost. Stop; write nothing, clean nothing up."""

    default_kind = ErrorKind.FENCED


class CommitUnknownError(HeadwaterError):
    """It is not known whether a write landed. Re-read the timeline; delete nothing."""

    default_kind = ErrorKind.COMMIT_UNKNOWN

    @property
    def is_over(self) -> bool:
        """Whether nothing lands any more: then the timeline tells as soon as it can be read."""
        return isinstance(self.__cause__, StorageError) and self.__cause__.is_final


class NotFoundError(HeadwaterError):
    """The named table, instant or file does not exist."""

    default_kind = ErrorKind.NOT_FOUND


class AlreadyExistsError(HeadwaterError):
    """The named table or file exists already."""

    default_kind = ErrorKind.ALREADY_EXISTS


class InvalidInputError(HeadwaterError, ValueError):
    """An argument, option or schema is wrong."""

    default_kind = ErrorKind.INVALID_INPUT


class UnsupportedError(HeadwaterError):
    """A table version or feature that this release cannot honour."""

    default_kind = ErrorKind.UNSUPPORTED


class CorruptTableError(HeadwaterError):
    """Bytes in storage break the format. The message names the path, and the offset if known."""

    default_kind = ErrorKind.CORRUPT


class StorageError(HeadwaterError):
    """The storage backend failed. A write that raised this may or may not have landed."""

    default_kind = ErrorKind.STORAGE
    default_retry = Retry.SAME_CALL

    @property
    def is_final(self) -> bool:
        """Whether the call has ended: nothing of it lands later, and waiting is in vain.

        So it is with a disk of this machine that is full or fails, and with a store that refuses.
        """
        return self.retry is Retry.NEVER or self.kind in _FINAL

    def ends_after(self, earlier: StorageError | None) -> bool:
        """Whether a write that failed so, after an earlier try, is not tried again.

        A store that refuses has written nothing. What ended otherwise has perhaps landed, which
        the second try finds out.
        """
        return self.retry is Retry.NEVER if earlier is None else self.is_final and earlier.is_final


_FINAL = (ErrorKind.STORAGE_FULL, ErrorKind.STORAGE_BROKEN)


class InternalError(HeadwaterError):
    """A bug of ours, found by `check`."""

    default_kind = ErrorKind.INTERNAL


def check(claim: bool, message: str, **context: Any) -> None:
    """Raise `InternalError` unless `claim` holds. Unlike `assert` it stays on under `python -O`."""
    if not claim:
        raise_internal(message, **context)


def raise_internal(message: str, **context: Any) -> NoReturn:
    raise InternalError(f"{message}. This is a bug in headwater; please report it.", **context)
