"""The paths that a state of the journal knows, folder by folder.

A table has thousands of them, and every look, listing and slot is about a few. So names are listed
without looking at the paths of other folders, and the state after a slot shares with the one before
it all folders that the slot does not touch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple


class Known(NamedTuple):
    """A path that there is: by which slot, and what it holds if that may not be in a file yet."""

    slot: int
    data: bytes | None


_NOTHING: Mapping[str, Known] = MappingProxyType({})


class Paths(Mapping[str, Known]):
    """The paths of one state, which never change."""

    __slots__ = ("_folders",)

    def __init__(self, folders: Mapping[str, Mapping[str, Known]] = MappingProxyType({})) -> None:
        """`folders` holds what is known below each folder, by name; none of them is empty."""
        self._folders = folders

    def below(self, folder: str) -> Mapping[str, Known]:
        """What is known in a folder, by name, in the order in which it came."""
        return self._folders.get(folder, _NOTHING)

    def within(self, prefix: str) -> Iterator[tuple[str, Known]]:
        """What is known in all folders whose names begin so, by path."""
        for folder, names in self._folders.items():
            if folder.startswith(prefix):
                for name, known in names.items():
                    yield f"{folder}/{name}", known

    def with_data(self) -> Iterator[tuple[str, Known]]:
        """What is known of paths whose content may not be in a file yet, by path. They are few."""
        for folder, names in self._folders.items():
            for name in [name for name, known in names.items() if known.data is not None]:
                yield f"{folder}/{name}", names[name]

    def __getitem__(self, path: str) -> Known:
        folder, _, name = path.rpartition("/")
        try:
            return self._folders[folder][name]
        except KeyError:
            raise KeyError(path) from None

    def __contains__(self, path: object) -> bool:
        folder, _, name = str(path).rpartition("/")
        return name in self._folders.get(folder, _NOTHING)

    def __iter__(self) -> Iterator[str]:
        for folder, names in self._folders.items():
            for name in names:
                yield f"{folder}/{name}"

    def __len__(self) -> int:
        return sum(map(len, self._folders.values()))

    def __repr__(self) -> str:
        return f"Paths({len(self)} in {len(self._folders)} folders)"


class PathsDraft:
    """Paths that are being changed; those that it began with stay as they are."""

    def __init__(self, paths: Paths) -> None:
        self._folders: dict[str, Mapping[str, Known]] = dict(paths._folders)
        self._copied: dict[str, dict[str, Known]] = {}
        self._times: dict[str, Counter[str]] = {}

    def put(self, path: str, known: Known) -> None:
        folder, _, name = path.rpartition("/")
        names = self._copy_of(folder)
        if folder in self._times and name not in names:
            self._times[folder][time_of(name)] += 1
        names[name] = known

    def drop(self, path: str) -> None:
        """Forget a path, if it is known."""
        folder, _, name = path.rpartition("/")
        if name not in self._folders.get(folder, _NOTHING):
            return
        names = self._copy_of(folder)
        del names[name]
        if folder in self._times:
            self._times[folder][time_of(name)] -= 1
        if not names:
            self.drop_folder(folder)

    def drop_folder(self, folder: str) -> None:
        """Forget all that is known in a folder, if there is something."""
        self._folders.pop(folder, None)
        self._copied.pop(folder, None)
        self._times.pop(folder, None)

    def has_time(self, folder: str, time: str) -> bool:
        """Whether a folder has files of an instant."""
        # Archival asks once for each file that it takes away.
        if folder not in self._times:
            self._times[folder] = Counter(map(time_of, self._folders.get(folder, _NOTHING)))
        return self._times[folder][time] > 0

    def __contains__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return name in self._folders.get(folder, _NOTHING)

    def finish(self) -> Paths:
        """Return the paths as they are now. Nothing may be changed afterwards."""
        return Paths(self._folders)

    def _copy_of(self, folder: str) -> dict[str, Known]:
        if folder not in self._copied:
            copied = dict(self._folders.get(folder, _NOTHING))
            self._folders[folder] = self._copied[folder] = copied
        return self._copied[folder]


def time_of(name: str) -> str:
    """Return the requested time that the name of a timeline file begins with."""
    return name.partition(".")[0].partition("_")[0]


def paths_of(known: Mapping[str, Known]) -> Paths:
    draft = PathsDraft(Paths())
    for path, each in known.items():
        draft.put(path, each)
    return draft.finish()
