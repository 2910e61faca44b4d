"""One compaction plan P and the processes that execute it, as the guard scenarios share them.

The work is as small as work can be: one data file per execution, with the attempt in its name, and
a completed file that lists it. Everything around it is the product.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
)
from headwater.kernel.layout import attempt_path
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.guard import Executed, run_guarded
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.transaction import Transaction
from headwater.model.instant import InstantTime
from headwater.seams.components import Components
from headwater.seams.ids import Owner
from headwater.seams.storage import Storage
from headwater.testing.actor import Body, Process
from headwater.testing.check import (
    BEGUN,
    COMMITTED,
    ENDED,
    FAILED,
    FENCED,
    REFUSED,
    RETURNED,
    UNKNOWN,
    Checks,
)
from headwater.testing.operation import Kind, Op
from headwater.testing.table import LAYOUT, TIMELINE, attempts_in
from headwater.testing.world import World

PLAN = InstantTime("20251231235959000")
PARTITION = "city=sf"
INTERVAL_MS = 2_000
TOLERABLE_MISSES = 2
EXPIRY_MS = INTERVAL_MS * TOLERABLE_MISSES
DEAD = Attempt(
    instant=PLAN,
    attempt=1,
    token="dead",
    owner=Owner("Z", 1, "Z-1"),
    purpose=Purpose.EXECUTE,
    started_ms=0,
    interval_ms=INTERVAL_MS,
    tolerable_misses=TOLERABLE_MISSES,
    is_released=True,
)
"""The claim of a process that is gone."""
LOCK_TIMEOUT_MS = 60_000

_DATA_NAME = re.compile(r".*_(?P<attempt>\d+)-0-0_(?P<time>\d{17})\.parquet")

MakeTransaction = Callable[[Components], Transaction]


def lock_transaction(components: Components) -> Transaction:
    return transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)


def components_of(process: Process) -> Components:
    return Components(process.storage, process.clock, process.ids, process.lock)


def claim_of(process: Process, interval_ms: int = INTERVAL_MS) -> Claim:
    return Claim.new(process.ids, interval_ms=interval_ms, tolerable_misses=TOLERABLE_MISSES)


def data_path(time: InstantTime, attempt: int, file_id: str = "fg-1") -> str:
    """Return the path of a data file; the attempt is in its write token."""
    return f"{PARTITION}/{file_id}_{attempt}-0-0_{time}.parquet"


def attempt_of(path: str) -> tuple[str, int] | None:
    found = _DATA_NAME.fullmatch(path)
    return None if found is None else (found["time"], int(found["attempt"]))


def encode_files(paths: list[str]) -> bytes:
    """Return the content of a completed file, in the simulator's own notation."""
    return json.dumps({"files": paths}).encode()


def files_of(content: bytes) -> list[str]:
    files: list[str] = json.loads(content)["files"]
    return files


CHECKS = Checks(files_of=files_of, attempt_of=attempt_of)


@dataclass(frozen=True, slots=True)
class OneFile:
    """Write one data file; undo by deleting the files whose names tell of dead attempts."""

    storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        for found in self.storage.list_tree(PARTITION):
            owner = attempt_of(found.path)
            if owner is not None and self.is_dead(owner, attempt):
                self.storage.delete(found.path)

    def is_dead(self, owner: tuple[str, int], attempt: Attempt) -> bool:
        return owner[0] == attempt.instant and owner[1] < attempt.attempt

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        path = data_path(attempt.instant, attempt.attempt)
        self.storage.put(path, f"rows by {attempt.token}".encode())
        return encode_files([path])


def executor(
    *,
    rounds: int = 2,
    transaction: MakeTransaction = lock_transaction,
    work: Callable[[Storage], Any] = OneFile,
) -> Body:
    """Return an actor that executes the plan; when refused it waits for the expiry and retries."""

    def body(process: Process) -> str:
        components = components_of(process)
        txn = transaction(components)
        word = REFUSED
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(EXPIRY_MS)
            process.note(BEGUN)
            word = _execute_once(process, components, txn, work(process.storage))
            process.note(ENDED, word, PLAN if word in (COMMITTED, RETURNED, REFUSED) else "")
            if word != REFUSED:
                break
        return word

    return body


def _execute_once(process: Process, components: Components, txn: Transaction, work: Any) -> str:
    try:
        done = run_guarded(components, txn, PLAN, claim_of(process), work)
    except CommitUnknownError:
        return UNKNOWN
    except FencedError:
        return FENCED
    except ConflictError as conflict:
        return REFUSED if conflict.kind is ErrorKind.ALREADY_RUNNING else FAILED
    except HeadwaterError:
        return FAILED
    return COMMITTED if isinstance(done, Executed) else RETURNED


def request_plan(world: World) -> None:
    """Set up P REQUESTED, with the attempt that a process claims which plans for later."""
    world.apply("set-up", Op(Kind.PUT, f"{TIMELINE}/{PLAN}.compaction.requested", b"the plan"))
    world.apply("set-up", Op(Kind.PUT, attempt_path(PLAN, 1), encode_attempt(DEAD)))


def request_plan_with_dead_attempt(world: World) -> None:
    """Set up P INFLIGHT, with a released attempt 1 of a process that is gone, and its file."""
    request_plan(world)
    world.apply("set-up", Op(Kind.PUT, f"{TIMELINE}/{PLAN}.compaction.inflight", b""))
    world.apply("set-up", Op(Kind.PUT, data_path(PLAN, 1), b"rows of the dead"))
    world.apply("set-up", Op(Kind.PUT, attempt_path(PLAN, 1), encode_attempt(DEAD.released())))


def heartbeat_deadlines_ms(world: World) -> list[int]:
    """Return when the heartbeats in storage lapse."""
    return [
        modified_ms + attempt.expiry_ms
        for _, modified_ms, attempt in attempts_in(world)
        if not attempt.is_released
    ]
