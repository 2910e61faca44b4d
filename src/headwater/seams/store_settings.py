"""What options and the environment say about reaching an object store.

Settings come from the options, then from the environment of the vendor's own tools, then from the
profile in `~/.aws`, then from what an instance or workload is: the vendors' own order. Options are
those that begin with `headwater.storage.`, of which the rest is a key of obstore or of its HTTP
client, and those keys of Hadoop that mean the same, with or without `spark.hadoop.` before them:

| Hadoop | here |
|---|---|
| `fs.s3a.access.key`, `.secret.key`, `.session.token` | the keys |
| `fs.s3a.endpoint`, `.endpoint.region` | `endpoint`, `region` |
| `fs.s3a.path.style.access` | the opposite of `virtual_hosted_style_request` |
| `fs.s3a.connection.ssl.enabled` | `false` allows plain HTTP |
| `fs.azure.account.key.<account>...` | `access_key` |

Other keys of these families are for Hadoop alone; they are not refused, for jobs carry them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.config.secrets import without_url_secrets
from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.aws_profile import profile_settings
from headwater.seams.store_address import AZURE_SCHEMES, StoreAddress

OPTION_PREFIX = "headwater.storage."
HADOOP_PREFIX = "fs."
SPARK_HADOOP_PREFIX = "spark.hadoop.fs."

REQUESTS_AT_ONCE = 16
"""Enough to hide the latency of a request, and few enough not to be told to slow down."""

TRUTH = {"true": True, "false": False}

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

_S3A = {
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint",
    "fs.s3a.endpoint.region": "region",
}
_S3A_PATH_STYLE = "fs.s3a.path.style.access"
_S3A_TLS = "fs.s3a.connection.ssl.enabled"
_AZURE_ACCOUNT_KEY = "fs.azure.account.key."

# What the address of a table says, by all names that obstore has for it.
_BUCKET_KEYS = frozenset(
    f"{vendor}{key}"
    for vendor in ("", "aws_", "google_", "azure_")
    for key in ("bucket", "bucket_name", "container_name")
)
_ACCOUNT_KEYS = ("account_name", "azure_storage_account_name")

_ENDPOINT_KEYS = (
    *("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"),
    *("azure_endpoint", "azure_storage_endpoint"),
)
_YES = frozenset({"true", "1", "yes", "y", "on"})

# obstore reads the rest of the environment by itself; these it does not, or not from everywhere.
_S3_ENVIRONMENT = {
    "AWS_ENDPOINT_URL_S3": "endpoint",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ENDPOINT": "endpoint",
    "AWS_ALLOW_HTTP": "allow_http",
}
_AZURE_ENVIRONMENT = {"AZURE_ALLOW_HTTP": "allow_http"}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How one store is reached. Its secrets do not show."""

    store: Mapping[str, Any] = field(repr=False)
    """Keys of the store."""
    client: Mapping[str, str] = field(repr=False)
    """Keys of the HTTP client."""
    credential_provider: Any = field(repr=False)
    requests_at_once: int


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are about storage, by the rest of their key."""
    return {
        key.removeprefix(OPTION_PREFIX): value
        for key, value in options.items()
        if key.startswith(OPTION_PREFIX)
    }


def store_settings(address: StoreAddress, options: Mapping[str, str]) -> StoreSettings:
    """Return the settings of the store that an address leads to.

    Raises:
        InvalidInputError: kind INVALID_OPTION.
    """
    is_s3 = address.scheme in ("s3", "s3a")
    is_azure = address.scheme in AZURE_SCHEMES
    given = storage_options(options)
    _check_address_agrees(address, given)
    requests_at_once = _parse_width(given.pop("requests_at_once", str(REQUESTS_AT_ONCE)))
    provider = _load_provider(given.pop("credential_provider", None))
    profile = given.pop("profile", None) if is_s3 else None
    hadoop = _hadoop_settings(address, options, is_s3=is_s3)
    settings = {**hadoop, **{key.lower(): value for key, value in given.items()}}
    environment = _S3_ENVIRONMENT if is_s3 else _AZURE_ENVIRONMENT if is_azure else {}
    for variable, key in environment.items():
        if os.environ.get(variable):
            settings.setdefault(key, os.environ[variable])
    if is_s3:
        has_keys = provider is not None or any(
            key.removeprefix("aws_") in ("access_key_id", "skip_signature") for key in settings
        )
        if profile is not None or not has_keys:
            described, provider_of_profile = profile_settings(profile)
            settings = {**described, **settings}
            provider = provider or provider_of_profile
        # What is sent in parts gets its name by a conditional copy.
        settings.setdefault("copy_if_not_exists", "multipart")
    _check_endpoint(settings)
    return StoreSettings(
        store={key: value for key, value in settings.items() if key not in _CLIENT_KEYS},
        client={key: value for key, value in settings.items() if key in _CLIENT_KEYS},
        credential_provider=provider,
        requests_at_once=requests_at_once,
    )


def _check_endpoint(settings: Mapping[str, str]) -> None:
    """Refuse what obstore would first stumble over when it sends a request, without a reason."""
    found = next((settings[key] for key in _ENDPOINT_KEYS if key in settings), None)
    if found is None:
        return
    shown = without_url_secrets(found)
    if not found.startswith(("http://", "https://")):
        raise _bad("endpoint", f"{shown!r} does not begin with https:// or http://")
    if found.startswith("http://") and settings.get("allow_http", "").lower() not in _YES:
        raise _bad(
            "endpoint",
            f"{shown!r} has no TLS. Set {OPTION_PREFIX}allow_http=true, or AWS_ALLOW_HTTP=true or "
            "AZURE_ALLOW_HTTP=true in the environment, if that is meant",
        )


def is_same_for_hadoop(
    address: StoreAddress, options: Mapping[str, str], told: Callable[[str], str | None]
) -> bool:
    """Whether Hadoop's client, which is told so by its own settings, reaches a store as ours does.

    It knows neither the vendors' variables for an endpoint or for Azure, nor profiles, nor the
    options of one table.
    """
    own = {key.removeprefix("spark.hadoop."): value for key, value in options.items()}
    if any(told(key) != value for key, value in own.items() if key.startswith(HADOOP_PREFIX)):
        return False
    if address.scheme in AZURE_SCHEMES:
        return not any(name.startswith("AZURE_") for name in os.environ)
    is_s3 = address.scheme in ("s3", "s3a")
    theirs = {key: value for key in (*_S3A, _S3A_TLS) if (value := told(key))}
    endpoint = _hadoop_settings(address, theirs, is_s3=is_s3).get("endpoint")
    settings = store_settings(address, options)
    return settings.credential_provider is None and settings.store.get("endpoint") == endpoint


def _check_address_agrees(address: StoreAddress, given: Mapping[str, str]) -> None:
    """Refuse options that would lead elsewhere than the address; obstore would follow them."""
    for names, said in ((_BUCKET_KEYS, address.bucket), (_ACCOUNT_KEYS, address.account)):
        for key, value in given.items():
            if key.lower() in names and said is not None and value != said:
                raise _bad(key, f"it is {value!r}, but {address.uri} says {said!r}. Leave it out")


def _hadoop_settings(
    address: StoreAddress, options: Mapping[str, str], *, is_s3: bool
) -> dict[str, str]:
    given = {
        key.removeprefix("spark.hadoop."): value
        for key, value in options.items()
        if key.startswith((HADOOP_PREFIX, SPARK_HADOOP_PREFIX))
    }
    if address.scheme in AZURE_SCHEMES:
        keys = {
            key.removeprefix(_AZURE_ACCOUNT_KEY).partition(".")[0]: value
            for key, value in given.items()
            if key.startswith(_AZURE_ACCOUNT_KEY)
        }
        named = {key.lower(): value for key, value in storage_options(options).items()}
        account = address.account or next((named[key] for key in _ACCOUNT_KEYS if key in named), "")
        key = keys.get(account) or (next(iter(keys.values())) if len(keys) == 1 else None)
        return {} if key is None else {"access_key": key}
    if not is_s3:
        return {}
    settings = {ours: given[theirs] for theirs, ours in _S3A.items() if theirs in given}
    if _S3A_PATH_STYLE in given:
        is_path_style = given[_S3A_PATH_STYLE].lower() == "true"
        settings["virtual_hosted_style_request"] = "false" if is_path_style else "true"
    is_plain = given.get(_S3A_TLS, "true").lower() == "false"
    endpoint = settings.get("endpoint", "")
    if endpoint and "://" not in endpoint:  # Hadoop leaves the scheme to the other option.
        settings["endpoint"] = f"{'http' if is_plain else 'https'}://{endpoint}"
    if is_plain or endpoint.startswith("http://"):
        settings["allow_http"] = "true"
    return settings


def _parse_width(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise _bad("requests_at_once", f"expected a number from 1 to 256, got {text!r}")
    return int(text)


def _load_provider(name: str | None) -> Any:
    """Return what a name like `package.module:callable` stands for."""
    if name is None:
        return None
    module, colon, attribute = name.partition(":")
    try:
        if not colon:
            raise ImportError("no colon")
        provider = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise _bad(
            "credential_provider", f"there is no {name!r}; expected package.module:callable"
        ) from error
    if not callable(provider):
        raise _bad("credential_provider", f"{name!r} cannot be called")
    return provider


def _bad(key: str, problem: str) -> InvalidInputError:
    return InvalidInputError(f"{OPTION_PREFIX}{key}: {problem}", kind=ErrorKind.INVALID_OPTION)
