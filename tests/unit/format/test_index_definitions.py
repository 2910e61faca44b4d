"""The file of index definitions: there and back, versions, and files that define nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.metadata.index_definitions import (
    IndexDefinition,
    IndexVersion,
    encode_index_definitions,
    parse_index_definitions,
)

PATH = ".hoodie/.index_defs/index.json"
RECORD_INDEX = IndexDefinition(
    index_name="record_index",
    index_type="record_index",
    index_options={"isPartitioned": "false"},
)
SECONDARY = IndexDefinition(
    index_name="secondary_index_rider",
    index_type="secondary_index",
    index_function="identity",
    source_fields=("rider",),
    version=IndexVersion.V2,
)


def parse(content: Any, table_version: int = 9) -> dict[str, IndexDefinition]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return parse_index_definitions(data, table_version=table_version, path=PATH)


def test_definitions_come_back() -> None:
    definitions = {each.index_name: each for each in (RECORD_INDEX, SECONDARY)}
    assert parse(encode_index_definitions(definitions)) == definitions


def test_the_text_is_that_of_format_rule_1_5() -> None:
    content = json.loads(encode_index_definitions({"secondary_index_rider": SECONDARY}))
    assert content == {
        "indexDefinitions": {
            "secondary_index_rider": {
                "indexName": "secondary_index_rider",
                "indexType": "secondary_index",
                "indexFunction": "identity",
                "sourceFields": ["rider"],
                "indexOptions": {},
                "version": "V2",
            }
        }
    }


def test_a_record_index_says_whether_it_is_partitioned() -> None:
    assert not RECORD_INDEX.is_partitioned
    assert not SECONDARY.is_partitioned
    options = {"isPartitioned": "true"}
    made = IndexDefinition(index_name="r", index_type="record_index", index_options=options)
    assert made.is_partitioned


def test_a_definition_without_version_is_of_version_1_in_tables_of_version_8_only() -> None:
    content = {"indexDefinitions": {"column_stats": {"indexType": "column_stats"}}}
    (found,) = parse(content, table_version=8).values()
    assert (found.version, found.index_name) == (IndexVersion.V1, "column_stats")
    with pytest.raises(CorruptTableError, match="has no version") as caught:
        parse(content, table_version=9)
    assert caught.value.kind is ErrorKind.CORRUPT_METADATA_TABLE


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(CorruptTableError, match="V9"):
        parse({"indexDefinitions": {"a": {"indexType": "column_stats", "version": "V9"}}})


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"indexDefinitions": [1]}', b'{"indexDefinitions": {"a": 1}}', b"\xff"],
)
def test_what_defines_no_indexes_is_damage(content: bytes) -> None:
    with pytest.raises(CorruptTableError, match="does not define"):
        parse(content)


@pytest.mark.parametrize("content", [b"", b" \n", b"{}", b'{"indexDefinitions": null}'])
def test_a_file_without_definitions_has_none(content: bytes) -> None:
    assert parse(content) == {}


def test_a_name_that_two_places_say_differently_is_an_error() -> None:
    definition = {"indexName": "column_statz", "indexType": "column_stats", "version": "V2"}
    with pytest.raises(CorruptTableError, match="column_statz"):
        parse({"indexDefinitions": {"column_stats": definition}})


def test_a_file_that_speaks_of_no_definitions_is_an_error() -> None:
    with pytest.raises(CorruptTableError, match="does not define indexes"):
        parse({"indexDefinitionz": {}})
    assert parse({"indexDefinitions": {}}) == {}
