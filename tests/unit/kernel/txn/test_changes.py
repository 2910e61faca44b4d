"""Reading what other instants did, while they may leave the active timeline."""

from __future__ import annotations

import pytest
from tests.support.memory_storage import MemoryStorage

from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.txn.changes import Touch, load_changes
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State

LAYOUT = TableLayout()


def committed(storage: MemoryStorage, number: int) -> Instant:
    """Commit a base file of a group of its own."""
    time = InstantTime(f"2026010100000000{number}")
    name = f"fg-{number}_0-1-0_{time}.parquet"
    stat = WriteStat(file_id=f"fg-{number}", path=f"p/{name}", partition_path="p")
    metadata = CommitMetadata(partition_to_write_stats={"p": (stat,)}, operation_type="UPSERT")
    done = Instant(time, Action.COMMIT, State.COMPLETED, InstantTime(f"2026010100000001{number}"))
    for state in (State.REQUESTED, State.INFLIGHT):
        storage.put(instant_path(LAYOUT.timeline, done, state), b"")
    storage.put(instant_path(LAYOUT.timeline, done), encode_record(metadata))
    return done


@pytest.mark.parametrize("archived", [0, 1, 2])
def test_instants_that_archival_takes_away_after_the_listing_are_read_where_they_are(
    archived: int,
) -> None:
    storage = MemoryStorage()
    listed = [committed(storage, number) for number in range(3)]
    archive_instants(storage, LAYOUT, listed[:archived])
    changes = load_changes(storage, LAYOUT, listed)
    assert {time: change.touches for time, change in changes.items()} == {
        instant.requested_time: {FileGroupId("p", f"fg-{number}"): Touch.WRITE_BASE}
        for number, instant in enumerate(listed)
    }
