"""Every command prints for people, prints for programs, and fails in words.

Each has a row below; a command without one fails the first test. What commands do is told by the
other files here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.commands import Words, all_commands
from tests.unit.cli.conftest import Run, make_table, rows

import headwater as hw

NOBODYS = "20200101000000000"
LOCK = {"hoodie.write.lock.provider": "filesystem"}
SHARED = ("-o", "hoodie.write.lock.provider=filesystem")


@dataclass(frozen=True)
class Site:
    """A table of its own for one command, and a folder beside it."""

    path: str
    folder: Path

    @property
    def table(self) -> hw.Table:
        return hw.open_table(self.path, LOCK)

    def data(self) -> str:
        file = self.folder / "rows.parquet"
        pq.write_table(rows({"sf-a": 7}), file)
        return str(file)

    def job(self) -> str:
        self.data()
        file = self.folder / "job.toml"
        file.write_text(
            f'name = "job"\n[source]\npath = "{self.folder}"\nformat = "parquet"\n'
            f'pattern = "rows.parquet"\n[target]\npath = "{self.path}"\n'
        )
        return str(file)

    def compaction(self) -> str:
        return _there(self.table.services.schedule_compaction())

    def cancellable(self) -> str:
        return _there(self.table.services.schedule_clustering(["fare"], cancellable=True))

    def cancelled(self) -> str:
        instant = self.cancellable()
        self.table.services.request_cancel(instant, reason="to be aborted")
        return instant

    def indexing(self) -> str:
        return _there(self.table.indexes.schedule("column_stats"))

    def indexed(self) -> str:
        self.table.indexes.create("column_stats")
        return "column_stats"

    def saved(self) -> str:
        return _there(self.table.services.savepoint().instant)

    def last(self) -> str:
        return str(self.table.history(1)["instant"][0])


def _there(instant: object) -> str:
    assert instant is not None
    return str(instant)


Arguments = Callable[[Site], list[str]]


@dataclass(frozen=True)
class Case:
    """How a command is called, and what is to be seen."""

    arguments: Arguments
    text: str
    """Part of what people see."""
    fields: frozenset[str] | None
    """Names in the JSON of one thing, or of the first of several; None: there are none."""
    wrong: Arguments
    code: int
    kind: str


def case(
    arguments: Arguments,
    text: str,
    *fields: str,
    wrong: Arguments | None = None,
    code: int = 3,
    kind: str = "not_found.table",
) -> Case:
    """Return a case; unless it says otherwise, the command fails where no table is."""

    def nowhere(site: Site) -> list[str]:
        return [str(site.folder / "nothing"), *arguments(site)[1:]]

    return Case(arguments, text, frozenset(fields) or None, wrong or nowhere, code, kind)


def there(site: Site) -> list[str]:
    return [site.path]


def planned(site: Site) -> list[str]:
    site.compaction()
    return [site.path]


CASES: dict[Words, Case] = {
    ("table", "create"): case(
        lambda at: [str(at.folder / "new"), "--schema", "id string"],
        "new",
        *("name", "uri"),
        wrong=lambda at: [at.path, "--schema", "id string"],
        code=4,
        kind="already_exists.table",
    ),
    ("table", "describe"): case(there, "MERGE_ON_READ", "name", "type", "record_key"),
    ("table", "schema"): case(there, "int32", "column", "type", "nullable"),
    ("table", "history"): case(there, "UPSERT", "instant", "operation"),
    ("table", "read"): case(there, "sf-a", "id", "fare"),
    ("table", "write"): case(lambda at: [at.path, at.data()], "updated", "instant", "updated"),
    ("table", "upgrade"): case(
        lambda at: [at.path, "--dry-run"], "from_version", "from_version", "to_version"
    ),
    ("table", "drop"): case(lambda at: [at.path, "--yes"], "deleted_files", "uri", "deleted_files"),
    ("service", "compact"): case(there, "row_count", "instant", "row_count"),
    ("service", "log-compact"): case(there, "No file group has enough log files."),
    ("service", "cluster"): case(
        lambda at: [at.path, "--sort-by", "fare", "--plan"], "instant", "instant"
    ),
    ("service", "clean"): case(there, "nothing to clean"),
    ("service", "archive"): case(there, "archived", "archived"),
    ("service", "savepoint"): case(there, "instant", "instant", "comment"),
    ("service", "restore"): case(
        lambda at: [at.path, at.saved(), "--yes"],
        "instant",
        "instant",
        wrong=lambda at: [at.path, NOBODYS, "--yes"],
        kind="not_found.instant",
    ),
    ("service", "rollback"): case(lambda at: [at.path, at.last(), "--yes"], "instant", "instant"),
    ("service", "advise"): case(there, "logs", "need", "why", "call", "gain_bytes", "cost_bytes"),
    ("service", "run"): case(
        lambda at: [at.path, "--rounds", "1", "--run", "clean"], "rounds", "rounds"
    ),
    ("plan", "list"): case(planned, "compaction", "instant", "action"),
    ("plan", "show"): case(
        lambda at: [at.path, at.compaction()],
        "city=sf",
        "partition",
        wrong=lambda at: [at.path, NOBODYS],
        kind="not_found.instant",
    ),
    ("plan", "cancel"): case(
        lambda at: [at.path, at.cancellable(), "--yes"],
        "cancelled",
        "cancelled",
        wrong=lambda at: [at.path, NOBODYS, "--yes"],
        kind="not_found.instant",
    ),
    ("plan", "abort"): case(
        lambda at: [at.path, at.cancelled()],
        "aborted",
        "aborted",
        wrong=lambda at: [at.path, NOBODYS],
        kind="not_found.instant",
    ),
    ("index", "list"): case(there, "files", "index"),
    ("index", "create"): case(
        lambda at: [at.path, "column_stats", *SHARED],
        "column_stats",
        *("instant", "finished"),
        wrong=lambda at: [at.path, "no_such_index"],
        code=2,
        kind="invalid_input.index",
    ),
    ("index", "schedule"): case(
        lambda at: [at.path, "column_stats", *SHARED],
        "instant",
        "instant",
        wrong=lambda at: [at.path, "no_such_index"],
        code=2,
        kind="invalid_input.index",
    ),
    ("index", "run"): case(
        lambda at: [
            at.path,
            "--instant",
            at.indexing(),
            *SHARED,
        ],
        "column_stats",
        *("instant", "finished"),
    ),
    ("index", "cancel"): case(
        lambda at: [at.path, at.indexing(), *SHARED],
        "cancelled",
        "cancelled",
    ),
    ("index", "drop"): case(
        lambda at: [at.path, at.indexed(), *SHARED],
        "dropped",
        "dropped",
        wrong=lambda at: [at.path, "bloom_filters", *SHARED],
        kind="not_found.index",
    ),
    ("timeline", "show"): case(there, "UPSERT", "requested_time", "operation"),
    ("lock", "show"): case(there, "Nobody holds the lock."),
    ("lock", "break"): case(there, "Nobody holds the lock."),
    ("heartbeat", "list"): case(there, "Nobody is at work."),
    ("conflict", "list"): case(there, "no conflict"),
    ("fsck",): case(there, "No problems found."),
    ("doctor",): case(
        lambda at: [str(at.folder)],
        "write once",
        *("check", "result", "detail", "remedy"),
        wrong=lambda at: [at.path, "-o", "no-equals-sign"],
        code=2,
        kind="invalid_input.option",
    ),
    ("explain",): case(
        lambda _: ["conflict.early"],
        "announced files",
        *("kind", "cause", "remedy"),
        wrong=lambda _: ["no.such"],
        code=2,
        kind="invalid_input",
    ),
    ("console",): case(
        lambda at: [at.path, "--seconds", "0"], "#token=", "url", "tables", "actions"
    ),
    ("ingest",): case(
        lambda at: [at.job()],
        "rows_written",
        *("job", "batches", "rows_read", "rows_written", "rows_bad"),
        wrong=lambda at: [str(at.folder / "nothing.toml")],
        kind="not_found",
    ),
    ("top",): case(lambda at: [at.path, "--looks", "1"], "newest instants", "newest instants"),
}

ON_SPARK = {("sql",): "tests/spark/test_sql.py"}
"""Commands that start Spark, and the tests of all three that share its session."""


def test_every_command_is_tested() -> None:
    assert set(all_commands()) == CASES.keys() | ON_SPARK.keys()
    root = Path(__file__).parents[3]
    for words, file in ON_SPARK.items():
        called = f"main([{', '.join(map(json.dumps, words))}, "
        assert (root / file).read_text().count(called) >= 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A merge-on-read table with a log file, to be copied."""
    path = tmp_path_factory.mktemp("made") / "trips"
    make_table(path, "MERGE_ON_READ")
    return path


@pytest.fixture
def site(made: Path, tmp_path: Path) -> Site:
    shutil.copytree(made, tmp_path / "trips")
    return Site(str(tmp_path / "trips"), tmp_path)


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_people_read_text(run: Run, site: Site, words: Words) -> None:
    code, out, err = run(*words, *CASES[words].arguments(site))
    assert code == 0, err
    assert CASES[words].text in " ".join(out.split())


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_programs_read_json(run: Run, site: Site, words: Words) -> None:
    code, out, err = run(*words, *CASES[words].arguments(site), "--output", "json")
    assert code == 0, err
    answer: Any = json.loads(out)
    if CASES[words].fields is None:
        assert answer == []
    else:
        one = answer[0] if isinstance(answer, list) else answer
        assert CASES[words].fields <= one.keys()


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_errors_are_words_and_json(run: Run, site: Site, words: Words) -> None:
    """With the exit code of their kind, and nothing on standard output."""
    given = CASES[words].wrong(site)
    code, out, err = run(*words, *given)
    assert (code, out) == (CASES[words].code, "")
    assert err.rpartition("\nerror")[2].removeprefix("error").startswith(f" ({CASES[words].kind})")
    assert "Traceback" not in err
    code, out, err = run(*words, *given, "--output", "json")
    assert (code, out) == (CASES[words].code, "")
    told = json.loads(err[err.index("{") :])
    assert told["kind"] == CASES[words].kind
    assert told["error"]
