"""What the buttons do: each is safe beside writers, and says beforehand what will happen.

Nothing here takes back a commit, breaks a lock or deletes a file that a commit lists. A cancelled
plan can be made again, services keep every row, and a write is rolled back only once its writer is
certainly dead: the protocol looks again, whatever the page showed when the button was pressed.

Work takes as long as it takes, so a button starts a job and the stream tells how it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Any

from headwater.console.state import Section
from headwater.errors import ConflictError, ErrorKind, HeadwaterError, InvalidInputError
from headwater.kernel.txn.rollback import RolledBackWrite
from headwater.model.instant import parse_instant_time
from headwater.model.summary import summary_of
from headwater.services.rollback import rollback_write

if TYPE_CHECKING:
    from headwater.table import Table

log = logging.getLogger(__name__)

RUNNING_MAX = 2
"""How many jobs run at once on one table."""
REMEMBERED_MAX = 20
"""How many jobs are shown, the newest."""
REASON = "asked for in the console"


@dataclass(frozen=True, slots=True)
class Action:
    """One button."""

    title: str
    what: str
    """What will happen, for who is about to say yes."""
    needs_instant: bool
    run: Callable[[Table, str], str]
    """Does it, given the instant or nothing, and says what was done."""


@unique
class JobState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One press of a button."""

    number: int
    title: str
    instant: str
    started_ms: int
    state: JobState = JobState.RUNNING
    said: str = ""


class Jobs:
    """The jobs of one table, on the loop that the console runs on."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._jobs: dict[int, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    def start(self, name: str, instant: str) -> Job:
        """Begin to do what a button says.

        Raises:
            InvalidInputError: there is no such action, or its instant is missing or no instant.
            ConflictError: kind ALREADY_RUNNING; too many jobs run.
        """
        action = ACTIONS.get(name)
        if action is None:
            raise InvalidInputError(f"The console has no action {name!r}")
        if action.needs_instant:
            parse_instant_time(instant)
        if sum(job.state is JobState.RUNNING for job in self._jobs.values()) >= RUNNING_MAX:
            raise ConflictError(
                f"{RUNNING_MAX} jobs run on {self._table.name} already; wait until one has ended",
                kind=ErrorKind.ALREADY_RUNNING,
            )
        self._count += 1
        now_ms = self._table.context.clock.now_ms()
        job = Job(number=self._count, title=action.title, instant=instant, started_ms=now_ms)
        self._note(job)
        task = asyncio.create_task(self._run(job, action))
        self._tasks.add(task)  # The loop itself does not keep it.
        task.add_done_callback(self._tasks.discard)
        return job

    def rows(self) -> Section:
        return {str(number): asdict(job) for number, job in self._jobs.items()}

    async def _run(self, job: Job, action: Action) -> None:
        try:
            said = await asyncio.to_thread(self._do, action, job.instant)
        except HeadwaterError as error:
            self._note(replace(job, state=JobState.FAILED, said=str(error)))
        except Exception as error:
            log.exception("job of the console failed action=%s", job.title)
            self._note(replace(job, state=JobState.FAILED, said=f"A bug in Headwater: {error}"))
        else:
            self._note(replace(job, state=JobState.DONE, said=said))

    def _do(self, action: Action, instant: str) -> str:
        self._table = self._table.reload()  # It may have been upgraded since it was opened.
        return action.run(self._table, instant)

    def _note(self, job: Job) -> None:
        self._jobs[job.number] = job
        ended = [one.number for one in self._jobs.values() if one.state is not JobState.RUNNING]
        for number in ended[: max(0, len(self._jobs) - REMEMBERED_MAX)]:
            del self._jobs[number]


def _cancel(table: Table, instant: str) -> str:
    table.services.request_cancel(instant, reason=REASON)
    try:
        table.services.execute_abort(instant)
    except ConflictError as error:
        if error.kind is not ErrorKind.ALREADY_RUNNING:
            raise
        return f"{instant} is cancelled. Whoever executes it stops, and aborts it."
    return f"{instant} is cancelled and aborted."


def _roll_back(table: Table, instant: str) -> str:
    """Not `t.services.rollback`, which takes back the last commit as well."""
    table.config.check_writable(table.uri)
    context = table.context
    time = parse_instant_time(instant)
    done = rollback_write(context.rollbacks, context.txn.watch, time, wait=True)
    if isinstance(done, RolledBackWrite):
        return f"{instant} is rolled back."
    return f"{instant} has completed meanwhile. Nothing was done."


def _compact(table: Table, _: str) -> str:
    return _said(table.services.compact(), "There is nothing to compact.")


def _log_compact(table: Table, _: str) -> str:
    return _said(table.services.log_compact(), "No file group has enough log files.")


def _cluster(table: Table, _: str) -> str:
    return _said(table.services.cluster(), "There is nothing to gain by clustering.")


def _clean(table: Table, _: str) -> str:
    done = table.services.clean()
    return f"{len(done)} cleans were done." if done else "There is nothing to clean."


def _archive(table: Table, _: str) -> str:
    return f"{len(table.services.archive().archived)} instants were archived."


def _said(result: Any, nothing: str) -> str:
    if result is None:
        return nothing
    return ", ".join(f"{name} {value}" for name, value in summary_of(result).items())


ACTIONS: dict[str, Action] = {
    "cancel": Action(
        "Cancel plan",
        "The plan is cancelled for good. Whoever executes it stops; what it wrote is deleted, and "
        "it ends as aborted. No row is lost: the rows stay in the files they are in. The same can "
        "be planned again.",
        True,
        _cancel,
    ),
    "roll_back": Action(
        "Roll back write",
        "If its writer is dead, the files that the write left are deleted and its instant ends. "
        "Its heartbeat is watched first, which takes up to two minutes. If the writer is alive, or "
        "the write has completed, nothing is done.",
        True,
        _roll_back,
    ),
    "compaction": Action(
        "Compact",
        "The oldest compaction that waits is executed, or a new one: log files are merged into new "
        "base files. Writers and readers go on. It reads and writes all file groups that it takes.",
        False,
        _compact,
    ),
    "log_compaction": Action(
        "Compact logs",
        "The log files of file groups that have many are put into one each. Writers and readers "
        "go on.",
        False,
        _log_compact,
    ),
    "clustering": Action(
        "Cluster",
        "The oldest clustering that waits is executed, or a new one by the options of the table: "
        "rows are written anew into larger, sorted files. A plan that is not cancellable makes "
        "writes to the same file groups wait.",
        False,
        _cluster,
    ),
    "clean": Action(
        "Clean",
        "Files that no reader within retention needs are deleted, failed writes are rolled back, "
        "and what dead jobs left is swept. Time travel to before retention ends.",
        False,
        _clean,
    ),
    "archive": Action(
        "Archive",
        "The oldest instants move from the active timeline to the archived one. They leave this "
        "page; no data file changes.",
        False,
        _archive,
    ),
}
