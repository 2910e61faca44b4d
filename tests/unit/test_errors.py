"""The exception tree: its shape, its kinds, and that all of it crosses process borders."""

from __future__ import annotations

import pickle

import pytest

from headwater import errors
from headwater.errors import ErrorKind, HeadwaterError, InternalError, Retry, check

TREE = {
    "HeadwaterError": Exception,
    "ConflictError": HeadwaterError,
    "EarlyConflictError": errors.ConflictError,
    "FencedError": HeadwaterError,
    "CommitUnknownError": HeadwaterError,
    "NotFoundError": HeadwaterError,
    "AlreadyExistsError": HeadwaterError,
    "InvalidInputError": HeadwaterError,
    "UnsupportedError": HeadwaterError,
    "CorruptTableError": HeadwaterError,
    "StorageError": HeadwaterError,
    "InternalError": HeadwaterError,
}
CLASSES = [getattr(errors, name) for name in TREE]


def test_the_tree_is_the_documented_one() -> None:
    found = {
        name: value.__bases__[0]
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert found == TREE
    assert issubclass(errors.InvalidInputError, ValueError)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_errors_pickle_with_kind_retry_and_context(cls: type[HeadwaterError]) -> None:
    error = cls(
        "It broke", kind=ErrorKind.LOCK_TIMEOUT, retry=Retry.SAME_CALL, path="a/b", instant=None
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error) == "It broke [path=a/b]"
    assert (again.kind, again.retry, again.context) == (
        ErrorKind.LOCK_TIMEOUT,
        Retry.SAME_CALL,
        {"path": "a/b"},
    )


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_has_a_kind_of_its_own(cls: type[HeadwaterError]) -> None:
    assert cls("x").kind is cls.default_kind


def test_check_names_the_bug() -> None:
    check(True, "never")
    with pytest.raises(InternalError, match="bug in headwater"):
        check(False, "One and one is three", instant="t")
