"""Which micro-batches of a streaming query a table has: exactly once, also after a replay.

A query that was stopped between the commit of a batch to the table and Spark's own note of it runs
that batch again. So every commit of a sink carries the batch's number in its metadata, under the
key that Hudi's streaming sink uses, as JSON `{"<sink>": "<batch>"}`, and the batch whose number is
the newest one is not committed again. Numbers of one sink only grow.

Two runs of one query at the same time are not told apart; Spark prevents them by its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from headwater.config.table import TableConfig
from headwater.errors import NotFoundError
from headwater.format.strict_json import load_json
from headwater.kernel.layout import sink_path
from headwater.kernel.txn.attempts import Attempt, decode_attempt, encode_attempt
from headwater.kernel.view.commits import CompletedCommit
from headwater.operations.newest_commits import load_newest_commits
from headwater.seams.storage import Storage

SINK_KEY = "_hudi_streaming_sink_checkpoint"


def encode_progress(sink: str, batch: int) -> dict[str, str]:
    """Return the entry of commit metadata that says which batch this is."""
    return {SINK_KEY: json.dumps({sink: str(batch)})}


def load_newest_batch(storage: Storage, config: TableConfig, sink: str) -> int | None:
    """Return the number of the newest batch of a sink that the table has, or None.

    Raises:
        CorruptTableError: the timeline breaks the format.
        StorageError: storage failed.
    """
    for some in load_newest_commits(storage, config):
        found = _newest_in(some, sink)
        if found is not None:
            return found
    return None


def save_attempt(storage: Storage, sink: str, attempt: Attempt) -> None:
    """Note which attempt a sink has begun, for whoever must give it up without having seen it."""
    storage.put(sink_path(sink), encode_attempt(attempt))


def load_saved_attempt(storage: Storage, sink: str) -> Attempt | None:
    """Return the attempt that a sink has begun last, whatever has become of it."""
    path = sink_path(sink)
    try:
        return decode_attempt(storage.read(path), path=path)
    except NotFoundError:
        return None


def _newest_in(commits: Iterable[CompletedCommit], sink: str) -> int | None:
    batches = (_batch_of(commit, sink) for commit in commits)
    return max((batch for batch in batches if batch is not None), default=None)


def _batch_of(commit: CompletedCommit, sink: str) -> int | None:
    """Return the batch of a commit if it is the sink's; what others wrote there is theirs."""
    text = (commit.metadata.extra_metadata or {}).get(SINK_KEY)
    try:
        entries = load_json(text) if text else None
        return int(entries[sink]) if isinstance(entries, dict) and sink in entries else None
    except (ValueError, TypeError):
        return None
