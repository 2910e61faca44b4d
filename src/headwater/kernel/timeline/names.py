"""Names of timeline files, layout 2 (format rule 2.2).

    requested  <T>.<action>.requested
    inflight   <T>.<action>.inflight, but <T>.inflight for a commit
    completed  <T>_<C>.<completed action>: a compaction completes as `commit`, a log compaction as
               `deltacommit`, a clustering as `replacecommit`
    aborted    <T>.<action>.aborted, for actions that can be cancelled

T is the requested and C the completion time. Any other name in the folder belongs to somebody
else and is ignored, except a known suffix behind digits that are no instant time: that is a
timeline file whose instant nobody could tell, so the table is corrupt.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.errors import CorruptTableError, ErrorKind, check
from headwater.model.instant import Action, InstantTime, State

TIME_LENGTH = 17
_LEGACY_TIME_LENGTHS = (14,)  # Seconds only; releases before 0.10 wrote them.

_ABORTABLE = (Action.CLUSTERING,)


REQUESTED_SUFFIXES: dict[str, Action] = {
    f"{action}.requested": action for action in Action if action is not Action.SAVEPOINT
}
INFLIGHT_SUFFIXES = {
    "inflight" if action is Action.COMMIT else f"{action}.inflight": action for action in Action
}
ABORTED_SUFFIXES = {f"{action}.aborted": action for action in _ABORTABLE}
"""Text behind `<T>.` -> the action, for each state whose name holds no completion time."""

COMPLETED_SUFFIXES = {str(action.completed_name): action.completed_name for action in Action}
"""Text behind `<T>_<C>.` -> the completed action."""


_SUFFIXES_BY_STATE: dict[State, dict[str, Action]] = {
    State.REQUESTED: REQUESTED_SUFFIXES,
    State.INFLIGHT: INFLIGHT_SUFFIXES,
    State.ABORTED: ABORTED_SUFFIXES,
}


class TimelineFile(NamedTuple):
    """What one name says."""

    requested_time: InstantTime
    action: Action
    state: State
    completion_time: InstantTime | None = None


def parse_file_name(name: str, *, folder: str = "") -> TimelineFile | None:
    """Return what `name` says, or None for a name that is no timeline file's.

    Raises:
        CorruptTableError: a timeline suffix behind digits that are no instant time.
    """
    stem, _, suffix = name.partition(".")
    time, separator, completion = stem.partition("_")
    if separator:
        completed = COMPLETED_SUFFIXES.get(suffix)
        if completed is None:
            return None
        _check_time(time, name, folder)
        _check_time(completion, name, folder)
        return TimelineFile(InstantTime(time), completed, State.COMPLETED, InstantTime(completion))
    for state, suffixes in _SUFFIXES_BY_STATE.items():
        action = suffixes.get(suffix)
        if action is not None:
            _check_time(time, name, folder)
            return TimelineFile(InstantTime(time), action, state)
    return None


def file_name(
    time: InstantTime, action: Action, state: State, completion_time: InstantTime | None = None
) -> str:
    """Return the name of the file that says `action` of instant `time` is in `state`."""
    if state is State.COMPLETED:
        check(completion_time is not None, "A completed file needs a completion time", instant=time)
        return f"{time}_{completion_time}.{action.completed_name}"
    check(completion_time is None, "Only a completed file has a completion time", instant=time)
    if state is State.INFLIGHT and action is Action.COMMIT:
        return f"{time}.inflight"
    suffix = f"{action}.{state}"
    check(suffix in _SUFFIXES_BY_STATE[state], f"No {action} is ever {state}", instant=time)
    return f"{time}.{suffix}"


def is_instant_time(text: str) -> bool:
    """Whether `text` can be a time in the name of a file, the legacy lengths included."""
    return (
        (len(text) == TIME_LENGTH or len(text) in _LEGACY_TIME_LENGTHS)
        and text.isascii()
        and text.isdigit()
    )


def _check_time(text: str, name: str, folder: str) -> None:
    if not is_instant_time(text):
        raise CorruptTableError(
            f"Timeline file {name!r} has {text!r} where an instant time of 17 digits belongs; "
            "move the file away if no writer of yours made it",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=f"{folder}/{name}" if folder else name,
        )
