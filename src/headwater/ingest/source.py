"""What a job reads from: batches, each with what a note has to say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from headwater.errors import ErrorKind, InvalidInputError
from headwater.ingest.bad_rows import BadRows
from headwater.ingest.checkpoint import Note
from headwater.ingest.rows import SourceRows


class Batch(Protocol):
    """Rows that become one commit."""

    @property
    def summary(self) -> str:
        """What is in it, for people."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        ...

    @property
    def content(self) -> Mapping[str, Any]:
        """What the note of its commit says."""
        ...

    def read(self, bad: BadRows) -> Iterator[SourceRows]:
        """Give its rows, the same ones whenever it is read."""
        ...

    def is_unchanged(self) -> bool:
        """Whether what was read is still there; the next batch leaves the rest out otherwise."""
        ...

    def is_overtaken(self) -> bool:
        """Whether a file that could not be found may have been deleted since the batch was made."""
        ...


class OpenedSource(Protocol):
    """A source that is being read."""

    @property
    def warnings(self) -> Sequence[str]:
        """What whoever runs the job should know, as of the last look for a batch."""
        ...

    def load_schema(self) -> pa.Schema:
        """Return the columns of its rows as of now."""
        ...

    def next_batch(self, notes: Iterator[Note]) -> Batch | None:
        """Return what comes after what the notes tell, the newest first; None if nothing does."""
        ...


def check_same_source(note: Note, kind: str, place: str) -> None:
    """Check that a job reads from where it has read before.

    Raises:
        InvalidInputError: it does not, so what it has read means nothing.
    """
    before = (note.content.get("kind"), note.content.get("place"))
    if before != (kind, place):
        raise InvalidInputError(
            f"The job {note.job} has read from the {before[0]} {before[1]} before, and is to read "
            f"from the {kind} {place}. Give the job of another source another name",
            kind=ErrorKind.INVALID_OPTION,
        )
