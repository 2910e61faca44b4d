"""Opening and creating tables, whoever asks: the facade, the data source, the command line."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from headwater.config.arguments import location_of
from headwater.config.metadata import MetadataConfig
from headwater.config.registry import CheckedOptions
from headwater.config.table import TableConfig
from headwater.config.table_options import BaseFileFormat
from headwater.config.write import WriteConfig
from headwater.context import TableContext
from headwater.engine.inline import EngineFor, inline_engine
from headwater.errors import ErrorKind, UnsupportedError
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.state import Areas
from headwater.kernel.journal.storage import JournaledStorage, find_journal
from headwater.kernel.layout import HOODIE, PROPERTIES
from headwater.kernel.table_config import (
    check_no_table,
    check_options_agree,
    create_table_config,
    load_table_config,
    table_layout,
)
from headwater.kernel.timeline.layout_one import LayoutOneStorage
from headwater.kernel.txn.locks.select import chosen_provider
from headwater.kernel.txn.other_engines import OtherEngines
from headwater.operations.concurrency import check_concurrency
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.ids import Ids, SystemIds
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage

if TYPE_CHECKING:
    from headwater.kernel.new_table import NewTable


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a table is or is to be, and how this process reaches it."""

    storage: Storage
    clock: Clock
    ids: Ids
    options: CheckedOptions
    engine_for: EngineFor = inline_engine

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str],
        options: CheckedOptions,
        engine_for: EngineFor = inline_engine,
    ) -> Self:
        """Return a place of the real world."""
        ids = SystemIds()
        writer_id = WriteConfig.from_options(options.known).writer_id
        if writer_id is not None:
            ids = SystemIds(replace(ids.owner, writer_id=writer_id))
        storage = open_storage(location_of(path), options.known)
        return cls(
            storage=storage, clock=SystemClock(), ids=ids, options=options, engine_for=engine_for
        )


def open_context(place: Place, defaults: Mapping[str, str] | None = None) -> TableContext:
    """Open the table of a place.

    Args:
        defaults: options for what the place's options do not say.

    Raises:
        NotFoundError: kind NOT_A_TABLE.
        InvalidInputError: kind INVALID_OPTION; all problems in one message.
        UnsupportedError: a table version, feature or option that this release does not implement.
        CorruptTableError: `hoodie.properties` is damaged.
        StorageError: storage failed.
    """
    config = load_table_config(place.storage, place.clock)
    check_options_agree(config, place.options.known)
    return _checked(_context(place, config, defaults))


def reload_context(table: TableContext) -> TableContext:
    """Return a table with the config that storage holds now.

    Nothing else changes, unless an upgrade has changed meanwhile how the table is reached.

    Raises:
        HeadwaterError: as `open_context`.
    """
    config = table.load_config()
    if _way_to(config) == _way_to(table.stored_config):
        return table.with_stored_config(config)
    stored = table.storage
    while isinstance(stored, JournaledStorage | LayoutOneStorage):
        stored = stored.stored
    reached = _reached(stored, table.clock, table.ids, config)
    return _checked(replace(table, storage=reached, stored_config=config))


def create_context(
    place: Place, new: NewTable, defaults: Mapping[str, str] | None = None
) -> TableContext:
    """Create a table at a place, with the indexes that its options ask for.

    Of several creators exactly one succeeds. One that dies on its way leaves no table.

    Raises:
        AlreadyExistsError: kind TABLE_EXISTS.
        InvalidInputError: arguments, options or columns are wrong; all problems in one message.
        UnsupportedError: the table would use what this release does not implement.
        CommitUnknownError: storage did not say whether the table was created.
        StorageError: the location cannot be written to.
    """
    # Opening is much more frequent, and needs none of it.
    from headwater.kernel.new_table import plan_table_config
    from headwater.metadata.initialize import create_first_indexes, with_first_indexes

    metadata = MetadataConfig.from_options(place.options.known)
    if "://" not in place.storage.uri:
        # A folder gives it a name, and not how that is written: `.` or `~`.
        new = replace(new, location=place.storage.uri)
    config = with_first_indexes(plan_table_config(new, place.options.known), metadata)
    context = _checked(_context(place, config, defaults))  # Refuses before anything is written.
    check_no_table(place.storage)
    create_first_indexes(place.storage, config, metadata)
    create_table_config(place.storage, place.clock, place.ids, config)
    return context


def delete_table(storage: Storage, kept: Collection[str] = ()) -> int:
    """Delete a table with all of its files, for good; return how many there were.

    Args:
        kept: paths that were in its folder before it.

    It stops being a table first, so that nobody reads half of it. One that dies on its way leaves
    files that no table has. Other tables may lie in folders of its folder; they stay whole.

    Raises:
        StorageError: storage failed; what is left can be deleted again.
    """
    journaled, _ = find_journal(storage)
    if journaled is not None:
        storage = journaled.stored  # The journal goes with the rest; no slot says so.
    found = [info.path for info in storage.list_tree("")]
    others = _tables_inside(found)
    if others:
        names = ", ".join(sorted(others))
        log.warning("tables inside of a dropped one are kept table=%s kept=%s", storage.uri, names)
    paths = [path for path in found if path not in kept and others.isdisjoint(_folders_of(path))]
    first = [path for path in paths if path.startswith(PROPERTIES)]
    storage.delete_many(first)
    storage.delete_many([path for path in paths if path not in first])
    return len(paths)


def _tables_inside(paths: Collection[str]) -> set[str]:
    """Return the folders of tables that are not part of this one, as its metadata table is.

    Whatever has a folder .hoodie is one, or is just becoming one.
    """
    inside = (path.partition(f"/{HOODIE}/") for path in paths if not path.startswith(f"{HOODIE}/"))
    return {folder for folder, is_table, _ in inside if is_table}


def _folders_of(path: str) -> Iterator[str]:
    parts = path.split("/")[:-1]
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _context(place: Place, config: TableConfig, defaults: Mapping[str, str] | None) -> TableContext:
    return TableContext(
        storage=_reached(place.storage, place.clock, place.ids, config),
        clock=place.clock,
        ids=place.ids,
        stored_config=config,
        options={**(defaults or {}), **place.options.known},
        unknown_options=place.options.unknown,
        engine_for=place.engine_for,
    )


def _way_to(config: TableConfig) -> tuple[bool, bool]:
    """Return what of a table's config tells how it is reached."""
    return config.has_layout_two, config.is_fenced


def _reached(storage: Storage, clock: Clock, ids: Ids, config: TableConfig) -> Storage:
    """Return storage as it shows a table of this config: by its journal, if it has one."""
    layout = table_layout(config)
    if not config.has_layout_two:
        _check_not_metadata(config)
        return LayoutOneStorage(storage, layout, table=config.name)
    if not config.is_fenced:
        return storage
    journal = Journal(storage, clock, ids, Areas(layout.timeline))
    return JournaledStorage(journal, OtherEngines(journal, layout).foresee)


def _check_not_metadata(config: TableConfig) -> None:
    if config.base_file_format is BaseFileFormat.HFILE:
        raise UnsupportedError(
            f"{config.name} is a metadata table of version {config.version}, which is not read "
            "here. Its own table is, without it",
            kind=ErrorKind.UNSUPPORTED_TABLE_VERSION,
        )


def _checked(table: TableContext) -> TableContext:
    """Say now what would otherwise fail the first write."""
    chosen_provider(table.lock_config, table.storage)
    check_concurrency(table.config, table.write_config)
    return table
