"""Operations of Apache Hudi and of ours on one small table, and what each does to its rows.

Rows are a dict, from a key to its city and its number; the higher number wins. An effect answers
with the rows that come of others, or with None where the operation must not have been done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from tests.hudi.test_we_roll_back_theirs import OURS, THEIRS
from tests.support.hudi_peer import HudiPeer
from tests.support.hudi_procedures import call, register
from tests.support.tables import COW, FAST, LOCKED, MOR, a_table, columns, rows_of

import headwater as hw
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)

BEATS = {
    # Who stands still is not to count as dead.
    "hoodie.client.heartbeat.interval_in_ms": "60000",
    # What Hudi's restore leaves of column statistics is not what this is about.
    "hoodie.metadata.index.column.stats.enable": "false",
}
OPTIONS = {**FAST, **OURS, **LOCKED, **BEATS, "hoodie.write.lock.wait_time_ms": "1000"}
EAGER = {
    **OPTIONS,
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.compact.inline.max.delta.commits": "1",
}
"""Services that find something to do on a table of three commits."""
WAITS = {
    "hoodie.write.lock.client.num_retries": "2",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "300",
    "hoodie.write.lock.num_retries": "2",
    "hoodie.write.lock.wait_time_ms_between_retry": "300",
}

Rows: TypeAlias = dict[str, tuple[str, int]]
Effect: TypeAlias = Callable[["World", Rows], Rows | None]


class Shape(NamedTuple):
    table_type: str
    index_type: str
    buckets: int | None
    theirs: Mapping[str, str]


SHAPES = {
    "copy on write": Shape(COW, "simple", None, {"hoodie.index.type": "SIMPLE"}),
    "merge on read": Shape(MOR, "simple", None, {"hoodie.index.type": "SIMPLE"}),
    "buckets": Shape(
        MOR,
        "bucket",
        2,
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
    ),
}


@dataclass(frozen=True)
class World:
    """A table with three commits, the first of which has a savepoint if a restore needs it."""

    table: Table
    shape: Shape
    first: str
    last: str

    @property
    def path(self) -> Path:
        return Path(self.table.uri.removeprefix("file://"))

    @property
    def theirs(self) -> dict[str, str]:
        """Hudi's options for a write."""
        return {**THEIRS, **self.shape.theirs, **BEATS, **WAITS, "hoodie.table.name": "trips"}

    def call(self, hudi: HudiPeer, procedure: str, arguments: str) -> None:
        register(hudi, "trips", self.table.uri)
        settings = {**self.theirs, "hoodie.metadata.enable": "true"}
        call(hudi, procedure, f"table => 'trips', {arguments}", settings)


def make_world(folder: Path, shape: Shape, *, is_saved: bool, is_compacted: bool) -> World:
    named = {} if shape.buckets is None else {"buckets": shape.buckets}
    builder = a_table(
        folder,
        SCHEMA,
        partition_by="city",
        ordering="ts",
        table_type=shape.table_type,
        index=shape.index_type,
        **named,
    )
    table = builder.with_options(OPTIONS).create()
    first = table.upsert(trips(at_first())).instant
    if is_saved:
        table.services.savepoint(first)
    table.upsert(trips({"a": ("sf", 2), "f": ("sf", 2)}))
    if is_compacted:
        open_again(table).services.compact()
    last = table.upsert(trips({"b": ("sf", 3), "k": ("ny", 3)})).instant
    return World(table, shape, first, last)


def open_again(table: Table) -> Table:
    return hw.open_table(table.uri, EAGER)


def at_first() -> Rows:
    return {"a": ("sf", 1), "b": ("sf", 1), "c": ("sf", 1), "d": ("ny", 1), "e": ("ny", 1)}


def without_last() -> Rows:
    return {**at_first(), "a": ("sf", 2), "f": ("sf", 2)}


def at_last() -> Rows:
    return {**without_last(), "b": ("sf", 3), "k": ("ny", 3)}


def trips(some: Rows) -> pa.Table:
    return rows(*((key, city, number, number) for key, (city, number) in some.items()))


# What operations do.


def merges(some: Rows) -> Effect:
    def effect(_: World, before: Rows) -> Rows:
        newer = {k: v for k, v in some.items() if k not in before or before[k][1] <= v[1]}
        return {**before, **newer}

    return effect


def deletes(*keys: str) -> Effect:
    return lambda _, before: {key: row for key, row in before.items() if key not in keys}


def replaces(some: Rows, *cities: str) -> Effect:
    """Without cities it replaces all."""

    def effect(_: World, before: Rows) -> Rows:
        kept = {k: row for k, row in before.items() if cities and row[0] not in cities}
        return {**kept, **some}

    return effect


def keeps(_: World, before: Rows) -> Rows:
    return before


def takes_last_back(_: World, before: Rows) -> Rows | None:
    return without_last() if before == at_last() else None


def restores(_: World, before: Rows) -> Rows:
    return at_first()


class Theirs(NamedTuple):
    do: Callable[[HudiPeer, World], None]
    effect: Effect


class OfOurs(NamedTuple):
    do: Callable[[Table, World], object]
    effect: Effect


def _writes(operation: str, some: Rows, **more: str) -> Callable[[HudiPeer, World], None]:
    def do(hudi: HudiPeer, world: World) -> None:
        named = {key.replace("__", "."): value for key, value in more.items()}
        options = {"hoodie.datasource.write.operation": operation, **named}
        hudi.write(trips(some), world.table.uri, {**world.theirs, **options})

    return do


def _calls(procedure: str, arguments: str) -> Callable[[HudiPeer, World], None]:
    return lambda hudi, world: world.call(
        hudi, procedure, arguments.format(first=world.first, last=world.last)
    )


_UPSERTED: Rows = {"a": ("sf", 20), "d": ("ny", 20), "g": ("sf", 20)}
_INSERTED: Rows = {"g": ("sf", 20), "h": ("rome", 20)}
_REPLACED: Rows = {"h": ("ny", 20)}
_DROPS = {"hoodie__datasource__write__partitions__to__delete": "city=ny"}

THEIR_OPERATIONS: Mapping[str, Theirs] = {
    "upsert": Theirs(_writes("upsert", _UPSERTED), merges(_UPSERTED)),
    "insert": Theirs(_writes("insert", _INSERTED), merges(_INSERTED)),
    "delete": Theirs(
        _writes("delete", {"c": ("sf", 60), "d": ("ny", 60)}),
        deletes("c", "d"),
    ),
    "overwrite a partition": Theirs(
        _writes("insert_overwrite", _REPLACED), replaces(_REPLACED, "ny")
    ),
    "overwrite": Theirs(_writes("insert_overwrite_table", _REPLACED), replaces(_REPLACED)),
    "drop a partition": Theirs(
        _writes("delete_partition", {"z": ("ny", 20)}, **_DROPS), replaces({}, "ny")
    ),
    "compaction": Theirs(
        _calls(
            "run_compaction",
            "op => 'scheduleAndExecute', options => 'hoodie.compact.inline.max.delta.commits=1'",
        ),
        keeps,
    ),
    "clustering": Theirs(_calls("run_clustering", "order => 'fare'"), keeps),
    "clean": Theirs(_calls("run_clean", "retain_commits => 1"), keeps),
    "rollback": Theirs(_calls("rollback_to_instant", "instant_time => '{last}'"), takes_last_back),
    "restore": Theirs(_calls("rollback_to_savepoint", "instant_time => '{first}'"), restores),
}

_MINE: Rows = {"b": ("sf", 30), "i": ("ny", 30)}
_SAME: Rows = {"a": ("sf", 30), "d": ("ny", 30)}
_NEW: Rows = {"m": ("sf", 30)}
_GONE: Rows = {"c": ("sf", 70), "a": ("sf", 70)}

OUR_SERVICES: Mapping[str, OfOurs] = {
    "compaction": OfOurs(lambda table, _: table.services.compact(), keeps),
    "log compaction": OfOurs(lambda table, _: table.services.log_compact(), keeps),
    "clustering": OfOurs(lambda table, _: table.services.cluster(), keeps),
    "clean": OfOurs(lambda table, _: table.services.clean(), keeps),
    "archival": OfOurs(lambda table, _: table.services.archive(), keeps),
    "savepoint": OfOurs(lambda table, world: table.services.savepoint(world.last), keeps),
    "record index": OfOurs(lambda table, _: table.indexes.create(["record_index"]), keeps),
    "bloom filters": OfOurs(lambda table, _: table.indexes.create(["bloom_filters"]), keeps),
    "failed writes": OfOurs(lambda table, _: table.services.rollback_failed_writes(), keeps),
}
OUR_OPERATIONS: Mapping[str, OfOurs] = {
    "upsert": OfOurs(lambda table, _: table.upsert(trips(_MINE)), merges(_MINE)),
    "upsert of the same": OfOurs(lambda table, _: table.upsert(trips(_SAME)), merges(_SAME)),
    "delete": OfOurs(
        lambda table, _: table.delete(trips(_GONE).select(["id", "city", "ts"])),
        deletes("a", "c"),
    ),
    "overwrite a partition": OfOurs(
        lambda table, _: table.overwrite_partitions(trips(_NEW)), replaces(_NEW, "sf")
    ),
    "overwrite": OfOurs(lambda table, _: table.overwrite(trips(_NEW)), replaces(_NEW)),
    "drop a partition": OfOurs(
        lambda table, _: table.delete_partitions(["city=ny"]), replaces({}, "ny")
    ),
    "rollback": OfOurs(lambda table, world: table.services.rollback(world.last), takes_last_back),
    "restore": OfOurs(lambda table, world: table.services.restore(world.first), restores),
    **OUR_SERVICES,
}


class Pair(NamedTuple):
    shape: str
    theirs: str
    ours: str

    @property
    def has_savepoint(self) -> bool:
        return "restore" in (self.theirs, self.ours)

    @property
    def is_compacted(self) -> bool:
        """Whether there is something to clean in logs."""
        return self.shape != "copy on write" and "clean" in (self.theirs, self.ours)


def all_pairs() -> Iterator[Pair]:
    """Give what can be done at once, by what both engines promise."""
    for shape in SHAPES:
        for theirs in THEIR_OPERATIONS:
            for ours in OUR_OPERATIONS:
                if shape == "copy on write" and "compaction" in theirs + ours:
                    continue
                # Hudi has no way to cluster buckets, and inserts a key into them twice.
                if shape == "buckets" and theirs in ("clustering", "insert"):
                    continue
                # Hudi takes a commit back though others are built on it (N-189).
                if theirs == "rollback" and ours not in OUR_SERVICES:
                    continue
                yield Pair(shape, theirs, ours)


def outcomes(world: World, done: list[Effect], perhaps: list[Effect]) -> list[Rows]:
    """Return what may come of operations that are done, and of some of which nobody knows."""
    found: list[Rows] = []
    some = (few for count in range(len(perhaps) + 1) for few in combinations(perhaps, count))
    for few in some:
        for order in permutations([*done, *few]):
            after: Rows | None = at_last()
            for effect in order:
                after = None if after is None else effect(world, after)
            if after is not None and after not in found:
                found.append(after)
    return found
