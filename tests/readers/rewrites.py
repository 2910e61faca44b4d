"""Compactions, log compactions, clusterings, cancelled plans, and records that move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.readers.history import Step, history
from tests.readers.readers import LOG_FILES, Changes, Omits
from tests.readers.shapes import NON_BLOCKING, NOT_TRIED, TYPES
from tests.support.tables import COW, MOR, TableBuilder, a_table, columns, rows_of, trips

SCHEMA = columns(
    "id string not null, city string, ts long, value long, tags array<string>, "
    "_hoodie_is_deleted boolean"
)
OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
    "headwater.clustering.copy.row.group.rows": "1",
}


def rows(*values: tuple[Any, ...]) -> pa.Table:
    """Return rows of key, ts, value, and whether it is deleted."""
    return rows_of(SCHEMA)(
        *(
            (key, "sf" if key < "d" else "ny", ts, value, [key] * (value % 3), bool(rest))
            for key, ts, value, *rest in values
        )
    )


FOLDED = {
    "hudi-rs": Omits((LOG_FILES,), "it also lists the logs that a log compaction folded into one")
}


def rewritable(path: Path, **arguments: Any) -> TableBuilder:
    arguments = {"partition_by": "city", "ordering": "ts", **arguments}
    return a_table(path, SCHEMA, **arguments).with_options(OPTIONS)


@history(
    block_format={"parquet": "parquet", "avro": "avro"},
    ordering={"event-time": "ts", "commit-time": None},
    spark=["parquet-event-time"],
)
def compactions(path: Path, block_format: str, ordering: str | None) -> Iterator[Step]:
    table = (
        rewritable(path, ordering=ordering, table_type=MOR, buckets=1)
        .with_options({"hoodie.logfile.data.block.format": block_format, **NON_BLOCKING})
        .create()
    )
    first = table.upsert(rows(("a", 5, 1), ("b", 1, 1), ("d", 1, 1), ("e", 1, 2)))
    table.upsert(rows(("a", 6, 2), ("d", 2, 2)))
    assert table.services.log_compact() is not None
    yield Step("log compaction of logs alone", table, FOLDED)
    assert table.services.compact() is not None
    yield Step("compaction of a log compaction", table)
    table.upsert(rows(("b", 9, 0, True), ("c", 3, 4)))
    table.delete(rows(("e", 0, 0)))
    table.upsert(rows(("c", 4, 5), ("f", 1, 1)))
    table.services.log_compact()
    yield Step("log compaction above a base file", table, FOLDED)
    last = table.upsert(rows(("c", 5, 6), ("e", 7, 7)))
    yield Step("logs above a log compaction", table, FOLDED)
    table.services.compact()
    yield Step("compaction of both, which keeps a delete", table)
    if ordering is not None:
        window = Changes(str(first.completion_time), str(last.completion_time))
        yield Step("changes across compactions", table, {}, [window])
    table.upsert(rows(("b", 3, 3), ("a", 7, 7)))
    yield Step("a late record that the delete hides", table)
    table.upsert(rows(("b", 10, 3)))
    yield Step("a record that is newer than a delete that was kept", table, is_milestone=False)


@history(spark=[""])
def deletes_with_and_without_ordering_values_in_one_log(path: Path) -> Iterator[Step]:
    """hudi-rs does not read a block that has both, so they come in two."""
    table = rewritable(path, table_type=MOR, buckets=1).create()
    table.upsert(rows(("a", 1, 1), ("b", 1, 1), ("c", 1, 1)))
    table.upsert(rows(("a", 2, 0, True)))
    table.delete(rows(("b", 0, 0)))
    assert table.services.log_compact() is not None
    yield Step("log compaction", table, {**FOLDED, **NOT_TRIED})
    table.upsert(rows(("d", 1, 1), ("e", None, 0, True), ("f", 3, 0, True)))
    yield Step("deletes of which one has no ordering value", table, {**FOLDED, **NOT_TRIED})


SHAPES = {
    f"{kind}-{index}": (table_type, index)
    for kind, table_type in TYPES.items()
    for index in ("simple", "bloom", "bucket")
}


@history(
    shape=SHAPES,
    order={"unsorted": None, "zorder": "zorder", "hilbert": "hilbert"},
    long=[f"{shape}-hilbert" for shape in SHAPES if shape not in ("cow-simple", "mor-bucket")],
    spark=["mor-bucket-hilbert"],
)
def clusterings(path: Path, shape: tuple[str, str], order: str | None) -> Iterator[Step]:
    table_type, index = shape
    buckets = {"buckets": 2} if index == "bucket" else {}
    table = rewritable(path, table_type=table_type, index=index, **buckets).create()
    table.insert(rows(("a", 1, 1), ("b", 1, 2), ("d", 1, 3)))
    table.insert(rows(("c", 1, 4), ("e", 1, 5)))
    table.upsert(rows(("a", 2, 9), ("d", 2, 8)))
    sort_by = None if order is None else ["value", "ts"]
    plan = table.services.schedule_clustering(sort_by, order=order or "zorder")
    is_idle = sort_by is None and index == "bucket" and table_type == COW
    assert (plan is None) == is_idle
    yield Step("with a pending clustering", table)
    table.services.cluster(plan)
    yield Step("clustering", table)
    table.upsert(rows(("a", 3, 10), ("f", 1, 1)))
    yield Step("an upsert on top of a clustering", table)


@history(spark=[""])
def copied_row_groups(path: Path) -> Iterator[Step]:
    table = rewritable(path, index="simple").create()
    for number in range(3):
        table.insert(rows(*((f"{letter}{number}", 1, number) for letter in "abcdef")))
    done = table.services.cluster()
    assert done is not None
    assert len(done.file_groups) == 2
    yield Step("copying", table, NOT_TRIED)


@history(spark=[""])
def cancelled_and_aborted_plans(path: Path) -> Iterator[Step]:
    options = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "in_process",
    }
    table = a_table(path, index="simple", options=options).create()
    table.bulk_insert(trips(("a", "sf", 1), ("b", "sf", 1)))
    table.bulk_insert(trips(("c", "sf", 1), ("d", "sf", 1)))
    plan = table.services.schedule_clustering(cancellable=True)
    assert plan is not None
    table.upsert(trips(("a", "sf", 2)))
    assert table.inspect.cancels()["is_waiting"].to_pylist() == [True]
    yield Step("cancelled", table, NOT_TRIED)
    table.services.execute_abort(plan)
    yield Step("aborted", table, NOT_TRIED)
    table.upsert(trips(("d", "sf", 3)))
    values = {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}
    assert values == {"a": 2, "b": 1, "c": 1, "d": 3}
    yield Step("and written to since", table, NOT_TRIED)


MOVING = {
    "hoodie.write.lock.provider": "in_process",
    "hoodie.record.index.update.partition.path": "true",
}


@history(
    table_type=TYPES,
    index={
        name: name
        for name in ("global_simple", "global_bloom", "record_index", "record_level_index")
    },
    spark=["mor-record_index"],
)
def records_are_where_their_rows_say(path: Path, table_type: str, index: str) -> Iterator[Step]:
    shape = {"partition_by": "city", "table_type": table_type, "index": index}
    table = a_table(path, **shape, options=MOVING).create()
    moves = index != "record_level_index"

    def check(expected: list[tuple[str, str, int]]) -> None:
        found = [tuple(row.values()) for row in table.read_arrow().to_pylist()]
        assert sorted(found) == sorted(expected)

    table.upsert(trips(("a", "x", 1), ("b", "x", 2), ("c", "y", 3)))
    table.upsert(trips(("a", "y", 10), ("b", "x", 20), ("d", "z", 4)))
    others = [("b", "x", 20), ("c", "y", 3), ("d", "z", 4)]
    check([("a", "y", 10), *([] if moves else [("a", "x", 1)]), *others])
    yield Step("moved", table, NOT_TRIED)
    table.upsert(trips(("a", "x", 11)))
    table.delete(trips(("c", "y", 0)))
    others.remove(("c", "y", 3))
    expected = [("a", "x", 11), *([] if moves else [("a", "y", 10)]), *others]
    check(expected)
    yield Step("moved back", table, is_milestone=False)
    if table_type == MOR:
        assert table.services.compact() is not None
        assert table.services.cluster() is not None
        check(expected)
        yield Step("rewritten", table, NOT_TRIED)
