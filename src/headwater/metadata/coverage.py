"""Which partitions of the metadata table an instant has told what it did (H-48)."""

from __future__ import annotations

from collections.abc import Collection

from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import METADATA_TIMELINE
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.metadata.partition_files import covered_partitions
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage


def load_covered(
    storage: Storage, times: Collection[InstantTime]
) -> dict[InstantTime, frozenset[str]]:
    """Return the partitions that instants have covered, of those that told any.

    An instant without a delta commit on the metadata table's timeline is not in the answer.

    Raises:
        CorruptTableError: a commit of the metadata table is damaged.
        NotFoundError: kind INSTANT_NOT_FOUND; one was archived meanwhile.
    """
    if not times:
        return {}
    timeline = load_active(storage, METADATA_TIMELINE)
    done = [i for i in timeline.completed if i.requested_time in times]
    covered = {}
    for instant, data in zip(done, load_contents(storage, METADATA_TIMELINE, done), strict=True):
        path = instant_path(METADATA_TIMELINE, instant)
        metadata = decode_record(CommitMetadata, data, path=path)
        covered[instant.requested_time] = covered_partitions(metadata)
    return covered
