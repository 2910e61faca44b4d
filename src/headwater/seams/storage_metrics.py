"""What is counted about one request to storage."""

from __future__ import annotations

from contextlib import AbstractContextManager

from headwater.errors import AlreadyExistsError, ConflictError, HeadwaterError, NotFoundError
from headwater.seams.meters import NOTHING, OK, Measured, is_listening
from headwater.seams.metrics import STORAGE_DURATION, STORAGE_REQUESTS

_ANSWERS: dict[type[BaseException], str] = {
    NotFoundError: "absent",
    AlreadyExistsError: "exists",
    ConflictError: "changed",
}
"""Errors that are answers: storage did what it was asked to."""


def storage_request(store: str, request: str, count: int = 1) -> AbstractContextManager[None]:
    """Count a block as a request to storage, or as so many of them that are made at once."""

    def tell(taken: float, error: BaseException | None) -> None:
        STORAGE_REQUESTS.add(count, store, request, _outcome_of(error))
        STORAGE_DURATION.record(taken, store, request)

    return Measured(tell) if is_listening() else NOTHING


def store_of(uri: str) -> str:
    """Return which kind of store a location is in: the scheme of its address."""
    scheme, found, _ = uri.partition("://")
    return scheme if found else "file"


def _outcome_of(error: BaseException | None) -> str:
    if error is None:
        return OK
    if type(error) in _ANSWERS:
        return _ANSWERS[type(error)]
    return str(error.kind) if isinstance(error, HeadwaterError) else "error"
