"""The content of Hudi's file-system lock, and of the epoch object beside it.

Hudi creates a file named `lock` and writes JSON into it that it only ever shows to people. We keep
its three fields and add our own, which make a lock recognisable and its lease visible:

    owner, acquisition      who, and which of its acquisitions
    token                   the fencing token, once it is known
    acquiredMs, writtenMs   the holder's wall clock, for display
    leaseMs                 how long this content may stand unchanged; 0 is for ever
    write                   1, 2, ... so that no two writes of one acquisition are equal
    pid, processSpace       the holder's process, and the system that knows it by this number
    processStarted          when that process began, in ticks of that system
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from headwater.config.limits import check_object_bytes
from headwater.errors import CorruptTableError
from headwater.format.own_json import decode_own, encode_own, unknown_fields
from headwater.format.strict_json import load_json
from headwater.seams.ids import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class LockFile:
    """What a Headwater holder writes into the lock file."""

    owner: str
    acquisition: str
    token: int | None
    acquired_ms: int
    written_ms: int
    lease_ms: int
    write: int
    pid: int = 0
    process_space: str = ""
    process_started: int = 0

    @property
    def process(self) -> Owner:
        """The holder, as far as the system must know it to say whether it has ended."""
        return Owner("", self.pid, "", self.process_space, self.process_started)

    def encode(self) -> bytes:
        created = datetime.fromtimestamp(self.acquired_ms / 1000, UTC)
        content: dict[str, Any] = {
            "lockCreateTime": f"{created:%Y-%m-%d %H:%M:%S}.{self.acquired_ms % 1000:03d}",
            "lockThreadName": self.owner,
            "lockStacksInfo": [],
            "owner": self.owner,
            "acquisition": self.acquisition,
            "token": self.token,
            "acquiredMs": self.acquired_ms,
            "writtenMs": self.written_ms,
            "leaseMs": self.lease_ms,
            "write": self.write,
            "pid": self.pid,
            "processSpace": self.process_space,
            "processStarted": self.process_started,
        }
        return encode_own(content)


@lru_cache(16)  # Who waits for a lock looks at the same bytes again and again.
def parse_lock_file(data: bytes, path: str) -> LockFile | None:
    """Return the content of a lock file, or None if another engine wrote it or it is damaged.

    Raises:
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    content = _parse_object(data)
    try:
        content = decode_own(data, path=path) if "acquisition" in content else {}
        return LockFile(
            owner=str(content["owner"]),
            acquisition=str(content["acquisition"]),
            token=None if content["token"] is None else int(content["token"]),
            acquired_ms=int(content["acquiredMs"]),
            written_ms=int(content["writtenMs"]),
            lease_ms=int(content["leaseMs"]),
            write=int(content["write"]),
            pid=int(content.get("pid", 0)),
            process_space=str(content.get("processSpace", "")),
            process_started=int(content.get("processStarted", 0)),
        )
    except (KeyError, TypeError, ValueError):
        return None


def parse_foreign_owner(data: bytes) -> str:
    """Name the holder of another engine's lock as well as its content allows."""
    thread = _parse_object(data).get("lockThreadName")
    return f"another engine (thread {thread})" if thread else "another engine"


@dataclass(frozen=True, slots=True)
class Epoch:
    """The last token issued for a lock, and to which acquisition."""

    token: int
    acquisition: str
    unknown: str = ""
    """What a newer release says besides, as text."""

    def encode(self) -> bytes:
        return encode_own({"token": self.token, "acquisition": self.acquisition}, self.unknown)


def parse_epoch(data: bytes, path: str) -> Epoch:
    """Return the content of an epoch object.

    Raises:
        CorruptTableError: it is no epoch. Guessing a token could hand the same one out twice.
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    try:
        content = decode_own(data, path=path)
        unknown = unknown_fields(content, ("token", "acquisition"))
        return Epoch(int(content["token"]), str(content["acquisition"]), unknown)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptTableError(
            f"The epoch of a lock, {path}, is unreadable. Stop every writer of the table, delete "
            "it together with the lock file beside it, and start again.",
            path=path,
        ) from error


def _parse_object(data: bytes) -> dict[str, Any]:
    check_object_bytes(data)
    try:
        content = load_json(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
