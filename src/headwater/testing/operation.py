"""What a simulated process asks of the world: one `Op` for every seam call, and its answer.

Operations and answers are plain hashable values. A process is a deterministic function of the
answers it got, so two processes that got the same answers are in the same state.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import NamedTuple

from headwater.errors import ErrorKind, HeadwaterError, Retry


@unique
class Kind(StrEnum):
    READ = "read"
    READ_VERSIONED = "read_versioned"
    READ_RANGE = "read_range"
    INFO = "info"
    LIST_NAMES = "list_names"
    LIST_TREE = "list_tree"
    PUT = "put"
    PUT_IF_ABSENT = "put_if_absent"
    REPLACE = "replace"
    DELETE = "delete"
    NOW = "now"
    MONOTONIC = "monotonic"
    SLEEP = "sleep"
    WAIT = "wait"  # A timer between two calls.
    JOIN = "join"  # A process waiting for the end of its own timer.
    ACQUIRE = "acquire"
    CHECK = "check"
    RELEASE = "release"
    INSPECT = "inspect"
    BREAK = "break_expired"


STORAGE_READS = frozenset(
    {
        Kind.READ,
        Kind.READ_VERSIONED,
        Kind.READ_RANGE,
        Kind.INFO,
        Kind.LIST_NAMES,
        Kind.LIST_TREE,
    }
)
STORAGE_WRITES = frozenset({Kind.PUT, Kind.PUT_IF_ABSENT, Kind.REPLACE, Kind.DELETE})
CLOCK_READS = frozenset({Kind.NOW, Kind.MONOTONIC})
PURE_READS = STORAGE_READS | CLOCK_READS


class Op(NamedTuple):
    """One seam call. Which fields count depends on the kind."""

    kind: Kind
    target: str = ""  # A path, a folder or the key of a lock.
    data: bytes = b""
    text: str = ""  # The version of a replace, or the name a page starts after.
    number: int = 0  # A duration, a token, a page size, a thread, or where a range starts.
    length: int = 0

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(_arguments(self))})"


def _arguments(op: Op) -> list[str]:
    shown = [op.target] if op.target else []
    if op.kind in STORAGE_WRITES and op.kind is not Kind.DELETE:
        shown.append(show_bytes(op.data))
    if op.text:
        shown.append(op.text)
    if op.kind in (Kind.SLEEP, Kind.WAIT, Kind.JOIN, Kind.CHECK, Kind.RELEASE):
        shown.append(str(op.number))
    return shown


def show_bytes(data: bytes, width: int = 60) -> str:
    """Return bytes as a person would like to read them: short text, or a length."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"<{len(data)} bytes>"
    if not text.isprintable():
        return f"<{len(data)} bytes>"
    return text if len(text) <= width else f"{text[: width - 1]}…"


class Failure(NamedTuple):
    """An error as a value: every process that gets it raises a fresh exception."""

    error_type: type[HeadwaterError]
    message: str
    kind: ErrorKind
    retry: Retry
    context: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, error: HeadwaterError) -> Failure:
        context = tuple(error.context.items())
        return cls(type(error), error.message, error.kind, error.retry, context)

    def to_error(self) -> HeadwaterError:
        return self.error_type(self.message, kind=self.kind, retry=self.retry, **dict(self.context))

    def __str__(self) -> str:
        return f"{self.error_type.__name__}({self.message})"


def show_answer(answer: object) -> str:
    """Return an answer in one short piece of text."""
    if isinstance(answer, bytes):
        return show_bytes(answer)
    if isinstance(answer, tuple) and not isinstance(answer, Failure):
        shown = repr(answer)
        return shown if len(shown) <= 80 else f"{shown[:79]}…"
    return str(answer)
