"""The loop of services that follow advice, until a signal comes.

What a process of it leaves behind when it is killed is what the services leave behind; the next
one, here or elsewhere, is advised of it. A loop may run on several machines at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.model.instant import instant_time_at
from headwater.services.advice.advice import Advice, Need
from headwater.services.advice.decide import advise
from headwater.services.advice.load import load_statistics
from headwater.services.advice.settings import RewriteSettings
from headwater.services.auto.agenda import Agenda
from headwater.services.auto.follow import Followed, Outcome, follow
from headwater.services.table_services import is_final

if TYPE_CHECKING:
    from headwater.context import TableContext
    from headwater.services import Services
    from headwater.services.table_services import StopSignal

log = logging.getLogger(__name__)

LEFT_TO_ITS_MAKER_MS = 10_000
"""For how long a plan that somebody made is not taken for one that waits."""


@dataclass(slots=True)
class AutoReport:
    """What rounds came to. What was left to other processes counts as neither done nor failed."""

    rounds: int = 0
    done: Counter[Need] = field(default_factory=Counter)
    cancelled: Counter[Need] = field(default_factory=Counter)
    """Writers came in between."""
    failed: Counter[Need] = field(default_factory=Counter)
    cut_short: int = 0
    """Rounds that ended because nobody could tell what the table needs."""
    rewritten_bytes: int = 0
    """What was read and written for it, also in vain, by the estimate of the advice."""

    @property
    def has_failures(self) -> bool:
        return self.failed.total() + self.cut_short > 0


def run_auto(
    table: TableContext,
    services: Services,
    settings: RewriteSettings,
    agenda: Agenda,
    stop: StopSignal,
    *,
    pause_s: float,
) -> AutoReport:
    """Make rounds, with a pause after each, until the signal comes.

    Raises:
        ConflictError: kind TABLE_SWITCHED; the table has to be opened again.
        NotFoundError: kind NOT_A_TABLE; it is gone.
    """
    report = AutoReport()
    while not stop.is_set():
        report.rounds += 1
        _Round(table, services, settings, agenda, stop, report).run()
        stop.wait(pause_s)
    return report


@dataclass(frozen=True, slots=True)
class _Round:
    table: TableContext
    services: Services
    settings: RewriteSettings
    agenda: Agenda
    stop: StopSignal
    report: AutoReport

    def run(self) -> None:
        self.agenda.begin_round(self._now_ms())
        while not self.stop.is_set() and (piece := self._next_piece()) is not None:
            followed = self._follow(piece)
            self._note(piece, followed)
        self.agenda.end_round()

    def _next_piece(self) -> Advice | None:
        """Look at the table as it is now: every piece changes what is left to do."""
        try:
            known = load_statistics(self.table, self.settings)
        except HeadwaterError as error:
            if is_final(error):
                raise
            log.warning("advice comes again in the next round error=%s", error)
            self.report.cut_short += 1
            return None
        now_ms = self._now_ms()
        advice = advise(known, self.settings, self.agenda.scope(now_ms))
        ours = [one for one in advice if not self._is_left_to_its_maker(one)]
        return self.agenda.next_piece(ours, now_ms)

    def _is_left_to_its_maker(self, piece: Advice) -> bool:
        """Whether a plan was made just now: who made it is about to execute it."""
        if piece.need is not Need.WAITING_PLAN or piece.instant is None:
            return False
        recently_ms = self.table.clock.now_ms() - LEFT_TO_ITS_MAKER_MS
        return piece.instant > instant_time_at(recently_ms, is_utc=self.table.layout.is_utc)

    def _follow(self, piece: Advice) -> Followed:
        log.info("advice is followed need=%s why=%s", piece.need, piece.why)
        try:
            return follow(piece, self.table, self.services, self.settings)
        except HeadwaterError as error:
            if is_final(error):
                raise
            log.warning("advice was not followed need=%s error=%s", piece.need, error)
            return Followed(outcome=Outcome.FAILED)

    def _note(self, piece: Advice, followed: Followed) -> None:
        back_off, need = self.agenda.back_off, piece.need
        if piece.file_groups and followed.outcome is not Outcome.LEFT:
            self.agenda.spend(piece.cost_bytes)
            self.report.rewritten_bytes += piece.cost_bytes
        match followed.outcome:
            case Outcome.DONE:
                self.report.done[need] += 1
                back_off.forget(need, (*piece.file_groups, piece.instant))
            case Outcome.CANCELLED:
                self.report.cancelled[need] += 1
                back_off.note(Need.SMALL_FILES, followed.blamed, self._now_ms())
            case Outcome.FAILED:
                self.report.failed[need] += 1
                back_off.note(need, [piece.instant], self._now_ms())
            case Outcome.NOTHING:
                back_off.note(need, [piece.instant], self._now_ms())
            case Outcome.LEFT:
                pass  # Somebody does it.

    def _now_ms(self) -> int:
        return self.table.clock.monotonic_ms()
