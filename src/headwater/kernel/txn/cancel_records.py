"""What is written down about cancellations.

    .hoodie/.cancel/<T>          who asked for the cancellation of T, when and why
    <T>.<action>.aborted         the same, who ended T, and the whole plan, which is deleted then
    .hoodie/.cancel_count.json   how often plans of the table were cancelled: who schedules
                                 cancellable plans sees there whether they ever get through

The name of an entry in `.cancel` is all that the protocol looks at, but for one thing: a plan that
is not cancellable is aborted only if its entry says who overtook it. The rest is for people, and an
entry that cannot be read, such as another engine's empty file or one of a newer release, is no
obstacle. Nor is a count of a newer release: it is left as it is, one plan short.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headwater.errors import CorruptTableError, ErrorKind, UnsupportedError
from headwater.format.own_json import decode_own, encode_own, unknown_fields
from headwater.kernel.layout import CANCEL_COUNT
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelEntry:
    """Who asked, when by their own clock, and why."""

    owner: str
    requested_ms: int
    reason: str
    overtaken_by: InstantTime | None = None
    """Who changed the file groups of the plan after it was made (N-184); the plan itself says so
    at its commit point."""


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
    unknown: str = ""
    """What a newer release says besides, as text."""

    def with_plan(self, time: InstantTime, on_timeline: Container[InstantTime]) -> CancelCount:
        """Count a plan unless it is, and forget those that have left the timeline."""
        if time in self.counted:
            return self
        rest = tuple(known for known in self.counted if known in on_timeline)
        return replace(self, times=self.times + 1, counted=(*rest, time))


def encode_entry(entry: CancelEntry) -> bytes:
    return encode_own(_fields_of(entry))


def decode_entry(data: bytes) -> CancelEntry | None:
    """Return what an entry says; None if it says nothing that we understand."""
    try:
        return _entry_of(decode_own(data, path=".cancel"))
    except (ValueError, TypeError, KeyError, UnsupportedError):
        return None


def _entry_of(fields: Mapping[str, Any]) -> CancelEntry:
    overtaken_by = fields.get("overtaken_by")
    return CancelEntry(
        owner=fields["owner"],
        requested_ms=fields["requested_ms"],
        reason=fields["reason"],
        overtaken_by=None if overtaken_by is None else InstantTime(str(overtaken_by)),
    )


def _fields_of(entry: CancelEntry) -> dict[str, Any]:
    fields = asdict(entry)
    if entry.overtaken_by is None:
        del fields["overtaken_by"]
    return fields


def encode_abort(record: AbortRecord) -> bytes:
    entry = None if record.entry is None else _fields_of(record.entry)
    return encode_own({**asdict(record), "entry": entry, "plan": b64encode(record.plan).decode()})


def decode_abort(data: bytes, *, path: str) -> AbortRecord:
    """Raises:
    CorruptTableError: the bytes are no record of an abort.
    UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    try:
        fields = decode_own(data, path=path)
        return AbortRecord(
            entry=None if fields["entry"] is None else _entry_of(fields["entry"]),
            owner=fields["owner"],
            aborted_ms=fields["aborted_ms"],
            token=fields["token"],
            plan=b64decode(fields["plan"], validate=True),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptTableError(
            f"{path} does not say what was aborted ({error}). Its instant is aborted all the same",
            kind=ErrorKind.CORRUPT_TIMELINE,
            path=path,
        ) from error


def encode_count(count: CancelCount) -> bytes:
    return encode_own({"times": count.times, "counted": count.counted}, count.unknown)


def decode_count(data: bytes | None) -> CancelCount:
    """Return the count of a table; an absent or unreadable one begins at zero again.

    Raises:
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    try:
        fields = decode_own(data or b"{}", path=CANCEL_COUNT)
        counted = tuple(InstantTime(str(time)) for time in fields.get("counted", ()))
        return CancelCount(
            times=int(fields.get("times", 0)),
            counted=counted,
            unknown=unknown_fields(fields, ("times", "counted")),
        )
    except (ValueError, TypeError, AttributeError):
        # It is there to be looked at; no cancellation may fail over it.
        return CancelCount()


def count_plan(data: bytes | None, time: InstantTime, on_timeline: Container[InstantTime]) -> bytes:
    """Return the count's file with one more plan; that of a newer release as it is."""
    try:
        return encode_count(decode_count(data).with_plan(time, on_timeline))
    except UnsupportedError:
        return data or b""
