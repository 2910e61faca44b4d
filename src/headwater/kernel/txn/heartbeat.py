"""Heartbeats: the owner's side keeps an attempt alive, the observer's side judges it.

Expiry decides when others *try*, never whether that is safe: safety comes from the attempt number
(see `attempts`). The owner judges itself by its own monotonic clock and, once lapsed, never beats
again. An observer calls an attempt dead when its object has not changed for the expiry time on the
observer's *own* monotonic clock (H-26), so no two clocks are ever compared; how old it was when
the observer first saw it the store says, by its own clock alone (N-75); or at once, when the
system that both run on says that the owner's process has ended (N-61). A forked child finds its
parent's heartbeat in its memory; to the child it has lapsed, and the parent goes on. A heartbeat
that nobody has any more, because an interrupt came before it was kept, beats no more (N-194).

The plain file `.hoodie/.heartbeat/<T>` is kept fresh beside it: stock Hudi's lazy cleaning looks
at that file's modification time to tell a live writer from a failed one. It is written together
with the claim, before there is an instant that Hudi could miss it for (INV-111).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial

from headwater.errors import CommitUnknownError, ErrorKind, FencedError, StorageError
from headwater.kernel.layout import heartbeat_path
from headwater.kernel.txn.attempts import Attempt, encode_attempt, load_attempt
from headwater.kernel.txn.store_age import age_by_store_ms
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock, Timer, while_kept
from headwater.seams.components import Components
from headwater.seams.given_up import GivenUp
from headwater.seams.ids import Owner, this_process
from headwater.seams.log_context import about
from headwater.seams.metrics import LAPSED
from headwater.seams.storage import Storage, both_at_once

log = logging.getLogger(__name__)

_WATCHED_MAX = 10_000
"""Attempts a watch remembers; far above what one table can have pending."""


class Heartbeat:
    """The owner's side of one attempt, from its claim to its release."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        claimed: Attempt,
        *,
        claimed_ms: int,
        given_up: GivenUp | None = None,
    ) -> None:
        """Begin to beat for an attempt whose object and plain file were just created.

        Args:
            claimed_ms: a reading of the monotonic clock from before the claim was sent: observers
                cannot have seen it earlier, so the owner's deadline comes before theirs.
            given_up: where this process notes that it has given the attempt up.
        """
        self._given_up = GivenUp() if given_up is None else given_up
        self._storage = storage
        self._clock = clock
        self._attempt = claimed
        self._deadline_ms = claimed_ms + claimed.expiry_ms
        self._is_lapsed = False
        self._is_finished = False
        self._beats_in = this_process()
        give_up = partial(self._given_up.note, claimed.token)
        with about(table=storage.uri, instant=claimed.instant, attempt=claimed.attempt):
            try:
                # Twice as often as promised: with two tolerable misses, a single beat that storage
                # failed would otherwise leave no time for another before the deadline.
                self._timer: Timer = clock.every_ms(
                    max(1, claimed.interval_ms // 2),
                    while_kept(self.beat, give_up),
                    f"heartbeat-{claimed.instant}-{claimed.attempt}",
                )
            except BaseException:
                give_up()
                raise

    @property
    def attempt(self) -> Attempt:
        return self._attempt

    def beat(self) -> bool:
        """Refresh the heartbeat; False once it has lapsed, and then for ever."""
        began_ms = self._clock.monotonic_ms()
        if self._lapsed(began_ms):
            return False
        beaten = self._attempt.next_beat()
        try:
            self._storage.put(beaten.path, encode_attempt(beaten))
        except StorageError as error:
            # The next beat tries again; if none gets through, the deadline passes. It counts on, as
            # this one may have landed, and the same once more would be no sign of life (N-168).
            log.warning("heartbeat failed %s error=%s", self._attempt, error)
            self._attempt = beaten
            return True
        self._attempt = beaten
        if self._lapsed():
            return False  # It came too late: others may have given the attempt up before it landed.
        self._deadline_ms = began_ms + beaten.expiry_ms
        self._touch_plain_file()
        return True

    def check(self) -> None:
        """Raise `FencedError` if this owner let its heartbeat lapse: others may have taken over."""
        if self._beats_in != this_process():
            raise FencedError(
                f"{self._attempt} of instant {self._attempt.instant} belongs to the process that "
                "this one was forked from; nothing was written. Start an operation of its own here",
                kind=ErrorKind.HEARTBEAT_LAPSED,
                instant=self._attempt.instant,
            )
        if self._lapsed():
            raise FencedError(
                f"{self._attempt} of instant {self._attempt.instant} went "
                f"{self._attempt.expiry_ms} ms without a heartbeat and may have been taken over; "
                "nothing more was written. Start the operation again",
                kind=ErrorKind.HEARTBEAT_LAPSED,
                instant=self._attempt.instant,
            )

    def finish(self, beside: Callable[[], object] = lambda: None) -> None:
        """Stop after the instant has reached its end: the attempt is not needed any more.

        Doing so twice is no harm. `beside` is called at the same time.
        """
        if self._is_finished or self._beats_in != this_process():
            return
        self._is_finished = True
        self._timer.cancel()
        ended = [heartbeat_path(self._attempt.instant), self._attempt.path]

        def forget() -> None:
            self._tidy(lambda _: self._storage.delete_many(ended), self._attempt.path)

        both_at_once(self._storage, forget, beside)

    def release(self) -> None:
        """Stop after a failure: others need not wait, yet the attempt's number stays taken."""
        self._timer.cancel()
        self._given_up.note(self._attempt.token)
        if self._lapsed():
            return  # A lapsed owner writes nothing more, not even its own heartbeat (INV-21).
        # The plain file first: from the release on, a successor may have one of its own there.
        self._tidy(self._storage.delete, heartbeat_path(self._attempt.instant))
        self._attempt = self._attempt.released()
        data = encode_attempt(self._attempt)
        self._tidy(lambda path: self._storage.put(path, data), self._attempt.path)

    def share(self) -> None:
        """Go on beating beside other processes of the same attempt, until one of them ends it."""
        self._timer.cancel()
        self._timer = _shared_timer(self._storage, self._clock, self._attempt)

    def stop(self, unknown: CommitUnknownError | None = None) -> None:
        """Stop beating and leave everything: an unknown outcome may still turn out well (M4).

        Where nothing lands later the timeline tells how it did, so this process need not wait.
        """
        self._timer.cancel()
        if unknown is not None and unknown.is_over:
            self._given_up.note(self._attempt.token)

    def _lapsed(self, now_ms: int | None = None) -> bool:
        now_ms = self._clock.monotonic_ms() if now_ms is None else now_ms
        is_forked = self._beats_in != this_process()
        if not self._is_lapsed and (is_forked or now_ms >= self._deadline_ms):
            self._is_lapsed = True
            LAPSED.add(int(not is_forked), self._storage.uri)
        return self._is_lapsed

    def _touch_plain_file(self) -> None:
        self._tidy(lambda path: self._storage.put(path, b""), heartbeat_path(self._attempt.instant))

    def _tidy(self, call: Callable[[str], None], path: str) -> None:
        try:
            call(path)
        except StorageError as error:
            # What is left behind costs others a wait at most, so it must not fail the caller.
            log.warning("heartbeat file left behind path=%s error=%s", path, error)


def heartbeat_of(components: Components, claimed: Attempt, claimed_ms: int) -> Heartbeat:
    """Begin to beat for an attempt of this process."""
    return Heartbeat(
        components.storage,
        components.clock,
        claimed,
        claimed_ms=claimed_ms,
        given_up=components.ids.given_up,
    )


@contextmanager
def shared_heartbeat(storage: Storage, clock: Clock, attempt: Attempt) -> Iterator[None]:
    """Beat for an attempt that several processes work on, for as long as the block runs."""
    timer = _shared_timer(storage, clock, attempt)
    try:
        yield
    finally:
        timer.cancel()


def _shared_timer(storage: Storage, clock: Clock, attempt: Attempt) -> Timer:
    return clock.every_ms(
        max(1, attempt.interval_ms // 2),
        partial(beat_together, storage, attempt),
        f"heartbeat-{attempt.instant}-{attempt.attempt}",
    )


def beat_together(storage: Storage, attempt: Attempt) -> bool:
    """Refresh the heartbeat of an attempt that several processes work on; False once it ended.

    Each counts on from what it finds, so that every beat changes the object. A beat that passes
    the end of the attempt leaves an object behind, which costs others a wait at most.
    """
    try:
        known = load_attempt(storage, attempt.instant, attempt.attempt)
        if known is None or not attempt.is_alive_in(known):
            return False
        storage.put(known.path, encode_attempt(known.next_beat()))
        storage.put(heartbeat_path(known.instant), b"")
    except StorageError as error:
        # The next beat tries again.
        log.warning("heartbeat failed %s error=%s", attempt, error)
    return True


def age_by_store(storage: Storage) -> Callable[[Attempt], int]:
    """Return what tells how old attempts are, by when the store says that they were written."""
    return lambda attempt: age_by_store_ms(storage, attempt.path) or 0


class HeartbeatWatch:
    """The observer's side: what this process has seen of other attempts, and since when."""

    def __init__(
        self,
        clock: Clock,
        is_gone: Callable[[Owner], bool] = lambda _: False,
        age_ms: Callable[[Attempt], int] = lambda _: 0,
        given_up: Container[str] = (),
    ) -> None:
        """Begin to watch.

        Args:
            age_ms: tells how long an attempt has been as it is when this process first sees it.
            given_up: the tokens of attempts that this process itself has given up (N-96).
        """
        self._given_up = given_up
        self._clock = clock
        self._is_gone = is_gone
        self._age_ms = age_ms
        self._seen: dict[tuple[InstantTime, int], tuple[Attempt, int]] = {}

    def is_active(self, attempt: Attempt) -> bool:
        """Whether the attempt counts as alive, given when this process last saw it change."""
        return self.remaining_ms(attempt) > 0

    def remaining_ms(self, attempt: Attempt) -> int:
        """How much longer the attempt counts as alive if it does not change; 0 once it is dead."""
        if attempt.is_released or attempt.token in self._given_up or self._is_gone(attempt.owner):
            return 0
        key = (attempt.instant, attempt.attempt)
        age_ms = 0 if key in self._seen else self._age_ms(attempt)
        now_ms = self._clock.monotonic_ms()
        seen, since_ms = self._seen.get(key, (None, now_ms))
        if seen != attempt:
            since_ms = now_ms - age_ms
            self._seen.pop(key, None)  # Reinsert as youngest, so the oldest is forgotten first.
            self._seen[key] = (attempt, since_ms)
            if len(self._seen) > _WATCHED_MAX:
                del self._seen[next(iter(self._seen))]
        return max(0, since_ms + attempt.expiry_ms - now_ms)
