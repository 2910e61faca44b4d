"""Reading what timeline files say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import ErrorKind, NotFoundError, Retry
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.contents import TimelineContents, load_contents
from headwater.model.instant import Instant, State
from headwater.seams.storage import Storage

FOLDER = TableLayout().timeline


@pytest.fixture
def storage(
    put_instants: Callable[[Storage, Iterable[Instant]], None], terminal: list[Instant]
) -> CountingStorage:
    storage = CountingStorage(MemoryStorage())
    put_instants(storage, terminal)
    storage.reset()
    return storage


def said(instants: Iterable[Instant], state: State | None = None) -> list[bytes]:
    return [f"{state or i.state} of {i.requested_time}".encode() for i in instants]


def test_contents_come_in_the_order_of_the_instants(
    storage: CountingStorage, terminal: list[Instant]
) -> None:
    backwards = terminal[::-1]
    assert load_contents(storage, FOLDER, backwards) == said(backwards)
    assert load_contents(storage, FOLDER, iter(backwards), State.REQUESTED) == said(
        backwards, State.REQUESTED
    )
    assert load_contents(storage, FOLDER, []) == []
    assert storage.counts == {"read_many": 2 * len(terminal)}


@pytest.mark.parametrize(
    "load",
    [
        partial(load_contents, folder=FOLDER),
        lambda storage, instants: TimelineContents(storage, FOLDER).load(instants),
    ],
)
def test_a_file_that_vanished_calls_for_a_fresh_view(
    storage: CountingStorage, terminal: list[Instant], load: Callable[..., list[bytes]]
) -> None:
    path = f"{FOLDER}/{terminal[0].requested_time}_{terminal[0].completion_time}.deltacommit"
    storage.delete(path)
    with pytest.raises(NotFoundError) as raised:
        load(storage=storage, instants=terminal)
    assert raised.value.kind is ErrorKind.INSTANT_NOT_FOUND
    assert raised.value.retry is Retry.FRESH_VIEW
    assert raised.value.context["path"] == path


def test_what_was_read_once_is_remembered_even_if_it_is_archived_meanwhile(
    storage: CountingStorage, terminal: list[Instant]
) -> None:
    contents = TimelineContents(storage, FOLDER)
    assert contents.load(terminal[:2]) == said(terminal[:2])
    storage.delete(
        f"{FOLDER}/{terminal[0].requested_time}_{terminal[0].completion_time}.deltacommit"
    )
    storage.reset()
    asked = [*terminal[:3], terminal[0]]
    assert contents.load(asked) == said(asked)
    assert storage.counts == {"read_many": 1}


def test_states_are_remembered_apart(storage: CountingStorage, terminal: list[Instant]) -> None:
    contents = TimelineContents(storage, FOLDER)
    contents.load(terminal)
    assert contents.load(terminal, State.INFLIGHT) == said(terminal, State.INFLIGHT)


def test_the_longest_unused_are_forgotten_beyond_the_bound(
    storage: CountingStorage, terminal: list[Instant]
) -> None:
    completed = [instant for instant in terminal if instant.is_completed][:3]
    size = len(said(completed)[0])
    contents = TimelineContents(storage, FOLDER, bytes_max=2 * size)
    contents.load(completed[:2])
    contents.load(completed[:1])
    contents.load(completed[2:])  # The second is the one unused for longest.
    storage.reset()
    contents.load([completed[0], completed[2]])
    assert storage.counts == {}
    contents.load(completed[1:2])
    assert storage.counts == {"read_many": 1}


def test_a_request_beyond_the_bound_is_answered_all_the_same(
    storage: CountingStorage, terminal: list[Instant]
) -> None:
    contents = TimelineContents(storage, FOLDER, bytes_max=1)
    assert contents.load(terminal) == said(terminal)
    assert contents.load(terminal) == said(terminal)
