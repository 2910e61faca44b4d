"""Table 2.2 of the format: what sits in which timeline file."""

from __future__ import annotations

import pytest
from tests.support.record_types import record_type

from headwater.errors import ErrorKind, InvalidInputError
from headwater.format.timeline.schemas import RECORD_SCHEMAS
from headwater.model.instant import Action, State

CONTENTS = {
    "commit": ("", "CommitMetadata", "CommitMetadata"),
    "deltacommit": ("", "CommitMetadata", "CommitMetadata"),
    "compaction": ("CompactionPlan", "", "CommitMetadata"),
    "logcompaction": ("CompactionPlan", "", "CommitMetadata"),
    "clustering": ("RequestedReplaceMetadata", "", "ReplaceCommitMetadata"),
    "replacecommit": ("RequestedReplaceMetadata", "CommitMetadata", "ReplaceCommitMetadata"),
    "clean": ("CleanerPlan", "CleanerPlan", "CleanMetadata"),
    "rollback": ("RollbackPlan", "", "RollbackMetadata"),
    "restore": ("RestorePlan", "", "RestoreMetadata"),
    "savepoint": ("", "", "SavepointMetadata"),
    "indexing": ("IndexPlan", "", "IndexCommitMetadata"),
}


@pytest.mark.parametrize("action", Action)
def test_record_by_action_and_state(action: Action) -> None:
    names = []
    for state in (State.REQUESTED, State.INFLIGHT, State.COMPLETED):
        cls = record_type(action, state)
        names.append("" if cls is None else RECORD_SCHEMAS[cls]["name"].removeprefix("Hoodie"))
    assert tuple(names) == CONTENTS[action]


def test_an_action_that_completes_as_another_holds_the_record_of_the_other() -> None:
    for action in Action:
        completed = record_type(action, State.COMPLETED)
        assert completed is record_type(action.completed_name, State.COMPLETED)


def test_aborted_files_hold_no_hudi_record() -> None:
    with pytest.raises(InvalidInputError, match="aborted") as raised:
        record_type(Action.CLUSTERING, State.ABORTED)
    assert raised.value.kind is ErrorKind.INVALID_STATE
