"""One table and two readers, Apache Hudi and ourselves, who must find the same in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.support.hudi_peer import HudiPeer

from headwater.arrow.meta_columns import META_COLUMNS, OPERATION
from headwater.queries.slice_query import read_slices
from headwater.queries.snapshot import ReadRequest, plan_snapshot

if TYPE_CHECKING:
    from headwater.table import Table

Row = dict[str, Any]

META = tuple(name for name in META_COLUMNS if name != OPERATION)
NO_METADATA_TABLE = {"hoodie.metadata.enable": "false"}


class TwoReaders:
    """Asks both readers the same and compares the answers, meta columns included.

    Hudi lists files unless its options say that it reads through the metadata table.
    """

    def __init__(
        self,
        hudi: HudiPeer,
        table: Table,
        hudi_options: Mapping[str, str] = MappingProxyType(NO_METADATA_TABLE),
    ) -> None:
        self.hudi = hudi
        self.table = table
        self._hudi_options = dict(hudi_options)

    def check_snapshot(
        self,
        step: str,
        *,
        as_of: str | None = None,
        read_optimized: bool = False,
        skip: Iterable[str] = (),
    ) -> list[Row]:
        """Check that both read the same rows, apart from the columns to skip; return ours."""
        options = {"hoodie.datasource.query.type": "read_optimized"} if read_optimized else {}
        if as_of is not None:
            options["as.of.instant"] = as_of
        theirs = without(self.read_by_hudi(options), skip)
        ours = without(self.read_by_us(as_of=as_of, read_optimized=read_optimized), skip)
        assert theirs == ours, f"Hudi reads other rows than we do {step}"
        return ours

    def check_changes(self, after: str, until: str) -> list[Row]:
        """Check that both find the same changes in a window of completion times; return ours."""
        ours = in_order(self.table.changes_arrow(after, until))
        theirs = without(self.changes_by_hudi(after, until), META)
        assert theirs == ours, f"Hudi finds other changes in ({after}, {until}]"
        return ours

    def changes_by_hudi(self, after: str, until: str) -> list[Row]:
        return self.read_by_hudi(
            {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": after,
                "hoodie.datasource.read.end.instanttime": until,
            }
        )

    def read_by_hudi(self, options: Mapping[str, str]) -> list[Row]:
        return in_order(self.hudi.read(self.table.uri, {**self._hudi_options, **options}))

    def read_by_us(self, **arguments: Any) -> list[Row]:
        return in_order(read_with_meta_columns(self.table, **arguments))


def read_with_meta_columns(
    table: Table,
    meta: Sequence[str] = META,
    *,
    as_of: str | None = None,
    read_optimized: bool = False,
) -> pa.Table:
    """Read as `Table.read_arrow` does: some meta columns, and all others that there are then."""
    request = ReadRequest(as_of=as_of, is_read_optimized=read_optimized)
    plan = plan_snapshot(table.context, request)
    query = replace(plan.query, columns=(*meta, *plan.query.columns))
    return pa.Table.from_batches(read_slices(query, list(plan.slices)), query.result_schema)


def in_order(rows: pa.Table) -> list[Row]:
    """Return rows as dicts, in an order that depends on nothing but them."""
    return sorted(rows.to_pylist(), key=_text)


def without(rows: Iterable[Row], columns: Iterable[str]) -> list[Row]:
    """Return rows without some columns, in order."""
    dropped = set(columns)
    kept = [{key: row[key] for key in row if key not in dropped} for row in rows]
    return sorted(kept, key=_text)


def _text(row: Row) -> str:
    return repr(sorted(row.items()))
