"""The invariants of the metadata table and of index builds, INV-71 to INV-80, INV-135, INV-136.

They run in every scenario. Where there is no metadata table they see that at once and hold.

Who may use which partition, and which files of it count, is asked of the product's reader, on the
world after each step; what it must find there is worked out here from the data timeline alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from headwater.config.table import TableConfig
from headwater.config.table_options import (
    CONFIG_SLOT,
    INDEX_DEFS_PATH,
    INDEXES_PLANNED,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
)
from headwater.errors import HeadwaterError
from headwater.format.metadata.index_definitions import parse_index_definitions
from headwater.format.properties import parse_properties
from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import INDEX_DEFINITIONS, METADATA, METADATA_TIMELINE, PROPERTIES
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.names import TimelineFile, file_name, parse_file_name
from headwater.kernel.txn.index_births import births_of
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    changes_data_files,
    decode_index_plan,
    decode_index_result,
    definition_of,
)
from headwater.metadata.partition_files import is_initial_log
from headwater.metadata.partition_kinds import FILES, group_number
from headwater.metadata.table import load_metadata_table
from headwater.model.files import LogFile, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CompactionPlan
from headwater.testing.history import Step
from headwater.testing.seams import SimStorage
from headwater.testing.simulation import Invariant, Simulation, Violation
from headwater.testing.table import (
    TIMELINE,
    place_of,
    rollback_of,
    state_of,
    timeline_files,
)
from headwater.testing.toy_index import (
    INDEX,
    change_in,
    covered_in,
    decode_toy,
    look_up_all,
    rebuild,
)
from headwater.testing.world import LAST_CHARACTER, World

_TIMELINE = f"{TIMELINE}/"
_METADATA = f"{METADATA}/"
_OWN_TIMELINE = f"{METADATA_TIMELINE}/"

_OWN_KEYS = frozenset(
    option.key
    for option in (
        METADATA_PARTITIONS,
        METADATA_PARTITIONS_INFLIGHT,
        INDEXES_PLANNED,
        INDEX_DEFS_PATH,
        CONFIG_SLOT,
    )
)

BUILT = "built"
NOT_BUILT = "not built"  # A builder has failed.
DROPPED = "dropped"  # (partition): an actor is about to take an index away because it was asked to.


def index_invariants() -> tuple[Invariant, ...]:
    """All but INV-77, and of INV-76 what holds at every moment."""
    return (
        Invariant(id="INV-71", check=_usable_is_right, under=_TIMELINE),
        Invariant(id="INV-71", check=_usable_is_right, under=PROPERTIES),
        Invariant(id="INV-71", check=_usable_is_right, under=_METADATA),
        Invariant(id="INV-72", check=_uncompleted_is_invisible, under=_METADATA),
        Invariant(id="INV-73", check=_pending_is_not_usable, under=PROPERTIES),
        Invariant(id="INV-73", check=_pending_is_not_usable, under=_TIMELINE),
        Invariant(id="INV-74", check=_commits_tell_all, under=_TIMELINE),
        Invariant(id="INV-74", check=_build_misses_nobody, under=_TIMELINE),
        Invariant(id="INV-75", check=_groups_are_all_there, under=_TIMELINE),
        Invariant(id="INV-75", check=_no_other_group, under=_METADATA),
        Invariant(id="INV-76", check=_nothing_unplanned_is_built, under=PROPERTIES),
        Invariant(id="INV-76", check=_nothing_unplanned_is_built, under=_TIMELINE),
        Invariant(id="INV-78", check=_rolled_back_is_not_told, under=_TIMELINE),
        Invariant(id="INV-79", check=_only_own_keys_change, under=PROPERTIES),
        Invariant(id="INV-80", check=_services_skip_planned, under=_OWN_TIMELINE),
        *(
            Invariant(id="INV-135", check=_defined_as_planned, under=under)
            for under in (INDEX_DEFINITIONS, PROPERTIES, _TIMELINE)
        ),
        Invariant(id="INV-136", check=_groups_are_those_planned, under=PROPERTIES),
        Invariant(id="INV-136", check=_groups_are_those_planned, under=_METADATA),
        Invariant(id="INV-136", check=_live_files_stay, under=_METADATA),
    )


def check_index_end(simulation: Simulation) -> Iterator[Violation]:
    """INV-76 and INV-77: who ran a plan to its end leaves its indexes usable, or nothing of it."""
    world = simulation.world
    if not has_metadata_table(world):
        return
    config = config_in(world)
    for time, state, planned in _plans(world):
        if state is not State.COMPLETED or not _is_anybody_done(simulation):
            continue
        for partition in _result(world, time) - set(config.metadata_partitions):
            if partition not in _dropped(simulation):
                yield Violation(
                    "INV-77", f"plan {time} has built {partition}, which nobody may use"
                )
        for one in planned:
            is_planned_again = one.partition in _planned(world)
            if one.partition in config.metadata_partitions_inflight and not is_planned_again:
                yield Violation(
                    "INV-77", f"{one.partition} is being built for ever: plan {time} is completed"
                )


def _is_anybody_done(simulation: Simulation) -> bool:
    """Whether somebody who builds indexes has come to the end of his work.

    A writer that failed has not: it brings table config up to nobody's plan.
    """
    return any(word in (BUILT, NOT_BUILT) for word in simulation.results().values())


def _dropped(simulation: Simulation) -> set[str]:
    return {name[1] for name, _ in simulation.facts.items() if name[0] == DROPPED}


def hear_of_index(step: Step, simulation: Simulation) -> None:
    """Remember which indexes somebody was asked to take away."""
    for note in step.notes:
        if note.name == DROPPED:
            simulation.facts.learn((DROPPED, note.values[0]))


# The world.


def has_metadata_table(world: World) -> bool:
    start = bisect_left(world.paths, _METADATA)
    return start < len(world.paths) and world.paths[start].startswith(_METADATA)


@lru_cache(maxsize=10_000)
def _parse_config(data: bytes) -> TableConfig:
    return TableConfig.from_properties(parse_properties(data, path=""), path="")


def config_in(world: World) -> TableConfig:
    return _parse_config(world.objects[PROPERTIES].data)


def _storage(world: World) -> SimStorage:
    return SimStorage(lambda op: world.apply("checker", op))


@lru_cache(maxsize=10_000)
def _decode_plan(data: bytes) -> tuple[PlannedIndex, ...]:
    return decode_index_plan(data, path="")


@lru_cache(maxsize=10_000)
def _decode_result(data: bytes) -> frozenset[str]:
    return decode_index_result(data, path="")


def _plans(world: World) -> Iterator[tuple[InstantTime, State, tuple[PlannedIndex, ...]]]:
    """Give the index plans of the timeline, and how far each has come."""
    files = timeline_files(world)
    for file in files:
        if file.action is Action.INDEXING and file.state is State.REQUESTED:
            state = state_of(file.requested_time, files)
            if state is not None:
                data = world.objects[f"{TIMELINE}/{file_name(*file)}"].data
                yield file.requested_time, state, _decode_plan(data)


def _planned(world: World) -> dict[str, InstantTime]:
    return {
        one.partition: time
        for time, state, planned in _plans(world)
        if state.is_pending
        for one in planned
    }


def _result(world: World, time: InstantTime) -> frozenset[str]:
    for file in timeline_files(world):
        if file.requested_time == time and file.state is State.COMPLETED:
            return _decode_result(world.objects[f"{TIMELINE}/{file_name(*file)}"].data)
    return frozenset()


def _own_files(world: World) -> Iterator[tuple[TimelineFile, bytes]]:
    """Give the files of the metadata table's timeline."""
    start = bisect_left(world.paths, _OWN_TIMELINE)
    end = bisect_left(world.paths, f"{_OWN_TIMELINE}{LAST_CHARACTER}", start)
    for path in world.paths[start:end]:
        file = parse_file_name(path.removeprefix(_OWN_TIMELINE), folder=METADATA_TIMELINE)
        if file is not None:
            yield file, world.objects[path].data


def _told(world: World, time: InstantTime) -> frozenset[str] | None:
    """Return the partitions that an instant has covered; None without a commit of it."""
    for file, data in _own_files(world):
        if file.requested_time == time and file.state is State.COMPLETED:
            return covered_in(data)
    return None


def _not_logged(
    world: World, partition: str, added: Sequence[str], removed: Sequence[str]
) -> set[str]:
    """Return which of the files that came or went no log of a partition mentions."""
    prefix = f"{_METADATA}{partition}/"
    start = bisect_left(world.paths, prefix)
    end = bisect_left(world.paths, f"{prefix}{LAST_CHARACTER}", start)
    left = {*added, *removed}
    for path in world.paths[start:end]:
        if ".log." in path:
            left.difference_update(*decode_toy(world.objects[path].data))
    return left


def _completed(step: Step) -> TimelineFile | None:
    """Return the file of the data timeline by which a step completes something."""
    if not step.path or step.after is None or step.before is not None:
        return None
    file = place_of(step.path).file
    return file if file is not None and file.state is State.COMPLETED else None


def _in_metadata(
    check: Callable[[Step, Simulation], Iterator[str]],
) -> Callable[..., Iterator[str]]:
    """Return a check that holds at once where there is no metadata table."""

    def checked(step: Step, simulation: Simulation) -> Iterator[str]:
        if has_metadata_table(simulation.world) and PROPERTIES in simulation.world.objects:
            yield from check(step, simulation)

    return checked


# The invariants.


@_in_metadata
def _usable_is_right(step: Step, simulation: Simulation) -> Iterator[str]:
    world = simulation.world
    config = config_in(world)
    if INDEX not in config.metadata_partitions or INDEX in _planned(world):
        return
    storage = _storage(world)
    try:
        held = look_up_all(storage, config)
    except HeadwaterError as error:
        yield f"{INDEX} cannot be read: {error}"
        return
    wanted = rebuild(storage)
    if held != wanted:
        yield (
            f"{INDEX} lacks {sorted(wanted - held)} and has {sorted(held - wanted)} beside what "
            "the table has"
        )


@_in_metadata
def _uncompleted_is_invisible(step: Step, simulation: Simulation) -> Iterator[str]:
    """An instant that is not completed, or not any more, is in nothing that readers get."""
    world = simulation.world
    config = config_in(world)
    if INDEX not in config.metadata_partitions or INDEX in _planned(world):
        return
    files = timeline_files(world)
    pending = {f.requested_time for f in files} - {
        f.requested_time for f in files if f.state is State.COMPLETED
    }
    try:
        held = look_up_all(_storage(world), config)
    except HeadwaterError:
        return  # INV-71 has the words for it.
    for path in held:
        file = parse_data_file(path)
        if file is not None and file.instant_time in pending:
            yield f"{INDEX} shows {path} although {file.instant_time} is not completed"


@_in_metadata
def _pending_is_not_usable(step: Step, simulation: Simulation) -> Iterator[str]:
    """Both truths agree: what table config calls usable is not being built (H-50)."""
    world = simulation.world
    listed = set(config_in(world).metadata_partitions)
    for partition, plan in _planned(world).items():
        if partition in listed:
            yield f"table config lists {partition}, which the pending plan {plan} is to build"


@_in_metadata
def _commits_tell_all(step: Step, simulation: Simulation) -> Iterator[str]:
    """Who completes has told every partition that is in use or announced (M9).

    If there is none of these, then what is planned: see `load_index_partitions`.
    """
    file, world = _completed(step), simulation.world
    if file is None or not changes_data_files(Instant(*file)):
        return
    if simulation.facts.get(("early", file.requested_time)):
        return  # A writer that looks before the lock; the builder answers for it.
    config = config_in(world)
    named = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    wanted = named or set(_planned(world))
    told = _told(world, file.requested_time) or frozenset()
    if not wanted <= told:
        yield f"{file.requested_time} completes and has told {sorted(told)}, not {sorted(wanted)}"


@_in_metadata
def _build_misses_nobody(step: Step, simulation: Simulation) -> Iterator[str]:
    """When a plan completes, all that completed since it was requested has told its partitions."""
    file, world = _completed(step), simulation.world
    if file is None or file.action is not Action.INDEXING or step.after is None:
        return
    for partition in sorted(_decode_result(step.after)):
        for other in timeline_files(world):
            if other.state is not State.COMPLETED or not changes_data_files(Instant(*other)):
                continue
            is_in_base = (other.completion_time or "") < file.requested_time
            told = _told(world, other.requested_time) or frozenset()
            if is_in_base or partition in told:
                continue
            data = world.objects[f"{TIMELINE}/{file_name(*other)}"].data
            for path in _not_logged(world, partition, *change_in(Instant(*other), data)):
                yield f"{partition} is complete without {path} of {other.requested_time}"


@_in_metadata
def _groups_are_all_there(step: Step, simulation: Simulation) -> Iterator[str]:
    """A plan appears with all its file groups."""
    file = place_of(step.path).file if step.path and step.after is not None else None
    if file is None or file.action is not Action.INDEXING or file.state is not State.REQUESTED:
        return
    assert step.after is not None
    for one in _decode_plan(step.after):
        there = _group_numbers(simulation.world, one.partition)
        if one.partition in births_of(config_in(simulation.world)):
            there &= set(range(one.group_count))  # Others may be there, and count for nothing.
        if there != set(range(one.group_count)):
            yield (
                f"plan {file.requested_time} appears while {one.partition} has the groups "
                f"{sorted(there)} of {one.group_count}"
            )


def _group_numbers(world: World, partition: str) -> set[int]:
    prefix = f"{_METADATA}{partition}/"
    start = bisect_left(world.paths, prefix)
    end = bisect_left(world.paths, f"{prefix}{LAST_CHARACTER}", start)
    files = (parse_data_file(path) for path in world.paths[start:end])
    return {group_number(file.file_id) for file in files if file is not None}


@_in_metadata
def _no_other_group(step: Step, simulation: Simulation) -> Iterator[str]:
    """Nobody adds a file group to a partition that is planned."""
    if step.after is None or not step.path:
        return
    file = parse_data_file(step.path.removeprefix(_METADATA))
    if not isinstance(file, LogFile):
        return
    births = births_of(config_in(simulation.world))
    for _, state, planned in _plans(simulation.world):
        for one in planned:
            is_it = one.partition == file.partition and state.is_pending
            is_it = is_it and one.partition not in births  # There they count for nothing.
            if is_it and group_number(file.file_id) >= one.group_count:
                yield f"{step.path} is in a group that the plan does not have"


@_in_metadata
def _nothing_unplanned_is_built(step: Step, simulation: Simulation) -> Iterator[str]:
    """Table config calls nothing being built that no plan builds or has built."""
    world = simulation.world
    known = {one.partition for _, _, planned in _plans(world) for one in planned}
    for partition in set(config_in(world).metadata_partitions_inflight) - known:
        yield f"table config says that {partition} is being built, and no plan does"


@_in_metadata
def _rolled_back_is_not_told(step: Step, simulation: Simulation) -> Iterator[str]:
    """A write that is rolled back is not on the metadata table's timeline (INV-78)."""
    file, world = _completed(step), simulation.world
    if file is None or file.action is not Action.ROLLBACK:
        return
    for other, _ in _own_files(world):
        rollback = rollback_of(world, other.requested_time)
        if rollback is not None and rollback.time == file.requested_time:
            yield f"{other.requested_time} is rolled back and still on the metadata timeline"


@_in_metadata
def _only_own_keys_change(step: Step, simulation: Simulation) -> Iterator[str]:
    """An update of table config for one index leaves everything else as it was."""
    if step.before is None or step.after is None:
        return
    before, after = _parse_config(step.before), _parse_config(step.after)
    for key in before.raw.keys() | after.raw.keys():
        if key not in _OWN_KEYS and before.raw.get(key) != after.raw.get(key):
            yield f"{key} changes from {before.raw.get(key)!r} to {after.raw.get(key)!r}"
    gone = set(before.metadata_partitions) - set(after.metadata_partitions)
    for partition in gone - _dropped(simulation):
        yield f"the index {partition} vanishes from table config, and nobody asked for that"


def _live(world: World) -> dict[str, tuple[InstantTime, PlannedIndex]]:
    """Return the plan of each index that there is: the pending one, or the last completed."""
    config = config_in(world)
    named = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    found: dict[str, tuple[InstantTime, PlannedIndex]] = {}
    for time, state, planned in sorted(_plans(world), key=lambda plan: plan[0]):
        for one in planned:
            if state.is_pending or (state is State.COMPLETED and one.partition in named):
                found[one.partition] = (time, one)
    return found


@_in_metadata
def _defined_as_planned(step: Step, simulation: Simulation) -> Iterator[str]:
    """An index that there is has the definition of its plan, whatever becomes of others."""
    world = simulation.world
    found = world.objects.get(INDEX_DEFINITIONS)
    data = b"" if found is None else found.data
    known = parse_index_definitions(data, table_version=9, path=INDEX_DEFINITIONS)
    for partition, (time, one) in _live(world).items():
        wanted = definition_of(one)
        if wanted is not None and known.get(partition) != wanted:
            yield f"{partition} of plan {time} is defined as {known.get(partition)}, not {wanted}"


@_in_metadata
def _groups_are_those_planned(step: Step, simulation: Simulation) -> Iterator[str]:
    """An index in use has the file groups of its plan: where a key is depends on their number."""
    world = simulation.world
    config = config_in(world)
    for partition, (time, one) in _live(world).items():
        if partition not in config.metadata_partitions:
            continue
        storage = _storage(world)
        try:
            timeline = load_active(storage, TIMELINE)
            there = load_metadata_table(storage, config, timeline).group_count(partition)
        except HeadwaterError as error:
            yield f"{partition} of plan {time} cannot be read: {error}"
            continue
        if there != one.group_count:
            yield f"{partition} of plan {time} has {there} groups, not {one.group_count}"


@_in_metadata
def _live_files_stay(step: Step, simulation: Simulation) -> Iterator[str]:
    """Nobody deletes the file groups of an index that there is."""
    if step.after is not None or step.before is None:
        return
    file = parse_data_file(step.path.removeprefix(_METADATA))
    live = None if file is None else _live(simulation.world).get(file.partition)
    if file is None or live is None or not is_initial_log(file):
        return
    if file.instant_time == live[0]:
        yield f"{step.path} is deleted, and plan {live[0]} needs it"


@_in_metadata
def _services_skip_planned(step: Step, simulation: Simulation) -> Iterator[str]:
    """A compaction of the metadata table leaves partitions alone that are being built."""
    if not step.path or step.after is None:
        return
    name = step.path.removeprefix(_OWN_TIMELINE)
    file = parse_file_name(name, folder=METADATA_TIMELINE)
    if file is None or file.action is not Action.COMPACTION or file.state is not State.REQUESTED:
        return
    planned = _planned(simulation.world)
    for one in decode_record(CompactionPlan, step.after, path="").operations or ():
        if one.partition_path in planned and one.partition_path != FILES:
            yield f"compaction {file.requested_time} takes in {one.partition_path}"
