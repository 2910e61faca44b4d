"""Where a job has come to, as the commits of its target say.

Every commit of a job carries a note in its metadata: the job's name, a number that grows by one,
and what the source needs to go on. So a batch and the note of it become visible as one, and a
restore or rollback of the table takes both back. Any number of jobs keep notes in one table.

Of two processes that run one job, both may write the batch after the same note; the second finds
under the table lock that the first has committed, and gives its write up (`check_still_newest`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.context import TableContext
from headwater.errors import ConflictError, CorruptTableError, ErrorKind
from headwater.format.strict_json import load_json
from headwater.kernel.view.commits import CompletedCommit
from headwater.model.instant import InstantTime
from headwater.operations.newest_commits import load_newest_commits

NOTE_KEY = "headwater.ingest"


@dataclass(frozen=True, slots=True)
class Note:
    """What a commit says of the job that made it."""

    job: str
    number: int
    content: Mapping[str, Any]
    """What the source has to know."""
    instant: InstantTime | None = None
    """The commit that says so; None before it is written."""

    def value(self, key: str) -> Any:
        """Return a part of the content.

        Raises:
            CorruptTableError: it is not there.
        """
        if key not in self.content:
            raise CorruptTableError(
                f"Note {self.number} of the job {self.job} does not say {key}",
                kind=ErrorKind.CORRUPT_TIMELINE,
            )
        return self.content[key]

    def to_metadata(self) -> dict[str, str]:
        document = {"job": self.job, "number": self.number, "content": dict(self.content)}
        return {NOTE_KEY: json.dumps(document, separators=(",", ":"))}


def load_notes(
    table: TableContext, job: str, completed_after: InstantTime | None = None
) -> Iterator[Note]:
    """Give the notes of a job, the newest first; commits are read as far as notes are taken.

    Args:
        completed_after: a time up to which no commit has one, if that is known.

    Raises:
        CorruptTableError: one of them cannot be read, or is missing between others.
        StorageError: storage failed.
    """
    last: int | None = None
    for commits in load_newest_commits(table.storage, table.config, completed_after):
        found = {note.number: note for commit in commits if (note := _note_of(commit, job))}
        for number in sorted(found, reverse=True):
            if last is not None and number >= last:
                continue  # It was archived while we looked, and so came twice.
            if last is not None and number != last - 1:
                raise _missing(table, job, last - 1)
            yield found[number]
            last = number


def check_still_newest(
    table: TableContext, job: str, note: Note | None, completed_after: InstantTime | None = None
) -> None:
    """Check that a note is the newest of a job; None stands for no note at all.

    Its commit counts, not its number: after a restore a number comes again.

    Raises:
        ConflictError: kind ALREADY_RUNNING; another process runs the same job, or has restored the
            table.
    """
    newest = next(load_notes(table, job, completed_after), None)
    if (newest and newest.instant) != (note and note.instant):
        found = "nothing" if newest is None else f"batch {newest.number} at {newest.instant}"
        raise ConflictError(
            f"Another process runs the job {job}: the newest of it in {table.config.name} is "
            f"{found}. This process's write was given up; nothing is there twice",
            kind=ErrorKind.ALREADY_RUNNING,
        )


def _note_of(commit: CompletedCommit, job: str) -> Note | None:
    text = (commit.metadata.extra_metadata or {}).get(NOTE_KEY)
    if text is None:
        return None
    try:
        document = load_json(text)
        if document["job"] != job:
            return None
        number, content = int(document["number"]), dict(document["content"])
        return Note(job, number, content, commit.requested_time)
    except (ValueError, TypeError, LookupError) as error:
        raise CorruptTableError(
            f"The commit {commit.requested_time} has a note of a job in {NOTE_KEY} that cannot be "
            f"read: {error}",
            kind=ErrorKind.CORRUPT_TIMELINE,
        ) from error


def _missing(table: TableContext, job: str, number: int) -> CorruptTableError:
    return CorruptTableError(
        f"Table {table.config.name} has no commit with note {number} of the job {job}, but later "
        "ones, so what the job has read is not known. Give the job another name to begin anew",
        kind=ErrorKind.CORRUPT_TIMELINE,
    )
