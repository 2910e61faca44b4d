"""Services that run by themselves: after a write, or in a loop beside the writers.

Both make rounds: one service after the other, each at most once. A service that another process is
at work on is left to that process. One that fails is logged and comes again in the next round; it
takes neither the write before it nor the other services with it. What a killed round leaves behind,
the next round of any process finishes, so a loop may run on several machines at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Protocol

from headwater.config.table_options import TableType
from headwater.config.table_services import TableServicesConfig
from headwater.errors import (
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InvalidInputError,
)
from headwater.kernel.timeline.active import Timeline
from headwater.model.instant import Action

log = logging.getLogger(__name__)


@unique
class Service(StrEnum):
    """What a round may do, in this order."""

    COMPACTION = "compaction"
    LOG_COMPACTION = "log_compaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ARCHIVE = "archive"


class StopSignal(Protocol):
    """What ends a loop; a `threading.Event` is one."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool:
        """Wait for the signal, at most so many seconds; return whether it came."""
        ...


@dataclass(slots=True)
class TableServicesReport:
    """What rounds came to. Services left to other processes count as neither done nor failed."""

    rounds: int = 0
    done: Counter[Service] = field(default_factory=Counter)
    """How often there was something to do, and it was done."""
    failed: Counter[Service] = field(default_factory=Counter)

    @property
    def has_failures(self) -> bool:
        return self.failed.total() > 0


Calls = Mapping[Service, Callable[[], bool]]
"""How each service is run once; it says whether there was something to do."""


def parse_services(names: Collection[str]) -> set[Service]:
    """Return the services of some names.

    Raises:
        InvalidInputError: a service has no such name.
    """
    unknown = [name for name in names if name not in list(Service)]
    if unknown:
        raise InvalidInputError(
            f"There is no service {', '.join(map(repr, unknown))}; there are {', '.join(Service)}"
        )
    return {Service(name) for name in names}


def is_final(error: HeadwaterError) -> bool:
    """Whether no later round of this process does better: the table is not what it has opened."""
    return error.kind in (ErrorKind.TABLE_SWITCHED, ErrorKind.NOT_A_TABLE)


def run_round(calls: Calls, chosen: Collection[Service], report: TableServicesReport) -> None:
    """Run the chosen services once, and count what became of them.

    Raises:
        ConflictError: kind TABLE_SWITCHED; the table has to be opened again.
        NotFoundError: kind NOT_A_TABLE; it is gone.
    """
    report.rounds += 1
    for service in Service:
        if service not in chosen:
            continue
        try:
            report.done[service] += calls[service]()
        except HeadwaterError as error:
            if is_final(error):
                raise
            if isinstance(error, ConflictError | FencedError):
                log.info("service left to another process service=%s reason=%s", service, error)
                continue
            report.failed[service] += 1
            log.warning("service failed and comes again service=%s error=%s", service, error)


def run_once(calls: Calls, chosen: Collection[Service]) -> None:
    """Run the chosen services after a write, which stands whatever becomes of them."""
    try:
        run_round(calls, chosen, TableServicesReport())
    except HeadwaterError as error:
        log.warning("no services after this write error=%s", error)


def run_until(
    calls: Calls, chosen: Collection[Service], stop: StopSignal, *, pause_s: float
) -> TableServicesReport:
    """Make rounds, with a pause after each, until the signal comes.

    Raises: see `run_round`.
    """
    report = TableServicesReport()
    while not stop.is_set():
        run_round(calls, chosen, report)
        stop.wait(pause_s)
    return report


def due_after_write(
    timeline: Timeline, config: TableServicesConfig, table_type: TableType
) -> set[Service]:
    """Return what a write should do after it; compaction and archival judge by themselves too."""
    due = set()
    if table_type is TableType.MERGE_ON_READ:
        if config.compacts:
            due.add(Service.COMPACTION)
        if config.compacts_logs:
            due.add(Service.LOG_COMPACTION)
    if config.clusters and writes_since(timeline, Action.CLUSTERING) >= config.clustering_commits:
        due.add(Service.CLUSTERING)
    if config.cleans and writes_since(timeline, Action.CLEAN) >= config.clean_commits:
        due.add(Service.CLEAN)
    if config.archives:
        due.add(Service.ARCHIVE)
    return due


def writes_since(timeline: Timeline, action: Action) -> int:
    """Return how many writes of the active timeline completed since the last such service did."""
    count = 0
    for instant in reversed(timeline.completed):
        if instant.action is action:
            break
        count += instant.action.is_ingestion
    return count
