"""Keeping the indexes in step: what each kind of instant has to tell them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.errors import ErrorKind, UnsupportedError
from headwater.format.avro.schema import parse_avro_schema
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.metadata_commit import index_partitions_of, load_planned
from headwater.kernel.view.commits import CompletedCommit
from headwater.metadata.derive import Deriver, with_files_prefetched
from headwater.metadata.partition_kinds import PartitionKind, kind_of
from headwater.metadata.table_change import Inputs, TableChange
from headwater.metadata.update import MetadataUpdate, change_of_clean, change_of_commit
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import DataFile
from headwater.model.instant import Action, Instant, State
from headwater.seams.storage import both_at_once


class SeenTable(NamedTuple):
    """What was loaded of a table at about one moment."""

    timeline: Timeline
    config: TableConfig


@dataclass(frozen=True, slots=True)
class MetadataWriter:
    """Makes what an attempt hands to its commit, so that the indexes learn of it."""

    table: TableContext

    def of_commit(
        self,
        attempt: Attempt,
        action: Action,
        metadata: CommitMetadata,
        inputs: Inputs,
        *,
        has_seen_all: bool = True,
        seen: SeenTable | None = None,
    ) -> MetadataUpdate:
        """Return what a write, compaction or clustering tells the indexes; see `TableChange`.

        `seen` is what the attempt has seen of the table before, if that will do for the first try.
        """
        instant = Instant(attempt.instant, action, State.INFLIGHT)
        change = change_of_commit(instant, metadata, inputs, has_seen_all=has_seen_all)
        return self._update(attempt, change, CompletedCommit(instant, metadata).schema, seen)

    def of_clean(self, attempt: Attempt, deleted: Iterable[DataFile]) -> MetadataUpdate:
        """Return what a clean that deletes these files tells the indexes."""
        return self._update(attempt, change_of_clean(attempt.instant, deleted), None)

    def _update(
        self,
        attempt: Attempt,
        change: TableChange,
        schema: str | None,
        seen: SeenTable | None = None,
    ) -> MetadataUpdate:
        storage, layout = self.table.storage, self.table.layout
        timeline, config = seen or both_at_once(
            storage, lambda: load_active(storage, layout.timeline), self.table.load_config
        )
        return MetadataUpdate(
            storage,
            layout,
            change,
            attempt.attempt,
            index_partitions_of(config) or load_planned(storage, layout, timeline),
            partial(self._deriver, change, schema),
            self._load_in_use,
            timeline,
            self.table.kept_metadata,
        )

    def _load_in_use(self) -> tuple[str, ...]:
        return self.table.load_config().metadata_partitions

    def _deriver(self, change: TableChange, schema: str | None) -> Deriver:
        """Derive by the definitions of now: an index may have come since the last time."""
        storage = with_files_prefetched(self.table.storage, [change])
        table = self.table.reload()
        return Deriver(
            table=table,
            storage=storage,
            schema=(
                load_view(storage, table.config).schema()
                if schema is None
                else parse_avro_schema(schema)
            ),
            definitions=load_index_definitions(storage, table.config),
        )


def check_indexes_supported(config: TableConfig) -> None:
    """Refuse a table with an index of a kind that this release does not know.

    Raises:
        UnsupportedError: what a write leaves out of an index, other engines would not find.
        InvalidInputError: no index has such a name.
    """
    for name in (*config.metadata_partitions, *config.metadata_partitions_inflight):
        if kind_of(name) is PartitionKind.EXPRESSION_INDEX:
            raise UnsupportedError(
                f"Table {config.name} has the index {name}, which this release does not keep up to "
                "date. Drop it with the engine that made it first",
                kind=ErrorKind.UNSUPPORTED_OPTION,
            )
