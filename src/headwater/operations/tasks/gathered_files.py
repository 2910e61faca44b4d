"""New data files that are announced together and created together.

A marker is there before its file (INV-60). That would be two answers of a store to wait for with
every file, one file after the other, or a sync of the disk with every marker. So small files are
kept until there are many: then all their markers go out, and after them all the files. A file that
turns out to be large goes its own way, and so does every file where other writers are to learn
early what this one is at.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from headwater.kernel.txn.markers import MarkerKind
from headwater.model.files import BaseFile, LogFile
from headwater.seams.storage import Storage

KEPT_BYTES_MAX = 32 * 1024 * 1024
_SMALL_BYTES_MAX = 8 * 1024 * 1024


class Announced(NamedTuple):
    file: BaseFile | LogFile
    kind: MarkerKind


class GatheredFiles:
    """Creates files; they are there for certain after `flush` only."""

    def __init__(
        self, storage: Storage, announce: Callable[[Sequence[Announced]], None], *, gathers: bool
    ) -> None:
        """`announce` returns when the markers of some files are durable."""
        self._storage = storage
        self._gathers = gathers
        self._announce = announce
        self._kept: list[tuple[Announced, bytes]] = []
        self._kept_bytes = 0

    def add(self, file: BaseFile | LogFile, kind: MarkerKind, data: bytes) -> None:
        """Create a file of bytes that are there already, now or later."""
        self._kept.append((Announced(file, kind), data))
        self._kept_bytes += len(data)
        if not self._gathers or self._kept_bytes >= KEPT_BYTES_MAX:
            self.flush()

    @contextmanager
    def open(self, file: BaseFile | LogFile, kind: MarkerKind) -> Iterator[BinaryIO]:
        """Create a file of what the block writes, now or later; not at all if it raises."""
        if not self._gathers:
            self._announce([Announced(file, kind)])
            with self._storage.open_output(file.path) as sink:
                yield sink
            return
        with ExitStack() as stack:

            def go_its_own_way() -> BinaryIO:
                self._announce([Announced(file, kind)])
                return stack.enter_context(self._storage.open_output(file.path))

            sink_of_small = _Small(go_its_own_way)
            yield cast("BinaryIO", sink_of_small)
            small = sink_of_small.small
        if small is not None:
            self.add(file, kind, small)

    def flush(self) -> None:
        """Announce and create all that was kept."""
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        if not kept:
            return
        self._announce([announced for announced, _ in kept])
        self._storage.create_many({announced.file.path: data for announced, data in kept})


class _Small(io.RawIOBase):
    """Keeps what is written, until it is much."""

    def __init__(self, open_large: Callable[[], BinaryIO]) -> None:
        super().__init__()
        self._open_large = open_large
        self._kept = io.BytesIO()
        self._large: BinaryIO | None = None
        self._size_bytes = 0

    @property
    def small(self) -> bytes | None:
        """All that was written, if it is little."""
        return None if self._large is not None else self._kept.getvalue()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._size_bytes += len(view)
        if self._large is not None:
            self._large.write(view)
        else:
            self._kept.write(view)
            if self._size_bytes > _SMALL_BYTES_MAX:
                self._large = self._open_large()
                self._large.write(self._kept.getbuffer())
                self._kept = io.BytesIO()
        return len(view)
