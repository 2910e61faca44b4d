"""What is wrong with a table: every file that a reader or a later operation would stumble over.

    table       of a table with a journal: table config and the definitions of indexes are what it
                says
    timeline    every file of the active timeline can be read, and nobody's write was left behind
    archive     every file of the archived timeline is there, in its size, and can be read
    files       every committed file that no clean has deleted is there, in the size that its commit
                noted, and begins and ends as it should; with `is_deep` all of it is read. Those
                that no snapshot reads count: reads of the past and savepoints need them. No write
                that completed is hidden by another. With `is_deep` no other file has the time of a
                commit
    keys        with `is_deep`: no partition has a record key twice
    leftovers   files that announce work, of attempts and markers, can be read
    indexes     once all of that is whole: the metadata table says what the files say

A check that cannot go on says so and is no reason for the others to stop: nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set

from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.inspect.damage.files import of_files
from headwater.inspect.damage.indexes import of_indexes
from headwater.inspect.damage.journal import of_journal, of_others
from headwater.inspect.damage.keys import of_keys
from headwater.inspect.damage.leftovers import of_leftovers
from headwater.inspect.damage.problem import Problem, unreadable
from headwater.inspect.damage.timelines import of_archive, of_timeline


def find_problems(table: TableContext, *, is_deep: bool = False) -> Iterator[Problem]:
    """Give all that is wrong with a table; nothing is changed and nothing raised.

    The table may be in use: what others do meanwhile is no problem.
    """
    timeline_problems = _confirmed("timeline", table, lambda _: of_timeline(table))
    yield from timeline_problems
    yield from _confirmed("timeline", table, lambda _: of_journal(table))
    yield from _confirmed("timeline", table, lambda _: of_others(table))
    archive_problems = _confirmed("archive", table, lambda _: of_archive(table))
    yield from archive_problems
    yield from _confirmed("leftovers", table, lambda _: of_leftovers(table))
    file_problems = _confirmed("files", table, lambda only: of_files(table, only, is_deep=is_deep))
    if any(problem.check == "timeline" for problem in file_problems):
        # Without commits nobody knows which files the table has; what keeps them from being read
        # is named above, unless it is something else.
        if not timeline_problems and not archive_problems:
            yield from file_problems
        return
    yield from file_problems
    if is_deep and not file_problems:
        yield from _confirmed("keys", table, lambda _: of_keys(table))
    if archive_problems or file_problems:
        return  # The metadata table would be blamed for what is lost elsewhere.
    yield from _confirmed("indexes", table, lambda _: of_indexes(table))


def _confirmed(
    check: str,
    table: TableContext,
    find: Callable[[Set[str] | None], Iterable[Problem]],
) -> list[Problem]:
    """Return the problems that a second look finds as well.

    Each look lists a timeline first and what it is about later; a write that completes or a clean
    that deletes in between leaves what looks like damage. The second look has another timeline. It
    is told the subjects of the first, and need not look at others.
    """
    found = [*_guarded(check, table, lambda: find(None))]
    if not found:
        return []
    subjects = {problem.subject for problem in found}
    again = {(one.subject, one.problem) for one in _guarded(check, table, lambda: find(subjects))}
    return [one for one in found if (one.subject, one.problem) in again]


def _guarded(
    check: str, table: TableContext, find: Callable[[], Iterable[Problem]]
) -> Iterator[Problem]:
    try:
        yield from find()
    except HeadwaterError as error:
        yield unreadable(check, table, error)
