"""Files that announce work, and cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from headwater.context import TableContext
from headwater.errors import HeadwaterError, NotFoundError
from headwater.inspect.damage.problem import Problem, each
from headwater.kernel.layout import ATTEMPTS, MARKERS
from headwater.kernel.txn.attempts import decode_attempt
from headwater.markers.batches import is_batch_file, parse_markers


def of_leftovers(table: TableContext) -> Iterator[Problem]:
    attempts = [info.path for info in table.storage.list_tree(ATTEMPTS)]
    markers = [
        info.path
        for info in table.storage.list_tree(MARKERS)
        if is_batch_file(info.path.rpartition("/")[2])
    ]
    for paths, parse, at_stake in (
        (attempts, _parse_attempt, "whether its owner is alive cannot be told"),
        (markers, parse_markers, "files of the write are found by their names"),
    ):
        problem_of = partial(_problem_of, table, parse)
        for path, problem in each(table.storage, problem_of, paths, [0] * len(paths)):
            if problem is not None:
                yield _leftover(path, problem, at_stake)


def _parse_attempt(data: bytes, path: str) -> object:
    return decode_attempt(data, path=path)


def _problem_of(
    table: TableContext, parse: Callable[[bytes, str], object], path: str
) -> str | None:
    try:
        parse(table.storage.read(path), path)
    except NotFoundError:
        return None  # Its owner has finished meanwhile.
    except HeadwaterError as error:
        return str(error)
    return None


def _leftover(path: str, problem: str, at_stake: str) -> Problem:
    return Problem(
        check="leftovers",
        subject=path,
        problem=problem,
        at_stake=f"no rows; {at_stake}",
        advice="once no job works on this instant, delete the file and roll back failed writes",
    )
