"""What an instant did to the files of a table, as the indexes need to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.model.files import DataFile, FileGroupId
from headwater.model.instant import Action, InstantTime
from headwater.seams.cached import cached_property

Inputs = Mapping[FileGroupId, tuple[DataFile, ...]]
"""File groups with the files of theirs that an instant has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """The files that one instant adds and removes, and the file groups that it ends.

    A file group of `added` lives on: with a new base file it has a new slice, with a log file it
    goes on with the slice it has. Files of the slices before stay in the table until clean removes
    them; so do those of replaced groups.
    """

    instant_time: InstantTime
    action: Action
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    replaced: tuple[FileGroupId, ...] = ()
    inputs: Inputs = field(default_factory=dict)
    """The files whose rows the added base files were made of, or that were replaced: the slice of
    each rewritten or replaced group as the instant saw it. A group that only got logs, or is new,
    is not among them."""
    has_seen_all: bool = True
    """Whether no other instant can have changed the groups of `inputs` since they were read. A
    compaction or clustering cannot know: what others completed since its plan was requested must
    be left alone."""


class LateInputs(Mapping[FileGroupId, tuple[DataFile, ...]]):
    """Inputs that are found out when they are first asked for: most indexes never ask."""

    def __init__(self, load: Callable[[], Inputs]) -> None:
        self._load = load

    @cached_property
    def _found(self) -> Inputs:
        return self._load()

    def __getitem__(self, group: FileGroupId) -> tuple[DataFile, ...]:
        return self._found[group]

    def __iter__(self) -> Iterator[FileGroupId]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
