"""Tables that Apache Hudi writes, and what it and we read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.support.hudi_peer import HudiPeer

import headwater as hw
from headwater.arrow.meta_columns import COMMIT_TIME, PARTITION_PATH, RECORD_KEY

if TYPE_CHECKING:
    from headwater.table import Table

Row = dict[str, Any]

META = (COMMIT_TIME, RECORD_KEY, PARTITION_PATH)

NO_METADATA_TABLE = {"hoodie.metadata.enable": "false"}

# Everything runs in one process and nothing is big: services run when a test asks for them.
WRITER = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
    "hoodie.delete.shuffle.parallelism": "2",
    "hoodie.simple.index.parallelism": "2",
    "hoodie.bloom.index.parallelism": "2",
    **NO_METADATA_TABLE,
}


class HudiTable:
    """One table, written through Hudi's data source with the same options every time."""

    def __init__(self, hudi: HudiPeer, path: Path, options: Mapping[str, str]) -> None:
        self.hudi = hudi
        self.path = path
        self.options = {"hoodie.table.name": path.name, **WRITER, **options}

    @property
    def uri(self) -> str:
        return str(self.path)

    def write(
        self,
        rows: pa.Table,
        operation: str = "upsert",
        options: Mapping[str, str] | None = None,
        mode: str = "append",
    ) -> None:
        """Let Hudi write rows."""
        chosen = {"hoodie.datasource.write.operation": operation, **(options or {})}
        self.hudi.write(rows, self.uri, {**self.options, **chosen}, mode)

    def open(self, options: Mapping[str, str] | None = None) -> Table:
        """Open the table with Headwater."""
        return hw.open_table(self.path, {"headwater.storage.fsync": "false", **(options or {})})

    def completion_times(self) -> list[str]:
        """Return when the writes and services of the active timeline completed, in order."""
        times = self.open().inspect.timeline()["completion_time"].to_pylist()
        return sorted(time for time in times if time is not None)

    def read_by_hudi(
        self, options: Mapping[str, str] | None = None, *, meta: Iterable[str] = META
    ) -> list[Row]:
        rows = self.hudi.read(self.uri, {**NO_METADATA_TABLE, **(options or {})})
        return _in_order(rows, meta)

    def read_by_us(self, *, meta: Iterable[str] = META, **arguments: Any) -> list[Row]:
        table = self.open()
        data = table.read_arrow(**arguments).schema.names
        return _in_order(table.read_arrow([*meta, *data], **arguments), meta)

    def check_snapshot(
        self,
        step: str,
        options: Mapping[str, str] | None = None,
        *,
        meta: Iterable[str] = META,
    ) -> list[Row]:
        """Check that both read the same rows now; return them."""
        ours = self.read_by_us(meta=meta)
        theirs = self.read_by_hudi(options, meta=meta)
        assert ours == theirs, f"the snapshots differ after {step}"
        return ours

    def check_history(
        self, *, is_merge_on_read: bool, as_shown: Callable[[Row], Row] | None = None
    ) -> None:
        """Check read-optimised, time-travel and incremental reads over the active timeline."""
        if is_merge_on_read:
            theirs = self.read_by_hudi({"hoodie.datasource.query.type": "read_optimized"})
            assert self.read_by_us(read_optimized=True) == theirs, "read-optimised reads differ"
        times = self.completion_times()
        for time in times[:-1]:
            theirs = self.read_by_hudi({"as.of.instant": time})
            assert self.read_by_us(as_of=time) == theirs, f"the reads as of {time} differ"
        for after, until in (("000", times[-2]), (times[1], times[-1]), ("000", times[-1])):
            self.check_window(after, until, as_shown)

    def check_window(
        self, after: str, until: str, as_shown: Callable[[Row], Row] | None = None
    ) -> list[Row]:
        """Check an incremental read of the completion times (after, until].

        `as_shown` makes of our row what Hudi shows of it, where that is known to differ.
        """
        ours = _in_order(self.open().changes_arrow(after, until), ())
        theirs = self.read_by_hudi(
            {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": after,
                "hoodie.datasource.read.end.instanttime": until,
            },
            meta=(),
        )
        expected = ours if as_shown is None else sorted(map(as_shown, ours), key=_order)
        assert expected == theirs, f"the incremental reads of ({after}, {until}] differ"
        return ours


def _in_order(rows: pa.Table, meta: Iterable[str]) -> list[Row]:
    """Return rows as dicts, with data columns and some meta columns."""
    kept = set(meta)
    names = [name for name in rows.schema.names if name in kept or not name.startswith("_hoodie_")]
    found = rows.select(names).to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=_order)


def _order(row: Row) -> str:
    return repr(sorted(row.items()))
