"""The bad rows of one batch, and how many of them there may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import ErrorKind, InvalidInputError
from headwater.ingest.job import QuarantineRule

WHOLE_FILE = 0
"""The position that stands for a file, or the rest of one, that cannot be read at all."""

SHARE_FROM_ROWS = 100
"""In fewer rows a share means nothing: one bad row of five is no reason to stop."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be written: where it was found, why, and what it was."""

    origin: str
    position: int | str
    """A number from 1 on in files, WHOLE_FILE for all of one; tables have names for rows."""
    reason: str
    raw: str | None


class BadRows:
    """Collects bad rows, and stops when there are more than the job allows."""

    def __init__(self, job: str, rule: QuarantineRule | None) -> None:
        self._job = job
        self._rule = rule
        self._rows: list[BadRow] = []

    @property
    def rows(self) -> Sequence[BadRow]:
        return self._rows

    def add(self, row: BadRow) -> None:
        """Note a bad row.

        Raises:
            InvalidInputError: kind BAD_ROWS; there are more than the job allows.
        """
        self._rows.append(row)
        if self._rule is None:
            raise self._too_many("and there is no [quarantine] for it")
        if len(self._rows) > self._rule.rows_max:
            raise self._too_many(f"more than quarantine.limit_rows = {self._rule.rows_max}")

    def check_share(self, row_count: int) -> None:
        """Compare with how many rows of the batch there are, the bad ones among them.

        Raises:
            InvalidInputError: kind BAD_ROWS; the share is larger than the job allows.
        """
        if self._rule is None or row_count < SHARE_FROM_ROWS:
            return
        if len(self._rows) > self._rule.share_max * row_count:
            share = f"quarantine.limit_share = {self._rule.share_max}"
            raise self._too_many(f"of {row_count} rows, more than {share}")

    def _too_many(self, limit: str) -> InvalidInputError:
        count = len(self._rows)
        first = "; ".join(
            f"{row.origin} {_place(row.position)}: {row.reason}" for row in self._rows[:_SHOWN]
        )
        return InvalidInputError(
            f"Job {self._job} stops: a batch has {count} bad row{'s' if count > 1 else ''}, "
            f"{limit}. Nothing of the batch was written. Mend the source, or raise the limit. "
            f"The first: {first}",
            kind=ErrorKind.BAD_ROWS,
        )


def _place(position: int | str) -> str:
    return "as a whole" if position == WHOLE_FILE else f"row {position}"
