"""Table config in storage: load, create and update `hoodie.properties` (format 1.4, INV-79).

**Stock Hudi** copies `hoodie.properties` to the backup, deletes the file, writes the new one and
deletes the backup. Its readers try the file, then the backup. So a table has a valid file or a
valid backup at every moment, and every listing shows at least one of them.

**We** never delete the file. A delete whose reply got lost may land later, after the new file was
written, and the table would have no config at all. An overwrite leaves a whole file at every
moment, which no reader can mistake. Under the table lock:

0. recover: if only the backup is valid, make it the file again; then delete the backup;
1. read the file with its version;
2. overwrite it.
   With compare-and-swap (`Storage.can_replace`): replace that very version.
   Without: copy the file to the backup with put-if-absent, then overwrite the file with `put`.
   Here an update relies on the lock alone (A1), and a `put` that lands after its caller gave it up
   can undo a later update;
3. read again. The changes hold: delete the backup, done. They do not, because the write failed, its
   reply got lost or somebody else was first: again from 1, a bounded number of times.

What a crash leaves behind, ours or stock Hudi's, and who repairs it:

    dies after                          file   backup   readers take   the next update
    0 restoring the file                old    old      file           deletes the backup
    1 reading                           old    -        file           -
    2 the replace                       new    -        file           -
    2 the backup                        old    old      file           deletes the backup
    2 the put                           new    old      file           deletes the backup
    Hudi: deleting the file             -      old      backup         restores the file
    Hudi: writing part of the new file  torn   old      backup         restores the file

Nobody but an update repairs: readers never write. An update whose changes hold already writes
nothing but what step 0 repairs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from headwater.config.option import problem_list
from headwater.config.table import TableConfig
from headwater.config.table_options import (
    BUCKET_COUNT,
    CHECKSUM,
    DATABASE,
    INDEX_TYPE,
    INITIAL_VERSION,
    MERGE_MODE,
    NAME,
    TABLE_OPTIONS,
)
from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from headwater.format.properties import (
    check_table_checksum,
    encode_properties,
    parse_properties,
)
from headwater.kernel.layout import HOODIE, JOURNAL, PROPERTIES, PROPERTIES_BACKUP, TableLayout
from headwater.kernel.write_once import put_if_missing, put_once
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.lock import TABLE, HeldLock, LockProvider
from headwater.seams.storage import Storage, StoredObject

log = logging.getLogger(__name__)

_READ_ROUNDS_MAX = 4
_READ_PAUSE_MS = 25  # Doubled after every round: 25, 50, 100 ms, far longer than a rewrite takes.
_TRIES_MAX = 5
_PAUSE_MS = 50  # Doubled after every try: 50, 100, 200, 400 ms.

FOLDER_MARK = ".keep"
"""Stock Hudi lists the timeline and history folders of a new table and fails if they are absent.
Storage has no folders, so an empty object stands in each new one; Hudi ignores its name."""

_NEVER_CHANGED = (NAME, DATABASE, INITIAL_VERSION, CHECKSUM)
"""What identifies the table, and the checksum that follows from it."""


def table_layout(config: TableConfig) -> TableLayout:
    """Return where the table's timeline is."""
    timeline = f"{HOODIE}/{config.timeline_path}"
    return TableLayout(
        timeline=timeline,
        history=f"{timeline}/{config.timeline_history_path}",
        is_utc=config.is_utc,
    )


@lru_cache(maxsize=64)
def parse_table_config(data: bytes, path: str) -> TableConfig:
    """Return the config in a properties file; every commit reads it, and it hardly ever changes.

    Raises:
        CorruptTableError: kind CORRUPT_PROPERTIES or CORRUPT_CHECKSUM.
        UnsupportedError: a version or feature that this release cannot read.
    """
    properties = parse_properties(data, path=path)
    check_table_checksum(properties, path=path)
    return TableConfig.from_properties(properties, path=path)


def load_table_config(storage: Storage, clock: Clock) -> TableConfig:
    """Return the table's config from the file, else from the backup.

    Raises:
        HeadwaterError: as `load_config_object`.
    """
    return load_config_object(storage, clock).config


class ConfigObject(NamedTuple):
    """Table config as it is stored."""

    data: bytes
    config: TableConfig


def load_config_object(storage: Storage, clock: Clock) -> ConfigObject:
    """Return the table's config with its bytes, from the file, else from the backup.

    A damaged file is read again a few times before it is believed: stock Hudi does not write it in
    one piece on every store.

    Raises:
        NotFoundError: kind NOT_A_TABLE.
        CorruptTableError: kind CORRUPT_PROPERTIES or CORRUPT_CHECKSUM.
        UnsupportedError: a version or feature that this release cannot read.
    """
    damage: CorruptTableError | None = None
    for round_number in range(_READ_ROUNDS_MAX):
        if damage is not None:
            clock.sleep_ms(_READ_PAUSE_MS << (round_number - 1))
        damage = None
        for path in (PROPERTIES, PROPERTIES_BACKUP):
            try:
                data = storage.read(path)
                return ConfigObject(data, _parse(data, storage, path))
            except NotFoundError:
                continue
            except CorruptTableError as error:
                # The damage of the file says more than that of a backup.
                damage = damage or error
        if damage is None and not is_table(storage):
            raise _not_a_table(storage)
        # A damaged file may be in the making; two absent ones changed places between our reads.
    if damage is not None and storage.list_names(JOURNAL):
        raise CorruptTableError(
            f"{damage.message}. Where a journal has the table's decisions, `headwater fsck "
            "--repair` writes the file as it was decided, and a change by hand holds only after "
            "`headwater table upgrade --no-fenced`",
            kind=damage.kind,
            **damage.context,
        ) from damage
    if damage is not None:
        raise damage
    raise StorageError(
        f"{PROPERTIES} was absent and its backup too, {_READ_ROUNDS_MAX} times in a row, although "
        "listings show them; it is being rewritten all the time. Try again",
        table=storage.uri,
    )


def check_options_agree(config: TableConfig, options: Mapping[str, str]) -> None:
    """Raise if checked options contradict what the table says about itself.

    A table made by another engine does not say which index it has; there its writers decide.

    Raises:
        InvalidInputError: kind INVALID_OPTION, with every contradiction in one message.
    """
    problems = []
    for option in TABLE_OPTIONS:
        stored = option.find(config.raw)
        if option.key not in options or (stored is None and option in (INDEX_TYPE, BUCKET_COUNT)):
            continue
        value = option.default if stored is None else option.parse(stored[1])
        value = config.merge_mode if option is MERGE_MODE else value
        if option.parse(options[option.key]) != value:
            has = "none" if value is None else repr(option.encode(value))
            problems.append(f"{option.key} is {options[option.key]!r}, but the table has {has}")
    if problems:
        raise InvalidInputError(
            problem_list(f"Options cannot change the table {config.name}", problems),
            kind=ErrorKind.INVALID_OPTION,
        )


def with_chosen_index(config: TableConfig, options: Mapping[str, str]) -> TableConfig:
    """Return the config to write by: a table that does not say its index has the writer's."""
    if config.index_type is not None or INDEX_TYPE.key not in options:
        return config
    buckets = options.get(BUCKET_COUNT.key)
    return replace(
        config,
        index_type=INDEX_TYPE.parse(options[INDEX_TYPE.key]),
        bucket_count=config.bucket_count if buckets is None else BUCKET_COUNT.parse(buckets),
    )


def check_no_table(storage: Storage) -> None:
    """Check that the location is no table yet, and has no decisions of one that was.

    Raises:
        AlreadyExistsError: kind TABLE_EXISTS, or another if there are decisions only.
    """
    if is_table(storage):
        raise _table_exists(storage)
    for folder in (JOURNAL, TableLayout().timeline):
        for name in storage.list_names(folder)[:1]:
            if is_table(storage):  # Somebody else's, by now.
                raise _table_exists(storage)
            raise AlreadyExistsError(
                f"At {storage.uri} are files of a table that has no {PROPERTIES} any more, such as "
                f"{folder}/{name}: it was not deleted to the end, or a writer went on after that. "
                "A new table would take them for its own. Delete the folder, or choose another "
                "path",
                table=storage.uri,
            )


def create_table_config(storage: Storage, clock: Clock, ids: Ids, config: TableConfig) -> None:
    """Make the location a table, unless it is one.

    Of several creators exactly one succeeds. One that dies on its way leaves no table.

    Raises:
        AlreadyExistsError: kind TABLE_EXISTS; nothing was changed.
        CommitUnknownError: storage did not say whether the table was created.
        UnsupportedError: the store creates an object that is there.
        StorageError: the location cannot be written to.
    """
    check_no_table(storage)
    mark_history(storage, clock, config)
    # The id tells our file from a rival's with the same content, should the reply get lost.
    saved = f"Properties saved on {_now(clock)} by Headwater {ids.new_uuid()}"
    try:
        put_once(storage, clock, PROPERTIES, _encode(config.to_properties(), saved))
    except ConflictError as error:
        raise _table_exists(storage) from error


def mark_history(storage: Storage, clock: Clock, config: TableConfig) -> None:
    """Create the folder of the history, and find out whether the store creates objects once.

    All decisions of writers rest on that, and there are servers that take no notice of the
    precondition: to them a creation is an overwriting, and the last of two commits would win.

    Raises:
        UnsupportedError: the store creates an object that is there.
        CommitUnknownError, StorageError: it cannot be written to.
    """
    mark = f"{table_layout(config).history}/{FOLDER_MARK}"
    is_ours = put_if_missing(storage, clock, mark, b"")
    if is_ours and storage.is_distant and put_if_missing(storage, clock, mark, b""):
        raise UnsupportedError(
            f"The store of {storage.uri} let one object be created twice ({mark}), so two writers "
            "could overwrite each other's commits. Nothing else was done. Use a store, or a "
            "version of it, that honours If-None-Match on writes; headwater doctor checks it",
            table=storage.uri,
        )


def update_table_config(
    storage: Storage,
    locks: LockProvider,
    clock: Clock,
    changes: Mapping[str, str | None],
    *,
    lock_timeout_ms: int,
) -> TableConfig:
    """Set the given keys, remove those with None, and return the config that holds afterwards.

    Raises:
        ConflictError: the table lock was not to be had in time.
        FencedError: the table lock was lost; nothing was written after that.
        CommitUnknownError: it is not known whether the update landed; load the config to see.
        InvalidInputError: a key that never changes, or a value that readers would refuse.
        NotFoundError, CorruptTableError, UnsupportedError: as `load_table_config`; the latter also
            for a table that this release reads but does not write.
    """
    held = locks.acquire(TABLE, timeout_ms=lock_timeout_ms)
    try:
        return update_table_config_in_lock(storage, held, clock, changes)
    finally:
        _release(held)


def update_table_config_in_lock(
    storage: Storage, held: HeldLock, clock: Clock, changes: Mapping[str, str | None]
) -> TableConfig:
    """Do what `update_table_config` does for a caller that holds the table lock.

    Raises:
        HeadwaterError: as `update_table_config`.
    """
    _check_changeable(storage, changes)

    def change(config: TableConfig) -> dict[str, str]:
        config.check_writable(storage.uri)
        return _changed(config.to_properties(), changes)

    return change_table_config_in_lock(storage, held, clock, change)


def changed_table_config(
    storage: Storage, clock: Clock, changes: Mapping[str, str | None]
) -> bytes:
    """Return what the stored config becomes by an update, as bytes to be stored.

    Raises:
        HeadwaterError: as `update_table_config`.
    """
    _check_changeable(storage, changes)
    config = load_table_config(storage, clock)
    config.check_writable(storage.uri)
    updated = encode_table_config(_changed(config.to_properties(), changes), clock)
    _check_readable(updated, storage)
    return updated


def _check_changeable(storage: Storage, changes: Mapping[str, str | None]) -> None:
    for option in _NEVER_CHANGED:
        if option.key in changes:
            raise InvalidInputError(f"{option.key} never changes", table=storage.uri)


def change_table_config_in_lock(
    storage: Storage,
    held: HeldLock,
    clock: Clock,
    change: Callable[[TableConfig], Mapping[str, str]],
) -> TableConfig:
    """Make of the stored config whatever `change` says, for a caller that holds the table lock.

    `change` gives the properties to store, and for these it gives them again: that is how an update
    is known to have landed. It may change the version, which nothing but an upgrade does.

    Raises:
        HeadwaterError: as `update_table_config`, and what `change` raises.
    """
    _recover(storage, held, clock)
    keys: list[str] = []
    error: StorageError | None = None
    for tried in range(_TRIES_MAX):
        if error is not None and not error.is_final:
            clock.sleep_ms(_PAUSE_MS << (tried - 1))
        try:
            current = storage.read_versioned(PROPERTIES)
        except NotFoundError:
            raise _not_a_table(storage) from None
        except StorageError as failed:
            if error is None and not tried:
                raise  # Nothing was written yet.
            error = failed
            continue
        config = _parse(current.data, storage, PROPERTIES)
        properties = change(config)
        if properties == config.raw:
            # Either there was nothing to do, or this is the update read back.
            if tried and not storage.can_replace:
                _drop_backup(storage, held, clock)
            return config
        keys = sorted(dict(properties.items() ^ config.raw.items()))
        updated = encode_table_config(properties, clock)
        _check_readable(updated, storage)
        try:
            _overwrite(storage, held, clock, current, updated)
        except ConflictError as lost:
            log.info("table config changed under an update table=%s error=%s", storage.uri, lost)
        except StorageError as failed:
            if failed.ends_after(error):
                raise
            error = failed
    raise CommitUnknownError(
        f"{PROPERTIES} could not be updated in {_TRIES_MAX} tries. Load the config to see whether "
        "the update landed, and try again",
        table=storage.uri,
        keys=", ".join(keys),
    ) from error


def _overwrite(
    storage: Storage, held: HeldLock, clock: Clock, current: StoredObject, updated: bytes
) -> None:
    held.check()
    if storage.can_replace:
        storage.replace(PROPERTIES, updated, version=current.version)
    else:
        put_once(storage, clock, PROPERTIES_BACKUP, current.data)
        held.check()
        storage.put(PROPERTIES, updated)


def _recover(storage: Storage, held: HeldLock, clock: Clock) -> None:
    """Finish or undo an update whose process died (step 0)."""
    if _name_in_hoodie(PROPERTIES_BACKUP) not in storage.list_names(HOODIE):
        return
    version = None
    try:
        current = storage.read_versioned(PROPERTIES)
        version = current.version
        _parse(current.data, storage, PROPERTIES)
    except (NotFoundError, CorruptTableError) as damage:
        backup = storage.read(PROPERTIES_BACKUP)
        try:
            _parse(backup, storage, PROPERTIES_BACKUP)
        except CorruptTableError as damage_of_backup:
            # Neither is valid: touch nothing, and report the file if there is one.
            raise (damage_of_backup if version is None else damage) from None
        held.check()
        log.warning("restoring table config from its backup table=%s", storage.uri)
        if version is None:
            put_once(storage, clock, PROPERTIES, backup)
        elif storage.can_replace:
            storage.replace(PROPERTIES, backup, version=version)
        else:
            storage.put(PROPERTIES, backup)
    held.check()
    _delete_backup(storage, clock)


def _drop_backup(storage: Storage, held: HeldLock, clock: Clock) -> None:
    """Delete the backup of an update that landed, if that is still ours to do."""
    try:
        held.check()
        _delete_backup(storage, clock)
    except (FencedError, StorageError) as error:
        # The update stands. A backup beside a valid file misleads nobody, and the next update
        # deletes it before it begins.
        log.warning("backup of table config not deleted table=%s error=%s", storage.uri, error)


def _delete_backup(storage: Storage, clock: Clock) -> None:
    for tried in range(_TRIES_MAX):
        try:
            storage.delete(PROPERTIES_BACKUP)
            return
        except StorageError as error:
            if error.is_final or tried == _TRIES_MAX - 1:
                raise
            clock.sleep_ms(_PAUSE_MS << tried)


def _changed(properties: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**properties, **changes}
    return {key: text for key, text in merged.items() if text is not None}


def _parse(data: bytes, storage: Storage, name: str) -> TableConfig:
    return parse_table_config(data, f"{storage.uri.rstrip('/')}/{name}")


def _check_readable(updated: bytes, storage: Storage) -> None:
    """Raise for an update that readers would refuse; it must not be written."""
    try:
        _parse(updated, storage, PROPERTIES)
    except CorruptTableError as error:
        raise InvalidInputError(
            f"The update would leave the table unreadable: {error.message}", table=storage.uri
        ) from error


def encode_table_config(properties: Mapping[str, str], clock: Clock) -> bytes:
    """Return the bytes of an update."""
    return _encode(properties, f"Updated at {_now(clock)}")


def _encode(properties: Mapping[str, str], comment: str) -> bytes:
    """Return the file's bytes, with the checksum last: without it the file was cut short."""
    keys = sorted(properties, key=lambda key: (key == CHECKSUM.key, key))
    return encode_properties({key: properties[key] for key in keys}, comment=comment)


def is_table(storage: Storage) -> bool:
    """Whether there is a table, of whatever version and state."""
    names = storage.list_names(HOODIE)
    return any(_name_in_hoodie(path) in names for path in (PROPERTIES, PROPERTIES_BACKUP))


def _name_in_hoodie(path: str) -> str:
    return path.removeprefix(f"{HOODIE}/")


def _not_a_table(storage: Storage) -> NotFoundError:
    advice = "Check the path, or create the table with create_table"
    if storage.list_names(TableLayout().timeline):
        is_journaled = bool(storage.list_names(JOURNAL))
        again = (
            "let `headwater fsck --repair` write it again"
            if is_journaled
            else "bring it back from a copy"
        )
        advice = (
            f"But a timeline is there. If the file was lost, {again}; if a deletion of the table "
            "was cut off, delete the rest of the folder"
        )
    return NotFoundError(
        f"There is no table at {storage.uri}: {PROPERTIES} does not exist. {advice}",
        kind=ErrorKind.NOT_A_TABLE,
        table=storage.uri,
    )


def _table_exists(storage: Storage) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"There is a table at {storage.uri} already. Open it with open_table, or choose another "
        "path",
        kind=ErrorKind.TABLE_EXISTS,
        table=storage.uri,
    )


def _now(clock: Clock) -> str:
    moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _release(held: HeldLock) -> None:
    try:
        held.release()
    except HeadwaterError as error:
        # The update stands whatever becomes of the lock; its lease ends by itself.
        log.warning("table lock not released, others wait for its lease error=%s", error)
