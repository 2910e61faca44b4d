"""What happened: one `Step` per action, and the `Facts` checkers remember across steps.

The search stops at a state it has seen before. Whatever a checker remembers must therefore be
part of the state, or it would miss violations that depend on how a state was reached: that is what
`Facts` are for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import StrEnum, unique
from hashlib import blake2b
from typing import Any, NamedTuple

from headwater.testing.actor import Note, Outcome
from headwater.testing.operation import Failure, Op, show_answer
from headwater.testing.world import Change

_DIGEST_MASK = (1 << 128) - 1


@unique
class Move(StrEnum):
    """What the scheduler can do."""

    RUN = "run"
    LOST_REPLY = "lost"
    FAIL = "fail"
    LIMBO = "limbo"
    LAND = "land"
    CRASH = "crash"
    TICK = "tick"
    IDLE = "idle"  # Time passes because nobody can do anything else; costs nothing.
    EXPIRE_LOCK = "expire"
    STEP_CLOCK = "step"
    STOP_TIMER = "stop"
    RESTART = "restart"


class Action(NamedTuple):
    """One decision of the scheduler. Its text is what decision lists hold."""

    move: Move
    actor: str = ""
    thread: int = 0
    detail: str = ""

    def __str__(self) -> str:
        who = f"{self.actor}/{self.thread}" if self.thread else self.actor
        return " ".join(part for part in (self.move, who, self.detail) if part)


class Step(NamedTuple):
    """One action and what it did.

    A decision of a fenced table changes several objects at once; checkers take the step apart with
    `by_change` and look at each.
    """

    action: Action
    actor: str = ""
    op: Op | None = None
    answer: Any = None
    changes: tuple[Change, ...] = ()
    notes: tuple[Note, ...] = ()
    outcome: Outcome | None = None

    @property
    def path(self) -> str:
        """The object that was created, changed or deleted, if there is one."""
        return self.changes[0].path if self.changes else ""

    @property
    def before(self) -> bytes | None:
        return self.changes[0].before if self.changes else None

    @property
    def after(self) -> bytes | None:
        return self.changes[0].after if self.changes else None

    def by_change(self) -> list[Step]:
        """Return the step once for each object that it changed; once as well if there is none."""
        if len(self.changes) < 2:
            return [self]
        return [self._replace(changes=(change,)) for change in self.changes]

    def describe(self) -> str:
        """Return what the step did, without the actor's name."""
        match self.action.move:
            case Move.RUN | Move.FAIL:
                return f"{self.op} -> {show_answer(self.answer)}"
            case Move.LOST_REPLY:
                return f"{self.op} took effect, its reply is lost"
            case Move.LIMBO:
                return f"{self.op} fails, and may land later"
            case Move.LAND:
                return f"late landing: {self.op} -> {show_answer(self.answer)}"
            case Move.CRASH:
                return f"crashes at {self.op} (fate: {self.action.detail})"
            case Move.TICK | Move.IDLE:
                return f"time advances by {self.answer} ms"
            case Move.EXPIRE_LOCK:
                return f"the lease of lock {self.action.detail!r} ends under its holder"
            case Move.STEP_CLOCK:
                return f"its clock steps by {self.action.detail} ms"
            case Move.STOP_TIMER:
                return f"its timer fails at {self.op}"
            case Move.RESTART:
                return "starts again"

    @property
    def has_failed(self) -> bool:
        return isinstance(self.answer, Failure)


class Facts:
    """Named values that checkers remember; a small dict that forks for free."""

    __slots__ = ("_values", "digest")

    def __init__(self) -> None:
        self._values: dict[Hashable, Hashable] = {}
        self.digest = 0

    def fork(self) -> Facts:
        twin = Facts.__new__(Facts)
        twin._values = self._values
        twin.digest = self.digest
        return twin

    def get(self, name: Hashable) -> Any:
        """Return what was learned, or None."""
        return self._values.get(name)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._values.items())

    def learn(self, name: Hashable, value: Hashable = True) -> None:
        old = self._values.get(name)
        if old == value:
            return
        change = _digest(name, value) - (0 if old is None else _digest(name, old))
        self._values = {**self._values, name: value}
        self.digest = (self.digest + change) & _DIGEST_MASK

    def forget(self, name: Hashable) -> None:
        """Drop what can make no difference any more, so that more states are the same."""
        old = self._values.get(name)
        if old is not None:
            self._values = {key: value for key, value in self._values.items() if key != name}
            self.digest = (self.digest - _digest(name, old)) & _DIGEST_MASK


def _digest(name: Hashable, value: Hashable) -> int:
    return int.from_bytes(blake2b(repr((name, value)).encode(), digest_size=16).digest())
