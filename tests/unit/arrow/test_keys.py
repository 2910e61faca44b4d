"""Record keys and partition paths, against a naive twin and against tables of stock Hudi."""

from __future__ import annotations

import io
import pickle
import zipfile
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.arrow.keys import KeyGenerator
from headwater.arrow.partition_paths import escape_path_part, unescape_path_part
from headwater.config.table import TableConfig, table_checksum
from headwater.errors import InternalError, InvalidInputError, UnsupportedError
from headwater.format.properties import parse_properties

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures"
HIVE = "hoodie.datasource.write.hive_style_partitioning"
ENCODED = "hoodie.datasource.write.partitionpath.urlencode"


def generator(kind: str | None, keys: str = "id", partition: str = "", **more: str) -> KeyGenerator:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "9",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.checksum": str(table_checksum(None, "t")),
        "hoodie.table.recordkey.fields": keys,
        "hoodie.table.partition.fields": partition,
        **more,
    }
    if kind is not None:
        properties["hoodie.table.keygenerator.type"] = kind
    return KeyGenerator.from_config(TableConfig.from_properties(properties, path="p"))


def partitioned(partition: str, *, hive: bool = False, encoded: bool = False) -> KeyGenerator:
    options = {HIVE: str(hive).lower(), ENCODED: str(encoded).lower()}
    return generator("COMPLEX", partition=partition, **options)


def keys_of(columns: dict[str, Any], kind: str, keys: str) -> list[str]:
    found = generator(kind, keys, "p" if kind == "SIMPLE" else "").record_keys(pa.table(columns))
    assert found.type == pa.string()
    return list(found.to_pylist())


def test_values_are_written_as_java_writes_them() -> None:
    columns = {
        "int": pa.array([-7, 0], pa.int32()),
        "long": pa.array([2**40, -1]),
        "text": pa.array(["é:x", "y"]).dictionary_encode(),
        "flag": [True, False],
        "money": pa.array([Decimal("1.50"), Decimal("-0.05")], pa.decimal128(10, 2)),
        "tiny": pa.array([Decimal("0E-10"), Decimal("1.000E-7")], pa.decimal128(20, 10)),
        "day": [date(2024, 2, 29), date(1, 1, 1)],
        "at": pa.array([datetime(1970, 1, 1, 0, 0, 1)] * 2, pa.timestamp("us", tz="UTC")),
        "at_ms": pa.array([datetime(1970, 1, 1, 0, 0, 1)] * 2, pa.timestamp("ms")),
    }
    expected = {
        "int": ["-7", "0"],
        "long": ["1099511627776", "-1"],
        "text": ["é:x", "y"],
        "flag": ["true", "false"],
        "money": ["1.50", "-0.05"],
        "tiny": ["0E-10", "1.000E-7"],
        "day": ["2024-02-29", "0001-01-01"],
        "at": ["1000000", "1000000"],
        "at_ms": ["1000", "1000"],
    }
    assert {name: keys_of(columns, "NON_PARTITION", name) for name in columns} == expected


@pytest.mark.parametrize("arrow", [pa.float32(), pa.float64()])
def test_floating_point_keys_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"Column id has the type .* Java releases"):
        keys_of({"id": pa.array([1.0], arrow)}, "NON_PARTITION", "id")


@pytest.mark.parametrize("values", [pa.array([b"x"]), pa.array([[1]]), pa.array([{"a": 1}])])
def test_types_without_text_are_refused(values: pa.Array) -> None:
    with pytest.raises(InvalidInputError, match="Column id has the type"):
        keys_of({"id": values}, "NON_PARTITION", "id")


def test_dates_beyond_the_calendar_are_refused() -> None:
    far = pa.array([2_932_897], pa.int32()).cast(pa.date32())
    with pytest.raises(InvalidInputError, match="years 1 to 9999"):
        keys_of({"id": far}, "NON_PARTITION", "id")


@given(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from(["", "a", "b:c,d", "é"]), st.none() | st.integers(-5, 5)
        ).filter(any),
        max_size=6,
    )
)
def test_complex_keys_equal_the_naive_ones(rows: list[tuple[str | None, int | None]]) -> None:
    def shown(value: Any) -> str:
        return {None: "__null__", "": "__empty__"}.get(value, str(value))

    kept = [(text, number) for text, number in rows if text or number is not None]
    columns = {
        "a": pa.array([text for text, _ in kept], pa.string()),
        "b": pa.array([number for _, number in kept], pa.int64()),
    }
    expected = [f"b:{shown(number)},a:{shown(text)}" for text, number in kept]
    assert keys_of(columns, "COMPLEX", "b,a") == expected
    assert keys_of(columns, "NON_PARTITION", "b,a") == expected


def test_a_complex_key_of_one_field_names_it() -> None:
    assert keys_of({"id": [7]}, "COMPLEX", "id") == ["id:7"]
    assert keys_of({"id": [7]}, "NON_PARTITION", "id") == ["7"]
    assert keys_of({"id": [7]}, "SIMPLE", "id") == ["7"]


def test_the_type_is_inferred_from_the_fields() -> None:
    assert generator(None).partition.fields == ()
    assert generator(None, "id", "p").names_fields is False
    assert generator(None, "id", "p,q").names_fields is True


@pytest.mark.parametrize(("bad", "shown"), [(None, "null"), ("", "empty")])
def test_a_row_without_a_key_is_refused(bad: str | None, shown: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        keys_of({"id": pa.array(["a", bad, "b", bad])}, "NON_PARTITION", "id")
    text = str(caught.value)
    assert "Column id" in text
    assert "2 of 4 row(s)" in text
    assert f"row 1, where it is {shown}" in text


def test_a_complex_key_needs_one_value_at_least() -> None:
    columns = {"a": pa.array(["x", None, ""]), "b": pa.array([None, None, None], pa.int64())}
    with pytest.raises(InvalidInputError, match=r"Columns a, b .* 2 of 3 row\(s\).* row 1"):
        keys_of(columns, "COMPLEX", "a,b")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"Column id .* columns ID, x"):
        keys_of({"ID": [1], "x": [2]}, "NON_PARTITION", "id")
    with pytest.raises(InvalidInputError, match=r"Column s\.q"):
        keys_of({"s": [{"p": 1}]}, "NON_PARTITION", "s.q")


def test_a_field_of_a_struct_may_be_the_key() -> None:
    assert keys_of({"s": [{"p": 1}, {"p": 2}]}, "NON_PARTITION", "s.p") == ["1", "2"]


def test_a_table_without_key_columns_has_none_to_make() -> None:
    keyless = generator("NON_PARTITION", keys="")
    assert keyless.generates_keys
    with pytest.raises(InternalError):
        keyless.record_keys(pa.table({"a": [1]}))


def test_chunks_and_slices_give_one_array() -> None:
    rows = pa.concat_tables([pa.table({"id": [1, 2, 3]}), pa.table({"id": [4]})]).slice(1)
    found = generator("NON_PARTITION").record_keys(rows)
    assert isinstance(found, pa.StringArray)
    assert found.to_pylist() == ["2", "3", "4"]


def test_a_key_generator_pickles() -> None:
    made = timed("EPOCHMILLISECONDS", "yyyy")
    assert pickle.loads(pickle.dumps(made)) == made


# Partition paths.

path_values = st.none() | st.sampled_from(["", "eu", "a=b", "a b", "ü", "50%", "x:y", "[z]"])


@given(
    st.lists(st.tuples(path_values, st.none() | st.integers(0, 3)), max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_paths_equal_the_naive_ones(
    rows: list[tuple[str | None, int | None]], hive: bool, encoded: bool
) -> None:
    def part(name: str, value: Any) -> str:
        text = "" if value is None else str(value)
        if encoded:
            text = "".join(f"%{ord(c):02X}" if c in "\"#%'*/:=?\\{[]^" else c for c in text)
        return (f"{name}=" if hive else "") + (text or "__HIVE_DEFAULT_PARTITION__")

    made = partitioned("region,n", hive=hive, encoded=encoded)
    table = pa.table(
        {
            "region": pa.array([region for region, _ in rows], pa.string()),
            "n": pa.array([number for _, number in rows], pa.int64()),
        }
    )
    expected = [f"{part('region', region)}/{part('n', number)}" for region, number in rows]
    found = made.partition_dictionary(table)
    assert found.to_pylist() == expected
    assert len(set(found.dictionary.to_pylist())) == len(found.dictionary)
    assert made.partition_paths(table).type == pa.string()
    for (region, number), path in zip(rows, expected, strict=True):
        assert made.partition_values(path) == {
            "region": region or None,
            "n": None if number is None else str(number),
        }


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_escaped_part_comes_back(text: str) -> None:
    escaped = escape_path_part(text)
    assert unescape_path_part(escaped) == text
    assert not set("\"#'*/:=?\\{[]^\x00\n\x7f") & set(escaped)


def test_a_table_without_partitions_has_the_empty_path() -> None:
    made = generator("NON_PARTITION")
    assert made.partition_paths(pa.table({"id": [1, 2]})).to_pylist() == ["", ""]
    assert made.partition_values("") == {}


def test_slashes_nest_folders_unless_they_are_encoded() -> None:
    rows = pa.table({"p": ["a/b"]})
    assert partitioned("p").partition_paths(rows).to_pylist() == ["a/b"]
    assert partitioned("p").partition_values("a/b") == {"p": "a/b"}
    hive = partitioned("p", hive=True)
    assert hive.partition_paths(rows).to_pylist() == ["p=a/b"]
    assert hive.partition_values("p=a/b") == {"p": "a/b"}
    encoded = partitioned("p", encoded=True)
    assert encoded.partition_paths(rows).to_pylist() == ["a%2Fb"]
    assert encoded.partition_values("a%2Fb") == {"p": "a/b"}


def test_an_ambiguous_path_tells_nothing() -> None:
    assert partitioned("p,q").partition_values("a/b/c") == {}
    assert partitioned("p,q", hive=True).partition_values("p=a/q=b/q=c") == {}
    assert partitioned("p,q", hive=True).partition_values("a/b") == {}


@pytest.mark.parametrize(
    ("a", "b", "named"),
    [
        ("1,b:2", "3", "a"),
        ("x", "__null__", "b"),
        ("__empty__", "x", "a"),
    ],
)
def test_a_key_that_may_be_of_other_values_is_refused(a: str, b: str, named: str) -> None:
    rows = pa.table({"a": ["fine", a], "b": ["fine", b]})
    with pytest.raises(InvalidInputError) as caught:
        generator("COMPLEX", "a,b").check_distinct(rows)
    text = str(caught.value)
    assert f"Column {named} has the value" in text
    assert f"in row 1 (a={a!r}, b={b!r})" in text
    generator("NON_PARTITION", "a").check_distinct(rows)


pieces = st.lists(st.sampled_from(["", "1", "a:", ",", "b:", ",b:", "__null__"]), max_size=4)
texts = st.none() | pieces.map("".join)


@given(st.lists(st.tuples(texts, texts), min_size=2, max_size=2, unique=True))
def test_keys_that_are_not_refused_are_distinct(pairs: list[tuple[str | None, str | None]]) -> None:
    keys = generator("COMPLEX", "a,b")
    columns = [pa.array(column, pa.string()) for column in zip(*pairs, strict=True)]
    rows = pa.table(columns, names=["a", "b"])
    try:
        keys.check_distinct(rows)
        found = keys.record_keys(rows).to_pylist()
    except InvalidInputError:
        return
    assert found[0] != found[1]


path_texts = st.lists(st.sampled_from(["x", "/", "p=", "q=", "/q=", "%2F"]), min_size=1, max_size=4)


@given(
    st.lists(
        st.tuples(path_texts.map("".join), path_texts.map("".join)),
        min_size=2,
        max_size=2,
        unique=True,
    ),
    st.booleans(),
    st.booleans(),
)
def test_paths_that_are_not_refused_are_distinct(
    pairs: list[tuple[str, str]], hive: bool, encoded: bool
) -> None:
    keys = partitioned("p,q", hive=hive, encoded=encoded)
    first, second = zip(*pairs, strict=True)
    rows = pa.table({"id": ["1", "1"], "p": first, "q": second})
    try:
        keys.check_distinct(rows)
        found = keys.partition_paths(rows).to_pylist()
    except InvalidInputError:
        return
    assert found[0] != found[1]
    for path, (p, q) in zip(found, pairs, strict=True):
        assert keys.partition_values(path) == {"p": p, "q": q}


@pytest.mark.parametrize(("hive", "encoded"), [(False, False), (True, False), (True, True)])
def test_the_placeholder_of_partition_paths_is_no_value(hive: bool, encoded: bool) -> None:
    keys = partitioned("p", hive=hive, encoded=encoded)
    keys.check_distinct(pa.table({"id": ["1", "2"], "p": [None, ""]}))
    with pytest.raises(InvalidInputError, match="Column p has the value '__HIVE_DEFAULT_PARTITION"):
        keys.check_distinct(pa.table({"id": ["1"], "p": ["__HIVE_DEFAULT_PARTITION__"]}))


def test_slashes_between_columns_are_refused_with_the_row() -> None:
    rows = pa.table({"id": ["1"], "p": ["x/y"], "q": ["z"]})
    with pytest.raises(InvalidInputError, match=r"id='1', p='x/y', q='z'.*slash"):
        partitioned("p,q").check_distinct(rows)
    partitioned("p,q", hive=True).check_distinct(rows)
    partitioned("p").check_distinct(rows)


@pytest.mark.parametrize(
    "value",
    ["..", ".", "a/../b", "/a", "a/", "a//b", "..\\x", ".hoodie", "a/.hoodie_x", "\x00", "a\tb"],
)
def test_a_value_that_leaves_its_folder_is_refused(value: str) -> None:
    with pytest.raises(InvalidInputError, match=r"Column p .* cannot be a partition path"):
        partitioned("p", hive=True).partition_paths(pa.table({"p": [value]}))


@pytest.mark.parametrize(
    ("value", "encoded", "is_advised"),
    [("a//b", False, True), ("..", False, False), (".", True, False), ("..", True, False)],
)
def test_url_encoding_is_advised_where_it_helps(
    value: str, encoded: bool, is_advised: bool
) -> None:
    rows = pa.table({"p": [value]})
    with pytest.raises(InvalidInputError, match="Change the value") as caught:
        partitioned("p", encoded=encoded).partition_paths(rows)
    assert ("url encoding" in str(caught.value)) is is_advised
    if is_advised:
        partitioned("p", encoded=True).partition_paths(rows)


def test_dictionary_null_and_empty_columns_have_paths() -> None:
    made = partitioned("p")
    encoded = pa.table({"p": pa.array(["a", None, "a"]).dictionary_encode()})
    default = "__HIVE_DEFAULT_PARTITION__"
    assert made.partition_paths(encoded).to_pylist() == ["a", default, "a"]
    assert made.partition_paths(pa.table({"p": pa.nulls(1)})).to_pylist() == [default]
    assert made.partition_paths(pa.table({"p": pa.array([], pa.int32())})).to_pylist() == []


# The TIMESTAMP and CUSTOM key generators.


def timed(kind: str, output: str, **more: str) -> KeyGenerator:
    names = {
        "hoodie.keygen.timebased.timestamp.type": kind,
        "hoodie.keygen.timebased.output.dateformat": output,
        **{f"hoodie.keygen.timebased.{name.replace('_', '.')}": v for name, v in more.items()},
    }
    return generator("TIMESTAMP", "id", "ts", **names)


MS = 1_704_164_645_006  # 2024-01-02T03:04:05.006Z


@pytest.mark.parametrize(
    ("kind", "value", "output", "more", "expected"),
    [
        ("EPOCHMILLISECONDS", MS, "yyyy/MM/dd/HH", {}, "2024/01/02/03"),
        ("EPOCHMICROSECONDS", MS * 1000 + 999, "yyyyMMddHHmmssSSS", {}, "20240102030405006"),
        ("UNIX_TIMESTAMP", MS // 1000, "yyyy-MM-dd'T'HH:mm:ss", {}, "2024-01-02T03:04:05"),
        ("SCALAR", MS // 3_600_000, "yyyy-MM-dd HH", {"timestamp_scalar_time_unit": "hours"},
         "2024-01-02 03"),
        ("EPOCHMILLISECONDS", MS, "dd.MM.yyyy HH", {"timezone": "GMT+8:00"}, "02.01.2024 11"),
        ("EPOCHMILLISECONDS", MS, "yyyy-MM-dd HH", {"timezone": "America/New_York"},
         "2024-01-01 22"),
        ("EPOCHMILLISECONDS", MS, "HH", {"output_timezone": "GMT-3"}, "00"),
        ("EPOCHMILLISECONDS", -1, "yyyy 'o''clock'", {}, "1969 o'clock"),
        ("EPOCHMICROSECONDS", -1, "yyyy", {}, "1970"),
        ("EPOCHMILLISECONDS", None, "yyyy-MM-dd", {}, "1970-01-01"),
        ("UNIX_TIMESTAMP", None, "ss.SSS", {}, "01.000"),
        ("DATE_STRING", "2024-1-02", "yyyy/MM", {"input_dateformat": "yyyy-MM-dd"}, "2024/01"),
        ("DATE_STRING", "20240102030405006", "HH-mm-ss-SSS",
         {"input_dateformat": "yyyy,yyyyMMddHHmmssSSS"}, "03-04-05-006"),
        ("MIXED", "2024-01-02T23", "dd HH",
         {"input_dateformat": "yyyy-MM-dd'T'HH", "input_timezone": "America/New_York"}, "03 04"),
        ("DATE_STRING", None, "yyyy-MM-dd", {"input_dateformat": "yyyyMMdd"}, "1970-01-01"),
    ],
)  # fmt: skip
def test_times_become_paths(
    kind: str, value: Any, output: str, more: dict[str, str], expected: str
) -> None:
    arrow = pa.string() if "input_dateformat" in more else pa.int64()
    rows = pa.table({"id": [1], "ts": pa.array([value], arrow)})
    assert timed(kind, output, **more).partition_paths(rows).to_pylist() == [expected]


@given(st.lists(st.integers(-(10**12), 4 * 10**12), max_size=20))
def test_paths_of_times_equal_the_naive_ones(values: list[int]) -> None:
    rows = pa.table({"ts": pa.array(values, pa.int64())})
    found = timed("EPOCHMILLISECONDS", "yyyy/MM/dd/HH").partition_paths(rows)
    times = [datetime(1970, 1, 1) + timedelta(milliseconds=value) for value in values]
    assert found.to_pylist() == [time.strftime("%Y/%m/%d/%H") for time in times]


def test_columns_of_times_must_fit_the_unit() -> None:
    micros = pa.array([MS * 1000], pa.timestamp("us", tz="UTC"))
    rows = pa.table({"ts": micros})
    assert timed("EPOCHMICROSECONDS", "yyyy").partition_paths(rows).to_pylist() == ["2024"]
    with pytest.raises(InvalidInputError, match="Column ts has the type timestamp"):
        timed("EPOCHMILLISECONDS", "yyyy").partition_paths(rows)
    days = pa.table({"ts": [date(2024, 1, 2)]})
    scalar = timed("SCALAR", "yyyy-MM-dd", timestamp_scalar_time_unit="DAYS")
    assert scalar.partition_paths(days).to_pylist() == ["2024-01-02"]
    with pytest.raises(InvalidInputError, match="Column ts has the type string"):
        timed("UNIX_TIMESTAMP", "yyyy").partition_paths(pa.table({"ts": ["x"]}))
    with pytest.raises(InvalidInputError, match="wants text"):
        timed("MIXED", "yyyy", input_dateformat="yyyy").partition_paths(pa.table({"ts": [1]}))


@pytest.mark.parametrize("text", ["2024-02-30", "2024-13-01"])
def test_a_date_that_does_not_exist_is_refused(text: str) -> None:
    made = timed("DATE_STRING", "yyyy", input_dateformat="yyyy-MM-dd")
    with pytest.raises(InvalidInputError, match=f"Column ts .*{text}"):
        made.partition_paths(pa.table({"ts": [text]}))


def test_text_that_is_no_time_is_counted_and_shown() -> None:
    made = timed("DATE_STRING", "yyyy", input_dateformat="yyyy-MM-dd")
    with pytest.raises(InvalidInputError, match=r"1 value\(s\) .* row 1: 'soon'"):
        made.partition_paths(pa.table({"ts": ["2024-01-01", "soon"]}))


def test_a_number_out_of_range_is_refused() -> None:
    for value in (2**62, 10**13):
        with pytest.raises(InvalidInputError, match="Column ts"):
            timed("UNIX_TIMESTAMP", "yyyy").partition_paths(pa.table({"ts": [value]}))


@pytest.mark.parametrize("pattern", ["EEE", "yy", "MMM", "hh a", "yyyyZ"])
def test_other_letters_are_refused_by_name(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match=r"hoodie\.keygen\.timebased\.output\.dateformat"):
        timed("EPOCHMILLISECONDS", pattern)


@pytest.mark.parametrize(
    ("kind", "output", "more", "named"),
    [
        ("HOURLY", "yyyy", {}, "timestamp.type"),
        ("SCALAR", "yyyy", {"timestamp_scalar_time_unit": "weeks"}, "scalar.time.unit"),
        ("EPOCHMILLISECONDS", "", {}, "output.dateformat"),
        ("EPOCHMILLISECONDS", "yyyy'", {}, "quote"),
        ("EPOCHMILLISECONDS", "yyyy yyyy", {}, "at most once"),
        ("EPOCHMILLISECONDS", "yyyy", {"timezone": "Mars/Base"}, "Mars/Base"),
        ("DATE_STRING", "yyyy", {}, "input.dateformat"),
    ],
)
def test_malformed_time_options_are_refused(
    kind: str, output: str, more: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidInputError, match=named):
        timed(kind, output, **more)


def test_a_custom_generator_mixes_both() -> None:
    made = generator(
        "CUSTOM",
        "id",
        "region:SIMPLE,ts:TIMESTAMP",
        **{
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
        },
    )
    rows = pa.table({"id": [1], "region": ["eu"], "ts": [MS]})
    assert made.partition_paths(rows).to_pylist() == ["eu/2024/01"]
    # A formatted time does not tell the column's value.
    assert made.partition_values("eu/2024/01") == {"region": "eu"}
    assert made.record_keys(rows).to_pylist() == ["1"]


@pytest.mark.parametrize(
    ("kind", "keys", "partition"),
    [
        ("SIMPLE", "a,b", "p"),
        ("SIMPLE", "a", "p,q"),
        ("SIMPLE", "a", ""),
        ("NON_PARTITION", "a", "p"),
        ("CUSTOM", "a", "p"),
        ("CUSTOM", "a", "p:RANGE"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(kind: str, keys: str, partition: str) -> None:
    with pytest.raises(InvalidInputError, match=f"key generator {kind}"):
        generator(kind, keys, partition)


def test_key_generators_that_are_not_known_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="USER_PROVIDED"):
        generator("USER_PROVIDED")
    option = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
    with pytest.raises(UnsupportedError, match="consistent"):
        generator("NON_PARTITION", **{option: "true"})


def base_files(archive: Path) -> tuple[TableConfig, list[pa.Table]]:
    with zipfile.ZipFile(archive) as content:
        names = content.namelist()
        top = min((n for n in names if n.endswith(".hoodie/hoodie.properties")), key=len)
        root = top.removesuffix(".hoodie/hoodie.properties")
        properties = parse_properties(content.read(top), path=top)
        config = TableConfig.from_properties(properties, path=top)
        tables = [
            pq.read_table(io.BytesIO(content.read(name)))
            for name in names
            if name.endswith(".parquet") and not name.startswith(f"{root}.hoodie")
        ]
    return config, tables


@pytest.mark.parametrize(
    "name",
    [
        "cow-v8_nonpartitioned",
        "cow-v9_txns_nonpart_meta",
        "cow-v9_txns_simple_meta",
        "mor-avro-v8_trips_8i3u1d",
        "mor-avro-v9_txns_simple_meta",
        "mor-avro-v9_nonpartitioned_rollback",
    ],
)
def test_stock_hudi_made_the_same_keys(name: str) -> None:
    archive = FIXTURES / f"{name}.zip"
    if not archive.exists():
        pytest.skip("the folder of shared fixtures is not there")
    config, tables = base_files(archive)
    made = KeyGenerator.from_config(config)
    assert tables
    for table in tables:
        assert made.record_keys(table).to_pylist() == table["_hoodie_record_key"].to_pylist()
        assert (
            made.partition_paths(table).to_pylist() == table["_hoodie_partition_path"].to_pylist()
        )
