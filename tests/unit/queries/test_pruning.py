"""What is skipped by conditions, and that skipping never changes an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import columns

import headwater as hw
from headwater.arrow.meta_columns import META_COLUMNS
from headwater.config.table import TableConfig
from headwater.errors import InvalidInputError
from headwater.files.base_files import open_base_file
from headwater.format.parquet.base_file import write_base_file
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.model.files import BaseFile, FileGroupId, FileSlice
from headwater.model.instant import InstantTime
from headwater.queries.predicate import Comparison, Condition, Predicate
from headwater.queries.pruning import matching_row_groups, prune_slices
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.queries.text_filter import known_part_of
from headwater.table import Table

TIME = InstantTime("20260101000000000")
HIVE_STYLE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
COLUMNS = columns("id string, n int, city string, day date, v double")


def config_of(**arguments: Any) -> TableConfig:
    options: Mapping[str, str] = arguments.pop("options", {})
    new = NewTable(location="t", schema=COLUMNS, **arguments)
    return plan_table_config(new, options)


def slices_in(*partitions: str, buckets: int = 1) -> list[FileSlice]:
    return [
        FileSlice(FileGroupId(partition, f"{bucket:08d}-x-0"), TIME, None)
        for partition in partitions
        for bucket in range(buckets)
    ]


def partitions_left(where: str, config: TableConfig, *partitions: str) -> list[str]:
    pruned = prune_slices(slices_in(*partitions), known_part_of(where, COLUMNS), config, COLUMNS)
    return [file_slice.group.partition for file_slice in pruned]


class TestPartitions:
    def test_values_of_the_path_are_compared(self) -> None:
        config = config_of(record_key=["id"], partition_by=["city"], options=HIVE_STYLE)
        paths = ("city=sf", "city=la", "city=__HIVE_DEFAULT_PARTITION__")
        sf, la, null = paths
        assert partitions_left("city = 'sf'", config, *paths) == [sf]
        assert partitions_left("city > 'a' AND upper(id) = 'X'", config, *paths) == [sf, la]
        # A path does not tell null from empty text.
        assert partitions_left("city = ''", config, *paths) == [null]
        assert partitions_left("city IS NULL", config, *paths) == [null]
        assert partitions_left("city IS NOT NULL", config, *paths) == [sf, la, null]
        assert partitions_left("id = 'a' OR city = 'sf'", config, *paths) == list(paths)
        assert partitions_left("city = 'sf' OR city > 'x'", config, *paths) == [sf]
        assert partitions_left("NOT (city != 'la' AND city != 'sf')", config, *paths) == [sf, la]
        assert partitions_left("city LIKE 's%'", config, *paths) == [sf]

    def test_values_have_the_type_of_their_column(self) -> None:
        config = config_of(
            record_key=["id"],
            partition_by=["day", "n"],
            options=HIVE_STYLE,
        )
        early, late = "day=2024-01-31/n=9", "day=2024-02-01/n=10"
        odd = "day=19753/n=10"
        assert partitions_left("n > 9", config, early, late) == [late]
        assert partitions_left("day < DATE '2024-02-01'", config, early, late) == [early]
        assert partitions_left("day < DATE '2024-02-01'", config, late, odd) == [odd]

    def test_a_path_that_does_not_tell_is_kept(self) -> None:
        config = config_of(
            record_key=["id"],
            partition_by=["city", "id"],
            options={"hoodie.datasource.write.hive_style_partitioning": "false"},
        )
        assert partitions_left("city = 'x'", config, "a/b/c", "a/b") == ["a/b/c"]

    def test_a_table_whose_keys_cannot_be_made_is_read_whole(self) -> None:
        config = config_of(record_key=["id"], partition_by=["city"])
        unknown = replace(config, key_generator_type="SOMETHING_ELSE")
        assert partitions_left("city = 'la'", unknown, "city=sf") == ["city=sf"]


class TestBuckets:
    def buckets_left(self, where: str, **arguments: Any) -> list[int]:
        config = config_of(index="bucket", bucket_count=8, **arguments)
        slices = slices_in("", buckets=8)
        pruned = prune_slices(slices, known_part_of(where, COLUMNS), config, COLUMNS)
        return [int(file_slice.group.file_id[:8]) for file_slice in pruned]

    def test_equality_on_the_key_reads_one_bucket(self) -> None:
        # "a".hashCode() is 97; a list of it hashes to 31 + 97.
        assert self.buckets_left("id = 'a'", record_key=["id"]) == [128 % 8]
        assert self.buckets_left("n = 3", record_key=["n"]) == [(31 + ord("3")) % 8]
        assert self.buckets_left("id IN ('a', 'b')", record_key=["id"]) == [0, 1]
        assert self.buckets_left("id = 'a' OR id = 'b'", record_key=["id"]) == [0, 1]
        either = "(id = 'a' AND v > 1) OR (id = 'b' AND v < 1)"
        assert self.buckets_left(either, record_key=["id"]) == [0, 1]

    def test_all_fields_of_the_key_must_be_known(self) -> None:
        both = ["id", "n"]
        assert len(self.buckets_left("id = 'a' AND n = 3", record_key=both)) == 1
        assert len(self.buckets_left("id = 'a' AND n > 3", record_key=both)) == 8
        assert len(self.buckets_left("id = 'a'", record_key=both)) == 8

    @pytest.mark.parametrize("key", [["id"], ["id", "n"]], ids=str)
    def test_an_empty_list_of_keys_reads_nothing(self, key: list[str]) -> None:
        config = config_of(index="bucket", bucket_count=8, record_key=key)
        nothing = Condition("id", Comparison.IN, ())
        where = Predicate((nothing, Condition("n", Comparison.EQUAL, (3,))))
        assert prune_slices(slices_in("", buckets=8), where, config, COLUMNS) == []

    @pytest.mark.parametrize(
        "where", ["id > 'a'", "id = ''", "id IS NULL", "v = 1", "id = 'a' OR v = 1"]
    )
    def test_anything_else_reads_all(self, where: str) -> None:
        assert len(self.buckets_left(where, record_key=["id"])) == 8

    def test_a_number_that_no_key_can_be_reads_all(self) -> None:
        assert len(self.buckets_left("n = 99999999999", record_key=["n"])) == 8

    def test_a_file_id_without_bucket_is_kept(self) -> None:
        config = config_of(index="bucket", bucket_count=8, record_key=["id"])
        odd = [
            FileSlice(FileGroupId("", file_id), TIME, None)
            for file_id in ("random-id-0", "12345678-id-0")
        ]
        assert prune_slices(odd, known_part_of("id = 'a'", COLUMNS), config, COLUMNS) == odd


class TestRowGroups:
    SCHEMA = pa.schema(
        [("n", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("d", pa.date32())]
    )

    def groups(self, where: str, schema: pa.Schema | None = None) -> list[int]:
        """Row groups of 2 rows; the third has only nulls."""
        rows = pa.table(
            {
                "n": [1, 2, 3, 4, None, None],
                "s": ["a", "b", "c", None, None, None],
                "f": [1.0, 2.0, 3.0, float("nan"), None, None],
                "d": pa.array([date(2024, 1, n) if n < 5 else None for n in range(1, 7)]),
            },
            self.SCHEMA,
        )
        storage = MemoryStorage()
        file = BaseFile("", "f", "0-0-0", TIME)
        with storage.open_output(file.path) as sink:
            write_base_file([rows], self.SCHEMA, sink=sink, row_group_rows=2)
        known = schema or self.SCHEMA
        predicate = known_part_of(where, known)
        assert predicate.is_known
        with open_base_file(storage, file) as reader:
            return matching_row_groups(reader, predicate, known)

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            ("n = 2", [0]),
            ("n IN (1, 4)", [0, 1]),
            ("n IN (9)", []),
            ("n = 1 OR s = 'c'", [0, 1]),
            ("n > 3 AND (n = 1 OR s = 'c')", [1]),
            ("n > 2.5", [1]),
            ("n >= 2 AND n < 2.5", [0]),
            ("n BETWEEN 2 AND 3", [0, 1]),
            ("n != 1", [0, 1]),
            ("n IS NULL", [0, 1, 2]),
            ("n IS NOT NULL", [0, 1]),
            ("n < 1.5", [0]),
            ("s = 'c'", [1]),
            ("s < 'b' AND n > 2.5", []),
            ("d > DATE '2024-01-03'", [1]),
            # The second group has NaN, and so no bounds.
            ("f < 1.5", [0, 1]),
            ("f > 9", [0, 1]),
        ],
    )
    def test_statistics_tell(self, where: str, expected: list[int]) -> None:
        assert self.groups(where) == expected

    def test_a_column_of_another_type_tells_nothing(self) -> None:
        evolved = pa.schema([("n", pa.float64())])
        assert self.groups("n < 0", evolved) == [0, 1, 2]

    def test_a_column_the_file_lacks_tells_nothing(self) -> None:
        assert self.groups("new = 1", pa.schema([("new", pa.int64())])) == [0, 1, 2]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """Tables of both types with base files, updates and deletes."""
    made = {}
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        table = hw.create_table(
            tmp_path_factory.mktemp("pruned") / kind,
            schema=COLUMNS,
            record_key="id",
            partition_by="city",
            table_type=kind,
            buckets=4,
        )
        table.bulk_insert(rows_of(range(40), v=1.0))
        table.upsert(rows_of(range(0, 40, 3), v=2.0))
        table.delete(rows_of(range(0, 40, 10), v=0.0))
        made[kind] = table
    return made


def rows_of(numbers: range, *, v: float) -> pa.Table:
    ids = list(numbers)
    return pa.table(
        {
            "id": [f"k{n:02d}" for n in ids],
            "n": [None if n % 7 == 0 else n for n in ids],
            "city": [None if n % 5 == 0 else ("sf", "la")[n % 2] for n in ids],
            "day": [date(2024, 1, 1 + n % 28) for n in ids],
            "v": [v] * len(ids),
        },
        COLUMNS,
    )


BOTH = pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])


class TestReading:
    @BOTH
    def test_one_key_reads_one_file_group_per_partition(
        self, tables: dict[str, Table], kind: str
    ) -> None:
        table = tables[kind]
        plan = plan_snapshot(table.context, ReadRequest(where="id = 'k03'"))
        groups = [file_slice.group for file_slice in plan.slices]
        assert len(groups) == len({group.partition for group in groups}) == 3
        assert len({group.file_id[:8] for group in groups}) == 1
        assert table.read_arrow(["id", "v"], where="id = 'k03'").to_pylist() == [
            {"id": "k03", "v": 2.0}
        ]

    @BOTH
    def test_an_updated_record_is_not_found_by_its_old_values(
        self, tables: dict[str, Table], kind: str
    ) -> None:
        found = tables[kind].read_arrow(["id"], where="v = 1 AND id IN ('k03', 'k04', 'k10')")
        assert found["id"].to_pylist() == ["k04"]

    @BOTH
    def test_an_expression_filters_too(self, tables: dict[str, Table], kind: str) -> None:
        found = tables[kind].read_arrow(["id"], where=(pc.field("n") < 5) | (pc.field("n") > 37))
        expected = [n for n in range(40) if n % 7 and n % 10 and (n < 5 or n > 37)]
        assert sorted(found["id"].to_pylist()) == [f"k{n:02d}" for n in expected]

    @BOTH
    def test_meta_columns_can_be_asked_for(self, tables: dict[str, Table], kind: str) -> None:
        table = tables[kind]
        names = [*META_COLUMNS[:1], "id"]
        everything = table.read_arrow(names)
        newest = pc.max(everything[names[0]]).as_py()
        found = table.read_arrow(names, where=f"_hoodie_commit_time = '{newest}'")
        assert 0 < found.num_rows < everything.num_rows
        assert set(found[names[0]].to_pylist()) == {newest}

    def test_a_base_row_that_wins_hides_the_log_row_that_matches(self, tmp_path: Path) -> None:
        table = hw.create_table(
            tmp_path / "t",
            schema=COLUMNS,
            record_key="id",
            ordering="n",
            table_type="MERGE_ON_READ",
            buckets=1,
        )
        table.bulk_insert(rows_of(range(1, 3), v=1.0))
        late = rows_of(range(1, 2), v=9.0)
        table.upsert(late.set_column(1, COLUMNS.field("n"), pa.array([0], pa.int32())))
        assert table.read_arrow(["id"], where="v = 9").num_rows == 0
        assert table.read_arrow(["id"], where="v < 9 AND id < 'k02'")["id"].to_pylist() == ["k01"]

    @BOTH
    def test_years_that_python_does_not_know(self, tmp_path: Path, kind: str) -> None:
        schema = pa.schema(
            [("id", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))]
        )
        days, moments = [-(2**31), 0, 2**31 - 1], [-(2**63) + 1, 0, 2**63 - 1]
        given_rows = [pa.array(["a", "b", "c"]), pa.array(days, pa.int32()), pa.array(moments)]
        rows = pa.table(given_rows, names=schema.names).cast(schema)
        table = hw.create_table(
            tmp_path / "t", schema=schema, record_key="id", table_type=kind, buckets=1
        )
        table.upsert(rows)
        for where, ids in {
            "at > DATE '2000-01-01'": ["c"],
            "at <= TIMESTAMP '1970-01-01 00:00:00Z'": ["a", "b"],
            "day = DATE '1970-01-01'": ["b"],
            "day BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'": ["b"],
        }.items():
            assert sorted(table.read_arrow(["id"], where=where)["id"].to_pylist()) == ids

    def test_what_is_not_understood_is_refused(self, tables: dict[str, Table]) -> None:
        table = tables["COPY_ON_WRITE"]
        with pytest.raises(InvalidInputError, match=r"soundex.*\n.*soundex\(id\) = 'K03'"):
            table.read_arrow(where="n = 1 AND soundex(id) = 'K03'")
        with pytest.raises(InvalidInputError, match="nothing"):
            table.read_arrow(where=pc.field("nothing") == 1)

    def test_a_hint_drops_what_it_understands(self, tables: dict[str, Table]) -> None:
        table = tables["COPY_ON_WRITE"]
        request = ReadRequest(where="city = 'sf' AND upper(id) = 'K03'")
        plan = plan_snapshot(table.context, request)
        assert {file_slice.group.partition.removeprefix("city=") for file_slice in plan.slices} == {
            "sf"
        }


CONDITIONS = st.one_of(
    st.builds(
        "id {} 'k{:02d}'".format, st.sampled_from(["=", "<", ">=", "!="]), st.integers(0, 40)
    ),
    st.builds("n {} {}".format, st.sampled_from(["=", "<=", ">", "<>"]), st.integers(-1, 41)),
    st.builds("n BETWEEN {} AND {}".format, st.integers(0, 40), st.integers(0, 40)),
    st.builds(
        "city {} '{}'".format, st.sampled_from(["=", ">"]), st.sampled_from(["sf", "la", ""])
    ),
    st.builds("{} IS {}NULL".format, st.sampled_from(["n", "city"]), st.sampled_from(["", "NOT "])),
    st.builds("v {} {}".format, st.sampled_from(["=", "<", ">"]), st.sampled_from([1, 1.5, 2])),
    st.builds("day < DATE '2024-01-{:02d}'".format, st.integers(1, 28)),
    st.lists(st.integers(0, 40), min_size=1, max_size=4).map(
        lambda ns: f"id IN ({', '.join(repr(f'k{n:02d}') for n in ns)})"
    ),
)


@BOTH
@settings(deadline=None, max_examples=30)
@given(conditions=st.lists(CONDITIONS, min_size=1, max_size=3))
@pytest.mark.some(1)
def test_pruning_never_changes_an_answer(
    tables: dict[str, Table], kind: str, conditions: list[str]
) -> None:
    table = tables[kind]
    where = " AND ".join(conditions)
    expected = table.read_arrow(["id", "n", "city", "day", "v"])
    for condition in conditions:
        # Each by itself, as an expression: nothing is skipped for those.
        expected = expected.filter(_expression(condition))
    found = table.read_arrow(where=where)
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


def _expression(condition: str) -> pc.Expression:
    words = condition.split(" ")
    column, operator = pc.field(words[0]), " ".join(words[1:])
    if operator.startswith("IS"):
        return column.is_null() if operator == "IS NULL" else column.is_valid()
    if operator.startswith("BETWEEN"):
        return (column >= int(words[2])) & (column <= int(words[4]))
    if operator.startswith("IN"):
        return column.isin(condition[condition.index("(") + 1 : -1].replace("'", "").split(", "))
    value: Any = words[-1].strip("'")
    if words[0] == "day":
        value = date.fromisoformat(value)
    elif words[0] in ("n", "v"):
        value = float(value)
    return {
        "=": column == value,
        "!=": column != value,
        "<>": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }[words[1]]
