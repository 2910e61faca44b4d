"""The whole table API against a dict: any sequence of writes, and every moment of its past.

The model maps (partition, id) to a row and to the number of the write that made it so. After each
write the table must read as the model does; any earlier completion time must read as the model did
then; the rows of any window of time, and the change feed folded over its beginning, must follow
from the models of its two ends.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
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

import headwater as hw
from headwater.config.table_options import TableType
from headwater.errors import InvalidInputError
from headwater.metadata.view import load_view
from headwater.model.commit import Commit
from headwater.table import Table

Row = dict[str, Any]
Key = tuple[str, str]

NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
EXTRA_COLUMNS = ("tip", "toll")
FIELDS = (
    pa.field("id", pa.string(), nullable=False),
    pa.field("city", pa.string()),
    pa.field("ts", pa.int64()),
    pa.field("fare", pa.int32()),
    pa.field("note", pa.string()),
)

BOUNDED = settings(
    max_examples=settings().max_examples // 25,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


class Drawn(NamedTuple):
    """A row as drawn; its ordering value depends on what the table holds."""

    id: str
    city: str | None
    fare: int
    is_late: bool


class Record(NamedTuple):
    row: Row
    write: int


Model = dict[Key, Record]

cities = st.sampled_from(["sf", "ny", None])
ids = st.sampled_from("abcdefgh")
drawn_rows = st.lists(
    st.builds(Drawn, ids, cities, st.integers(-5, 5), st.booleans()), min_size=1, max_size=5
)
drawn_keys = st.lists(st.tuples(ids, cities), min_size=1, max_size=3)


class TableMachine(RuleBasedStateMachine):
    def __init__(
        self, table_type: TableType, *, is_partitioned: bool, ordering: str | None
    ) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="headwater-state-machine-")
        self.is_partitioned = is_partitioned
        self.ordering = ordering
        self.schema = pa.schema(FIELDS)
        self.table: Table = hw.create_table(
            Path(self.folder) / "trips",
            schema=self.schema,
            record_key="id",
            partition_by="city" if is_partitioned else None,
            ordering=ordering,
            table_type=table_type,
            buckets=2,
            options={"headwater.storage.fsync": "false"},
        )
        self.model: Model = {}
        self.past: list[tuple[str, Model, tuple[str, ...]]] = []
        self.clock = 100

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # Writes ------------------------------------------------------------------------------------

    @rule(
        drawn=drawn_rows,
        operation=st.sampled_from(["upsert", "insert", "bulk_insert"]),
        knows_all_columns=st.booleans(),
    )
    def put(self, drawn: list[Drawn], operation: str, knows_all_columns: bool) -> None:
        rows = self.rows_of(drawn, knows_all_columns=knows_all_columns)
        self.note(getattr(self.table, operation)(self.arrow(rows)), lambda: self.apply(rows))

    @rule(drawn=drawn_rows)
    def put_some_columns(self, drawn: list[Drawn]) -> None:
        rows = self.rows_of(drawn)
        brought = ("id", "city", "ts", "fare")
        given = self.arrow(rows).select(brought)
        self.note(
            self.table.upsert(given, partial=True),
            lambda: self.apply([{name: row[name] for name in brought} for row in rows]),
        )

    @rule(keys=drawn_keys)
    def delete(self, keys: list[tuple[str, str | None]]) -> None:
        given = pa.table({"id": [one for one, _ in keys], "city": [city for _, city in keys]})
        gone = [self.key(one, city) for one, city in keys]
        self.note(self.table.delete(given), lambda: self.remove(gone))

    @rule(drawn=drawn_rows)
    def overwrite(self, drawn: list[Drawn]) -> None:
        rows = self.rows_of([one._replace(is_late=False) for one in drawn])

        def replace() -> None:
            self.remove(list(self.model))
            self.apply(rows)

        self.note(self.table.overwrite(self.arrow(rows)), replace)

    @rule(drawn=drawn_rows)
    def overwrite_partitions(self, drawn: list[Drawn]) -> None:
        rows = self.rows_of([one._replace(is_late=False) for one in drawn])
        replaced = {self.key_of(row)[0] for row in rows}

        def replace() -> None:
            self.remove([key for key in self.model if key[0] in replaced])
            self.apply(rows)

        self.note(self.table.overwrite_partitions(self.arrow(rows)), replace)

    @precondition(lambda self: self.is_partitioned)
    @rule(some=st.lists(cities, min_size=1, max_size=2))
    def delete_partitions(self, some: list[str | None]) -> None:
        paths = {self.key("", city)[0] for city in some}
        if not paths <= set(load_view(self.table.storage, self.table.config).partitions()):
            with pytest.raises(InvalidInputError, match="has no partition"):
                self.table.delete_partitions(sorted(paths))
            return
        self.note(
            self.table.delete_partitions(sorted(paths)),
            lambda: self.remove([key for key in self.model if key[0] in paths]),
        )

    @precondition(lambda self: len(self.schema) < len(FIELDS) + len(EXTRA_COLUMNS))
    @rule(drawn=drawn_rows)
    def add_a_column(self, drawn: list[Drawn]) -> None:
        name = EXTRA_COLUMNS[len(self.schema) - len(FIELDS)]
        self.schema = self.schema.append(pa.field(name, pa.int64()))
        rows = self.rows_of(drawn)
        self.note(self.table.upsert(self.arrow(rows)), lambda: self.apply(rows))

    @precondition(lambda self: self.schema.field("fare").type == pa.int32())
    @rule(drawn=drawn_rows)
    def widen_a_column(self, drawn: list[Drawn]) -> None:
        place = self.schema.get_field_index("fare")
        self.schema = self.schema.set(place, pa.field("fare", pa.int64()))
        rows = self.rows_of([one._replace(fare=one.fare + 2**40) for one in drawn])
        self.note(self.table.upsert(self.arrow(rows)), lambda: self.apply(rows))

    @rule()
    def fail_to_write(self) -> None:
        nulls = dict.fromkeys(self.schema.names)
        rows = [{**nulls, "id": one, "city": "sf"} for one in ("a", "")]
        with pytest.raises(hw.InvalidInputError):
            self.table.upsert(self.arrow(rows))

    @rule()
    def open_again(self) -> None:
        self.table = hw.open_table(self.table.uri, self.table.context.options)

    # Reads -------------------------------------------------------------------------------------

    @invariant()
    def the_table_reads_as_the_model(self) -> None:
        assert by_key(self, self.table.read_arrow()) == rows_in(self.model)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def travel_in_time(self, data: st.DataObject) -> None:
        time, model, columns = data.draw(st.sampled_from(self.past), label="moment")
        found = self.table.read_arrow(as_of=time)
        assert tuple(found.schema.names) == columns
        assert by_key(self, found) == rows_in(model)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def read_what_was_written(self, data: st.DataObject) -> None:
        places = st.integers(0, len(self.past))
        first, last = sorted([data.draw(places, label="after"), data.draw(places, label="until")])
        after, until = self.time_of(first), self.time_of(last)
        if until is None:
            return
        expected = {
            key: record.row
            for key, record in self.past[last - 1][1].items()
            if first <= record.write < last
        }
        assert by_key(self, self.table.changes_arrow(after, until)) == expected

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def follow_the_change_feed(self, data: st.DataObject) -> None:
        places = st.integers(0, len(self.past))
        first, last = sorted([data.draw(places, label="after"), data.draw(places, label="until")])
        after, until = self.time_of(first), self.time_of(last)
        if until is None:
            return
        _, model, columns = self.past[last - 1]
        state = rows_in(self.past[first - 1][1]) if first else {}
        state = {key: in_columns(row, columns) for key, row in state.items()}
        for change in self.table.changes_arrow(after, until, cdc=True).to_pylist():
            key = self.key_of(change["after"] or change["before"])
            assert change["before"] == state.get(key), "the feed and the state before it differ"
            assert (change["op"] == "i") == (change["before"] is None)
            assert (change["op"] == "d") == (change["after"] is None)
            if change["after"] is None:
                del state[key]
            else:
                state[key] = change["after"]
        assert state == rows_in(model)

    # The model ---------------------------------------------------------------------------------

    def rows_of(self, drawn: Sequence[Drawn], *, knows_all_columns: bool = True) -> list[Row]:
        names = self.schema.names if knows_all_columns else [field.name for field in FIELDS]
        rows = []
        for one in drawn:
            self.clock += 1
            values = {
                "id": one.id,
                "city": one.city,
                "ts": one.fare if one.is_late else self.clock,
                "fare": one.fare,
                "note": f"at {self.clock}",
                **dict.fromkeys(EXTRA_COLUMNS, one.fare),
            }
            rows.append({name: values[name] for name in names})
        return rows

    def apply(self, rows: list[Row]) -> None:
        """Put rows; columns that a row lacks keep their value in a partial update."""
        reduced: dict[Key, Row] = {}
        for row in rows:
            key = self.key_of(row)
            if key not in reduced or self.wins(row, reduced[key]):
                reduced[key] = row
        is_partial = "note" not in rows[0]
        nulls = dict.fromkeys(self.schema.names)
        for key, row in reduced.items():
            old = self.model.get(key)
            if old is None or self.wins(row, old.row):
                kept = old.row if old is not None and is_partial else {}
                self.model[key] = Record({**nulls, **kept, **row}, len(self.past))

    def wins(self, new: Row, old: Row) -> bool:
        return self.ordering is None or bool(new["ts"] >= old["ts"])

    def remove(self, keys: list[Key]) -> None:
        for key in keys:
            self.model.pop(key, None)

    def note(self, commit: Commit, change: Callable[[], None]) -> None:
        change()
        columns = tuple(self.schema.names)
        self.model = {
            key: Record(in_columns(record.row, columns), record.write)
            for key, record in self.model.items()
        }
        self.past.append((commit.completion_time, dict(self.model), columns))

    def time_of(self, place: int) -> str | None:
        """Return the completion time of the write before a place in the past."""
        return self.past[place - 1][0] if place else None

    def arrow(self, rows: list[Row]) -> pa.Table:
        names = list(rows[0])
        return pa.Table.from_pylist(rows, schema=pa.schema([self.schema.field(n) for n in names]))

    def key(self, id: str, city: str | None) -> Key:
        return (f"city={city or NO_PARTITION}" if self.is_partitioned else "", id)

    def key_of(self, row: Row) -> Key:
        return self.key(row["id"], row["city"])


def in_columns(row: Row, columns: Sequence[str]) -> Row:
    return {name: row.get(name) for name in columns}


def rows_in(model: Model) -> dict[Key, Row]:
    return {key: record.row for key, record in model.items()}


def by_key(machine: TableMachine, table: pa.Table) -> dict[Key, Row]:
    found = {machine.key_of(row): row for row in table.to_pylist()}
    assert len(found) == table.num_rows, "a record came twice"
    return found


@pytest.mark.hypothesis
@pytest.mark.parametrize("ordering", [None, "ts"], ids=["commit-time", "event-time"])
@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "unpartitioned"])
@pytest.mark.parametrize("table_type", list(TableType))
@pytest.mark.some(3)
def test_any_sequence_of_writes_and_reads(
    table_type: TableType, is_partitioned: bool, ordering: str | None
) -> None:
    class Machine(TableMachine):
        def __init__(self) -> None:
            super().__init__(table_type, is_partitioned=is_partitioned, ordering=ordering)

    run_state_machine_as_test(Machine, settings=BOUNDED)
