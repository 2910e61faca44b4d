"""Every damage that is planted is found, named, and nothing is raised; what is safe is mended."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import FENCED, LOCKED

import headwater as hw
from headwater.cli.main import main
from headwater.config.registry import check_options
from headwater.errors import CorruptTableError, NotFoundError, StorageError
from headwater.inspect.damage import find_problems
from headwater.kernel.journal.journal import Journal
from headwater.kernel.layout import METADATA_TIMELINE, TableLayout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.history.write import write_history
from headwater.model.files import parse_data_file
from headwater.opening import Place, open_context
from headwater.seams.local import LocalStorage
from headwater.seams.storage import ObjectInfo
from headwater.table import Table

SCHEMA = pa.schema([pa.field("id", pa.string()), ("city", pa.string()), ("fare", pa.int64())])
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.clean.commits.retained": "3",
}


def rows(start: int, stop: int, fare: int) -> pa.Table:
    values = [
        {"id": f"{number:03d}", "city": "sf" if number % 2 else "ny", "fare": fare}
        for number in range(start, stop)
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)


@pytest.fixture(scope="module", params=[LOCKED, FENCED], ids=["lock", "journal"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A merge-on-read table with archived commits, base files, logs and deletes."""
    folder = tmp_path_factory.mktemp("whole") / "trips"
    table = hw.create_table(
        folder,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={**OPTIONS, **request.param},
    )
    table.bulk_insert(rows(0, 20, 0))
    for fare in range(1, 9):
        table.upsert(rows(0, 6, fare))
        if fare == 5:
            table.services.compact()
            table.services.clean()
            table.services.archive()
    table.services.clean()
    table.services.archive()
    table.delete(rows(0, 2, 9))
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "trips")
    return tmp_path / "trips"


def problems_of(folder: Path, *, deep: bool = False) -> list[dict[str, Any]]:
    with hw.open_table(folder, OPTIONS) as table:
        found: list[dict[str, Any]] = table.inspect.problems(deep=deep).to_pylist()
        return found


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def flip_page(path: Path) -> None:
    zstd = bytes.fromhex("28b52ffd")
    flip(path, path.read_bytes().index(zstd) + 10)


def newest(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern), key=lambda path: path.name.rpartition("_")[2])
    return found[-1]


def base_of(folder: Path) -> Path:
    return newest(folder, "city=sf/*.parquet")


def log_of(folder: Path) -> Path:
    logs = (folder / "city=sf").glob(".*.log.*")
    return max(logs, key=lambda path: path.name.split("_")[1])


def archive_of(folder: Path) -> Path:
    return next((folder / ".hoodie/timeline/history").glob("*.parquet"))


def commit_of(folder: Path) -> Path:
    return min((folder / ".hoodie/timeline").glob("*_*.deltacommit"))


def link(folder: Path) -> None:
    place = folder / "city=ny"
    place.rename(folder.parent / "elsewhere")
    place.symlink_to(folder.parent / "elsewhere", target_is_directory=True)


def spoil_attempt(folder: Path) -> None:
    place = folder / ".hoodie/.attempts/20260101000000000"
    place.mkdir(parents=True)
    (place / "1.json").write_bytes(b"{")


def spoil_markers(folder: Path) -> None:
    place = folder / ".hoodie/.temp/20260101000000000"
    place.mkdir(parents=True)
    (place / "MARKERS0").write_bytes(b"cut")


Plant = Callable[[Path], object]

SHALLOW: dict[str, tuple[Plant, str, str]] = {
    "base file cut": (lambda at: cut(base_of(at)), "files", "bytes, and its commit says"),
    "base file lost": (lambda at: base_of(at).unlink(), "files", "not in storage"),
    "base file empty": (lambda at: base_of(at).write_bytes(b""), "files", "empty"),
    "base file's footer": (lambda at: flip(base_of(at), -300), "files", "checksum"),
    "log cut": (lambda at: cut(log_of(at)), "files", "bytes, and its commit says"),
    "log lost": (lambda at: log_of(at).unlink(), "files", "not in storage"),
    "archive cut": (lambda at: cut(archive_of(at)), "archive", "its manifest says"),
    "archive flipped": (lambda at: flip_page(archive_of(at)), "archive", "damaged"),
    "archive lost": (lambda at: archive_of(at).unlink(), "archive", "not in storage"),
    "commit cut": (lambda at: cut(commit_of(at)), "timeline", "no whole|was changed"),
    "commit lost": (lambda at: commit_of(at).unlink(), "timeline", "file is lost"),
    "partition linked": (link, "files", "link"),
    "attempt": (spoil_attempt, "leftovers", "unreadable"),
    "markers": (spoil_markers, "leftovers", "cannot be relied on"),
    "metadata table lost": (
        lambda at: shutil.rmtree(at / ".hoodie/metadata"),
        "indexes",
        "",
    ),
}
DEEP: dict[str, tuple[Plant, str, str]] = {
    "base file's page": (lambda at: flip_page(base_of(at)), "files", "checksum"),
    "log's version": (lambda at: flip(log_of(at), 17), "files", "cannot read"),
    "log's content": (lambda at: flip(log_of(at), -40), "files", "malformed"),
}


def test_a_whole_table_has_no_problems(folder: Path) -> None:
    assert problems_of(folder) == []
    assert problems_of(folder, deep=True) == []


def test_n_80_what_a_clean_deleted_is_not_missed(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=1,
        options=OPTIONS,
    )
    for fare in range(8):
        table.upsert(rows(0, 6, fare))
        if fare in (2, 4):
            table.services.compact()
    (cleaned,) = table.services.clean()
    assert any(path.endswith(".parquet") for path in cleaned.deleted_paths)
    assert any(".log." in path for path in cleaned.deleted_paths)
    assert problems_of(tmp_path / "trips", deep=True) == []
    log = max((tmp_path / "trips").glob(".*.log.*"), key=lambda path: path.name.split("_")[1])
    log.unlink()
    (problem,) = problems_of(tmp_path / "trips")
    assert problem["subject"] == log.name


@pytest.mark.parametrize("name", [*SHALLOW, *DEEP])
def test_planted_damage_is_found(folder: Path, name: str) -> None:
    plant, check, problem = (SHALLOW | DEEP)[name]
    plant(folder)
    found = problems_of(folder, deep=name in DEEP)
    problems = [one["problem"] for one in found if one["check"] == check]
    assert any(re.search(problem, one) for one in problems), found
    assert all(one["advice"] and one["subject"] for one in found)


def test_damage_of_files_that_only_reads_of_the_past_need_is_found(tmp_path: Path) -> None:
    """Logs that a log compaction took in, and file groups that were replaced, until a clean."""
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={**OPTIONS, "hoodie.log.compaction.blocks.threshold": "2"},
    )
    table.upsert(rows(0, 6, 0))
    table.services.compact()
    logged = table.upsert(rows(0, 6, 1))
    table.upsert(rows(0, 6, 2))
    assert table.services.log_compact() is not None
    (log,) = (tmp_path / "trips").glob(f".*_{logged.instant}.log.*")
    bases = [*(tmp_path / "trips").glob("*.parquet")]
    table.overwrite(rows(0, 6, 3))
    assert problems_of(tmp_path / "trips", deep=True) == []
    flip(log, -40)
    (problem,) = problems_of(tmp_path / "trips", deep=True)
    assert problem["subject"] == log.name
    assert "past" in problem["at_stake"]
    log.unlink()
    for base in bases:
        cut(base)
    found = problems_of(tmp_path / "trips")
    assert {one["subject"] for one in found} == {log.name, *(base.name for base in bases)}


def test_what_others_do_meanwhile_is_no_damage(tmp_path: Path) -> None:
    """A clean runs once the timeline was listed and before the files are looked at."""
    place = tmp_path / "trips"
    table = hw.create_table(
        place,
        schema=SCHEMA,
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={**OPTIONS, "hoodie.clean.commits.retained": "1"},
    )
    for fare in range(4):
        table.upsert(rows(0, 6, fare))
        table.services.compact()
    cleaned: list[str] = []

    class Watched(LocalStorage):
        def info(self, path: str) -> ObjectInfo:
            if path.endswith(".parquet") and not cleaned:
                cleaned.append("")  # Before: the clean asks as well.
                cleaned.extend(*(done.deleted_paths for done in table.services.clean()))
            return super().info(path)

    known = Place.at(place, check_options(OPTIONS))
    watched = Place(
        storage=Watched(str(place)), clock=known.clock, ids=known.ids, options=known.options
    )
    assert [*find_problems(open_context(watched))] == []
    assert any(path.endswith(".parquet") for path in cleaned)
    lost = max(place.glob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    lost.unlink()
    assert [one.subject for one in find_problems(open_context(watched))] == [lost.name]


def test_a_lost_slot_of_the_newest_commit_is_not_taken_for_a_dead_writer(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = hw.create_table(
        place, schema=SCHEMA, record_key="id", options={**OPTIONS, **FENCED}, buckets=1
    )
    table.upsert(rows(0, 6, 1))
    table.upsert(rows(0, 6, 2))
    table.close()
    max((place / ".hoodie/.journal").glob("*.slot")).unlink()
    (problem,) = problems_of(place)
    assert "no-fenced" in problem["advice"]
    assert problem["repair"] is None
    assert main(["table", "upgrade", str(place), "--no-fenced"]) == 0
    assert problems_of(place, deep=True) == []
    assert set(hw.open_table(place, OPTIONS).read_arrow()["fare"].to_pylist()) == {2}


def test_n_175_what_another_engine_archived_is_not_lost(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "trips", schema=SCHEMA, record_key="id", options={**OPTIONS, **FENCED}
    )
    for fare in range(4):
        table.upsert(rows(0, 6, fare))
    stored = LocalStorage(tmp_path / "trips")
    one = load_active(stored, METADATA_TIMELINE).completed[-2]
    layout = TableLayout(timeline=METADATA_TIMELINE, history=f"{METADATA_TIMELINE}/history")
    names = [
        name for name in stored.list_names(METADATA_TIMELINE) if name.startswith(one.requested_time)
    ]
    stored.delete_many([f"{METADATA_TIMELINE}/{name}" for name in names])
    (found,) = problems_of(tmp_path / "trips")
    assert "the file is lost" in found["problem"]
    assert repair(tmp_path / "trips", "--yes") == 0
    write_history(stored, layout, [one])
    stored.delete_many([f"{METADATA_TIMELINE}/{name}" for name in names])
    assert problems_of(tmp_path / "trips") == []


def test_a_problem_tells_instant_and_rows(folder: Path) -> None:
    base = base_of(folder)
    cut(base)
    (found,) = [one for one in problems_of(folder) if one["check"] == "files"]
    assert found["subject"] == f"city=sf/{base.name}"
    assert found["instant"] in base.name
    assert "10 rows" in found["at_stake"]
    assert found["repair"] is None


def test_a_savepoint_is_no_advice_where_restoring_reads_what_is_damaged(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = hw.create_table(place, schema=SCHEMA, record_key="id", options={**OPTIONS, **LOCKED})
    first = table.upsert(rows(0, 6, 1))
    table.services.savepoint()
    table.upsert(rows(0, 6, 2))
    cut(max((place / ".hoodie/timeline").glob("*_*.commit")))
    (problem,) = problems_of(place)
    assert "as well" in problem["advice"]
    assert main(["service", "restore", str(place), str(first.instant), "--yes"]) == 9


def test_a_damaged_savepoint_is_found(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = hw.create_table(place, schema=SCHEMA, record_key="id", options={**OPTIONS, **LOCKED})
    table.upsert(rows(0, 6, 1))
    table.services.savepoint()
    assert problems_of(place) == []
    (point,) = (place / ".hoodie/timeline").glob("*_*.savepoint")
    cut(point)
    (problem,) = problems_of(place)
    assert problem["subject"].endswith(point.name)


def test_lost_properties_are_to_be_brought_back(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ".hoodie/hoodie.properties").unlink()
    is_journaled = (folder / ".hoodie/.journal").exists()
    assert main(["fsck", str(folder)]) == (1 if is_journaled else 3)
    said = "".join(capsys.readouterr())
    assert ("from the journal" if is_journaled else "from a copy") in said
    assert "create_table" not in said
    assert main(["fsck", str(tmp_path / "nothing")]) == 3
    assert "create_table" in capsys.readouterr().err


def test_keys_that_are_there_twice_are_found(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "t", schema=SCHEMA, record_key="id", index="simple", options=OPTIONS
    )
    table.insert(rows(0, 4, 1))
    table.bulk_insert(rows(0, 2, 2))
    found = table.inspect.problems(deep=True).to_pylist()
    assert [one["problem"] for one in found] == ["2 record keys are there twice, such as 000, 001"]


def test_a_damaged_archive_is_not_blamed_on_the_metadata_table(folder: Path) -> None:
    archive_of(folder).unlink()
    assert {one["check"] for one in problems_of(folder)} == {"archive"}


# Mending ------------------------------------------------------------------------------------------


def repair(folder: Path, *more: str) -> int:
    options = [part for key, value in OPTIONS.items() for part in ("-o", f"{key}={value}")]
    return main(["fsck", str(folder), *options, "--repair", *more])


def all_rows(table: Table) -> list[Any]:
    found: list[Any] = table.read_arrow(columns=["id", "city", "fare"]).sort_by("id").to_pylist()
    return found


def test_a_lost_metadata_table_is_built_again(folder: Path) -> None:
    with hw.open_table(folder, OPTIONS) as table:
        before = all_rows(table)
    shutil.rmtree(folder / ".hoodie/metadata")
    assert repair(folder, "--dry-run") == 1
    assert not (folder / ".hoodie/metadata/files").exists()
    assert repair(folder, "--yes") == 0
    assert problems_of(folder) == []
    with hw.open_table(folder, OPTIONS) as table:
        assert all_rows(table) == before


def test_nothing_is_done_for_what_only_a_copy_mends(folder: Path) -> None:
    cut(base_of(folder))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert repair(folder, "--yes") == 1
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == files


def test_n_187_files_that_came_late_are_found_and_deleted(folder: Path) -> None:
    base, log = base_of(folder), log_of(folder)
    named = parse_data_file(base.name)
    assert named is not None
    late = [
        base.with_name(base.name.replace(f"_{named.write_token}_", "_7-9-0_")),
        log.with_name(f"{log.name.rpartition('_')[0]}_7-9-0"),
        base.with_name(base.name.replace(named.instant_time, "20200101000000000")),
    ]
    for path in late:
        shutil.copy(base if path.suffix == ".parquet" else log, path)
    pending = base.with_name(base.name.replace(named.instant_time, "29990101000000000"))
    shutil.copy(base, pending)  # Of a writer that is at work, for all that anybody knows.
    found = problems_of(folder, deep=True)
    assert {one["subject"] for one in found} == {str(path.relative_to(folder)) for path in late}
    old = late.pop()
    assert [one["subject"] for one in found if not one["repair"]] == [str(old.relative_to(folder))]
    assert repair(folder, "--deep", "--yes") == 1
    assert not any(path.exists() for path in late)
    assert pending.exists()
    old.unlink()  # Only a person can tell that its commit is in no archive that was lost.
    assert problems_of(folder, deep=True) == []


def test_n_187_no_file_is_deleted_because_the_archive_is_lost(tmp_path: Path) -> None:
    """Then no commit lists the files of what is archived, and a copy of it brings them back."""
    folder = tmp_path / "trips"
    options = {**OPTIONS, "hoodie.parquet.small.file.limit": "0"}
    table = hw.create_table(folder, schema=SCHEMA, record_key="id", options=options)
    for number in range(8):  # Each to a file of its own.
        table.upsert(rows(number, number + 1, number))
    assert table.services.archive().archived
    files = sorted(folder.glob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    assert len(files) == 8
    history = folder / ".hoodie/timeline/history"
    shutil.rmtree(history)
    history.mkdir()
    found = problems_of(folder, deep=True)
    assert {one["subject"] for one in found} == {path.name for path in files[:4]}
    assert {one["repair"] for one in found} == {None}
    repair(folder, "--deep", "--yes")
    assert {*folder.glob("*.parquet")} == {*files}


def test_n_187_no_file_is_deleted_whose_commit_misses_one(folder: Path) -> None:
    """It may be that one under another name, or a byte of the commit is not what it was."""
    base = base_of(folder)
    other = base.with_name(("b" if base.name.startswith("a") else "a") + base.name[1:])
    base.rename(other)
    found = {one["subject"]: one["repair"] for one in problems_of(folder, deep=True)}
    assert found == {str(path.relative_to(folder)): None for path in (base, other)}
    assert repair(folder, "--deep", "--yes") == 1
    other.rename(base)
    assert problems_of(folder, deep=True) == []


def test_n_193_a_write_that_another_one_hides_is_found(tmp_path: Path) -> None:
    """As Hudi leaves it if one of ours is requested and completes before it first looks."""
    options = {**OPTIONS, "headwater.timeline.fenced": "false"}
    folder = tmp_path / "trips"
    table = hw.create_table(folder, schema=SCHEMA, record_key="id", options=options)
    table.upsert(rows(0, 4, 0))
    hidden, hides = (table.upsert(rows(0, 1, fare)).instant for fare in (1, 2))
    assert problems_of(folder) == []
    (done,) = (folder / ".hoodie/timeline").glob(f"{hidden}_*.commit")
    done.rename(done.with_name(f"{hidden}_29990101000000000.commit"))
    (found,) = [one for one in problems_of(folder) if one["check"] == "files"]
    assert found["subject"].endswith(f"_{hidden}.parquet")
    assert f"{hides} hides what {hidden} wrote" in found["problem"]


def table_in(place: Path, more: dict[str, str]) -> Table:
    """A table whose path has indexes that a definition is needed for."""
    table = hw.create_table(
        place, schema=SCHEMA, record_key="id", partition_by="city", options={**OPTIONS, **more}
    )
    table.upsert(rows(0, 20, 1))
    table.indexes.create(["column_stats", "record_index"])
    table.indexes.create("secondary_index_fare", columns=["fare"])
    return table


PROPERTIES = ".hoodie/hoodie.properties"
DEFINITIONS = ".hoodie/.index_defs/index.json"
INDEXES = {"column_stats", "files", "record_index", "secondary_index_fare"}
HARM: dict[str, Plant] = {
    "lost": lambda at: at.unlink(),
    "cut": cut,
    "flipped": lambda at: flip(at, 8),
}


@pytest.mark.parametrize("harm", HARM)
def test_without_definitions_of_indexes_rows_are_read_and_repair_begins_anew(
    tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "t"
    before = all_rows(table_in(place, LOCKED))
    HARM[harm](place / DEFINITIONS)
    with hw.open_table(place, OPTIONS) as table:
        assert all_rows(table) == before
        assert table.read_arrow(where="fare = 1").num_rows == 20
        listed = table.inspect.indexes().to_pylist()
        assert {one["index"] for one in listed if one["problem"]} == INDEXES - {"files"}
        with pytest.raises(CorruptTableError, match=r"index\.json"):
            table.upsert(rows(0, 2, 2))
        with pytest.raises(CorruptTableError, match=r"index\.json"):
            table.indexes.create("bloom_filters")
    (found,) = problems_of(place)
    assert found["subject"] == DEFINITIONS
    assert repair(place, "--yes") == 0
    said = capsys.readouterr().err
    assert "secondary_index_fare was dropped" in said  # It was on a column that nobody knows.
    assert "column_stats is on the columns that the options name" in said
    with hw.open_table(place, OPTIONS) as table:
        table.indexes.create("secondary_index_fare", columns=["fare"])
        assert {one["index"] for one in table.indexes.list().to_pylist()} == INDEXES
        table.upsert(rows(0, 2, 2))
        assert table.read_arrow(where="fare = 2").num_rows == 2
    assert problems_of(place) == []


@pytest.mark.parametrize("path", [DEFINITIONS, PROPERTIES])
@pytest.mark.parametrize("harm", HARM)
def test_the_journal_has_table_config_and_the_definitions(
    tmp_path: Path, harm: str, path: str
) -> None:
    place = tmp_path / "t"
    before = all_rows(table_in(place, FENCED))
    content = (place / path).read_bytes()
    HARM[harm](place / path)
    (found,) = problems_of(place) if path == DEFINITIONS else closed(place)
    assert found["subject"].endswith(path) or harm == "lost"
    assert "--repair" in found["advice"]
    assert repair(place, "--dry-run") == 1
    assert repair(place, "--yes") == 0
    assert (place / path).read_bytes() == content
    with hw.open_table(place, OPTIONS) as table:
        assert all_rows(table) == before
        table.upsert(rows(0, 2, 2))


def closed(place: Path) -> list[dict[str, Any]]:
    """What fsck says of a table that cannot be opened."""
    with pytest.raises((CorruptTableError, NotFoundError), match="fsck --repair"):
        hw.open_table(place, OPTIONS)
    with redirect_stdout(StringIO()) as said:
        assert main(["fsck", str(place), "--output", "json"]) == 1
    found: list[dict[str, Any]] = json.loads(said.getvalue())
    return found


def test_table_config_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table_in(place, FENCED)
    file = place / PROPERTIES
    content = file.read_text()
    lines = [line for line in content.splitlines() if not line.startswith("#")]
    file.write_text("\n".join([*reversed(lines), ""]))
    definitions = place / DEFINITIONS
    definitions.write_text(json.dumps(json.loads(definitions.read_text()), indent=7))
    assert problems_of(place) == []  # As another engine writes the same.
    file.write_text("\n".join(["hoodie.table.comment=mine", *lines, ""]))
    (found,) = problems_of(place)
    assert found["subject"] == PROPERTIES
    assert "--no-fenced" in found["advice"]
    assert repair(place, "--yes") == 0
    assert file.read_text() == content


def test_who_is_at_work_beside_us_may_have_changed_table_config(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table_in(place, FENCED)
    (place / DEFINITIONS).unlink()
    theirs = place / ".hoodie/timeline/20990101000000000.commit.requested"
    theirs.write_bytes(b"")
    assert not [one for one in problems_of(place) if one["check"] == "table"]
    theirs.unlink()
    assert [one["check"] for one in problems_of(place)] == ["table"]


def test_a_store_that_fails_is_not_taken_for_one_without_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or fsck would say that only a copy brings table config back."""
    place = tmp_path / "t"
    table_in(place, FENCED)
    (place / PROPERTIES).unlink()

    def fail(*_: object) -> object:
        raise StorageError("The store is busy")

    monkeypatch.setattr(Journal, "look", fail)
    assert main(["fsck", str(place)]) == 10
