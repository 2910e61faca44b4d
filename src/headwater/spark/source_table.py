"""The table behind the data source, opened from a reader's or writer's options.

Spark runs the parts of one read or write in several Python processes: one that plans, the tasks,
and one that commits. Each opens the table by itself, so a lock that works inside one process only
cannot protect it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.config.detection import DetectionConfig
from headwater.config.files import FileConfig
from headwater.config.lock_options import lock_config_from_options
from headwater.config.registry import CheckedOptions, check_options
from headwater.config.source import SourceConfig
from headwater.config.table import TableConfig
from headwater.config.write import HEARTBEAT_TOLERABLE_MISSES, WriteConfig
from headwater.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NotFoundError
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.table_config import (
    check_options_agree,
    create_table_config,
    load_table_config,
    with_chosen_index,
)
from headwater.kernel.txn.locks.in_process import InProcessLocks
from headwater.kernel.txn.locks.select import PROVIDER_KEY, chosen_provider, lock_provider_for
from headwater.operations.write import WriteTarget
from headwater.seams.clock import SystemClock
from headwater.seams.components import Components
from headwater.seams.ids import Ids, SystemIds
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage

TOLERABLE_MISSES = 30
"""Unless the options say otherwise. Nobody beats for a write while Spark runs the stages before it
and after its planning process was retired, a minute or so after planning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    storage: Storage
    config: TableConfig
    options: CheckedOptions

    @property
    def merge_function(self) -> str | None:
        return FileConfig.from_options(self.options.known).merge_function


def open_source_table(config: SourceConfig) -> SourceTable:
    """Open the table that a reader or writer names.

    Raises:
        NotFoundError: kind NOT_A_TABLE.
        InvalidInputError: kind INVALID_OPTION; all problems in one message.
        UnsupportedError: a table version, feature or option that this release does not implement.
    """
    options, storage = _open_storage(config)
    table = load_table_config(storage, SystemClock())
    check_options_agree(table, options.known)
    return SourceTable(storage=storage, config=table, options=options)


def open_or_create_source_table(config: SourceConfig, columns: pa.Schema) -> SourceTable:
    """Open the table that a writer names, having created it if need be.

    Raises: see `open_source_table`; InvalidInputError also if options do not describe a new table.
    """
    try:
        return open_source_table(config)
    except NotFoundError as error:
        if error.kind is not ErrorKind.NOT_A_TABLE:
            raise
    options, storage = _open_storage(config)
    new = plan_table_config(NewTable(location=config.path, schema=columns), options.known)
    try:
        create_table_config(storage, SystemClock(), _ids(options), new)
    except AlreadyExistsError:
        # Another writer's first write was faster. Its table must agree with our options.
        return open_source_table(config)
    return SourceTable(storage=storage, config=new, options=options)


@contextmanager
def write_target(table: SourceTable) -> Iterator[WriteTarget]:
    """Give the table as a write of this process reaches it, for as long as the block runs.

    A process of Spark goes on to other writes, and a session with a lock server would stay.

    Raises:
        InvalidInputError: kind INVALID_OPTION; the lock does not work between processes.
    """
    options, clock, ids = table.options.known, SystemClock(), _ids(table.options)
    lock_config = lock_config_from_options(options)
    if chosen_provider(lock_config) == "in_process":
        raise InvalidInputError(
            f"{PROVIDER_KEY} is an in-process lock, but Spark plans and commits a write of the "
            "data source in different processes. Leave the option out to use a lock file of the "
            "table, or choose filesystem, storage or zookeeper",
            kind=ErrorKind.INVALID_OPTION,
        )
    write_config = WriteConfig.from_options(options)
    if HEARTBEAT_TOLERABLE_MISSES.key not in options:
        write_config = replace(write_config, heartbeat_tolerable_misses=TOLERABLE_MISSES)
    locks = lock_provider_for(lock_config, table.storage, clock, ids, in_process=InProcessLocks())
    with closing(locks):
        yield WriteTarget(
            components=Components(table.storage, clock, ids, locks),
            config=with_chosen_index(table.config, options),
            write_config=write_config,
            files=FileConfig.from_options(options),
            storage_options=options,
            lock_timeout_ms=lock_config.acquire_timeout_ms,
            detection=DetectionConfig.from_options(options),
            lock_config=lock_config,
        )


def _open_storage(config: SourceConfig) -> tuple[CheckedOptions, Storage]:
    options = check_options(config.table_options)
    return options, open_storage(config.path, options.known)


def _ids(options: CheckedOptions) -> Ids:
    ids = SystemIds()
    writer_id = WriteConfig.from_options(options.known).writer_id
    return ids if writer_id is None else SystemIds(replace(ids.owner, writer_id=writer_id))
