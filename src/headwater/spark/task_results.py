"""What a task says to the driver: its results, or the error that ended it.

Spark turns an exception in a task into text and runs the task again. For an error that would only
happen again, such as a lost race for a file group, both are wrong: it comes back as the task's
result, and the driver raises it as it was. An error that may pass is raised in the task, so that
Spark tries again; when Spark gives up, its class and message are taken out of the text.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from headwater import errors
from headwater.errors import HeadwaterError, InvalidInputError, Retry
from headwater.seams.worker_python import PYTHON_VARIABLE

R = TypeVar("R")

_NOT_INSTALLED = re.compile(r"ModuleNotFoundError: No module named 'headwater'")
_RAISED = re.compile(r"^headwater\.errors\.(\w+): (.*)", re.MULTILINE | re.DOTALL)


def encode_outcome(run: Callable[[], list[R]]) -> bytes:
    """Run a task and return what it says.

    Raises:
        HeadwaterError: one that may pass.
    """
    try:
        return pickle.dumps(run())
    except HeadwaterError as error:
        if error.retry is Retry.SAME_CALL:
            raise
        return pickle.dumps(error)


def decode_outcomes(outcomes: Iterable[bytes]) -> list[R]:
    """Return the results of all tasks, in their order.

    Raises:
        HeadwaterError: the first error that a task came back with.
    """
    results: list[R] = []
    for encoded in outcomes:
        outcome = pickle.loads(encoded)
        if isinstance(outcome, HeadwaterError):
            raise outcome
        results += outcome
    return results


def error_in_text(failure: Exception) -> HeadwaterError | None:
    """Return the error of ours that made a job fail, if it was one."""
    text = str(failure)
    if _NOT_INSTALLED.search(text):
        return InvalidInputError(
            "The Python workers of this session have no headwater. Install it for the interpreter "
            f"that they run, or set {PYTHON_VARIABLE} in the environment to one that has it "
            f"(here {sys.executable}) before the session starts"
        )
    found = _RAISED.search(text)
    kind = None if found is None else getattr(errors, found[1], None)
    if found is None or not (isinstance(kind, type) and issubclass(kind, HeadwaterError)):
        return None
    return kind(found[2].strip())
