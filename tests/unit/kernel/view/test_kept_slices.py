"""Slices that are kept and followed, beside those that a view makes of the same files anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest

from headwater.format.metadata.records import FileInfo
from headwater.kernel.view.committed_files import CommittedFiles
from headwater.kernel.view.kept_slices import FEW, KeptSlices
from headwater.kernel.view.slicing import merge_latest
from headwater.model.files import (
    BaseFile,
    DataFile,
    FileGroupId,
    FileSlice,
    LogFile,
    parse_data_file,
)
from headwater.model.instant import Action, Instant, InstantTime, State

PARTITIONS = ("p", "")
GROUPS = [
    FileGroupId(p, f"0000000{n}-aaaa-0000-0000-000000000000-0")
    for p in PARTITIONS
    for n in range(3)
]


@dataclass
class History:
    """A table whose files come and go at random, by the rules that a view goes by."""

    random: Random
    ticks: Iterator[int] = field(default_factory=lambda: count(1))
    commits: list[Instant] = field(default_factory=list)
    files: dict[str, DataFile] = field(default_factory=dict)
    replaced: list[tuple[Instant, FileGroupId]] = field(default_factory=list)
    begun: list[InstantTime] = field(default_factory=list)
    archived: int = 0

    def tick(self) -> InstantTime:
        return InstantTime(f"{next(self.ticks):017d}")

    def step(self) -> None:
        self.random.choice(WAYS)(self)

    def begin(self) -> None:
        self.begun.append(self.tick())

    def _complete(self, action: Action, time: InstantTime) -> Instant:
        self.commits.append(Instant(time, action, State.COMPLETED, self.tick()))
        return self.commits[-1]

    def _add(self, file: DataFile) -> None:
        self.files[file.path] = file

    def append(self) -> None:
        """Complete a write, perhaps one that began long ago, of a few logs."""
        time = self.begun.pop(0) if self.begun and self.random.random() < 0.5 else self.tick()
        for group in self.random.sample(GROUPS, self.random.randint(1, 3)):
            for version in range(1, self.random.randint(1, 2) + 1):
                is_cdc = self.random.random() < 0.1
                token = f"{self.random.randint(0, 9)}-0-0"
                self._add(LogFile(*group, time, version, token, is_cdc, self.random.randint(1, 9)))
        self._complete(Action.DELTA_COMMIT, time)

    def insert(self) -> None:
        """A delta commit may bring base files too."""
        time, group = self.tick(), self.random.choice(GROUPS)
        self._add(BaseFile(*group, "0-0-0", time, "parquet", 7))
        self._complete(Action.DELTA_COMMIT, time)

    def compact(self) -> None:
        time, group = self.tick(), self.random.choice(GROUPS)
        if self.random.random() < 0.5:
            self.append()  # Beside it.
        self._add(BaseFile(*group, "1-0-0", time, "parquet", 8))
        self._complete(Action.COMPACTION, time)

    def replace(self) -> None:
        done = self._complete(Action.REPLACE_COMMIT, self.tick())
        self.replaced.append((done, self.random.choice(GROUPS)))

    def clean(self) -> None:
        for path in self.random.sample(sorted(self.files), min(len(self.files), 2)):
            del self.files[path]

    def take_back(self) -> None:
        if len(self.commits) > self.archived:
            gone = self.commits.pop()
            self.files = {
                p: f for p, f in self.files.items() if f.instant_time != gone.requested_time
            }
            self.replaced = [(done, group) for done, group in self.replaced if done != gone]

    def archive(self) -> None:
        self.archived = min(self.archived + 2, len(self.commits))

    def listed(self) -> dict[str, dict[str, FileInfo]]:
        found: dict[str, dict[str, FileInfo]] = {partition: {} for partition in PARTITIONS}
        for file in self.files.values():
            found[file.partition][file.name] = FileInfo(file.size_bytes)
        return found

    def active(self) -> tuple[Instant, ...]:
        return tuple(self.commits[self.archived :])

    def slices(self) -> list[FileSlice]:
        """What a view makes of it."""
        made = CommittedFiles()
        for commit in self.commits:
            done = commit.completion_time
            assert done is not None
            is_compaction = commit.action is Action.COMPACTION
            made.add_instant(commit.requested_time, done, is_compaction=is_compaction)
        for replace, group in self.replaced:
            assert replace.completion_time is not None
            made._replaced.setdefault(group, []).append(replace.completion_time)
        files = (parse_data_file(path, file.size_bytes) for path, file in self.files.items())
        made.add_files(file for file in files if file is not None)
        as_of = self.commits[-1].completion_time if self.commits else None
        latest = map(merge_latest, made.slices(PARTITIONS, as_of, {}))
        return [one for one in latest if one is not None]


WAYS: list[Callable[[History], None]] = [
    *[History.append] * 14,
    *[History.begin] * 3,
    *[History.compact] * 2,
    History.insert,
    History.replace,
    History.clean,
    History.take_back,
    History.archive,
]


def whole(slices: list[FileSlice]) -> list[tuple[FileSlice, InstantTime | None]]:
    return [(one, one.base_completion) for one in slices]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_followed_is_what_a_view_makes(seed: int) -> None:
    history, kept, followed = History(Random(seed)), KeptSlices(), 0
    for _ in range(60):
        for _ in range(history.random.randint(0, 3)):
            history.step()
        made = history.slices()
        found = kept.follow(history.listed(), history.active())
        if found is None:
            kept.keep(history.listed(), history.active(), made)
        else:
            assert whole(found) == whole(made)
            followed += 1
    assert followed > 10  # Or nothing was looked at.


def test_what_is_listed_of_commits_that_are_not_seen_yet_is_left_to_a_view() -> None:
    history, kept = History(Random(1)), KeptSlices()
    history.append()
    kept.keep(history.listed(), history.active(), history.slices())
    seen = history.active()
    history.append()
    assert kept.follow(history.listed(), seen) is None
    assert kept.follow(history.listed(), history.active()) is not None


def test_many_files_that_came_are_left_to_a_view() -> None:
    history, kept = History(Random(1)), KeptSlices()
    kept.keep(history.listed(), (), [])
    while max(map(len, history.listed().values())) <= FEW:
        history.append()
    assert kept.follow(history.listed(), history.active()) is None


def test_a_file_of_another_size_is_left_to_a_view() -> None:
    history, kept = History(Random(1)), KeptSlices()
    history.append()
    kept.keep(history.listed(), history.active(), history.slices())
    listed = history.listed()
    names = next(names for names in listed.values() if names)
    names[next(iter(names))] = FileInfo(1_000)
    assert kept.follow(listed, history.active()) is None


def test_only_the_last_few_partitions_are_kept() -> None:
    kept = KeptSlices()
    for number in range(20):
        kept.keep({f"p{number}": {}}, (), [])
    assert kept.follow({"p19": {}}, ()) == []
    assert kept.follow({"p0": {}}, ()) is None
    kept.keep({f"q{number}": {} for number in range(20)}, (), [])
    assert kept.follow({"q0": {}}, ()) is None
