"""From where a table is to the storage that reaches it.

`/path`, `path`, `file:///path`, `file:/path`
    Files of this machine. A relative path starts at the working directory of this process.
`s3://bucket/prefix`, `s3a://bucket/prefix`
    S3, and stores that speak its language.
`gs://bucket/prefix`
    Google Cloud Storage.
`az://container/prefix`, `abfs[s]://container@account.dfs.core.windows.net/prefix`
    Azure Blob Storage.

Options whose key begins with `headwater.storage.` are for the storage; all others are left alone.
For an object store the rest of the key is a configuration key of obstore, such as `endpoint`,
`region` or `access_key_id`, or one of its HTTP client's, such as `allow_http` or `timeout`. What is
not given comes from the environment that the vendor's own tools use. The local disk knows one
option, `headwater.storage.fsync`: `false` gives up surviving a power cut for faster writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from headwater.config.secrets import (
    has_url_secrets,
    shown,
    without_url_secrets,
    without_values,
)
from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.local import LocalStorage
from headwater.seams.object_store import ConditionalStore, ObjectStorage
from headwater.seams.storage import Storage

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, S3Config

OPTION_PREFIX = "headwater.storage."

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):/", re.IGNORECASE)
_SCHEMES = "file, s3, s3a, gs, az, abfs and abfss, or a plain path"
_TRUTH = {"true": True, "false": False}

# obstore takes these apart from the store's own keys, and aborts if it finds one among them.
_CLIENT_KEYS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)


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
    settings = {
        key.removeprefix(OPTION_PREFIX): value
        for key, value in (options or {}).items()
        if key.startswith(OPTION_PREFIX)
    }
    match _parse_scheme(uri):
        case None:
            return _open_local(uri, settings)
        case "file":
            return _open_local(_parse_file_uri(uri), settings)
        case "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" as scheme:
            return ObjectStorage(_open_store(scheme, uri, settings), uri)
        case scheme:
            raise InvalidInputError(
                f"No storage for the scheme {scheme!r} of {uri!r}. Use one of {_SCHEMES}"
            )


def _parse_scheme(uri: str) -> str | None:
    if not uri:
        raise InvalidInputError("The location of a table is empty. Give a path or a URI")
    found = _SCHEME.match(uri)
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
    if fsync.lower() not in _TRUTH:
        raise _bad_option("fsync", fsync, "expected true or false")
    _refuse_rest(path, settings)
    return LocalStorage(path, fsync=_TRUTH[fsync.lower()])


def _open_store(scheme: str, uri: str, settings: dict[str, str]) -> ConditionalStore:
    client = {key: value for key, value in settings.items() if key.lower() in _CLIENT_KEYS}
    config = {key: value for key, value in settings.items() if key not in client}
    client_options = cast("ClientConfig", client)
    try:
        match scheme:
            case "s3" | "s3a":
                return S3Store.from_url(
                    uri, config=cast("S3Config", config), client_options=client_options
                )
            case "gs":
                return GCSStore.from_url(
                    uri, config=cast("GCSConfig", config), client_options=client_options
                )
            case _:
                return AzureStore.from_url(
                    uri, config=cast("AzureConfig", config), client_options=client_options
                )
    except (exceptions.BaseError, ValueError) as error:
        reason = without_values(str(error).partition("\n")[0].rstrip("."), _as_options(settings))
        raise InvalidInputError(
            f"Cannot open {uri!r}: {reason}. Correct the location or the {OPTION_PREFIX}* options, "
            f"of which there are: {', '.join(sorted(settings)) or 'none'}",
            kind=ErrorKind.INVALID_OPTION,
        ) from error


def _refuse_rest(uri: str, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        raise _bad_option(key, value, f"there is no such option for {uri!r}; remove it")


def _bad_option(key: str, value: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"{OPTION_PREFIX}{key}={shown(OPTION_PREFIX + key, value)!r}: {problem}",
        kind=ErrorKind.INVALID_OPTION,
    )


def _as_options(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"{OPTION_PREFIX}{key}": value for key, value in settings.items()}
