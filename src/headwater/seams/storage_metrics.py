"""What is counted about one request to storage."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from headwater.errors import AlreadyExistsError, ConflictError, HeadwaterError, NotFoundError
from headwater.seams.meters import NOTHING, OK, is_listening, seconds
from headwater.seams.metrics import STORAGE_DURATION, STORAGE_REQUESTS

_ANSWERS: dict[type[BaseException], str] = {
    NotFoundError: "absent",
    AlreadyExistsError: "exists",
    ConflictError: "changed",
}
"""Errors that are answers: storage did what it was asked to."""


def storage_request(store: str, request: str, count: int = 1) -> AbstractContextManager[None]:
    """Count a block as a request to storage, or as so many of them that are made at once."""
    return _Request(store, request, count) if is_listening() else NOTHING


def store_of(uri: str) -> str:
    """Return which kind of store a location is in: the scheme of its address."""
    scheme, found, _ = uri.partition("://")
    return scheme if found else "file"


class _Request:
    def __init__(self, store: str, request: str, count: int) -> None:
        self._store = store
        self._request = request
        self._count = count
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = seconds()

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        STORAGE_REQUESTS.add(self._count, self._store, self._request, _outcome_of(error))
        STORAGE_DURATION.record(seconds() - self._began, self._store, self._request)


def _outcome_of(error: BaseException | None) -> str:
    if error is None:
        return OK
    if type(error) in _ANSWERS:
        return _ANSWERS[type(error)]
    return str(error.kind) if isinstance(error, HeadwaterError) else "error"
