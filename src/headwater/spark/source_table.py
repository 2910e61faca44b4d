"""The table behind the data source, opened from a reader's or writer's options.

Spark runs the parts of one read or write in several Python processes: one that plans, the tasks,
and one that commits. Each opens the table by itself, so a lock that works inside one process only
cannot protect it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from headwater.config.registry import check_options
from headwater.config.source import SourceConfig
from headwater.config.spark import SparkConfig
from headwater.config.write import HEARTBEAT_TOLERABLE_MISSES
from headwater.context import TableContext
from headwater.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NotFoundError
from headwater.kernel.new_table import NewTable
from headwater.kernel.txn.locks.select import PROVIDER_KEY, chosen_provider
from headwater.opening import Place, create_context, open_context
from headwater.spark.worker import warm

_DEFAULTS = {HEARTBEAT_TOLERABLE_MISSES.key: "30"}
"""Unless the options say otherwise. Nobody beats for a write while Spark runs the stages before it
and after its planning process was retired, a minute or so after planning."""


def open_source_table(config: SourceConfig) -> TableContext:
    """Open the table that a reader or writer names.

    Raises:
        NotFoundError: kind NOT_A_TABLE.
        InvalidInputError: kind INVALID_OPTION; all problems in one message.
        UnsupportedError: a table version, feature or option that this release does not implement.
    """
    warm_for(config)
    return open_context(_place(config), _DEFAULTS)


def warm_for(config: SourceConfig) -> None:
    """Make the next question cheap that Spark asks this process, unless options forbid it."""
    if SparkConfig.from_options(config.table_options).warms_workers:
        warm()


def open_or_create_source_table(config: SourceConfig, columns: pa.Schema) -> TableContext:
    """Open the table that a writer names, having created it if need be.

    Raises: see `open_source_table`; InvalidInputError also if options do not describe a new table.
    """
    try:
        return open_source_table(config)
    except NotFoundError as error:
        if error.kind is not ErrorKind.NOT_A_TABLE:
            raise
    try:
        return create_context(
            _place(config), NewTable(location=config.path, schema=columns), _DEFAULTS
        )
    except AlreadyExistsError:
        # Another writer's first write was faster. Its table must agree with our options.
        return open_source_table(config)


@contextmanager
def writing(table: TableContext) -> Iterator[TableContext]:
    """Give the table to write to, for as long as the block runs.

    A process of Spark goes on to other writes, and a session with a lock server would stay.

    Raises:
        InvalidInputError: kind INVALID_OPTION; the lock does not work between processes.
    """
    if chosen_provider(table.lock_config, table.storage) == "in_process":
        raise InvalidInputError(
            f"{PROVIDER_KEY} is an in-process lock, but Spark plans and commits a write of the "
            "data source in different processes. Leave the option out to use a lock file of the "
            "table, or choose filesystem, storage or zookeeper",
            kind=ErrorKind.INVALID_OPTION,
        )
    with closing(table):
        yield table


def _place(config: SourceConfig) -> Place:
    return Place.at(config.path, check_options(config.table_options))
