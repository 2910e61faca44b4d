"""The `hoodie.properties` of tables that Hudi itself wrote, data and metadata tables alike."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest

from headwater.config.table import TableConfig
from headwater.format.avro.schema import encode_avro_schema, parse_avro_schema
from headwater.format.properties import (
    check_table_checksum,
    encode_properties,
    parse_properties,
)

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
PROPERTIES = "/.hoodie/hoodie.properties"


def members(suffix: str) -> list[str]:
    """Return `<zip>:<member>` of every fixture's files with the given end."""
    return [
        f"{archive.name}:{name}"
        for archive in sorted(FIXTURES.glob("*.zip"))
        for name in sorted(zipfile.ZipFile(archive).namelist())
        if name.endswith(suffix)
    ]


def content(member: str) -> bytes:
    archive, _, name = member.partition(":")
    with zipfile.ZipFile(FIXTURES / archive) as opened:
        return opened.read(name)


needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the shared folder with the fixtures is not beside the project"
)
every_file = pytest.mark.parametrize("member", members(PROPERTIES))


@needs_fixtures
def test_there_are_fixtures_of_every_version() -> None:
    versions = {
        parse_properties(content(member), path=member)["hoodie.table.version"]
        for member in members(PROPERTIES)
    }
    assert versions == {"6", "8", "9"}
    assert [member for member in members(PROPERTIES) if "/metadata/.hoodie" in member]


@needs_fixtures
@every_file
def test_it_is_parsed_and_its_checksum_is_right(member: str) -> None:
    properties = parse_properties(content(member), path=member)
    assert properties["hoodie.table.name"]
    check_table_checksum(properties, path=member)
    assert parse_properties(encode_properties(properties, comment=""), path=member) == properties


@needs_fixtures
@every_file
def test_its_lines_are_written_as_java_wrote_them(member: str) -> None:
    lines = [line for line in content(member).splitlines() if not line.startswith(b"#")]
    properties = parse_properties(content(member), path=member)
    comment, checksum, *written = encode_properties(properties, comment="").splitlines()
    assert (comment, checksum[:17], written) == (b"#", b"#headwater.crc32=", lines)


@needs_fixtures
@every_file
def test_table_config_keeps_every_key_and_value(member: str) -> None:
    properties = parse_properties(content(member), path=member)
    config = TableConfig.from_properties(properties, path=member)
    if config.has_layout_two:  # What is older is written by no release of ours.
        assert config.to_properties() == properties
    assert config.raw == properties
    assert config.name == properties["hoodie.table.name"]
    assert config.ordering_fields == tuple(
        properties[key]
        for key in ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
        if key in properties
    )


def written_schemas() -> Iterator[tuple[str, str]]:
    """Yield each data table's properties with the newest schema in its commit metadata."""
    for member in members(PROPERTIES):
        archive, _, name = member.partition(":")
        timeline = name.removesuffix("hoodie.properties") + "timeline/"
        commits = [
            commit
            for commit in members("commit")
            if commit.startswith(f"{archive}:{timeline}") and "_" in commit.rpartition("/")[2]
        ]
        if "/metadata/" in name or not commits:
            continue
        record = next(iter(fastavro.reader(io.BytesIO(content(commits[-1])))))
        assert isinstance(record, dict)
        yield member, record["extraMetadata"]["schema"]


@needs_fixtures
def test_schemas_are_named_and_nested_as_hudi_writes_them() -> None:
    compared = 0
    for member, committed in written_schemas():
        properties = parse_properties(content(member), path=member)
        columns = parse_avro_schema(properties["hoodie.table.create.schema"])
        encoded = encode_avro_schema(columns, table=properties["hoodie.table.name"])
        assert json.loads(encoded) == json.loads(committed), member
        assert encoded == committed, member
        compared += 1
    assert compared >= 8
