"""Which files were taken: exact, however many there are, in notes that stay small."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptTableError
from headwater.ingest.checkpoint import Note
from headwater.ingest.folder import chosen_files
from headwater.ingest.taken_files import TakenFiles, taken_in
from headwater.model.instant import InstantTime
from headwater.seams.storage import ObjectInfo


def file(number: int, *, size: int = 1, modified_ms: int = 0) -> ObjectInfo:
    return ObjectInfo(f"{number}.json", size, modified_ms)


@settings(max_examples=max(1, settings().max_examples // 5))
@given(st.lists(st.sampled_from([1, 3, 90, 400, 700]), max_size=12))
def test_notes_tell_what_was_taken(sizes: list[int]) -> None:
    """However files are cut into batches: those of the notes, and no others."""
    taken, notes, seen = TakenFiles({}), list[Note](), list[int]()
    known = list[tuple[InstantTime | None, TakenFiles]]()
    for number, size in enumerate(sizes, start=1):
        new = range(len(seen), len(seen) + size)
        seen += new
        taken, content = taken.after([file(n) for n in new], [file(n) for n in seen])
        instant = InstantTime(f"{number:017}")
        notes.append(Note("job", number, json.loads(json.dumps(content)), instant))
        known.append((instant, taken))

    read = taken_in(reversed(notes))
    assert read == taken
    assert all(taken_in(reversed(notes), each) == taken for each in known)
    assert len(read.versions) == len(seen)
    assert all(read.has(file(n)) for n in seen)
    assert not read.has(file(-1))


def test_all_notes_together_are_a_few_entries_for_each_file() -> None:
    taken, sizes, waits = TakenFiles({}), list[int](), list[int]()
    listed: list[ObjectInfo] = []
    for batch in range(300):
        new = [file(batch * 100 + n) for n in range(100)]
        listed += new
        taken, content = taken.after(new, listed)
        sizes.append(len(json.dumps(content)))
        waits += [batch] if "all" in content else []
    assert sum(sizes) < 10 * 16 * len(listed)
    assert max(late - early for early, late in pairwise(waits)) <= 51


def test_few_files_are_always_said_all() -> None:
    taken, content = TakenFiles({}).after([file(1)], [file(1)])
    assert "all" in content
    _, content = taken.after([file(2)], [file(1), file(2)])
    assert "all" in content


def test_files_that_are_gone_are_forgotten() -> None:
    taken, _ = TakenFiles({}).after([file(1), file(2)], [file(1), file(2)])
    taken, _ = taken.after([file(3)], [file(2), file(3)])
    assert [taken.has(file(n)) for n in (1, 2, 3)] == [False, True, True]


def test_a_change_is_noticed() -> None:
    taken, _ = TakenFiles({}).after([file(1)], [file(1)])
    assert not taken.has_changed(file(1))
    assert taken.has_changed(file(1, size=2))
    assert taken.has_changed(file(1, modified_ms=5))
    assert not taken.has_changed(file(2))


def test_damaged_notes_are_said() -> None:
    with pytest.raises(CorruptTableError, match="Note 3 of the job trips does not tell its files"):
        taken_in([Note("trips", 3, {"all": "no base64!"})])


def test_the_oldest_files_come_first_whatever_came_later() -> None:
    """A file that comes late with an old time is taken like any other."""
    files = [file(1, modified_ms=30), file(2, modified_ms=10), file(3, modified_ms=20)]
    taken, _ = TakenFiles({}).after(files, files)
    late = file(4, modified_ms=1)

    assert chosen_files([*files, late], taken, files_max=10, bytes_max=100) == [late]
    assert chosen_files(files, TakenFiles({}), files_max=2, bytes_max=100) == [files[1], files[2]]
