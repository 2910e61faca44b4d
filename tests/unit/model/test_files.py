"""Names of data files: what is written is read back, and nothing else passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.files import (
    BASE_FILE_EXTENSIONS,
    BaseFile,
    FileGroupId,
    FileSlice,
    LogFile,
    parse_data_file,
    write_token,
)
from headwater.model.instant import InstantTime

TIME = InstantTime("20260307162548096")
FILE_ID = "27809c51-5bfc-45a3-a05f-505b9331f5c5-0"

partitions = st.sampled_from(["", "region=eu", "2024/01/15", "a_b/c.d", ".hidden"])
file_ids = st.from_regex(r"[A-Za-z0-9-]{1,40}", fullmatch=True)
numbers = st.integers(min_value=0, max_value=10**6)
tokens = st.builds(write_token, numbers, numbers, numbers)
times = st.integers(min_value=0, max_value=10**17 - 1).map(lambda n: InstantTime(f"{n:017d}"))
sizes = st.integers(min_value=0, max_value=2**40)


@given(
    st.builds(
        BaseFile, partitions, file_ids, tokens, times, st.sampled_from(BASE_FILE_EXTENSIONS), sizes
    )
    | st.builds(
        LogFile, partitions, file_ids, times, numbers, tokens, st.booleans(), sizes, old=st.none()
    )
)
def test_a_data_file_is_what_its_path_says(file: BaseFile | LogFile) -> None:
    assert parse_data_file(file.path, file.size_bytes) == file


@given(partitions, st.text(max_size=60))
def test_a_path_that_parses_is_the_path_of_what_it_parses_to(partition: str, name: str) -> None:
    path = f"{partition}/{name}" if partition else name
    file = parse_data_file(path)
    assert file is None or file.path == path


@pytest.mark.parametrize(
    ("path", "file"),
    [
        (
            f"region=eu/{FILE_ID}_0-153-357_{TIME}.parquet",
            BaseFile("region=eu", FILE_ID, "0-153-357", TIME),
        ),
        (f".{FILE_ID}_{TIME}.log.1_0-39-86", LogFile("", FILE_ID, TIME, 1, "0-39-86")),
        (f".{FILE_ID}_{TIME}.log.12_0-39-86.cdc", LogFile("", FILE_ID, TIME, 12, "0-39-86", True)),
        (
            "files/files-0000-0_0-5-4_00000000000000000.hfile",
            BaseFile("files", "files-0000-0", "0-5-4", InstantTime("0" * 17), "hfile"),
        ),
    ],
)
def test_format_rule_4_1(path: str, file: BaseFile | LogFile) -> None:
    assert parse_data_file(path) == file
    assert file.path == path


@pytest.mark.parametrize(
    "name",
    [
        ".hoodie_partition_metadata",
        "_SUCCESS",
        "part-00000.parquet",
        f"{FILE_ID}_0-1-2_{TIME}.parquet.crc",
        f".{FILE_ID}_0-1-2_{TIME}.parquet.crc",
        f".{FILE_ID}_0-1-2_{TIME}.parquet",
        f"{FILE_ID}_0-1-2_{TIME}.csv",
        f"{FILE_ID}_0-1-2_2026x.parquet",
        f"..{FILE_ID}_{TIME}.log.1_0-1-2.crc",
        f".{FILE_ID}_{TIME}.log.1",
        f".{FILE_ID}_{TIME}.log.01_0-1-2",
        f".{FILE_ID}_{TIME}.log.1_0-1",
        f"{FILE_ID}_{TIME}.log.1_0-1-2",
        f"{FILE_ID}_0-1-2_{TIME}.parquet\n",
    ],
)
def test_other_names_are_no_data_files(name: str) -> None:
    assert parse_data_file(name) is None
    assert parse_data_file(f"region=eu/{name}") is None


def test_the_attempt_sits_in_the_middle_of_a_write_token() -> None:
    assert write_token(7, 2, 31) == "7-2-31"


def test_a_slice_gives_its_base_file_first() -> None:
    base = BaseFile("p", "f", "0-0-0", InstantTime("1" * 17), size_bytes=100)
    log = LogFile("p", "f", TIME, 1, "0-0-0", size_bytes=20)
    whole = FileSlice(FileGroupId("p", "f"), base.instant_time, base, (log,))
    assert list(whole.files()) == [base, log]
    assert whole.size_bytes == 120
    assert list(FileSlice(whole.group, TIME, None, (log,)).files()) == [log]
    assert base.group == log.group == whole.group
    assert (str(whole.group), str(FileGroupId("", "f"))) == ("p/f", "f")
