"""Writers that ingest one file each, as the scenarios about acknowledgements share them."""

from __future__ import annotations

from contextlib import suppress

from headwater.errors import CommitUnknownError, FencedError, HeadwaterError
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.transaction import Transaction
from headwater.kernel.txn.writes import request_write
from headwater.model.instant import Action, InstantTime
from headwater.seams.components import Components
from headwater.testing.actor import Body, Process
from headwater.testing.check import (
    BEGUN,
    COMMITTED,
    ENDED,
    FAILED,
    FENCED,
    READ_BACK,
    UNKNOWN,
)
from headwater.testing.scenarios.plan import (
    MakeTransaction,
    claim_of,
    components_of,
    data_path,
    encode_files,
    lock_transaction,
)
from headwater.testing.table import TIMELINE


def writer(*, transaction: MakeTransaction = lock_transaction) -> Body:
    """Return an actor that ingests one file, and tells the checker what it was told.

    After a definite failure it deletes its own file, as a tidy writer may; after an unknown outcome
    it deletes nothing and reads the timeline back.
    """

    def body(process: Process) -> str:
        components = components_of(process)
        process.note(BEGUN)
        word, time = ingest(process, components, transaction(components))
        process.note(ENDED, word, time)
        if word == UNKNOWN and time:
            found = load_active(components.storage, TIMELINE).find(time)
            process.note(READ_BACK, time, found is not None and found.is_completed)
        return word

    return body


def ingest(process: Process, components: Components, txn: Transaction) -> tuple[str, InstantTime]:
    time, path = InstantTime(""), ""
    started = None
    try:
        started = request_write(components, txn, Action.COMMIT, claim_of(process))
        time = started.instant_time
        inflight = started.enter_inflight(b"the workload profile")
        path = data_path(time, started.attempt.attempt, file_id=f"fg-{process.name}")
        components.storage.put(path, f"rows by {process.name}".encode())
        inflight.commit(encode_files([path]))
    except CommitUnknownError:
        return UNKNOWN, time
    except HeadwaterError as error:
        is_fenced = isinstance(error, FencedError)
        if path and not is_fenced:
            # A file it fails to delete is an orphan: listed by nothing, swept later.
            with suppress(HeadwaterError):
                components.storage.delete(path)
        if started is not None:
            started.abandon()
        return FENCED if is_fenced else FAILED, time
    return COMMITTED, time
