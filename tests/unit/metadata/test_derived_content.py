"""What indexes hold after any changes of a table: what a build from its files would hold, or more.

Tables have every kind of index from the beginning, kept by writes and services as products do it,
and are compared with the data after each step.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.tables import FAST, columns, rows_of, table_at

import headwater as hw
from headwater.config.table_options import TableType
from headwater.engine.engine import Engine, Poll, TaskContext, never_stops
from headwater.engine.inline import inline_engine
from headwater.format.metadata.column_stats import decode_column_stats
from headwater.format.metadata.index_definitions import (
    IndexDefinition,
    IndexVersion,
    encode_index_definitions,
)
from headwater.format.metadata.records import decode_record_locations
from headwater.format.metadata.wrapped_values import ValueType
from headwater.format.properties import encode_properties
from headwater.kernel.index_definitions import definitions_path
from headwater.kernel.layout import PROPERTIES
from headwater.kernel.view.table_view import load_listed_view
from headwater.metadata.bootstrap import create_metadata_table
from headwater.metadata.column_ranges import indexed_columns
from headwater.metadata.derive import Deriver
from headwater.metadata.log_files import read_metadata_log
from headwater.metadata.records import MetadataRecords
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

A = TypeVar("A")
R = TypeVar("R")

SECONDARY = "secondary_index_rider"
SCHEMA = columns("id string not null, city string, ts long, rider string, fare double")


def indexed_table(
    folder: Path,
    table_type: TableType = TableType.MERGE_ON_READ,
    *,
    index: str = "bucket",
    ordering: str | None = "ts",
    is_partitioned: bool = True,
) -> Table:
    """Create a table with every kind of index."""
    path = folder / "trips"
    shape = table_at(path, SCHEMA, ordering=ordering, table_type=table_type, index=index)
    partition_by = "city" if is_partitioned else None
    buckets = 2 if index == "bucket" else None
    table = shape.having(partition_by=partition_by, buckets=buckets).create()
    names = ["files", "column_stats", "bloom_filters", "record_index", SECONDARY]
    names += ["partition_stats"] if is_partitioned else []
    config = replace(table.config, metadata_partitions=tuple(names))
    storage = table.storage
    groups = [(name, 1 if name == "files" else 2) for name in names]
    create_metadata_table(storage, config, groups)
    definitions = {
        "column_stats": IndexDefinition(
            index_name="column_stats",
            index_type="column_stats",
            index_function="column_stats",
            source_fields=indexed_columns(SCHEMA),
            version=IndexVersion.V2,
        ),
        "record_index": IndexDefinition(index_name="record_index", index_type="record_index"),
        SECONDARY: IndexDefinition(
            index_name=SECONDARY,
            index_type="secondary_index",
            index_function="identity",
            source_fields=("rider",),
            version=IndexVersion.V2,
        ),
    }
    storage.put(definitions_path(config), encode_index_definitions(definitions))
    storage.put(PROPERTIES, encode_properties(config.to_properties(), comment="a table of a test"))
    return hw.open_table(path, options=FAST)


def trips(*values: tuple[str, str, int, str | None]) -> pa.Table:
    return rows_of(SCHEMA)(*((*value[:3], value[3], float(value[2])) for value in values))


def keys(*values: tuple[str, str]) -> pa.Table:
    return pa.table({"id": [key for key, _ in values], "city": [city for _, city in values]})


def problems(table: Table, *, stale: bool = False) -> list[dict[str, Any]]:
    found = table.inspect.validate_metadata()
    # Only a build makes the bounds of partitions tight.
    kept = pc.not_equal(found["partition"], "partition_stats")
    if not stale:
        kept = pc.not_equal(found["problem"], "stale")
    found = found.filter(kept)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def metadata_of(table: Table) -> MetadataTable:
    storage = table.storage
    timeline = load_listed_view(storage, table.config).timeline
    return load_metadata_table(storage, table.config, timeline)


def places(table: Table) -> dict[str, str]:
    """Return the partition of each record, by the record index."""
    found: dict[str, str] = {}
    for some in metadata_of(table).read("record_index"):
        paths = decode_record_locations(some.values)["partition_path"].to_pylist()
        found |= dict(zip(some.keys.to_pylist(), paths, strict=True))
    return found


def riders(table: Table) -> set[str]:
    pieces = metadata_of(table).read(SECONDARY)
    return {key for some in pieces for key in some.keys.to_pylist()}


@pytest.fixture
def mor(tmp_path: Path) -> Table:
    return indexed_table(tmp_path)


@pytest.fixture
def cow(tmp_path: Path) -> Table:
    return indexed_table(tmp_path, TableType.COPY_ON_WRITE)


def test_a_log_removes_nothing_and_a_compaction_does(mor: Table) -> None:
    mor.upsert(trips(("a", "sf", 1, "x"), ("b", "sf", 1, None), ("c", "ny", 1, "x")))
    mor.upsert(trips(("a", "sf", 2, "y")))
    mor.delete(keys(("b", "sf")))
    assert places(mor).keys() == {"a", "b", "c"}
    assert riders(mor) == {"x$a", "y$a", "\0$b", "x$c"}
    stale = {(row["partition"], row["key"]) for row in problems(mor, stale=True)}
    assert {("record_index", "b"), (SECONDARY, "x$a"), (SECONDARY, "\0$b")} <= stale
    assert problems(mor) == []
    mor.services.compact()
    assert places(mor).keys() == {"a", "c"}
    assert riders(mor) == {"y$a", "x$c"}
    assert problems(mor, stale=True) == []


def test_copy_on_write_removes_at_once(cow: Table) -> None:
    cow.upsert(trips(("a", "sf", 1, "x"), ("b", "sf", 1, "x"), ("c", "ny", 1, None)))
    cow.upsert(trips(("a", "sf", 2, "y"), ("d", "sf", 2, "z")))
    assert riders(cow) == {"y$a", "x$b", "\0$c", "z$d"}
    cow.delete(keys(("b", "sf")))
    assert places(cow) == {"a": "city=sf", "c": "city=ny", "d": "city=sf"}
    assert riders(cow) == {"y$a", "\0$c", "z$d"}
    assert problems(cow) == []


def test_replaced_groups_leave_and_cleaned_files_are_forgotten(mor: Table) -> None:
    mor.upsert(trips(("a", "sf", 1, "x"), ("b", "sf", 1, "x"), ("c", "ny", 1, "x")))
    mor.overwrite_partitions(trips(("b", "sf", 2, "x"), ("e", "sf", 2, "y")))
    assert places(mor) == {"b": "city=sf", "c": "city=ny", "e": "city=sf"}
    assert riders(mor) == {"x$b", "x$c", "y$e"}
    mor.delete_partitions(["city=ny"])
    assert places(mor).keys() == {"b", "e"}
    assert problems(mor) == []


def test_a_record_that_came_back_after_a_plan_stays(mor: Table) -> None:
    """A compaction does not remove what was told since it was planned."""
    mor.upsert(trips(("a", "sf", 1, "x"), ("b", "sf", 1, "x")))
    mor.delete(keys(("a", "sf")))
    plan = mor.services.schedule_compaction()
    mor.upsert(trips(("a", "sf", 3, "x")))
    mor.services.compact(plan)
    assert {row["id"] for row in mor.read_arrow(["id"]).to_pylist()} == {"a", "b"}
    assert places(mor).keys() == {"a", "b"}
    assert riders(mor) == {"x$a", "x$b"}
    assert problems(mor) == []


def test_a_record_that_moved_stays_where_it_is_now(mor: Table) -> None:
    mor.upsert(trips(("a", "sf", 1, "x"), ("b", "sf", 1, "x")))
    mor.delete(keys(("a", "sf")))
    mor.upsert(trips(("a", "ny", 2, "x")))
    assert places(mor)["a"] == "city=ny"
    mor.services.compact()
    assert places(mor) == {"a": "city=ny", "b": "city=sf"}
    assert riders(mor) == {"x$a", "x$b"}
    assert problems(mor, stale=True) == []


@pytest.mark.parametrize("table_type", TableType)
def test_of_a_key_in_two_partitions_the_last_place_is_told(
    tmp_path: Path, table_type: TableType
) -> None:
    table = indexed_table(tmp_path, table_type)
    table.upsert(trips(("a", "sf", 1, "x"), ("a", "ny", 1, "x")))
    assert places(table) == {"a": "city=sf"}
    table.upsert(trips(("b", "ny", 1, "x")))
    table.upsert(trips(("a", "la", 1, "x")))
    assert places(table)["a"] == "city=la"
    assert problems(table) == []
    table.delete(keys(("a", "sf")))
    assert places(table)["a"] == "city=la"
    assert riders(table) == {"x$a", "x$b"}
    assert problems(table) == []


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.some(1)
def test_clustering_tells_new_places(tmp_path: Path, table_type: TableType) -> None:
    table = indexed_table(tmp_path, table_type, index="simple")
    for n in range(3):
        table.bulk_insert(trips(*((f"k{n}{i}", "sf", n, f"r{i}") for i in range(4))))
    table.delete(keys(("k00", "sf"), ("k11", "sf")))
    table.upsert(trips(("k12", "sf", 9, "new")))
    assert table.services.cluster() is not None
    assert len(places(table)) == 10
    assert len(riders(table)) == 10
    assert problems(table) == []


def deriver_of(table: Table, engine: Engine | None = None) -> Deriver:
    context = replace(
        table.context, engine_for=inline_engine if engine is None else lambda _: engine
    )
    return Deriver(
        table=context,
        storage=table.storage,
        schema=SCHEMA,
        definitions=metadata_of(table).definitions,
    )


class PicklingEngine:
    """Runs tasks as other machines would: function, tasks and results travel as bytes."""

    is_in_process = False

    def __init__(self) -> None:
        self.task_count = 0

    def run(
        self,
        function: Callable[[TaskContext, A], R],
        tasks: Sequence[A],
        *,
        poll: Poll = never_stops,
    ) -> list[R]:
        results: list[R] = []
        for number, task in enumerate(tasks):
            called, given = pickle.loads(pickle.dumps((function, task)))
            outcome = called(TaskContext(number, 0, len(tasks)), given)
            results.append(pickle.loads(pickle.dumps(outcome)))
        self.task_count += len(tasks)
        return results


def content(pieces: Iterator[MetadataRecords]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for some in pieces:
        assert not len(some.removed)
        found |= dict(zip(some.keys.to_pylist(), some.values.to_pylist(), strict=True))
    return found


def test_tasks_of_an_engine_derive_the_same(mor: Table) -> None:
    for n in range(4):
        mor.upsert(trips(*((f"k{i}", f"c{i % 3}", n, f"r{i + n}") for i in range(n, 20))))
    slices = load_listed_view(mor.storage, mor.config).slices()
    assert any(one.logs for one in slices)
    engine = PicklingEngine()
    here, there = deriver_of(mor), deriver_of(mor, engine)
    for partition in sorted(set(mor.config.metadata_partitions) - {"files"}):
        expected = content(here.of_files(partition, slices))
        assert expected
        assert content(there.of_files(partition, slices)) == expected
    assert engine.task_count >= 5


def test_partition_stats_have_the_types_of_the_columns(mor: Table) -> None:
    """Hudi wraps merged bounds by the type of the newest record, which must not be NULL."""
    mor.upsert(trips(("a", "sf", 1, None), ("b", "sf", 1, None)))
    mor.upsert(trips(("a", "sf", 2, None)))
    mor.delete(keys(("b", "sf")))
    storage = mor.storage
    told = 0
    for info in storage.list_tree(".hoodie/metadata/partition_stats"):
        if ".log." in info.path:
            for some in read_metadata_log(storage.read(info.path), path=info.path):
                types = decode_column_stats(some.values)["value_type"].to_pylist()
                assert ValueType.NULL not in types
                told += len(types)
    assert told > 10


def test_a_build_tells_its_progress(mor: Table) -> None:
    mor.upsert(trips(*((f"k{i}", f"c{i % 3}", 1, "r") for i in range(20))))
    slices = load_listed_view(mor.storage, mor.config).slices()
    told: list[tuple[int, int]] = []
    found = content(deriver_of(mor).of_files("record_index", slices, lambda *now: told.append(now)))
    assert len(found) == 20
    assert sum(files for files, _ in told) == len(slices)
    assert sum(rows for _, rows in told) == 20


def test_indexes_that_a_table_cannot_have(mor: Table) -> None:
    deriver = deriver_of(mor)
    with pytest.raises(hw.InvalidInputError, match="not defined on one column"):
        deriver.index_key_rule("secondary_index_other")
    real = replace(deriver.definitions[SECONDARY], source_fields=("fare",))
    on_real = replace(deriver, definitions={**deriver.definitions, SECONDARY: real})
    mor.upsert(trips(("a", "sf", 1, "x")))
    slices = load_listed_view(mor.storage, mor.config).slices()
    with pytest.raises(hw.InvalidInputError, match="fare"):
        list(on_real.of_files(SECONDARY, slices))
    config = replace(mor.config, has_meta_fields=False)
    bare = replace(deriver, table=replace(mor.context, stored_config=config))
    with pytest.raises(hw.UnsupportedError, match="without meta fields"):
        bare.index_key_rule("record_index")
    with pytest.raises(hw.UnsupportedError, match="not derived"):
        deriver.of_files("expr_index_x", slices)


# Any sequence of changes -----------------------------------------------------------------------

BOUNDED = settings(
    max_examples=3,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

ids = st.sampled_from("abcdef")
cities = st.sampled_from(["sf", "ny"])
drawn_rows = st.lists(
    st.tuples(ids, cities, st.integers(0, 9), st.sampled_from(["x", "y$", None])),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row[:2],
)


class IndexMachine(RuleBasedStateMachine):
    """Writes and services in any order; after each the indexes hold at least what there is."""

    def __init__(self, table_type: TableType, index: str, ordering: str | None) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="headwater-indexes-")
        self.table = indexed_table(Path(self.folder), table_type, index=index, ordering=ordering)
        self.plans: list[str] = []

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(drawn=drawn_rows)
    def upsert(self, drawn: list[tuple[str, str, int, str | None]]) -> None:
        self.table.upsert(trips(*drawn))

    @rule(drawn=st.lists(st.tuples(ids, cities), min_size=1, max_size=3, unique=True))
    def delete(self, drawn: list[tuple[str, str]]) -> None:
        self.table.delete(keys(*drawn))

    @precondition(lambda self: not self.plans)
    @rule(drawn=drawn_rows)
    def overwrite_partitions(self, drawn: list[tuple[str, str, int, str | None]]) -> None:
        self.table.overwrite_partitions(trips(*drawn))

    @rule()
    def plan_compaction(self) -> None:
        plan = self.table.services.schedule_compaction()
        self.plans += [] if plan is None else [plan]

    @precondition(lambda self: self.plans)
    @rule()
    def compact(self) -> None:
        self.table.services.compact(self.plans.pop())

    @precondition(lambda self: not self.plans)
    @rule()
    def cluster(self) -> None:
        self.table.services.cluster()

    @rule()
    def log_compact(self) -> None:
        self.table.services.log_compact()

    @rule()
    def clean(self) -> None:
        self.table.services.clean()

    @invariant()
    def indexes_hold_what_there_is(self) -> None:
        assert problems(self.table) == []


@pytest.mark.parametrize(
    ("table_type", "index", "ordering"),
    [
        (TableType.MERGE_ON_READ, "bucket", "ts"),
        (TableType.MERGE_ON_READ, "simple", None),
        (TableType.COPY_ON_WRITE, "bloom", "ts"),
    ],
)
@pytest.mark.some(1)
def test_after_any_changes_indexes_hold_what_there_is(
    table_type: TableType, index: str, ordering: str | None
) -> None:
    class Machine(IndexMachine):
        def __init__(self) -> None:
            super().__init__(table_type, index, ordering)

    run_state_machine_as_test(Machine, settings=BOUNDED)
