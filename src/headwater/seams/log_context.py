"""What a process is at work on, for the lines that it logs meanwhile.

`about` says it for a block, `note` adds to the block that is open: the instant of a write is known
only once it was requested. Threads that are started by a seam begin with what the thread knew that
started them. Nothing depends on it but logs.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Subject:
    """What a line of a log is about; empty where that is not known."""

    table: str = ""
    instant: str = ""
    attempt: int = 0

    def fields(self) -> dict[str, str | int]:
        """Return what is known."""
        known = (("table", self.table), ("instant", self.instant), ("attempt", self.attempt))
        return {name: value for name, value in known if value}


_UNKNOWN = Subject()
_subject: ContextVar[Subject] = ContextVar("headwater_subject", default=_UNKNOWN)


def subject() -> Subject:
    """Return what this thread is at work on."""
    return _subject.get()


class about:  # noqa: N801 - read as a word: `with about(...)`.
    """Say for a block what it is about; what is left out stays as it was around it."""

    def __init__(self, *, table: str = "", instant: str = "", attempt: int = 0) -> None:
        self._given = Subject(table, instant, attempt)
        self._before = _UNKNOWN

    def __enter__(self) -> None:
        self._before = _subject.get()
        _subject.set(_merged(self._before, self._given))

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        # Set, not reset by its token: that fails where a block is ended by another context.
        _subject.set(self._before)


def note(*, instant: str, attempt: int) -> None:
    """Add to the block that is open; outside of any there is nobody to forget it again."""
    if _subject.get() is not _UNKNOWN:
        _subject.set(replace(_subject.get(), instant=instant, attempt=attempt))


def _merged(before: Subject, given: Subject) -> Subject:
    if given.table and given.table != before.table:
        return given
    return Subject(
        before.table,
        given.instant or before.instant,
        given.attempt or (0 if given.instant else before.attempt),
    )
