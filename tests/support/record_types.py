"""Which record a timeline file holds, by the action and state in its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headwater.errors import ErrorKind, InvalidInputError
from headwater.format.timeline.schemas import Record
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from headwater.model.instant import Action, State
from headwater.model.plans import (
    CleanerPlan,
    CompactionPlan,
    IndexPlan,
    RequestedReplace,
    RestorePlan,
    RollbackPlan,
)
from headwater.model.service_metadata import (
    CleanMetadata,
    IndexCommitMetadata,
    RestoreMetadata,
    RollbackMetadata,
    SavepointMetadata,
)

# Requested, inflight, completed. Two kinds of inflight file hold a record or nothing: those of
# cleans, and of the delta commits in which the metadata table builds an index.
_RECORD_TYPES: Mapping[Action, tuple[type[Record] | None, ...]] = MappingProxyType(
    {
        Action.COMMIT: (None, CommitMetadata, CommitMetadata),
        Action.DELTA_COMMIT: (None, CommitMetadata, CommitMetadata),
        Action.REPLACE_COMMIT: (RequestedReplace, CommitMetadata, ReplaceCommitMetadata),
        Action.COMPACTION: (CompactionPlan, None, CommitMetadata),
        Action.LOG_COMPACTION: (CompactionPlan, None, CommitMetadata),
        Action.CLUSTERING: (RequestedReplace, None, ReplaceCommitMetadata),
        Action.CLEAN: (CleanerPlan, CleanerPlan, CleanMetadata),
        Action.ROLLBACK: (RollbackPlan, None, RollbackMetadata),
        Action.RESTORE: (RestorePlan, None, RestoreMetadata),
        Action.SAVEPOINT: (None, None, SavepointMetadata),
        Action.INDEXING: (IndexPlan, None, IndexCommitMetadata),
    }
)
_COLUMNS: Mapping[State, int] = MappingProxyType(
    {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}
)


def record_type(action: Action, state: State) -> type[Record] | None:
    """Return the class of the record in a timeline file, None if such files are always empty.

    Raises:
        InvalidInputError: the state is ABORTED, whose file is no record of Hudi's.
    """
    if state not in _COLUMNS:
        raise InvalidInputError(
            f"The file of an instant in state {state} holds no Hudi record (action {action}). Ask "
            "for the requested, inflight or completed file.",
            kind=ErrorKind.INVALID_STATE,
        )
    return _RECORD_TYPES[action][_COLUMNS[state]]
