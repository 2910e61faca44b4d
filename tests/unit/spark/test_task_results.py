"""Errors and results on their way from a task to the driver."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from headwater.errors import (
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    StorageError,
)
from headwater.spark.task_results import decode_outcomes, encode_outcome, error_in_text

TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "execute.py", line 1, in execute_write
    raise StorageError("headwater.errors.NotFoundError: no")
{error}
"""


def fail_with(error: Exception) -> list[int]:
    raise error


def test_results_come_in_the_order_of_tasks() -> None:
    outcomes = [encode_outcome(lambda: [1, 2]), encode_outcome(list), encode_outcome(lambda: [3])]
    assert decode_outcomes(outcomes) == [1, 2, 3]


def test_an_error_that_would_only_happen_again_comes_back_whole() -> None:
    error = InvalidInputError("no key", kind=ErrorKind.INVALID_OPTION, column="id")
    outcomes = [encode_outcome(lambda: [1]), encode_outcome(lambda: fail_with(error))]
    with pytest.raises(InvalidInputError) as raised:
        decode_outcomes(outcomes)
    assert raised.value.kind is ErrorKind.INVALID_OPTION
    assert raised.value.context == {"column": "id"}


@pytest.mark.parametrize("error", [StorageError("disk"), ZeroDivisionError()])
def test_other_errors_are_left_to_spark(error: Exception) -> None:
    with pytest.raises(type(error)):
        encode_outcome(lambda: fail_with(error))


def test_an_error_is_found_in_what_spark_says() -> None:
    text = TRACEBACK.format(error="headwater.errors.StorageError: disk full\nfree some [path=a/b]")
    found = error_in_text(PySparkException(text))
    assert type(found) is StorageError
    assert str(found) == "disk full\nfree some [path=a/b]"


@pytest.mark.parametrize(
    "error",
    ["ValueError: headwater.errors.StorageError: x", "headwater.errors.Retry: x", "KeyError: 1"],
)
def test_errors_of_others_are_not_taken_for_ours(error: str) -> None:
    found: HeadwaterError | None = error_in_text(PySparkException(TRACEBACK.format(error=error)))
    assert found is None


def test_workers_without_headwater_are_named_in_one_sentence() -> None:
    text = TRACEBACK.format(error="ModuleNotFoundError: No module named 'headwater'")
    error = error_in_text(PySparkException(text))
    assert isinstance(error, InvalidInputError)
    assert "set PYSPARK_PYTHON" in error.message
    assert "Traceback" not in error.message
