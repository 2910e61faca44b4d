"""What writers may not do because of the kind of their table: non-blocking and partial writes."""

from __future__ import annotations

from headwater.arrow.merge_rule import MergeMode, MergeRule
from headwater.config.table import TableConfig
from headwater.config.table_options import (
    PARTIAL_UPDATE_MODE,
    IndexType,
    PartialUpdateMode,
    TableType,
)
from headwater.config.write import CONCURRENCY_MODE, ConcurrencyMode, WriteConfig
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError


def check_concurrency(config: TableConfig, write_config: WriteConfig) -> None:
    """Refuse non-blocking control where writers could hide each other's rows.

    Raises:
        InvalidInputError: kind INVALID_OPTION.
    """
    if write_config.concurrency_mode is not ConcurrencyMode.NON_BLOCKING:
        return
    if config.table_type is not TableType.MERGE_ON_READ:
        reason = (
            f"is {config.table_type}: its writers make new base files, and of two that are made at "
            "the same time readers take one"
        )
    elif config.index_type is not IndexType.BUCKET:
        reason = (
            f"has {config.index_type or 'no'} index: two writers of a new key would put it into "
            "different file groups, and it would be there twice"
        )
    else:
        return
    raise InvalidInputError(
        f"{CONCURRENCY_MODE.key}={ConcurrencyMode.NON_BLOCKING} needs a MERGE_ON_READ table with a "
        f"bucket index, but table {config.name} {reason}. Use {ConcurrencyMode.OPTIMISTIC}",
        kind=ErrorKind.INVALID_OPTION,
    )


def check_partial_write(config: TableConfig, rule: MergeRule, write_config: WriteConfig) -> None:
    """Refuse a partial write that nobody could read, or that takes columns of another writer away.

    A function that merges whole records cannot tell a column that was not given from a null.

    A row whose record is not there yet is written with all columns, null where it has none, because
    stock Hudi cannot read it otherwise. Another writer may start the same record at the same time
    with the columns that this one lacks; only a table that takes nulls for "not given" keeps both.

    Raises:
        UnsupportedError: kind UNSUPPORTED_OPTION; the table has merge mode CUSTOM.
        InvalidInputError: kind INVALID_OPTION; the writer is non-blocking.
    """
    if rule.mode is MergeMode.CUSTOM:
        raise UnsupportedError(
            f"Table {config.name} has merge mode CUSTOM, and its merge function takes whole "
            "records. Write rows that have all columns, and not as partial ones",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    if write_config.concurrency_mode is not ConcurrencyMode.NON_BLOCKING:
        return
    if rule.partial is not PartialUpdateMode.IGNORE_DEFAULTS:
        raise InvalidInputError(
            f"Partial writes of non-blocking writers need a table that merges by column, but table "
            f"{config.name} takes a null for a value. Create it with the option "
            f"{PARTIAL_UPDATE_MODE.key}={PartialUpdateMode.IGNORE_DEFAULTS}",
            kind=ErrorKind.INVALID_OPTION,
        )
