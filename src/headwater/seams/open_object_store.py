"""Clients of object stores, by address and options.

Stores are shared by all that this process opens in the same way, and with them their connections:
tasks open the storage of their table anew, and a connection costs several round trips.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from headwater.config.secrets import without_values
from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.new_object import PART_BYTES
from headwater.seams.object_store import ConditionalStore, ObjectStorage
from headwater.seams.store_address import StoreAddress
from headwater.seams.store_settings import OPTION_PREFIX, StoreSettings, store_settings

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, S3Config

_TIMEOUT_KEY = "timeout"
_TIMEOUT_S = 30
# Slower than this a connection is taken for broken.
_BYTES_PER_SECOND_MIN = 128 * 1024
# Tables of one process; each has two clients.
_STORES_MAX = 64


@lru_cache(maxsize=_STORES_MAX)
def open_object_storage(
    address: StoreAddress, options: tuple[tuple[str, str], ...], surroundings: tuple[str, ...]
) -> ObjectStorage:
    """Return the storage at an address; nothing is contacted.

    Args:
        surroundings: what else the store depends on; others share it only if that is the same.

    Raises:
        InvalidInputError: kind INVALID_OPTION; the location or an option is wrong.
    """
    settings = store_settings(address, dict(options))
    store = _open_store(address, settings, settings.client)
    bulk = store
    if _TIMEOUT_KEY not in settings.client:
        seconds = _TIMEOUT_S + PART_BYTES // _BYTES_PER_SECOND_MIN
        patient = {**settings.client, _TIMEOUT_KEY: f"{seconds}s"}
        bulk = _open_store(address, settings, patient)
    return ObjectStorage(store, address.uri, bulk=bulk, requests_at_once=settings.requests_at_once)


def _open_store(
    address: StoreAddress, settings: StoreSettings, client: Mapping[str, str]
) -> ConditionalStore:
    client_options = cast("ClientConfig", dict(client))
    provider = settings.credential_provider
    try:
        match address.scheme:
            case "s3" | "s3a":
                return S3Store.from_url(
                    address.url,
                    config=cast("S3Config", dict(settings.store)),
                    client_options=client_options,
                    credential_provider=provider,
                )
            case "gs":
                return GCSStore.from_url(
                    address.url,
                    config=cast("GCSConfig", dict(settings.store)),
                    client_options=client_options,
                    credential_provider=provider,
                )
            case _:
                return AzureStore.from_url(
                    address.url,
                    config=cast("AzureConfig", dict(settings.store)),
                    client_options=client_options,
                    credential_provider=provider,
                )
    except (exceptions.BaseError, ValueError) as error:
        given = _as_options({**settings.store, **settings.client})
        reason = without_values(str(error).partition("\n")[0].rstrip("."), given)
        keys = ", ".join(sorted([*settings.store, *settings.client])) or "none"
        raise InvalidInputError(
            f"Cannot open {address.uri!r}: {reason}. Correct the location or the {OPTION_PREFIX}* "
            f"options, of which there are: {keys}",
            kind=ErrorKind.INVALID_OPTION,
        ) from error


def _as_options(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"{OPTION_PREFIX}{key}": value for key, value in settings.items()}
