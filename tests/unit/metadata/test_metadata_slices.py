"""Slices of the metadata table: what counts, and what lies on what."""

from __future__ import annotations

from headwater.metadata.compaction import obsolete_files
from headwater.metadata.slices import newest_slices
from headwater.model.files import BaseFile, DataFile, LogFile
from headwater.model.instant import InstantTime

GROUP = "files-0000-0"


def time(number: int) -> InstantTime:
    return InstantTime(f"202401010000{number:05d}")


def log(number: int, token: str = "0-1-0", *, version: int = 1) -> LogFile:
    return LogFile("files", GROUP, time(number), version, token)


def base(number: int) -> BaseFile:
    return BaseFile("files", GROUP, "0-1-0", time(number), "hfile")


COMPLETED = {time(number): time(number + 5) for number in range(10, 100, 10)}
"""An instant requested at 10 completed at 15, and so on."""


def names(*files: LogFile) -> list[str]:
    return [file.name for file in files]


def test_logs_lie_on_the_last_base_file_before_their_completion() -> None:
    slices = newest_slices([base(30), base(10), log(20), log(40), log(30)], COMPLETED.get)
    assert slices[GROUP].base == base(30)
    assert names(*slices[GROUP].logs) == names(log(30), log(40))


def test_a_log_that_completed_at_the_time_of_a_base_file_lies_on_top_of_it() -> None:
    completed = {**COMPLETED, time(25): time(99)}
    slices = newest_slices([base(25), log(20), log(10)], completed.get)
    assert names(*slices[GROUP].logs) == names(log(20))


def test_logs_are_ordered_by_completion_and_not_by_request() -> None:
    completed = {time(10): time(90), time(20): time(30)}
    slices = newest_slices([log(10), log(20)], completed.get)
    assert names(*slices[GROUP].logs) == names(log(20), log(10))


def test_what_is_not_completed_is_neither_content_nor_cut() -> None:
    slices = newest_slices([log(11), base(12), log(10)], COMPLETED.get)
    assert slices[GROUP].base is None
    assert names(*slices[GROUP].logs) == names(log(10))


def test_a_group_without_anything_that_counts_is_there_all_the_same() -> None:
    assert newest_slices([log(11)], COMPLETED.get)[GROUP].logs == ()


def test_below_a_time_is_what_a_compaction_of_that_time_takes_in() -> None:
    files: list[DataFile] = [base(10), log(20), log(30), base(40), log(50)]
    below = newest_slices(files, COMPLETED.get, below=time(35))[GROUP]
    assert below.base == base(10)
    # The log of 30 completed at the very time.
    assert names(*below.logs) == names(log(20))


def test_obsolete_is_what_only_readers_of_before_a_compaction_need() -> None:
    completed = {**COMPLETED, time(25): time(26), time(45): time(46), time(65): time(66)}
    files: list[DataFile] = [
        base(25),
        base(45),
        base(65),
        log(10),
        log(20),
        log(30),
        log(50),
        log(60),
        log(11),
    ]
    found = obsolete_files(files, completed.get, time(45))
    # The log of 20 completed at 25, so it lies on the base file of that time.
    assert {file.name for file in found} == {
        file.name for file in (base(25), log(10), log(20), log(30))
    }
    assert obsolete_files(files, completed.get, time(24)) == []
