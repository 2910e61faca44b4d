"""Files that a process publishes after another one has taken its plan over (N-187)."""

from __future__ import annotations

import logging

from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.markers import files_by_name
from headwater.kernel.txn.metadata_commit import delete_metadata_logs
from headwater.model.files import is_file_of

log = logging.getLogger(__name__)


def delete_late_files(table: TableContext, lost: Attempt) -> None:
    """Delete what an attempt that has lost its plan published, whoever completed that.

    Markers do not tell: who completed the plan has deleted them.
    """
    time, reader, storage = lost.instant, table.commit_reader(), table.storage
    try:
        found = table.load_timeline().find(time)
        if found is None:
            commits = reader.load_archived([time])
        else:
            commits = reader.load([found]) if found.is_completed else []
        listed = {file.path for commit in commits for file in commit.files}
        if any(is_file_of(path, time, attempt=lost.attempt) for path in listed):
            return  # It has not lost after all.
        named = (marker.data_path for marker in files_by_name(storage, time))
        late = [path for path in named if is_file_of(path, time, attempt=lost.attempt)]
        storage.delete_many(late)
        delete_metadata_logs(storage, time, attempt=lost.attempt)
    except HeadwaterError as error:
        log.warning("files of an attempt that lost may remain attempt=%s error=%s", lost, error)
        return
    if late:
        log.info("late files deleted instant=%s files=%s", time, late)
