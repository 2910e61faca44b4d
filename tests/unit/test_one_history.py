"""One history of writes, one answer (INV-87): twins of every kind against a model of plain dicts.

Each step of a random history goes to a copy-on-write table, to a merge-on-read table, and to one
beside which table services run at any moment. All of them must answer as the model does: now, as of
any moment before, by the rows that a window of time wrote, by the change feed folded over its
beginning, and through random filters, whether indexes are asked or not. Where hudi-rs has nothing
to merge it must agree as well.

These ways of asking are drawn like writes. In a third of the long form all of them are taken right
after each write as well.

Copy-on-write files have no room for deletes, so that table forgets them: it has a model of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.history_model import DELETED, Condition, Model, Record, Row, comparable

import headwater as hw
from headwater.metadata.view import load_view
from headwater.table import Table

FIELDS = (
    pa.field("id", pa.string(), nullable=False),
    pa.field("city", pa.string()),
    pa.field("ts", pa.int64()),
    pa.field("qty", pa.int32()),
    pa.field("price", pa.float64()),
    pa.field("note", pa.string()),
    pa.field(DELETED, pa.bool_()),
)
ADDED = pa.field("tip", pa.int64())
BULK = 2**40
"""What no int32 holds."""

OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
    "headwater.clustering.copy.row.group.rows": "1",
}
WITHOUT_INDEXES = {"hoodie.metadata.enable": "false"}


@dataclass(frozen=True)
class Kind:
    """How the twins of one machine are made."""

    index_type: str
    is_global: bool = False
    moves: bool = False
    ordering: str | None = "ts"
    ts: str = "int64"


MOVING = {
    "hoodie.simple.index.update.partition.path": "true",
    "hoodie.bloom.index.update.partition.path": "true",
    "hoodie.record.index.update.partition.path": "true",
}
STAYING = dict.fromkeys(MOVING, "false")

KINDS = {
    "bucket": Kind("bucket"),
    "bucket by commit time": Kind("bucket", ordering=None),
    "simple": Kind("simple", ts="float64"),
    "bloom": Kind("bloom"),
    "record_level_index": Kind("record_level_index"),
    "global_simple that moves": Kind("global_simple", is_global=True, moves=True),
    "global_bloom that stays": Kind("global_bloom", is_global=True),
    "record_index that stays": Kind("record_index", is_global=True),
    "record_index that moves": Kind("record_index", is_global=True, moves=True),
}

cities = st.sampled_from(["ny", "sf", None])
ids = st.sampled_from("abcde")
times = st.none() | st.integers(0, 6)
prices = st.none() | st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf")])
notes = st.none() | st.sampled_from(["x", "y", ""])
rows = st.fixed_dictionaries(
    {
        "id": ids,
        "city": cities,
        "ts": times,
        "qty": st.none() | st.integers(-3, 3),
        "price": prices,
        "note": notes,
        DELETED: st.sampled_from([False, False, False, None, True]),
    }
)
batches = st.lists(rows, min_size=1, max_size=4)
keys = st.lists(st.fixed_dictionaries({"id": ids, "city": cities}), min_size=1, max_size=3)
comparisons = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
conditions = st.one_of(
    st.builds(Condition, st.just("qty"), comparisons, st.tuples(st.integers(-3, 3))),
    st.builds(
        Condition, st.just("price"), comparisons, st.tuples(st.sampled_from([0.0, -0.0, 1.5]))
    ),
    st.just(Condition("price", "IN", (0.0, 7.0))),
    st.just(Condition("price", "IN", (-0.0,))),
    st.builds(Condition, st.just("note"), st.just("="), st.tuples(st.sampled_from(["x", ""]))),
    st.builds(Condition, st.just("id"), st.just("="), st.tuples(ids)),
    st.builds(Condition, st.just("id"), st.just("IN"), st.tuples(ids, ids)),
    st.builds(Condition, st.just("city"), st.just("="), st.tuples(st.sampled_from(["ny", "sf"]))),
    st.builds(
        Condition,
        st.sampled_from(["qty", "price", "note", "city", "ts"]),
        st.sampled_from(["IS NULL", "IS NOT NULL"]),
        st.just(()),
    ),
)
services = st.sampled_from(
    ["compact", "compact", "log_compact", "cluster", "sort", "clean", "plan", "run plan", "index"]
)


class Moment(NamedTuple):
    """What there was after a write."""

    times: tuple[str, ...]
    """When it completed, by table."""
    records: tuple[list[Record], ...]
    columns: tuple[str, ...]


class TwinMachine(RuleBasedStateMachine):
    is_thorough = False
    """Whether the last write is asked for by every reader, each time."""
    lock_provider = "in_process"

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-one-history-"))
        ts = pa.field("ts", pa.type_for_alias(kind.ts))
        self.schema = pa.schema([ts if field.name == "ts" else field for field in FIELDS])
        self.tables = [
            self.create("cow", "COPY_ON_WRITE"),
            self.create("mor", "MERGE_ON_READ"),
            self.create("serviced", "MERGE_ON_READ"),
        ]
        is_ordered = kind.ordering is not None
        forgetful = Model(kind.is_global, kind.moves, is_ordered, remembers=False)
        mindful = Model(kind.is_global, kind.moves, is_ordered, remembers=is_ordered)
        self.models = [forgetful, mindful, mindful]
        self.past: list[Moment] = []
        self.plan: str | None = None
        self.fresh = 0
        self.checked = 0

    def create(self, name: str, table_type: str) -> Table:
        return hw.create_table(
            self.folder / name,
            schema=self.schema,
            record_key="id",
            partition_by="city",
            ordering=self.kind.ordering,
            table_type=table_type,
            index=self.kind.index_type,
            buckets=2 if self.kind.index_type == "bucket" else None,
            options={
                **OPTIONS,
                "hoodie.write.lock.provider": self.lock_provider,
                **(MOVING if self.kind.moves else STAYING),
            },
        )

    def teardown(self) -> None:
        for table in self.tables:
            table.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def serviced(self) -> Table:
        return self.tables[2]

    # Writes ------------------------------------------------------------------------------------

    @initialize(drawn=batches)
    def begin(self, drawn: list[Row]) -> None:
        self.upsert(drawn)

    @rule(drawn=batches)
    def upsert(self, drawn: list[Row]) -> None:
        given = self.full(drawn)
        self.write(
            lambda table: table.upsert(self.arrow(given)),
            lambda model: model.upsert(given, len(self.past), self.schema.names),
        )

    @rule(drawn=batches, others=st.sets(st.sampled_from(["qty", "price", "note"]), max_size=2))
    def upsert_some_columns(self, drawn: list[Row], others: set[str]) -> None:
        names = [name for name in self.schema.names if name in {"id", "city", "ts", *others}]
        given = [{name: row[name] for name in names} for row in self.full(drawn)]
        self.write(
            lambda table: table.upsert(self.arrow(given), partial=True),
            lambda model: model.upsert(given, len(self.past), self.schema.names),
        )

    @rule(drawn=batches, operation=st.sampled_from(["insert", "bulk_insert"]))
    def insert_new_keys(self, drawn: list[Row], operation: str) -> None:
        given = []
        for row in self.full(drawn):
            self.fresh += 1
            given.append({**row, "id": f"new{self.fresh}", DELETED: False})
        self.write(
            lambda table: getattr(table, operation)(self.arrow(given)),
            lambda model: model.upsert(given, len(self.past), self.schema.names),
        )

    @rule(drawn=keys)
    def delete(self, drawn: list[Row]) -> None:
        given = pa.Table.from_pylist(drawn, schema=pa.schema(FIELDS[:2]))
        self.write(lambda table: table.delete(given), lambda model: model.delete(drawn))

    @rule(drawn=st.lists(rows, min_size=1, max_size=3, unique_by=lambda row: row["id"]))
    def overwrite(self, drawn: list[Row]) -> None:
        given = [{**row, DELETED: False} for row in self.full(drawn)]

        def replace(model: Model) -> None:
            model.clear()
            model.upsert(given, len(self.past), self.schema.names)

        self.write(lambda table: table.overwrite(self.arrow(given)), replace)

    @rule(city=st.sampled_from(["ny", "sf"]))
    def delete_a_partition(self, city: str) -> None:
        path = f"city={city}"
        if any(
            path not in load_view(table.storage, table.config).partitions() for table in self.tables
        ):
            return
        self.write(
            lambda table: table.delete_partitions([path]), lambda model: model.drop_city(city)
        )

    @precondition(lambda self: ADDED.name not in self.schema.names)
    @rule(drawn=batches)
    def add_a_column(self, drawn: list[Row]) -> None:
        self.schema = self.schema.append(ADDED)
        for model in set_of(self.models):
            model.add_column(ADDED.name)
        self.upsert(drawn)

    @precondition(lambda self: self.schema.field("qty").type == pa.int32())
    @rule(drawn=batches)
    def widen_a_column(self, drawn: list[Row]) -> None:
        at = self.schema.get_field_index("qty")
        self.schema = self.schema.set(at, pa.field("qty", pa.int64()))
        self.upsert([{**row, "qty": BULK} for row in drawn])

    # Table services ----------------------------------------------------------------------------

    @rule(name=services)
    def serve(self, name: str) -> None:
        run = self.serviced.services
        match name:
            case "sort":
                plan = run.schedule_clustering(sort_by=["qty", "note"])
                if plan is not None:
                    run.cluster(plan)
            case "plan":
                self.plan = self.plan or run.schedule_compaction()
            case "run plan":
                if self.plan is not None:
                    run.compact(self.plan)
                    self.plan = None
            case "index":
                if self.kind.index_type == "record_index":
                    self.serviced.indexes.create("secondary_index_note", columns=["note"])
            case _:
                getattr(run, name)()
        if name == "compact":
            self.plan = None

    # Answers -----------------------------------------------------------------------------------

    @invariant()
    def the_present_is_that_of_the_model(self) -> None:
        for table, model in zip(self.tables, self.models, strict=True):
            assert in_order(table.read_arrow().to_pylist()) == in_order(model.rows()), table.name

    @invariant()
    def every_reader_tells_of_the_last_write(self) -> None:
        if not self.is_thorough or self.checked == len(self.past):
            return
        self.checked = len(self.past)
        last = self.checked - 1
        self.read_what_a_window_wrote(last, 1)
        self.fold_the_change_feed(last, 1)
        self.travel_in_time(1)
        self.scan()

    @rule()
    def scan(self) -> None:
        """A stream of batches, a count and a look-up of keys say what the whole read says."""
        for table, model in zip(self.tables, self.models, strict=True):
            streamed = table.scan().to_arrow()
            assert in_order(streamed.to_pylist()) == in_order(model.rows()), table.name
            assert table.scan().count() == len(model.rows()), table.name

    @precondition(lambda self: self.past)
    @rule(place=st.integers(0, 30))
    def travel_in_time(self, place: int) -> None:
        moment = self.past[-1 - place % len(self.past)]
        for at, table in enumerate(self.tables):
            found = table.read_arrow(as_of=moment.times[at])
            assert tuple(found.schema.names) == moment.columns
            expected = [record.row for record in moment.records[at]]
            assert in_order(found.to_pylist()) == in_order(expected), table.name

    @precondition(lambda self: self.past)
    @rule(first=st.integers(0, 30), length=st.integers(1, 5))
    def read_what_a_window_wrote(self, first: int, length: int) -> None:
        first, last = self.window(first, length)
        for at, table in enumerate(self.tables):
            found = table.changes_arrow(self.time_of(first, at), self.time_of(last, at))
            moment = self.past[last - 1]
            expected = [one.row for one in moment.records[at] if first <= one.write < last]
            assert in_order(found.to_pylist()) == in_order(expected), table.name

    @precondition(lambda self: self.past)
    @rule(first=st.integers(0, 30), length=st.integers(1, 5))
    def fold_the_change_feed(self, first: int, length: int) -> None:
        first, last = self.window(first, length)
        columns = self.past[last - 1].columns
        for at, table in enumerate(self.tables):
            before = self.past[first - 1].records[at] if first else []
            state = {place_of(one.row): in_columns(one.row, columns) for one in before}
            feed = table.changes_arrow(self.time_of(first, at), self.time_of(last, at), cdc=True)
            for change in feed.to_pylist():
                old, new = change["before"], change["after"]
                if old is not None:
                    assert comparable(state.pop(place_of(old))) == comparable(old), table.name
                if new is not None:
                    assert place_of(new) not in state, table.name
                    state[place_of(new)] = new
            expected = [one.row for one in self.past[last - 1].records[at]]
            assert in_order(state.values()) == in_order(expected), table.name

    @rule(asked=st.lists(conditions, min_size=1, max_size=2))
    def filter(self, asked: list[Condition]) -> None:
        text = " AND ".join(one.text() for one in asked)
        for table, model in zip(self.tables, self.models, strict=True):
            expected = in_order(row for row in model.rows() if all(one.holds(row) for one in asked))
            for reader in (table, hw.open_table(table.uri, WITHOUT_INDEXES)):
                found = reader.read_arrow(where=text).to_pylist()
                assert in_order(found) == expected, (table.name, text)

    @rule()
    def read_with_hudi_rs(self) -> None:
        for table, model in zip(self.tables, self.models, strict=True):
            if any(one.logs for one in load_view(table.storage, table.config).slices()):
                continue
            found = HudiTableBuilder.from_base_uri(table.uri).build().read(None)
            told = pa.Table.from_batches(found).to_pylist() if found else []
            expected = [in_columns(row, ["id", "qty", "price"]) for row in model.rows()]
            assert in_order(in_columns(row, ["id", "qty", "price"]) for row in told) == in_order(
                expected
            ), table.name

    @rule()
    def check_indexes(self) -> None:
        for table in self.tables:
            found = table.inspect.validate_metadata().to_pylist()
            assert [one for one in found if one["problem"] != "stale"] == [], table.name

    # What the rules are made of ----------------------------------------------------------------

    def full(self, drawn: Sequence[Row]) -> list[Row]:
        values = [{**row, ADDED.name: row["qty"]} for row in drawn]
        if self.kind.ts == "float64":
            signed = {0: -0.0, 1: 0.0, 6: float("nan")}
            for row in values:
                if row["ts"] is not None:
                    row["ts"] = signed.get(row["ts"], float(row["ts"]))
        return [{name: row[name] for name in self.schema.names} for row in values]

    def write(self, act: Callable[[Table], hw.Commit], change: Callable[[Model], None]) -> None:
        done = tuple(act(table).completion_time for table in self.tables)
        for model in set_of(self.models):
            change(model)
        columns = tuple(self.schema.names)
        records = tuple(list(model.records().values()) for model in self.models)
        self.past.append(Moment(done, records, columns))

    def window(self, first: int, length: int) -> tuple[int, int]:
        first %= len(self.past)
        return first, min(len(self.past), first + length)

    def time_of(self, place: int, at: int) -> str | None:
        """Return when the write before a place in the past completed."""
        return self.past[place - 1].times[at] if place else None

    def arrow(self, given: Sequence[Row]) -> pa.Table:
        fields = [self.schema.field(name) for name in given[0]]
        return pa.Table.from_pylist(list(given), schema=pa.schema(fields))


def set_of(models: Sequence[Model]) -> list[Model]:
    """Return the models, each once: two tables have the same."""
    return list({id(model): model for model in models}.values())


def in_columns(row: Row, columns: Sequence[str]) -> Row:
    return {name: row.get(name) for name in columns}


def place_of(row: Row) -> tuple[str, str | None]:
    return row["id"], row["city"]


def in_order(found: Any) -> list[Any]:
    return sorted((comparable(row) for row in found), key=repr)


def run_machine(
    kind: Kind,
    *,
    examples: int,
    steps: int,
    is_thorough: bool = False,
    machine: type[TwinMachine] = TwinMachine,
) -> None:
    class Machine(machine):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            super().__init__(kind)

    Machine.is_thorough = is_thorough
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.some(3)
def test_inv_87_one_history_has_one_answer(name: str) -> None:
    run_machine(KINDS[name], examples=1, steps=8)


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("name", KINDS)
def test_inv_87_any_history_has_one_answer(name: str, part: int) -> None:
    """All kinds and parts together take 20,000 steps and more."""
    run_machine(KINDS[name], examples=38, steps=20, is_thorough=part == 0)
