"""MERGE: every clause, on every kind of table, as one commit; and what is refused."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.unit.statements.conftest import Create, fares_of, rows_of
from tests.unit.statements.test_update import MODES, SHAPES, name_of

import headwater as hw
from headwater.metadata.view import view_of
from headwater.operations.request import RowsOfTable, WriteRequest
from headwater.operations.retry import write_with_retries
from headwater.statements import target as target_module
from headwater.statements.merge import Clause, Merge, MergeRequest
from headwater.statements.target import Target
from headwater.table import Table

CHANGES = pa.table(
    {
        "key": ["a", "b", "c", "x", "y"],
        "place": ["sf", "sf", "la", "ny", "ny"],
        "amount": [10.0, 0.0, 30.0, 40.0, -1.0],
    }
)


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_all_clauses_are_one_commit(shape: dict[str, Any], create: Create) -> None:
    table = create(**shape)
    table.upsert(rows_of("c la 3.5", ts=2))
    before = table.history().num_rows
    (
        table.merge(CHANGES, on="t.id = s.key AND t.city = s.place")
        .when_matched_delete(where="s.amount = 0")
        .when_matched_update({"fare": "t.fare + amount"}, where="t.fare < 3")
        .when_matched_update({"fare": 0, "note": "'rest'"})
        .when_not_matched_insert(
            {"id": "key", "city": "place", "fare": "amount", "ts": 5}, where="amount > 0"
        )
        .execute()
    )
    assert fares_of(table) == {"a": 11.0, "c": 0.0, "d": 4.0, "e": 5.0, "x": 40.0}
    assert table.history().num_rows == before + 1
    notes = table.read_arrow(["id", "note"]).sort_by("id")["note"].to_pylist()
    assert notes == ["first", "rest", "first", "first", None]
    rest = {"id": "c", "city": "la", "fare": 0.0, "note": "rest", "ts": 2}
    assert table.read_arrow(where="id = 'c'").to_pylist() == [rest]


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_records_that_no_source_row_matches_are_updated_and_deleted(
    shape: dict[str, Any], create: Create
) -> None:
    table = create(**shape)
    table.upsert(rows_of("c la 3.5", ts=2))
    before = table.history().num_rows
    (
        table.merge(CHANGES, on="t.id = s.key AND t.city = s.place")
        .when_matched_update({"fare": "amount"})
        .when_not_matched_insert(
            {"id": "key", "city": "place", "fare": "amount", "ts": 5}, where="amount > 0"
        )
        .when_not_matched_by_source_delete(where="t.city = 'ny'")
        .when_not_matched_by_source_update({"fare": "fare * 100", "note": "'left'"})
        .execute()
    )
    assert fares_of(table) == {"a": 10.0, "b": 0.0, "c": 30.0, "d": 400.0, "x": 40.0}
    assert table.history().num_rows == before + 1
    notes = table.read_arrow(["id", "note"]).sort_by("id")["note"].to_pylist()
    assert notes == ["first", "first", "first", "left", None]


def test_a_pair_that_the_rest_of_on_drops_is_not_matched_by_source(create: Create) -> None:
    table = create()
    source = pa.table({"id": ["a", "b"], "least": [0.5, 9.0]})
    (
        table.merge(source, on="t.id = s.id AND t.fare > s.least AND t.city = 'sf'")
        .when_not_matched_by_source_delete(where="city = 'sf'")
        .execute()
    )
    assert fares_of(table) == {"a": 1.0, "c": 3.0, "d": 4.0, "e": 5.0}


def test_an_empty_source_matches_no_record(create: Create) -> None:
    table = create(table_type="MERGE_ON_READ")
    nobody = rows_of("a sf 1").slice(0, 0)
    (
        table.merge(nobody, on="id")
        .when_matched_update()
        .when_not_matched_by_source_delete(where="fare > 2")
        .when_not_matched_by_source_update({"note": "'alone'"}, where="fare > 1")
        .execute()
    )
    assert fares_of(table) == {"a": 1.0, "b": 2.0}
    assert table.read_arrow(where="id = 'b'")["note"].to_pylist() == ["alone"]


@pytest.mark.parametrize("index", ["bucket", "record_index", "simple"])
@pytest.mark.parametrize("key", ["id", ["id", "ts"]], ids=str)
def test_a_source_whose_keys_are_all_null_matches_no_record(
    index: str, key: str | list[str], create: Create
) -> None:
    table = create(index=index, record_key=key)
    source = pa.table({"id": pa.array([None], pa.string()), "ts": [1], "fare": [9.0]})
    merge = table.merge(source, on=key)
    assert merge.when_matched_update({"fare": "s.fare"}).execute().updated == 0
    assert merge.when_matched_delete().execute().deleted == 0
    assert merge.when_not_matched_by_source_update({"fare": 7}).execute().updated == 5
    assert set(fares_of(table).values()) == {7.0}


def test_a_clause_on_records_without_a_source_row_knows_no_source(create: Create) -> None:
    table = create()
    merging = table.merge(CHANGES, on="t.id = s.key")
    with pytest.raises(hw.InvalidInputError, match=r"s\.amount"):
        merging.when_not_matched_by_source_update({"fare": "s.amount"}).execute()
    with pytest.raises(hw.InvalidInputError, match=r"amount"):
        merging.when_not_matched_by_source_delete(where="amount > 1").execute()


def test_without_values_columns_are_taken_by_name(create: Create) -> None:
    table = create()
    source = rows_of("a sf 9", "z sf 8", ts=3).drop_columns(["note"])
    table.merge(source, on="id").when_matched_update().when_not_matched_insert().execute()
    assert fares_of(table) == {"a": 9.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0, "z": 8.0}
    notes = table.read_arrow(["id", "note"], where="id IN ('a', 'z')").sort_by("id")
    assert notes["note"].to_pylist() == ["first", None]


def test_only_deletes_and_only_inserts(create: Create) -> None:
    table = create(table_type="MERGE_ON_READ")
    table.merge(rows_of("a sf 0"), on=["id", "city"]).when_matched_delete().execute()
    assert "a" not in fares_of(table)
    source = duckdb.from_arrow(rows_of("b sf 100", "n ny 7"))
    table.merge(source, on="id").when_not_matched_insert().execute()
    assert fares_of(table) == {"b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0, "n": 7.0}


def test_updates_alone_are_partial_on_merge_on_read_tables(create: Create) -> None:
    table = create(table_type="MERGE_ON_READ")
    target = Target.of(table.context, "UTC", table.context.moment())
    source = pa.table({"id": ["a"], "bonus": [1.0]})
    request = MergeRequest("t.id = s.id", (Clause({"fare": "fare + s.bonus"}),))
    merge = Merge.compile(target, source, request)
    assert merge.is_partial
    assert merge.written.names == ["id", "city", "fare"]
    table.merge(source, on="id").when_matched_update({"fare": "fare + bonus"}).execute()
    assert table.read_arrow(where="id = 'a'")["note"].to_pylist() == ["first"]


def test_one_source_row_may_change_many_records(create: Create) -> None:
    table = create()
    source = pa.table({"city": ["sf", None], "factor": [10.0, 5.0]})
    table.merge(source, on="city").when_matched_update({"fare": "fare * factor"}).execute()
    assert fares_of(table) == {"a": 10.0, "b": 20.0, "c": 3.0, "d": 4.0, "e": 5.0}


def test_types_meet_as_in_any_comparison(create: Create) -> None:
    table = create()
    source = pa.table({"n": pa.array([1, 2], pa.int32())})
    table.merge(source, on="t.fare = s.n").when_matched_delete().execute()
    assert fares_of(table) == {"c": 3.0, "d": 4.0, "e": 5.0}


def test_the_source_says_which_files_are_read(create: Create) -> None:
    table = create()
    target = Target.of(table.context, "UTC", table.context.moment())
    request = MergeRequest("t.id = s.key AND t.city = s.place", (Clause({"fare": "amount"}),))
    source = CHANGES.slice(0, 2)
    merge = Merge.compile(target, source, request)
    known = merge._known(pa.table({"k0": source["key"], "k1": source["place"]}))
    read = list(target.read(view_of(table.context), ["city"], known=known))
    assert {value for batch in read for value in batch["city"].to_pylist()} == {"sf"}


@pytest.mark.parametrize(
    ("on", "clause", "message"),
    [
        ("t.id = s.key", {}, "needs a clause"),
        ("t.fare > s.amount", {"delete": None}, "needs an equality"),
        ("t.id = key OR t.city = place", {"delete": None}, "needs an equality"),
        ("t.city = s.place", {"insert": {"id": "key"}}, "has no equality of id"),
        ("t.id = s.key", {"update": None}, "The source has columns key, place, amount"),
        ("t.id = s.key", {"update": {"nope": 1}}, "no column nope"),
        ("t.id = s.key", {"update": {"id": "'q'"}}, "part of their key"),
        ("t.id = s.key", {"insert": {"id": "t.id"}}, "t.id does not exist"),
        ("t.nope = s.key", {"delete": None}, "position 1"),
        (
            "t.id = s.key AND t.fare > 100",
            {"insert": {"id": "key", "city": "place"}},
            "have record keys that are there already",
        ),
    ],
)
def test_bad_merges_are_refused(
    on: str, clause: dict[str, Any], message: str, create: Create
) -> None:
    table = create()
    merge = table.merge(CHANGES, on=on)
    if "update" in clause:
        merge = merge.when_matched_update(clause["update"])
    if "delete" in clause:
        merge = merge.when_matched_delete()
    if "insert" in clause:
        merge = merge.when_not_matched_insert(clause["insert"])
    with pytest.raises(hw.InvalidInputError, match=message):
        merge.execute()
    assert len(fares_of(table)) == 5


def test_two_source_rows_for_one_record_are_refused_unless_a_condition_chooses(
    create: Create,
) -> None:
    table = create()
    source = pa.table({"id": ["a", "a", "b"], "v": [1.0, 2.0, 3.0]})
    merge = table.merge(source, on="id")
    with pytest.raises(hw.InvalidInputError, match="match the record id='a' of table t"):
        merge.when_matched_update({"fare": "v"}).execute()
    with pytest.raises(hw.InvalidInputError, match="match the record id='a'"):
        merge.when_matched_update({"fare": "v"}, where="v = 1").when_matched_delete().execute()
    merge.when_matched_update({"fare": "v * 10"}, where="v > 1").execute()
    assert fares_of(table)["a"] == 20.0


@pytest.mark.parametrize(("ordering", "fare"), [(None, 2.0), ("ts", 1.0)])
def test_of_two_source_rows_with_one_new_key_one_goes_in_as_with_an_upsert(
    ordering: str | None, fare: float, create: Create
) -> None:
    table = create(ordering=ordering)
    source = rows_of("x sf 1", ts=9), rows_of("x sf 2", ts=1)
    merge = table.merge(pa.concat_tables(source), on="id").when_not_matched_insert()
    assert merge.execute().inserted == 1
    assert fares_of(table)["x"] == fare


@pytest.mark.parametrize("mode", MODES)
def test_inv_95_a_merge_is_made_again_of_what_another_writer_left(
    mode: str, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(table_type="MERGE_ON_READ", options=MODES[mode])
    rival = hw.open_table(table.uri, MODES[mode])
    meet_rival(monkeypatch, rival, rows_of("a sf 100", "x ny 50", ts=2))
    (
        table.merge(CHANGES, on="t.id = s.key")
        .when_matched_update({"fare": "fare + amount"})
        .when_not_matched_insert({"id": "key", "city": "place", "fare": "amount"})
        .execute()
    )
    found = fares_of(table)
    assert found["a"] == 110.0
    assert found["x"] == 90.0


def meet_rival(monkeypatch: pytest.MonkeyPatch, rival: Table, rows: pa.Table) -> None:
    """Let another writer commit right after the statement's first look at the table."""
    looks = []

    def write(context: Any, request: WriteRequest, made: RowsOfTable) -> Any:
        def make(view: Any) -> Any:
            view.slices()
            looks.append(view)
            if len(looks) == 1:
                rival.upsert(rows)
            return made.make(view)

        return write_with_retries(context, request, RowsOfTable(make))

    monkeypatch.setattr(target_module, "write_with_retries", write)
