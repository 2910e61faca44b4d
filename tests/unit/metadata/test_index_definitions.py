"""What an index can be on: one answer, whichever way it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.cli.main import main
from headwater.config.metadata import MetadataConfig
from headwater.errors import ErrorKind, InvalidInputError
from headwater.metadata.definitions import define_index
from headwater.table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
        pa.field("place", pa.struct([("city", pa.string()), ("codes", pa.list_(pa.int32()))])),
        pa.field("fare", pa.float64()),
        pa.field("photo", pa.binary()),
        pa.field("cost", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
LOCK = "hoodie.write.lock.provider=in_process"
OPTIONS = dict([LOCK.split("=")]) | {"headwater.storage.fsync": "false"}
WITH_STATS = ("id", "place.city", "fare", "photo", "cost", "day", "at")
WITH_TEXT = ("id", "place.city", "cost", "day", "at")

Problems = list[tuple[list[str], str]]
STATS_PROBLEMS: Problems = [
    (["id", "tags"], "'tags' has the type list<element: string>, which has no order"),
    (["counts"], "'counts' has the type map<string, int32>, which has no order"),
    (["place"], "'place' has the type struct<city: string, "),
    (["place.codes"], "'place.codes' has the type list<element: int32>, which has no order"),
    (["nothing"], "there is no column 'nothing'. "),
    (["place.nothing"], "there is no column 'place.nothing'. "),
    (["Fare"], "there is no column 'Fare' (did you mean 'fare'?). "),
    (["day", "id", "day"], "'day' is named twice. "),
    (["_hoodie_record_key"], "'_hoodie_record_key' is a meta column"),
    (["_hoodie_file_name", "id"], "'_hoodie_file_name' is a meta column"),
    (["tags", "nothing"], "which has no order; there is no column 'nothing'. "),
]
SECONDARY_PROBLEMS: Problems = [
    (["tags"], "'tags' has the type list<element: string>, whose values have no text"),
    (["place"], "'place' has the type struct<city: string, "),
    (["fare"], "'fare' has the type double, whose values have no text"),
    (["photo"], "'photo' has the type binary, whose values have no text"),
    (["nothing"], "there is no column 'nothing'. "),
    (["ID"], "there is no column 'ID' (did you mean 'id'?). "),
    (["_hoodie_record_key"], "'_hoodie_record_key' is a meta column"),
    (["id", "id"], "on one column, but 2 were named"),
    (["id", "day"], "on one column, but 2 were named"),
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return hw.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key="id", options=OPTIONS)


def check_refused(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        call()
    assert raised.value.kind is ErrorKind.INVALID_INDEX
    assert problem in raised.value.message


def check_untouched(table: Table) -> None:
    """Check that nothing was planned, and that writes go on: no index is in their way."""
    assert table.inspect.timeline().num_rows == 0
    assert table.indexes.list()["index"].to_pylist() == ["files"]
    table.upsert(pa.table({"id": ["a"], "fare": [1.5], "tags": [["x"]]}))


@pytest.mark.parametrize(("columns", "problem"), STATS_PROBLEMS)
def test_create_table_refuses_columns_without_statistics(
    tmp_path: Path, columns: list[str], problem: str
) -> None:
    options = {
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.column.stats.column.list": ",".join(columns),
    }
    check_refused(
        lambda: hw.create_table(
            str(tmp_path / "t"), schema=SCHEMA, record_key="id", options={**OPTIONS, **options}
        ),
        problem,
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("columns", "problem"), STATS_PROBLEMS)
def test_an_index_of_statistics_is_refused_on_columns_without(
    table: Table, columns: list[str], problem: str
) -> None:
    check_refused(lambda: table.indexes.create("column_stats", columns=columns), problem)
    check_refused(lambda: table.indexes.schedule("column_stats", columns=columns), problem)
    check_untouched(table)


@pytest.mark.parametrize(("columns", "problem"), SECONDARY_PROBLEMS)
def test_a_secondary_index_is_refused_on_columns_without_a_text(
    table: Table, columns: list[str], problem: str
) -> None:
    names = ["record_index", "secondary_index_x"]
    check_refused(lambda: table.indexes.create(names, columns=columns), problem)
    check_refused(lambda: table.indexes.schedule(names, columns=columns), problem)
    check_untouched(table)


@pytest.mark.parametrize("verb", ["create", "schedule"])
@pytest.mark.parametrize(
    ("names", "columns", "problem"),
    [
        (["column_stats"], "id,tags", "'tags' has the type list<element: string>, which has no"),
        (["column_stats"], "day,id,day", "'day' is named twice"),
        (["column_stats"], "Fare", "did you mean 'fare'?"),
        (["record_index", "secondary_index_x"], "fare", "'fare' has the type double, whose"),
        (["record_index", "secondary_index_x"], "place", "'place' has the type struct<"),
    ],
)
def test_the_command_line_refuses_the_same(
    table: Table,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    names: list[str],
    columns: str,
    problem: str,
) -> None:
    code = main(["index", verb, table.uri, *names, "--columns", columns, "-o", LOCK])
    printed = capsys.readouterr().err
    assert code == 2
    assert "invalid_input.index" in printed
    assert problem in " ".join(printed.split())
    check_untouched(table)


def test_an_error_says_which_columns_are_possible(table: Table) -> None:
    check_refused(
        lambda: table.indexes.create("column_stats", columns=["tags"]),
        f"Possible are {', '.join(WITH_STATS)}",
    )
    check_refused(
        lambda: table.indexes.create(["record_index", "secondary_index_x"], columns=["tags"]),
        f"Possible are {', '.join(WITH_TEXT)}",
    )
    wide = pa.schema([pa.field(f"c{number}", pa.int32()) for number in range(40)])
    check_refused(
        lambda: define_index(
            "column_stats", wide, config=table.config, metadata=MetadataConfig(), columns=["x"]
        ),
        "c30, c31 and 8 more",
    )


def test_what_is_possible_is_defined(table: Table) -> None:
    metadata = MetadataConfig(stats_columns=("fare",))
    for columns in ([], list(WITH_STATS)):
        definition = define_index(
            "column_stats", SCHEMA, config=table.config, metadata=metadata, columns=columns
        )
        assert definition is not None
        assert definition.source_fields[3:] == tuple(columns or ["fare"])
    for column in WITH_TEXT:
        definition = define_index(
            "secondary_index_x", SCHEMA, config=table.config, metadata=metadata, columns=[column]
        )
        assert definition is not None
        assert definition.source_fields == (column,)


@pytest.mark.parametrize("columns", [{"secondary_index_x": "id"}, {"secondary_index_x": [3]}])
def test_the_columns_of_an_index_are_a_list_of_names(table: Table, columns: object) -> None:
    names = ["record_index", "secondary_index_x"]
    check_refused(
        lambda: table.indexes.create(names, columns=columns),  # type: ignore[arg-type]
        "columns must be a list of columns",
    )
