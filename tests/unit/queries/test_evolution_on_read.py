"""Tables of Apache Hudi that evolve on read: read where names tell the columns, else refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.engine.inline import InlineRows
from headwater.errors import CorruptTableError, UnsupportedError
from headwater.format.internal_schema import parse_internal_schemas, renamed_columns
from headwater.kernel.layout import SCHEMAS
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import start_write

COLUMNS = ("_hoodie_commit_time", "id", "fare")


def internal_schema(names: tuple[str, ...], ids: range | None = None) -> dict[str, Any]:
    fields = [
        {"id": number, "name": name, "optional": True, "type": "string"}
        for number, name in zip(ids or range(len(names)), names, strict=True)
    ]
    return {"max_column_id": 9, "version_id": 1, "type": "record", "fields": fields}


def written_by_hudi(path: Path, latest: dict[str, Any], *earlier: dict[str, Any]) -> hw.Table:
    """A table whose newest commit says the ids of its columns."""
    rows = pa.table({"id": ["a"], "fare": ["1"]})
    table = hw.create_table(path / "t", schema="id string, fare string", record_key="id")
    request = WriteRequest(operation=Operation.UPSERT, columns=rows.schema)
    running = start_write(table.context, request)
    running.commit(running.run_tasks(InlineRows(rows)), {"latest_schema": json.dumps(latest)})
    history = json.dumps({"schemas": [latest, *earlier]}).encode()
    table.storage.put(f"{SCHEMAS}/20260101000000000.schemacommit", history)
    return table.reload()


def test_names_that_never_changed_tell_the_columns(tmp_path: Path) -> None:
    table = written_by_hudi(tmp_path, internal_schema(COLUMNS), internal_schema(COLUMNS[:2]))
    assert table.read_arrow().to_pylist() == [{"id": "a", "fare": "1"}]
    with pytest.raises(UnsupportedError, match="evolves on read"):
        table.upsert(pa.table({"id": ["a"], "fare": ["2"]}))


def test_a_renamed_column_is_refused_by_name(tmp_path: Path) -> None:
    before = internal_schema(("_hoodie_commit_time", "id", "price"))
    table = written_by_hudi(tmp_path, internal_schema(COLUMNS), before)
    with pytest.raises(UnsupportedError, match=r"renamed.*fare, price"):
        table.read_arrow()


@pytest.mark.parametrize(
    ("schemas", "renamed"),
    [
        (({0: "a", 1: "b"}, {0: "a", 1: "b", 2: "c"}), []),
        (({0: "a", 1: "b"}, {1: "b", 0: "a"}), []),
        (({0: "a"}, {0: "b"}), ["a", "b"]),
        (({0: "a"}, {}, {1: "a"}), ["a"]),
        (({0: "a", 1: "a.x"}, {0: "a", 1: "a.y"}), ["a.x", "a.y"]),
    ],
    ids=["added", "moved", "renamed", "dropped and added again", "nested"],
)
def test_what_names_do_not_tell(schemas: tuple[dict[int, str], ...], renamed: list[str]) -> None:
    assert renamed_columns(schemas) == renamed


@pytest.mark.parametrize("text", ["", "[]", "{}x", '{"schemas": [{"fields": [{"id": 1}]}]}'])
def test_what_is_no_schema_is_damage(text: str) -> None:
    with pytest.raises(CorruptTableError):
        parse_internal_schemas(text, path="p")
