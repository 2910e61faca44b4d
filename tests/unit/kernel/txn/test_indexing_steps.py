"""Decisions about indexes: what they make of a moment, whoever comes late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.config.table import TableConfig
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, NotFoundError
from headwater.format.metadata.index_definitions import (
    IndexDefinition,
    IndexVersion,
    encode_index_definitions,
    parse_index_definitions,
)
from headwater.kernel.layout import INDEX_DEFINITIONS
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import ConfigChanged, DefinitionsChanged, Requested
from headwater.kernel.txn.index_births import IndexBirth, births_of
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    encode_index_plan,
    encode_index_result,
)
from headwater.kernel.txn.indexing_steps import (
    AbortIndexing,
    DropIndex,
    Published,
    PublishIndexes,
    RequestIndexing,
)
from headwater.kernel.txn.prefix import Prefix
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.ids import Owner
from headwater.testing.rows import config_of

PLAN = InstantTime("20260101000000005")
NEXT = InstantTime("20260101000000009")
INDEX, OTHER = "column_stats", "record_index"
IN_USE = "hoodie.table.metadata.partitions"
BUILDING = "hoodie.table.metadata.partitions.inflight"
BIRTHS = "headwater.indexes.planned"


def defined(name: str, column: str) -> IndexDefinition:
    return IndexDefinition(
        index_name=name, index_type=name, source_fields=(column,), version=IndexVersion.V2
    )


def planned(name: str, column: str) -> PlannedIndex:
    text = encode_index_definitions({name: defined(name, column)}).decode()
    return PlannedIndex(partition=name, group_count=2, definition=text)


def prefix(
    instants: tuple[Instant, ...] = (), properties: dict[str, str] | None = None, **seen: Any
) -> Prefix:
    config = config_of("COPY_ON_WRITE", properties or {})
    return Prefix(
        timeline=Timeline(instants),
        next_time=NEXT,
        now_ms=0,
        monotonic_ms=0,
        config=config,
        **seen,
    )


def completed_plan(**config: str) -> Prefix:
    """A plan that has completed, and has built one index of two."""
    done = Instant(PLAN, Action.INDEXING, State.COMPLETED, NEXT)
    both = [planned(INDEX, "a"), planned(OTHER, "b")]
    return prefix(
        (done,),
        {IN_USE: "files", **config},
        requests={PLAN: encode_index_plan(both, PLAN)},
        results={PLAN: encode_index_result(both[:1], PLAN)},
        definitions={INDEX: defined(INDEX, "a"), OTHER: defined(OTHER, "b")},
    )


def published_on(seen: Prefix) -> Decision[Published]:
    decision = PublishIndexes().decide(seen)
    assert not isinstance(decision, Refusal)
    return decision


def config_changes(events: tuple[Any, ...]) -> dict[str, str | None]:
    (changed,) = (event for event in events if isinstance(event, ConfigChanged))
    return dict(changed.changes)


def test_what_completed_plans_have_built_can_be_used_and_the_rest_is_gone() -> None:
    decision = published_on(completed_plan(**{BUILDING: f"{INDEX},{OTHER}"}))
    assert decision.result == Published(frozenset({INDEX}), frozenset({OTHER}))
    assert config_changes(decision.events) == {IN_USE: f"{INDEX},files", BUILDING: ""}
    (definitions,) = (e for e in decision.events if isinstance(e, DefinitionsChanged))
    left = parse_index_definitions(definitions.content, table_version=9, path="")
    assert left == {INDEX: defined(INDEX, "a")}


def test_who_publishes_late_publishes_nothing_that_was_dropped_since() -> None:
    assert published_on(completed_plan()).events == ()


def test_who_publishes_late_leaves_an_index_alone_that_is_planned_anew() -> None:
    seen = completed_plan(**{BUILDING: INDEX})
    again = Instant(NEXT, Action.INDEXING, State.INFLIGHT)
    both = prefix(
        (*seen.timeline.instants, again),
        {IN_USE: "files", BUILDING: INDEX},
        requests={**seen.requests, NEXT: encode_index_plan([planned(INDEX, "c")], NEXT)},
        results=seen.results,
    )
    assert published_on(both).events == ()


def test_a_plan_of_a_fenced_table_says_what_its_indexes_are() -> None:
    step = RequestIndexing(PLAN, (planned(INDEX, "a"),), PLAN)
    known = {OTHER: defined(OTHER, "b")}
    decision = step.decide(prefix(properties={IN_USE: "files"}, definitions=known, is_fenced=True))
    assert not isinstance(decision, Refusal)
    config, definitions, request = decision.events
    assert isinstance(config, ConfigChanged)
    assert config.changes == {BIRTHS: f"{INDEX}:{PLAN}:2"}
    assert isinstance(definitions, DefinitionsChanged)
    assert parse_index_definitions(definitions.content, table_version=9, path="") == {
        **known,
        INDEX: defined(INDEX, "a"),
    }
    assert isinstance(request, Requested)


def test_a_plan_of_a_table_that_trusts_its_lock_says_nothing_of_births() -> None:
    step = RequestIndexing(PLAN, (planned(INDEX, "a"),), PLAN)
    decision = step.decide(prefix(properties={IN_USE: "files"}))
    assert not isinstance(decision, Refusal)
    assert [type(event) for event in decision.events] == [DefinitionsChanged, Requested]


@pytest.mark.parametrize("is_fenced", [True, False])
def test_definitions_in_another_place_move_to_the_one_that_is_journaled(is_fenced: bool) -> None:
    place = {IN_USE: INDEX, "hoodie.table.index.defs.path": ".hoodie/elsewhere.json"}
    known = {INDEX: defined(INDEX, "a")}
    seen = prefix(properties=place, definitions=known, is_fenced=is_fenced)
    decision = DropIndex(INDEX, False, lambda _: frozenset()).decide(seen)
    assert not isinstance(decision, Refusal)
    (definitions,) = (e for e in decision.events if isinstance(e, DefinitionsChanged))
    moved = config_changes(decision.events).get("hoodie.table.index.defs.path")
    assert definitions.path == (INDEX_DEFINITIONS if is_fenced else ".hoodie/elsewhere.json")
    assert moved == (INDEX_DEFINITIONS if is_fenced else None)


def test_a_drop_takes_the_birth_along() -> None:
    births = f"{INDEX}:{PLAN}:2,{OTHER}:{PLAN}:4"
    seen = prefix(properties={IN_USE: f"{INDEX},{OTHER}", BIRTHS: births}, is_fenced=True)
    decision = DropIndex(INDEX, False, lambda _: frozenset()).decide(seen)
    assert not isinstance(decision, Refusal)
    assert config_changes(decision.events)[BIRTHS] == f"{OTHER}:{PLAN}:4"


def test_an_index_that_another_needs_at_that_moment_is_not_dropped() -> None:
    seen = prefix(properties={IN_USE: f"files,{OTHER}"})
    refused = DropIndex(OTHER, False, lambda others: others & {"files"}).decide(seen)
    assert isinstance(refused, Refusal)
    assert isinstance(refused.error, InvalidInputError)
    assert refused.error.kind is ErrorKind.INVALID_INDEX


def test_an_index_that_is_not_there_any_more_is_not_dropped() -> None:
    refused = DropIndex(INDEX, False, lambda _: frozenset()).decide(prefix())
    assert isinstance(refused, Refusal)
    assert isinstance(refused.error, NotFoundError)


LOST = CorruptTableError("They are lost", kind=ErrorKind.CORRUPT_METADATA_TABLE)


def test_without_definitions_nothing_is_planned_or_published() -> None:
    planning = RequestIndexing(PLAN, (planned(INDEX, "a"),), PLAN)
    assert planning.decide(prefix(definitions_lost=LOST)) == Refusal(LOST)
    unpublished = replace(completed_plan(**{BUILDING: INDEX}), definitions_lost=LOST)
    assert PublishIndexes().decide(unpublished) == Refusal(LOST)
    assert published_on(replace(completed_plan(), definitions_lost=LOST)).events == ()


def test_the_indexes_whose_definitions_are_lost_go_with_the_first_that_is_dropped() -> None:
    """But not those that need none, nor those of a plan, which has their definitions."""
    being_built = Instant(PLAN, Action.INDEXING, State.INFLIGHT)
    seen = prefix(
        (being_built,),
        {IN_USE: f"bloom_filters,files,partition_stats,{INDEX}", BUILDING: OTHER},
        requests={PLAN: encode_index_plan([planned(OTHER, "b")], PLAN)},
        definitions_lost=LOST,
    )
    decision = DropIndex(INDEX, False, lambda _: frozenset()).decide(seen)
    assert not isinstance(decision, Refusal)
    assert config_changes(decision.events) == {IN_USE: "bloom_filters,files", BUILDING: OTHER}
    (definitions,) = (e for e in decision.events if isinstance(e, DefinitionsChanged))
    left = parse_index_definitions(definitions.content, table_version=9, path="")
    assert left == {OTHER: defined(OTHER, "b")}


def test_a_plan_can_be_given_up_though_the_definitions_are_lost() -> None:
    attempt = Attempt(
        instant=PLAN,
        attempt=1,
        token="token",
        owner=Owner("host", 7, "writer", "boot pid:[1]", 5),
        purpose=Purpose.EXECUTE,
        started_ms=0,
        interval_ms=100,
        tolerable_misses=2,
    )
    seen = prefix(
        (Instant(PLAN, Action.INDEXING, State.INFLIGHT),),
        {IN_USE: "files", BUILDING: INDEX},
        requests={PLAN: encode_index_plan([planned(INDEX, "a")], PLAN)},
        newest_attempt_numbers={PLAN: 1},
        metadata_names={PLAN: ()},
        definitions_lost=LOST,
    )
    decision = AbortIndexing(attempt).decide(seen)
    assert not isinstance(decision, Refusal)
    assert config_changes(decision.events) == {IN_USE: "files", BUILDING: ""}
    (definitions,) = (e for e in decision.events if isinstance(e, DefinitionsChanged))
    assert parse_index_definitions(definitions.content, table_version=9, path="") == {}


def test_births_are_read_as_they_are_written() -> None:
    config: TableConfig = config_of("COPY_ON_WRITE", {BIRTHS: f"{INDEX}:{PLAN}:2"})
    assert births_of(config) == {INDEX: IndexBirth(PLAN, 2)}


@pytest.mark.parametrize("text", ["column_stats", "column_stats:5:x", f":{PLAN}:2", "a:b:2"])
def test_a_birth_that_is_none_is_damage(text: str) -> None:
    with pytest.raises(CorruptTableError, match="no `index:instant:groups`"):
        births_of(config_of("COPY_ON_WRITE", {BIRTHS: text}))
