"""N-186: a write of Apache Hudi's is at work while we take commits back.

It looks for no rollback that came meanwhile. With rows that it had read before they were taken
back it would bring them back. So nothing is taken back while it is at work.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.hudi.test_we_roll_back_theirs import (
    OURS,
    PID,
    THEIRS,
    data_files,
    fares,
    in_background,
    pending,
)
from tests.support.hudi_peer import HudiError, HudiPeer
from tests.support.tables import COW, LOCKED, MOR, a_table, columns, rows_of

from headwater.errors import ConflictError, ErrorKind
from headwater.services import restore as restoring
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
BOTH = {
    # It is not to count as dead while it stands still.
    "hoodie.client.heartbeat.interval_in_ms": "60000",
    # An index that leaves table config ends Hudi's write by chance.
    "hoodie.metadata.index.column.stats.enable": "false",
}
SIMPLE = {"hoodie.index.type": "SIMPLE"}
TRIES_MAX = 5


class DiedError(Exception):
    pass


def table_with_a_savepoint(folder: Path, table_type: str) -> tuple[Table, str, str]:
    """Return a table of two commits, of which the first has a savepoint."""
    shape = a_table(folder, SCHEMA, ordering="ts", table_type=table_type, index="simple")
    table = shape.with_options({**OURS, **LOCKED, **BOTH}).create()
    saved = table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.services.savepoint(saved.instant)
    last = table.upsert(rows(("a", "sf", 2, 2), ("c", "sf", 2, 2)))
    return table, saved.instant, last.instant


def write(hudi: HudiPeer, table: Table, some: pa.Table) -> None:
    hudi.write(some, table.uri, {**THEIRS, **SIMPLE, **BOTH, "hoodie.table.name": table.name})


def is_whole(path: Path) -> bool:
    return path.read_bytes()[-4:] == b"PAR1" if path.suffix == ".parquet" else True


@contextmanager
def stopped_in_an_upsert(hudi: HudiPeer, table: Table) -> Iterator[bool]:
    """Stop Hudi between its last file and its commit, until the end of the block.

    Tells whether it is so; its commit may have been faster.
    """
    pid, before = int(hudi.run(PID)), data_files(table)
    with in_background(partial(write, hudi, table, rows(("a", "sf", 9, 9)))) as writing:
        while writing.is_alive():
            if any(is_whole(Path(table.uri) / path) for path in data_files(table) - before):
                break
            time.sleep(0.001)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield bool(pending(table))
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("by", ["restore", "rollback"])
def test_n_186_nothing_is_taken_back_while_hudi_writes(
    hudi: HudiPeer, tmp_path: Path, table_type: str, by: str
) -> None:
    for number in range(TRIES_MAX):
        table, saved, last = table_with_a_savepoint(tmp_path / str(number), table_type)
        with stopped_in_an_upsert(hudi, table) as is_stopped:
            if is_stopped:
                instant = saved if by == "restore" else last
                with pytest.raises(ConflictError) as raised:
                    getattr(table.services, by)(instant)
                assert raised.value.kind is ErrorKind.FOREIGN_WRITER
                break
    else:
        raise AssertionError("Hudi committed before it could be stopped, every time")
    # Refused, it has changed nothing: Hudi goes on, and what it wrote is there.
    assert fares(table) == {"a": 9, "b": 1, "c": 2}
    table.services.restore(saved)
    assert fares(table) == {"a": 1, "b": 1}
    found = hudi.read(table.uri, {}).select(["id", "fare"]).to_pylist()
    assert {row["id"]: row["fare"] for row in found} == {"a": 1, "b": 1}


def test_n_186_hudi_begins_no_write_while_a_restore_is_pending(
    hudi: HudiPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, saved, _ = table_with_a_savepoint(tmp_path, COW)

    def die(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "take_back_for_restore", die)
        with pytest.raises(DiedError):
            table.services.restore(saved)
    with pytest.raises(HudiError, match="pending restore"):
        write(hudi, table, rows(("a", "sf", 9, 9)))
    table.services.restore(saved)
    assert fares(table) == {"a": 1, "b": 1}
    write(hudi, table, rows(("a", "sf", 9, 9)))
    assert fares(table) == {"a": 9, "b": 1}
