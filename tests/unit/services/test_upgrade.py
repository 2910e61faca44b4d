"""Tables of version 6: read as they are, upgraded, and an upgrade that dies after every write."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.support.dying import DyingStorage, Killed
from tests.support.tables import COW, FAST, MOR, a_table
from tests.support.tables import trips as rows
from tests.support.version_six import make_version_six

import headwater as hw
from headwater.config.registry import check_options
from headwater.errors import ErrorKind
from headwater.format.log.blocks import decode_rows, encode_data_block
from headwater.format.log.frames import BlockType, HeaderKey, encode_block, iter_blocks
from headwater.format.timeline.schemas import schema_text
from headwater.kernel.layout import UPGRADE
from headwater.kernel.timeline.layout_one import LayoutOneStorage
from headwater.kernel.view.table_view import load_listed_view
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import parse_data_file
from headwater.model.instant import InstantTime
from headwater.opening import Place, open_context
from headwater.seams.local import LocalStorage
from headwater.services.upgrade import run_upgrade

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

OPTIONS = {
    **FAST,
    "hoodie.index.type": "SIMPLE",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.metadata.enable": "false",
}
WRITES_MIN = 20
"""An upgrade writes more often than this; fewer would mean that nothing was tried."""


def old_table(tmp_path: Path, table_type: str = MOR, **arguments: Any) -> Path:
    """Return where a table of version 6 is: three writes to two groups, one of them with logs."""
    shape = a_table(tmp_path, table_type=table_type, partition_by="city", **arguments)
    shape = shape.having(index="simple").with_options(OPTIONS)
    table = shape.with_upserts(rows(("a", "x", 1), ("b", "y", 1)), rows(("a", "x", 2))).create()
    table.delete(rows(("b", "y", 0)))
    table.upsert(rows(("a", "x", 3), ("c", "y", 3)))
    make_version_six(tmp_path / "trips")
    return tmp_path / "trips"


def content(folder: Path, **asked: Any) -> list[dict[str, Any]]:
    found = hw.open_table(folder, OPTIONS).read_arrow(**asked).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


NOW = [{"id": "a", "city": "x", "value": 3}, {"id": "c", "city": "y", "value": 3}]


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_every_reader_of_an_old_table_gives_one_answer(tmp_path: Path, table_type: str) -> None:
    folder = old_table(tmp_path, table_type)
    table = hw.open_table(folder, OPTIONS)
    assert table.config.version == 6
    assert content(folder) == NOW
    times = [row["instant"] for row in table.history().to_pylist()]
    assert len(times) == 4
    third, second, first = times[1:]
    assert [row["id"] for row in content(folder, as_of=third)] == ["a"]
    assert [row["value"] for row in content(folder, as_of=second)] == [2, 1]
    assert [row["value"] for row in content(folder, as_of=first)] == [1, 1]
    changed = table.changes_arrow(third).to_pylist()
    assert sorted(row["id"] for row in changed) == ["a", "c"]
    assert table.inspect.slices().num_rows >= 2
    assert table.inspect.problems().num_rows == 0
    assert table.inspect.timeline().num_rows == 4
    assert table.inspect.files().num_rows > 2


def test_logs_of_an_old_table_are_sliced_by_the_base_file_in_their_names(tmp_path: Path) -> None:
    folder = old_table(tmp_path)
    context = open_context(Place.at(folder, check_options(OPTIONS)))
    assert isinstance(context.storage, LayoutOneStorage)
    slices = load_listed_view(context.storage, context.config).slices()
    with_logs = [one for one in slices if one.logs]
    assert with_logs
    for one in with_logs:
        assert {log.old.base_time for log in one.logs if log.old} == {one.base_instant}
        assert [log.version for log in one.logs] == list(range(1, len(one.logs) + 1))
        assert not one.kept_deletes


def test_blocks_of_commits_that_failed_do_not_count(tmp_path: Path) -> None:
    """N-111: a log may hold blocks of several writes, of which not all have completed."""
    folder = old_table(tmp_path)
    appended = 0
    for log in folder.rglob(".*.log.*"):
        blocks = iter_blocks(log.read_bytes(), path=log.name)
        for block in [each for each in blocks if each.type is BlockType.PARQUET_DATA]:
            # What a writer appended that died, and what another one had just begun to append.
            found = decode_rows(block, path=log.name)
            failed = encode_data_block(
                found.set_column(found.schema.get_field_index("value"), "value", [[99]]),
                instant_time=InstantTime("20990101000000000"),
                avro_schema_json=block.header[HeaderKey.SCHEMA],
            )
            with log.open("ab") as file:
                file.write(failed + b"#HUDI#torn")
            appended += 1
    assert appended
    assert content(folder) == NOW


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_an_upgraded_table_has_its_rows_and_its_past(tmp_path: Path, table_type: str) -> None:
    folder = old_table(tmp_path, table_type)
    past = hw.open_table(folder, OPTIONS).history().to_pylist()
    rows_then = {row["instant"]: content(folder, as_of=row["instant"]) for row in past}
    asked = hw.upgrade_table(folder, OPTIONS, dry_run=True)
    assert not asked.is_done
    assert hw.open_table(folder, OPTIONS).config.version == 6
    done = hw.upgrade_table(folder, OPTIONS)
    assert done.is_done
    assert (done.from_version, done.to_version, done.instants) == (6, 9, 4)
    assert done.properties == asked.properties
    assert bool(done.compacted) is (table_type == MOR)
    table = hw.open_table(folder, OPTIONS)
    assert table.config.version == 9
    assert table.config.initial_version == 6
    assert content(folder) == NOW
    assert {row["instant"] for row in past} <= set(table.history()["instant"].to_pylist())
    for instant, expected in rows_then.items():
        assert content(folder, as_of=instant) == expected
    assert not any(one.logs for one in load_listed_view(table.storage, table.config).slices())
    assert not list((folder / ".hoodie").glob("*commit*"))
    table.upsert(rows(("b", "y", 9)))
    table.services.clean()
    assert [row["value"] for row in content(folder)] == [3, 9, 3]
    again = hw.upgrade_table(folder, OPTIONS)
    assert (again.from_version, again.is_done, again.properties) == (9, True, {})


def test_the_upgrade_may_die_after_every_write(tmp_path: Path) -> None:
    made = old_table(tmp_path)
    (made / ".hoodie" / "metadata").mkdir()
    (made / ".hoodie" / "metadata" / "of version 6").write_text("")
    for path in list((made / ".hoodie").glob("*commit*")):
        (path.parent / f".{path.name}.crc").write_text("as Hadoop has it")
    for writes in count():
        folder = tmp_path / "dying"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
        storage: Any = DyingStorage(LocalStorage(str(folder), fsync=False), writes)
        place = Place.at(folder, check_options(OPTIONS))
        try:
            context = open_context(
                Place(storage=storage, clock=place.clock, ids=place.ids, options=place.options)
            )
            run_upgrade(context)
        except Killed:
            assert content(folder) == NOW
            hw.upgrade_table(folder, OPTIONS)
        else:
            break
        finally:
            check_upgraded(folder)
    assert writes > WRITES_MIN


def check_upgraded(folder: Path) -> None:
    """Nothing is left of the old version, nor of an upgrade that died."""
    table = hw.open_table(folder, OPTIONS)
    assert table.config.version == 9
    assert content(folder) == NOW
    names = os.listdir(folder / ".hoodie")
    assert not [name for name in names if name.lstrip(".")[:1].isdigit()]
    assert not (folder / UPGRADE).exists()
    assert not list((folder / ".hoodie" / "metadata").glob("*"))
    timeline = table.context.load_timeline()
    assert not timeline.pending
    instants = {instant.requested_time for instant in timeline.instants}
    for path in folder.rglob("*.parquet"):
        file = parse_data_file(path.relative_to(folder).as_posix())
        assert file is not None
        assert file.instant_time in instants


def test_files_of_a_compaction_that_died_are_deleted(tmp_path: Path) -> None:
    folder = old_table(tmp_path)
    before = {path.name for path in folder.rglob("*.parquet")}

    context = open_context(Place.at(folder, check_options(OPTIONS)))
    storage = context.storage
    assert isinstance(storage, LayoutOneStorage)
    # Dead right after its tasks: the next thing that it puts is the archived timeline.
    storage.stored = Interrupted(storage.stored)
    with pytest.raises(Killed):
        run_upgrade(context)
    written = {path.name for path in folder.rglob("*.parquet")} - before
    assert written
    hw.upgrade_table(folder, OPTIONS)
    assert not written & {path.name for path in folder.rglob("*.parquet")}
    check_upgraded(folder)


class Interrupted:
    """Storage of a process that dies before it puts anything into a history."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def put(self, path: str, data: bytes) -> None:
        if "/history/" in path:
            raise Killed
        self._storage.put(path, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def test_pending_instants_are_refused(tmp_path: Path) -> None:
    folder = old_table(tmp_path, COW)
    (folder / ".hoodie" / "20990101000000000.commit.requested").touch()
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(hw.InvalidInputError, match="20990101000000000") as caught:
        hw.upgrade_table(folder, OPTIONS)
    assert caught.value.kind is ErrorKind.INVALID_STATE
    assert sorted(path.name for path in folder.rglob("*") if "lock" not in path.name) == before
    assert content(folder) == NOW


def test_an_upgrade_that_another_engine_began_is_left_alone(tmp_path: Path) -> None:
    folder = old_table(tmp_path, COW)
    theirs = folder / ".hoodie" / "timeline" / "20200101000000000_20200101000000001.commit"
    theirs.parent.mkdir()
    theirs.touch()
    with pytest.raises(hw.ConflictError, match="another engine has begun"):
        hw.upgrade_table(folder, OPTIONS)
    assert theirs.exists()


def test_an_instant_that_appears_meanwhile_ends_the_upgrade(tmp_path: Path) -> None:
    folder = old_table(tmp_path, COW)
    late = folder / ".hoodie" / "20990101000000000.commit.requested"

    class Busy(Interrupted):
        def put(self, path: str, data: bytes) -> None:
            self._storage.put(path, data)
            late.touch()

    context = open_context(Place.at(folder, check_options(OPTIONS)))
    context.storage.stored = Busy(context.storage.stored)  # type: ignore[attr-defined]
    with pytest.raises(hw.ConflictError, match="written to while it was upgraded"):
        run_upgrade(context)
    assert content(folder) == NOW
    late.unlink()
    hw.upgrade_table(folder, OPTIONS)
    check_upgraded(folder)


def test_who_opened_the_table_before_its_upgrade_is_told(tmp_path: Path) -> None:
    """Its timeline is gone from where that looks, and it must not seem empty."""
    folder = old_table(tmp_path, COW)
    before = hw.open_table(folder, OPTIONS)
    assert before.read_arrow().num_rows == 2
    hw.upgrade_table(folder, OPTIONS)
    with pytest.raises(hw.ConflictError, match="Open it again"):
        before.read_arrow()
    with pytest.raises(hw.UnsupportedError):
        before.upsert(rows(("a", "x", 4)))
    again = before.reload()
    again.upsert(rows(("a", "x", 4)))
    assert again.read_arrow().num_rows == 2


@pytest.mark.parametrize("has_archive", [True, False])
def test_archived_instants_come_along(tmp_path: Path, has_archive: bool) -> None:
    """N-112: what no archive tells of is told by the files that bear its time."""
    folder = old_table(tmp_path, COW)
    hoodie = folder / ".hoodie"
    first = min(name for name in os.listdir(hoodie) if name.endswith(".commit"))
    data = (hoodie / first).read_text()
    if has_archive:
        archive(hoodie / "archived", first.partition(".")[0], json.loads(data))
    for path in hoodie.glob(f"{first.partition('.')[0]}.*"):
        path.unlink()
    assert content(folder) == NOW
    done = hw.upgrade_table(folder, OPTIONS)
    # Without the archive nothing is known of an instant but the files that are left of it.
    left = list(folder.rglob(f"*_{first.partition('.')[0]}.parquet"))
    assert done.archived == (1 if has_archive or left else 0)
    assert content(folder) == NOW
    shown = hw.open_table(folder, OPTIONS).history()["instant"].to_pylist()
    assert (first.partition(".")[0] in shown) is (done.archived == 1)


def archive(folder: Path, time: str, metadata: dict[str, Any]) -> None:
    """Write an archive as Hudi 0.14 does: a log file of Avro records."""
    nested = json.loads(schema_text(CommitMetadata))
    schema = {
        "type": "record",
        "name": "HoodieArchivedMetaEntry",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {"name": "hoodieCommitMetadata", "type": ["null", nested], "default": None},
            {"name": "commitTime", "type": ["null", "string"], "default": None},
            {"name": "actionType", "type": ["null", "string"], "default": None},
            {"name": "actionState", "type": ["null", "string"], "default": None},
            {"name": "stateTransitionTime", "type": ["null", "string"], "default": None},
        ],
    }
    parsed = fastavro.parse_schema(schema)
    content = b""
    states = {"REQUESTED": None, "INFLIGHT": None, "COMPLETED": metadata}
    for state, value in states.items():
        stream = BytesIO()
        entry = {"commitTime": time, "actionType": "commit", "actionState": state}
        fastavro.schemaless_writer(stream, parsed, {**entry, "hoodieCommitMetadata": value})
        content += struct.pack(">i", len(stream.getvalue())) + stream.getvalue()
    header = {HeaderKey.INSTANT_TIME: time, HeaderKey.SCHEMA: json.dumps(schema)}
    block = encode_block(BlockType.AVRO_DATA, header, struct.pack(">ii", 3, 3) + content)
    folder.mkdir(exist_ok=True)
    (folder / ".commits_.archive.1_1-0-1").write_bytes(block)


def test_a_table_of_version_8_is_upgraded_by_its_properties(tmp_path: Path) -> None:
    table = a_table(tmp_path).with_options(OPTIONS).with_commits(2).create()
    path = tmp_path / "trips" / ".hoodie" / "hoodie.properties"
    edited = path.read_text().replace("table.version=9", "table.version=8")
    path.write_text(re.sub("(?m)^#headwater.crc32.*\n", "", edited))
    before = content(tmp_path / "trips")
    instants = {i.requested_time for i in table.context.load_timeline().instants}
    done = hw.upgrade_table(tmp_path / "trips", OPTIONS)
    assert (done.from_version, done.to_version, done.compacted) == (8, 9, 0)
    assert content(tmp_path / "trips") == before
    now = hw.open_table(tmp_path / "trips", OPTIONS)
    assert {i.requested_time for i in now.context.load_timeline().instants} == instants
    now.upsert(rows(("z", "sf", 1)))
    assert len(content(tmp_path / "trips")) == len(before) + 1
