"""What is written down about cancellations.

    .hoodie/.cancel/<T>          who asked for the cancellation of T, when and why
    <T>.<action>.aborted         the same, who ended T, and the whole plan, which is deleted then
    .hoodie/.cancel_count.json   how often plans of the table were cancelled: who schedules
                                 cancellable plans sees there whether they ever get through

The name of an entry in `.cancel` is all that the protocol looks at. Its content is for people, and
one that cannot be read, such as another engine's empty file, is no obstacle.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Container
from dataclasses import asdict, dataclass

from headwater.errors import CorruptTableError, ErrorKind
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelEntry:
    """Who asked, when by their own clock, and why."""

    owner: str
    requested_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRecord:
    """An aborted plan: all there is to know about it."""

    entry: CancelEntry | None
    """None if nobody can tell any more."""
    owner: str
    aborted_ms: int
    token: str  # Of the attempt that aborted it, so that its owner recognises its own file (M4).
    plan: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCount:
    """How many plans were cancelled and aborted since the table was created."""

    times: int = 0
    counted: tuple[InstantTime, ...] = ()
    """Those that are counted and may be aborted again after a crash, or wait to be archived."""

    def with_plan(self, time: InstantTime, on_timeline: Container[InstantTime]) -> CancelCount:
        """Count a plan unless it is, and forget those that have left the timeline."""
        if time in self.counted:
            return self
        rest = tuple(known for known in self.counted if known in on_timeline)
        return CancelCount(times=self.times + 1, counted=(*rest, time))


def encode_entry(entry: CancelEntry) -> bytes:
    return json.dumps(asdict(entry), sort_keys=True).encode()


def decode_entry(data: bytes) -> CancelEntry | None:
    """Return what an entry says; None if it says nothing that we understand."""
    try:
        return CancelEntry(**json.loads(data))
    except (ValueError, TypeError):
        return None


def encode_abort(record: AbortRecord) -> bytes:
    fields = {**asdict(record), "plan": b64encode(record.plan).decode()}
    return json.dumps(fields, sort_keys=True).encode()


def decode_abort(data: bytes, *, path: str) -> AbortRecord:
    """Raises:
    CorruptTableError: the bytes are no record of an abort.
    """
    try:
        fields = json.loads(data)
        fields["plan"] = b64decode(fields["plan"], validate=True)
        if fields["entry"] is not None:
            fields["entry"] = CancelEntry(**fields["entry"])
        return AbortRecord(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptTableError(
            f"{path} does not say what was aborted ({error}). Its instant is aborted all the same",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=path,
        ) from error


def encode_count(count: CancelCount) -> bytes:
    return json.dumps(asdict(count), sort_keys=True).encode()


def decode_count(data: bytes | None) -> CancelCount:
    """Return the count of a table; an absent or unreadable one begins at zero again."""
    try:
        fields = json.loads(data or b"{}")
        counted = tuple(InstantTime(str(time)) for time in fields.get("counted", ()))
        return CancelCount(times=int(fields.get("times", 0)), counted=counted)
    except (ValueError, TypeError, AttributeError):
        # It is there to be looked at; no cancellation may fail over it.
        return CancelCount()
