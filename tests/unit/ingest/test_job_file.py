"""Job files: what they say, and all that is wrong with one at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.tables import columns

from headwater.config.write import ConcurrencyMode
from headwater.errors import ErrorKind, InvalidInputError, NotFoundError
from headwater.ingest.job import FileFormat, FolderSource, KafkaSource, TableSource
from headwater.ingest.job_file import load_job, parse_job
from headwater.ingest.units import parse_duration_ms, parse_size_bytes
from headwater.model.operation import Operation

WHOLE = """
name = "trips"
time_zone = "Europe/Berlin"

[source]
type = "folder"
path = "landing"
format = "csv"
columns = "id string, fare double"
pattern = ["trips-*.csv", "late/*.csv"]
min_age = "10s"
batch_files = 7
batch_size = "2 MB"
delimiter = ";"
header = false
options = { "headwater.storage.fsync" = false }

[transform]
sql = "SELECT * FROM source"

[target]
path = "tables/trips"
operation = "insert"
mode = "non_blocking"

[target.options]
"hoodie.client.heartbeat.interval_in_ms" = 1000

[quarantine]
path = "tables/bad"
limit_rows = 5
limit_share = 0.5
"""


def test_a_file_with_everything_in_it(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(WHOLE)

    job = load_job(path)

    assert job.name == "trips"
    assert job.zone == "Europe/Berlin"
    assert job.select == "SELECT * FROM source"
    assert job.source == FolderSource(
        path="landing",
        format=FileFormat.CSV,
        columns=columns("id string, fare double"),
        patterns=("trips-*.csv", "late/*.csv"),
        min_age_ms=10_000,
        files_max=7,
        bytes_max=2 << 20,
        delimiter=";",
        has_header=False,
        options={"headwater.storage.fsync": "false"},
    )
    assert job.target.operation is Operation.INSERT
    assert job.target.mode is ConcurrencyMode.NON_BLOCKING
    assert job.target.options == {"hoodie.client.heartbeat.interval_in_ms": "1000"}
    assert job.quarantine is not None
    assert (job.quarantine.rows_max, job.quarantine.share_max) == (5, 0.5)


def test_what_a_file_does_not_say() -> None:
    text = 'name="t"\n[source]\npath="in"\nformat="json"\n[target]\npath="t"'
    job = parse_job(text, "job.toml")

    assert isinstance(job.source, FolderSource)
    assert "*.jsonl" in job.source.patterns
    assert job.target.operation is Operation.UPSERT
    assert job.target.mode is ConcurrencyMode.OPTIMISTIC
    assert (job.select, job.quarantine) == (None, None)


def test_other_sources() -> None:
    table = '[source]\ntype="table"\npath="in"\nchanges="feed"\nafter="2024"\n'
    kafka = '[source]\ntype="kafka"\nservers="localhost:9092"\ntopic="trips"\n'
    rest = '[target]\npath="t"'

    assert parse_job(f'name="t"\n{table}{rest}', "j").source == TableSource(
        path="in", is_feed=True, after="2024"
    )
    assert parse_job(f'name="t"\n{kafka}{rest}', "j").source == KafkaSource(
        servers="localhost:9092", topic="trips"
    )


@pytest.mark.parametrize("given", [r"\t", " ", "|", r"\u0001"])
def test_a_delimiter_may_be_blank(given: str) -> None:
    text = f"""
    name = "t"
    source = {{ path = "in", format = "csv", delimiter = "{given}" }}
    target = {{ path = "out" }}
    """
    source = parse_job(text, "j").source

    assert isinstance(source, FolderSource)
    assert len(source.delimiter) == 1


@pytest.mark.parametrize("given", ["", "ab", r"\"", r"\n", r"\r", "ä"])
def test_a_delimiter_is_one_character_that_can_be_one(given: str) -> None:
    text = f"""
    name = "t"
    source = {{ path = "in", format = "csv", delimiter = "{given}" }}
    target = {{ path = "out" }}
    """
    with pytest.raises(
        InvalidInputError, match=r"source\.delimiter must be one character of ASCII"
    ):
        parse_job(text, "j")


def test_every_problem_is_in_one_message() -> None:
    text = """
    nam = "t"
    time_zone = "Mars/Base"
    [source]
    path = 7
    fromat = "json"
    min_age = "soon"
    columns = "id strange"
    delimiter = "ab"
    batch_files = 0
    [transform]
    sgl = "SELECT 1"
    [target]
    operation = "replace"
    partial = 1
    [target.options]
    "headwater.storage.secret_access_key" = ["hush"]
    [quarantine]
    path = "bad"
    limit_share = 2
    limit_rows = 100001
    """
    with pytest.raises(InvalidInputError) as caught:
        parse_job(text, "job.toml")

    assert caught.value.kind is ErrorKind.INVALID_OPTION
    message = caught.value.message
    for problem in (
        "Invalid job file job.toml: name is missing",
        "nam is no key of a job (did you mean name?)",
        "time_zone is wrong: there is no time zone 'Mars/Base'",
        "source.path must be text, got 7",
        "source.format is missing",
        "source.fromat is no key of a job (did you mean format?)",
        "source.min_age is wrong: expected a time such as",
        "source.columns is wrong: ",
        "source.delimiter must be one character of ASCII",
        "source.batch_files must be a number >= 1, got 0",
        "transform.sql is missing",
        "transform.sgl is no key of a job (did you mean sql?)",
        "target.path is missing",
        "target.operation must be one of upsert, insert, bulk_insert, delete, got 'replace'",
        "target.partial must be true or false, got 1",
        "target.options.headwater.storage.secret_access_key must be text, a number or a boolean",
        "quarantine.limit_share must be a number from 0 to 1, got 2",
        "quarantine.limit_rows must be at most 100000, got 100001",
    ):
        assert problem in message
    assert "hush" not in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = ", "is not TOML"),
        ('name="t"', "source is missing; target is missing"),
        ('name="t"\nsource=1\n[target]\npath="t"', "source must be a section, got 1"),
        ('name="t"\n[source]\ntype="file"\npath="a"\n[target]\npath="t"', "one of folder, table"),
        (
            'name="t"\n[source]\npath="a"\nformat="csv"\ncolumns="a array<int>"\n[target]\n'
            'path="t"',
            "source.columns has a, which is no type for CSV",
        ),
        (
            'name="t"\n[source]\npath="a"\nformat="csv"\n[target]\npath="t"\noperation="insert"\n'
            "partial=true",
            "target.partial goes with operation = 'upsert' only",
        ),
    ],
)
def test_a_problem_is_said(text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_job(text, "job.toml")
    assert problem in caught.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no job file"):
        load_job(tmp_path / "job.toml")
    (tmp_path / "job.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_job(tmp_path / "job.toml")


def test_times_and_sizes() -> None:
    assert [parse_duration_ms(text) for text in ("500ms", "10s", "1.5 min", "2h", "1d")] == [
        500,
        10_000,
        90_000,
        7_200_000,
        86_400_000,
    ]
    assert [parse_size_bytes(text) for text in ("5 B", "1kb", "2 MB", "1 GB")] == [
        5,
        1 << 10,
        2 << 20,
        1 << 30,
    ]
    for text in ("", "10", "s", "10 lightyears", "-1s"):
        with pytest.raises(ValueError, match="expected a time"):
            parse_duration_ms(text)
