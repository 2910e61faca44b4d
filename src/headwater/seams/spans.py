"""The tracing seam: blocks of work as spans, for whoever traces this process.

Nobody does unless asked to, and then entering a span is entering nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from headwater.seams.log_context import about, subject
from headwater.seams.meters import NOTHING

Attributes = Mapping[str, str | int]


class Tracer(Protocol):
    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[None]:
        """Return a block that is a child of the one around it; an error that leaves it is noted."""
        ...

    def note(self, attributes: Attributes) -> None:
        """Add to the span that is open in this thread."""
        ...


_tracer: Tracer | None = None


def trace_with(tracer: Tracer | None) -> None:
    """Bring all spans from now on to a tracer; None to nobody."""
    global _tracer
    _tracer = tracer


def span(name: str, attributes: Attributes) -> AbstractContextManager[None]:
    """Return a block of work under a name."""
    return NOTHING if _tracer is None else _tracer.span(name, attributes)


def note(attributes: Attributes) -> None:
    """Add what is known by now to the span that is open."""
    if _tracer is not None:
        _tracer.note(attributes)


@contextmanager
def attempt_span(table: str, instant: str, attempt: int) -> Iterator[None]:
    """Say for a block, to logs and traces, which attempt of which instant is at work."""
    known: Attributes = {"table": table, "instant": instant, "attempt": attempt}
    if not subject().instant:
        note(known)  # The service around it has no instant but this one.
    with about(table=table, instant=instant, attempt=attempt), span("attempt", known):
        yield
