"""How a job writes to a table that others write to as well."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.lock import PROVIDER
from headwater.config.write import CONCURRENCY_MODE, ConcurrencyMode
from headwater.seams.open_storage import is_object_store

_LOCAL_LOCK = "filesystem"


def writer_options(
    path: str, options: Mapping[str, str], mode: ConcurrencyMode = ConcurrencyMode.OPTIMISTIC
) -> dict[str, str]:
    """Return the options of a writer, with those that a job does not have to say.

    On local disk a job among others takes the lock in the table's folder; a store has its own.
    """
    usual = {CONCURRENCY_MODE.key: str(mode)}
    if mode.is_multi_writer and not is_object_store(path):
        usual[PROVIDER.key] = _LOCAL_LOCK
    return {**usual, **options}
