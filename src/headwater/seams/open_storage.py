"""From where a table is to the storage that reaches it.

`/path`, `path`, `file:///path`, `file:/path`
    Files of this machine. A relative path starts at the working directory of this process, and `~`
    is the home of its user.
`s3://bucket/prefix`, `s3a://bucket/prefix`
    S3, and stores that speak its language.
`gs://bucket/prefix`
    Google Cloud Storage.
`az://container/prefix`, `abfs[s]://container@account.dfs.core.windows.net/prefix`
    Azure Blob Storage.

Options whose key begins with `headwater.storage.` are for the storage, and so are those of Hadoop
that mean the same; all others are left alone. `store_settings` says which of them an object store
knows. The local disk knows one option, `headwater.storage.fsync`: `false` gives up surviving a
power cut for faster writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

from headwater.config.limits import raise_limits
from headwater.config.secrets import (
    has_url_secrets,
    shown,
    without_url_secrets,
)
from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.ids import this_process
from headwater.seams.local import LocalStorage
from headwater.seams.meters import is_listening
from headwater.seams.storage import Storage
from headwater.seams.store_address import StoreAddress
from headwater.seams.store_settings import (
    HADOOP_PREFIX,
    OPTION_PREFIX,
    SPARK_HADOOP_PREFIX,
    TRUTH,
    storage_options,
)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):/", re.IGNORECASE)
# What pathlib makes of an address, and what others write: dbfs:/path. A drive has one letter.
_SCHEME_WITH_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})
_SCHEMES = "file, s3, s3a, gs, az, abfs and abfss, or a plain path"


def open_storage(uri: str, options: Mapping[str, str] | None = None) -> Storage:
    """Return the storage whose base is `uri`. Nothing is contacted or created.

    Raises:
        InvalidInputError: the location or an option for the storage is wrong.
    """
    if has_url_secrets(uri) and not uri.lower().startswith("file:"):
        raise InvalidInputError(
            f"{without_url_secrets(uri)!r} has a password or a query in it, which would be shown "
            f"wherever the table is named. Give it as an option {OPTION_PREFIX}* instead"
        )
    given = options or {}
    raise_limits(given)  # Here, because every process that reads a table comes by, tasks too.
    match _parse_scheme(uri):
        case None:
            return _open_local(os.path.expanduser(uri), storage_options(given))
        case "file":
            return _open_local(_parse_file_uri(uri), storage_options(given))
        case "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss":
            # Imported by who needs it: a local table starts without a client of stores.
            from headwater.seams.open_object_store import open_object_storage

            address = StoreAddress.parse(uri)
            relevant = tuple(sorted(item for item in given.items() if _is_of_storage(item[0])))
            return open_object_storage(address, relevant, _surroundings())
        case scheme:
            raise InvalidInputError(
                f"No storage for the scheme {scheme!r} of {uri!r}. Use one of {_SCHEMES}"
            )


def is_object_store(uri: str) -> bool:
    """Whether a location is in an object store, which many hosts reach."""
    return bool(uri) and _parse_scheme(uri) in _OBJECT_STORES


def place_of(uri: str) -> str:
    """Return the one name of a place that several addresses lead to, by links and by `s3a`."""
    if "://" not in uri:
        return os.path.realpath(uri)
    return uri.replace("s3a://", "s3://", 1)


def _parse_scheme(uri: str) -> str | None:
    if not uri:
        raise InvalidInputError("The location of a table is empty. Give a path or a URI")
    found = _SCHEME.match(uri)
    if found is None and (cut := _SCHEME_WITH_ONE_SLASH.match(uri)):
        raise InvalidInputError(
            f"{uri!r} has one slash where an address has two: {cut[1]}://. pathlib takes the other "
            f"away, so pass addresses as text. A folder of this name is ./{uri}"
        )
    return (found[1] or found[2]).lower() if found else None


def _parse_file_uri(uri: str) -> str:
    # Both file:///path and Hadoop's file:/path are in use.
    rest = uri[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidInputError(
                f"{uri!r} does not name a folder of this machine. Write file:///path"
            )
        rest = slash + path
    return unquote(rest)


def _open_local(path: str, settings: dict[str, str]) -> Storage:
    fsync = settings.pop("fsync", "true")
    if fsync.lower() not in TRUTH:
        raise _bad_option("fsync", fsync, "expected true or false")
    _refuse_rest(path, settings)
    if is_listening():
        from headwater.seams.metered_local import MeteredLocalStorage

        return MeteredLocalStorage(path, fsync=TRUTH[fsync.lower()])
    return LocalStorage(path, fsync=TRUTH[fsync.lower()])


def _is_of_storage(key: str) -> bool:
    return key.startswith((OPTION_PREFIX, HADOOP_PREFIX, SPARK_HADOOP_PREFIX))


def _surroundings() -> tuple[str, ...]:
    """Return what a store depends on beside its options.

    A forked child cannot use its parent's connections, and settings come from the environment too.
    """
    vendors = ("AWS_", "AZURE_", "GOOGLE_", "HOME")
    found = (f"{name}={text}" for name, text in os.environ.items() if name.startswith(vendors))
    return this_process(), *sorted(found)


def _refuse_rest(uri: str, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        raise _bad_option(key, value, f"there is no such option for {uri!r}; remove it")


def _bad_option(key: str, value: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"{OPTION_PREFIX}{key}={shown(OPTION_PREFIX + key, value)!r}: {problem}",
        kind=ErrorKind.INVALID_OPTION,
    )
