"""Notes in commits: one chain a job, found again, and damage told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import a_table

from headwater.errors import ConflictError, CorruptTableError
from headwater.ingest.checkpoint import NOTE_KEY, Note, check_still_newest, load_notes
from headwater.model.commit import Commit
from headwater.model.operation import Operation
from headwater.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path, "id string, value long").create()


def commit(table: Table, metadata: dict[str, str]) -> Commit:
    rows = pa.table({"id": ["a"], "value": [1]})
    return table._write(Operation.UPSERT, rows, extra_metadata=metadata)


def numbers(table: Table, job: str) -> list[int]:
    return [note.number for note in load_notes(table.context, job)]


def test_jobs_keep_notes_beside_each_other(table: Table) -> None:
    for number in range(1, 9):
        commit(table, Note("one", number, {"n": number}).to_metadata())
        commit(table, Note("two", number, {}).to_metadata() if number == 1 else {})
    commit(table, Note("two", 2, {}).to_metadata())
    commit(table, Note("two", 3, {}).to_metadata())

    assert numbers(table, "one") == list(range(8, 0, -1))
    assert next(load_notes(table.context, "one")).content == {"n": 8}
    assert numbers(table, "none") == []
    newest, before, *_ = load_notes(table.context, "one")
    check_still_newest(table.context, "one", newest)
    check_still_newest(table.context, "none", None)
    for job, note in (("one", before), ("one", None), ("none", newest)):
        with pytest.raises(ConflictError, match=f"Another process runs the job {job}"):
            check_still_newest(table.context, job, note)


def test_a_number_that_comes_again_is_another_note(table: Table) -> None:
    commit(table, Note("one", 1, {}).to_metadata())
    (before,) = load_notes(table.context, "one")
    assert before.instant is not None
    table.services.rollback(before.instant)
    commit(table, Note("one", 1, {}).to_metadata())

    with pytest.raises(ConflictError, match="the newest of it in trips is batch 1 at"):
        check_still_newest(table.context, "one", before)


def test_a_note_that_lacks_what_its_source_needs_is_damage() -> None:
    with pytest.raises(CorruptTableError, match="Note 3 of the job one does not say until"):
        Note("one", 3, {}).value("until")


def test_what_is_known_to_have_no_note_is_not_read(table: Table) -> None:
    done = commit(table, {NOTE_KEY: "this would be damage"})
    assert list(load_notes(table.context, "one", done.completion_time)) == []
    check_still_newest(table.context, "one", None, done.completion_time)
    commit(table, Note("one", 1, {}).to_metadata())
    assert [note.number for note in load_notes(table.context, "one", done.completion_time)] == [1]


def test_a_note_that_is_missing_is_damage(table: Table) -> None:
    for number in (1, 2, 4):
        commit(table, Note("one", number, {}).to_metadata())
    with pytest.raises(CorruptTableError, match="no commit with note 3 of the job one"):
        numbers(table, "one")


@pytest.mark.parametrize("text", ["", "[]", '{"job": "one"}', '{"job": "one", "number": "x"}'])
def test_a_note_that_cannot_be_read_is_damage(table: Table, text: str) -> None:
    commit(table, {NOTE_KEY: text})
    with pytest.raises(CorruptTableError, match="has a note of a job"):
        numbers(table, "one")
