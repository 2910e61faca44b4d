"""Everything that readers may ask of a table whose past is cut off somewhere, question by question.

Cleaning and archival leave every answer as it was, or refuse it: they never return less (INV-52).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.two_readers import in_order

from headwater.errors import ErrorKind, NotFoundError
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.model.instant import InstantTime

if TYPE_CHECKING:
    from headwater.table import Table

REFUSED = "refused"
"""The answer to a question about a time that the table cannot be read as of any more."""


def completion_times(table: Table) -> list[InstantTime]:
    """Return when the commits of both timelines completed, in order."""
    layout = table_layout(table.config)
    active = load_active(table.storage, layout.timeline).instants
    archived = HistoryTimeline(table.storage, layout.history).instants()
    return sorted(
        {
            instant.completion_time
            for instant in (*active, *archived)
            if instant.completion_time is not None
            and instant.action.completed_name in COMMIT_ACTIONS
        }
    )


def ask_all(table: Table, times: list[InstantTime]) -> dict[str, str]:
    """Ask for the newest rows, and for rows and changes as of each time and since it."""
    answers = {"snapshot": _ask(table.read_arrow)}
    for time in times:
        answers[f"as of {time}"] = _ask(partial(table.read_arrow, as_of=time))
    for after, until in {*pairwise(times), *((time, times[-1]) for time in times[:-1])}:
        changes = partial(table.changes_arrow, after, until)
        answers[f"changes in ({after}, {until}]"] = _ask(changes)
        answers[f"change feed of ({after}, {until}]"] = _ask(partial(changes, cdc=True))
    return answers


def check_unchanged(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Check that each answer is the same or refused; return the questions that are refused now."""
    for question, answer in before.items():
        assert after[question] in (answer, REFUSED), f"another answer than before: {question}"
    assert after["snapshot"] == before["snapshot"]
    return {question for question in before if after[question] == REFUSED != before[question]}


def _ask(question: Callable[[], pa.Table]) -> str:
    try:
        return repr(in_order(question()))
    except NotFoundError as error:
        if error.kind is not ErrorKind.OUTSIDE_RETENTION:
            raise
        return REFUSED
