"""The behaviour that the protocol relies on, for every storage: S1 to S5 of the storage seam.

What only the local disk can show, such as races between processes, is in
`tests/unit/seams/test_local_storage.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    Retry,
)
from headwater.seams.storage import Storage

# Names that Hudi tables have, and characters that URLs, XML, shells and globs give a meaning to.
NAMES = [
    ".hoodie_partition_metadata",
    "20260101000000000_20260101000000001.deltacommit",
    "city=san francisco",
    "a%2Fb%20c",
    "100%",
    "größe-東京-🚀",
    "a+b&c;d,e@f$g!h",
    "q?x#y~z*[1]{2}|^`",
    "<tag>\"quoted\"'single'",
    "back\\slash:colon",
    "..almost",
    "x" * 200,
]

BAD_PATHS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "./a",
    "a/./b",
    "a/../b",
    "a/..",
    "a\0b",
    "a\nb",
]
BAD_FOLDERS = [path for path in BAD_PATHS if path]


def race(count: int, action: Callable[[int], None]) -> None:
    """Run `action` with the numbers 0 to `count` - 1 in as many threads, starting together."""
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        action(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))


def test_a_new_storage_is_empty(storage: Storage) -> None:
    assert storage.list_names("") == []
    assert storage.list_tree("") == []


def test_a_page_holds_at_least_one_name(storage: Storage) -> None:
    assert storage.page_size >= 1


class TestPut:
    def test_what_was_put_is_read_back(self, storage: Storage) -> None:
        storage.put("folder/object", b"\x00bytes\xff")
        assert storage.read("folder/object") == b"\x00bytes\xff"

    def test_an_empty_object_is_an_object(self, storage: Storage) -> None:
        storage.put("empty", b"")
        assert storage.read("empty") == b""
        assert storage.list_names("") == ["empty"]
        assert storage.info("empty").size_bytes == 0

    def test_put_overwrites(self, storage: Storage) -> None:
        storage.put("object", b"a longer first version")
        storage.put("object", b"second")
        assert storage.read("object") == b"second"
        assert storage.list_names("") == ["object"]

    def test_an_object_larger_than_one_part_of_an_upload_is_whole(self, storage: Storage) -> None:
        data = bytes(range(256)) * (6 * 1024 * 4)
        storage.put("large", data)
        assert storage.read("large") == data

    @pytest.mark.parametrize("name", NAMES)
    def test_every_name_comes_back_as_it_was(self, storage: Storage, name: str) -> None:
        storage.put(f"folder/{name}", b"1")
        assert storage.read(f"folder/{name}") == b"1"
        assert storage.list_names("folder") == [name]
        assert [info.path for info in storage.list_tree("")] == [f"folder/{name}"]
        storage.delete(f"folder/{name}")
        assert storage.list_names("folder") == []

    @pytest.mark.parametrize("name", NAMES)
    def test_every_name_can_be_a_folder(self, storage: Storage, name: str) -> None:
        storage.put(f"{name}/object", b"1")
        assert storage.list_names(name) == ["object"]
        assert [info.path for info in storage.list_tree(name)] == [f"{name}/object"]


class TestPutMany:
    def test_all_are_there_and_overwrite(self, storage: Storage) -> None:
        storage.put("a/0", b"a longer first version")
        objects = {f"{folder}/{number}": b"%d" % number for folder in "abc" for number in range(6)}
        storage.put_many(objects)
        assert storage.read_many(objects) == [*objects.values()]
        assert [info.path for info in storage.list_tree("")] == sorted(objects)

    def test_nothing_is_put_of_nothing(self, storage: Storage) -> None:
        storage.put_many({})
        assert storage.list_tree("") == []

    def test_one_that_cannot_be_put_is_an_error(self, real_storage: Storage) -> None:
        objects = {**{f"{number}": b"1" for number in range(6)}, "../outside": b"1"}
        with pytest.raises(InvalidInputError, match="outside"):
            real_storage.put_many(objects)
        assert {*real_storage.list_names("")} <= {*objects}


class TestPutIfAbsent:
    def test_it_creates(self, storage: Storage) -> None:
        storage.put_if_absent("a/b/object", b"first")
        assert storage.read("a/b/object") == b"first"

    def test_it_refuses_a_name_that_is_taken_and_leaves_the_object(self, storage: Storage) -> None:
        storage.put_if_absent("a/object", b"first")
        with pytest.raises(AlreadyExistsError, match="a/object"):
            storage.put_if_absent("a/object", b"second")
        assert storage.read("a/object") == b"first"

    def test_it_refuses_a_name_taken_by_put(self, storage: Storage) -> None:
        storage.put("object", b"")
        with pytest.raises(AlreadyExistsError):
            storage.put_if_absent("object", b"second")
        assert storage.read("object") == b""

    def test_it_refuses_its_own_bytes_too(self, storage: Storage) -> None:
        storage.put_if_absent("object", b"same")
        with pytest.raises(AlreadyExistsError):
            storage.put_if_absent("object", b"same")

    def test_a_deleted_name_is_free_again(self, storage: Storage) -> None:
        storage.put_if_absent("object", b"first")
        storage.delete("object")
        storage.put_if_absent("object", b"second")
        assert storage.read("object") == b"second"

    def test_s1_exactly_one_of_many_racing_callers_succeeds(self, real_storage: Storage) -> None:
        names = [f"slots/{slot:03d}" for slot in range(12)]
        wins: list[tuple[str, bytes]] = []

        def claim_all(number: int) -> None:
            for name in names:
                mine = b"%d" % number * 500
                try:
                    real_storage.put_if_absent(name, mine)
                except AlreadyExistsError:
                    continue
                wins.append((name, mine))

        race(4, claim_all)
        assert sorted(name for name, _ in wins) == names
        assert {name: real_storage.read(name) for name in names} == dict(wins)


class TestOutput:
    def test_an_object_appears_whole_when_its_block_ends(self, storage: Storage) -> None:
        with storage.open_output("a/b/object") as sink:
            sink.write(b"first ")
            sink.write(memoryview(b"second"))
            assert sink.tell() == 12
            assert storage.list_tree("") == []
        assert storage.read("a/b/object") == b"first second"
        assert storage.list_names("a/b") == ["object"]

    def test_a_block_that_raises_leaves_nothing(self, storage: Storage) -> None:
        class Interrupted(Exception):
            pass

        def write_half() -> None:
            with storage.open_output("folder/object") as sink:
                sink.write(b"half")
                raise Interrupted

        with pytest.raises(Interrupted):
            write_half()
        assert storage.list_tree("") == []
        storage.put_if_absent("folder/object", b"free")

    def test_it_refuses_a_name_that_is_taken_and_leaves_the_object(self, storage: Storage) -> None:
        def write() -> None:
            with storage.open_output("object") as sink:
                sink.write(b"second")

        storage.put("object", b"first")
        with pytest.raises(AlreadyExistsError, match="object"):
            write()
        assert storage.read("object") == b"first"

    def test_it_refuses_a_name_that_was_taken_meanwhile(self, storage: Storage) -> None:
        def write() -> None:
            with storage.open_output("object") as sink:
                sink.write(b"second")
                storage.put_if_absent("object", b"first")

        with pytest.raises(AlreadyExistsError, match="object"):
            write()
        assert storage.read("object") == b"first"
        assert storage.list_names("") == ["object"]

    def test_an_object_of_many_writes_is_whole(self, storage: Storage) -> None:
        with storage.open_output("large") as sink:
            for number in range(24):
                sink.write(bytes([number]) * 250_000)
        data = storage.read("large")
        assert len(data) == 24 * 250_000
        assert data[::250_000] == bytes(range(24))

    def test_nothing_written_is_an_empty_object(self, storage: Storage) -> None:
        with storage.open_output("empty"):
            pass
        assert storage.read("empty") == b""


class TestCreateMany:
    def test_all_are_there_and_whole(self, storage: Storage) -> None:
        objects = {f"{folder}/{number}": b"%d" % number for folder in "abc" for number in range(6)}
        storage.create_many(objects)
        assert storage.read_many(objects) == [*objects.values()]
        assert [info.path for info in storage.list_tree("")] == sorted(objects)

    def test_nothing_is_created_of_nothing(self, storage: Storage) -> None:
        storage.create_many({})
        assert storage.list_tree("") == []

    def test_it_refuses_a_name_that_is_taken_and_leaves_the_object(self, storage: Storage) -> None:
        storage.put("a/3", b"first")
        objects = {f"a/{number}": b"second" for number in range(6)}
        with pytest.raises(AlreadyExistsError, match="a/3"):
            storage.create_many(objects)
        assert storage.read("a/3") == b"first"
        assert {f"a/{name}" for name in storage.list_names("a")} <= {*objects}


class TestInput:
    def test_parts_are_read_in_any_order(self, storage: Storage) -> None:
        storage.put("folder/object", b"0123456789")
        with storage.open_input("folder/object") as source:
            assert source.read(3) == b"012"
            assert source.tell() == 3
            assert source.seek(-2, 2) == 8
            assert source.read(5) == b"89"
            assert source.read(1) == b""
            source.seek(4)
            assert source.read() == b"456789"

    def test_an_empty_object_has_nothing_to_read(self, storage: Storage) -> None:
        storage.put("empty", b"")
        with storage.open_input("empty") as source:
            assert source.read() == b""

    def test_an_absent_object_is_not_found(self, storage: Storage) -> None:
        storage.put("folder/object", b"1")
        for path in ("absent", "folder/absent", "folder"):
            with pytest.raises(NotFoundError, match=path):
                storage.open_input(path)

    def test_arrow_writes_and_reads_a_file_through_them(self, storage: Storage) -> None:
        table = pa.table({"number": list(range(5000)), "text": ["a", "b"] * 2500})
        with storage.open_output("data.parquet") as sink:
            pq.write_table(table, sink, row_group_size=1000)
        with storage.open_input("data.parquet") as source:
            file = pq.ParquetFile(source)
            assert file.read_row_group(3, ["number"])["number"][0].as_py() == 3000
            assert file.read().equals(table)


class TestRead:
    def test_an_absent_object_is_not_found(self, storage: Storage) -> None:
        storage.put("folder/object", b"1")
        for read in (storage.read, storage.read_versioned, storage.info):
            for path in ("absent", "folder/absent", "nowhere/absent"):
                with pytest.raises(NotFoundError, match=path):
                    read(path)
        with pytest.raises(NotFoundError, match="absent"):
            storage.read_range("absent", 0, 1)

    def test_a_folder_is_no_object(self, storage: Storage) -> None:
        storage.put("folder/object", b"1")
        with pytest.raises(NotFoundError):
            storage.read("folder")
        with pytest.raises(NotFoundError):
            storage.info("folder")
        assert storage.read_many(["folder"]) == [None]

    def test_nothing_is_found_below_an_object(self, storage: Storage) -> None:
        storage.put("object", b"1")
        with pytest.raises(NotFoundError):
            storage.read("object/below")
        assert storage.list_names("object") == []
        assert storage.list_tree("object") == []

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, 10, b"0123456789"),
            (0, 3, b"012"),
            (4, 2, b"45"),
            (7, 3, b"789"),
            (7, 100, b"789"),
            (9, 1, b"9"),
            (10, 1, b""),
            (50, 5, b""),
            (3, 0, b""),
            (10, 0, b""),
        ],
    )
    def test_a_range_is_shorter_only_at_the_end(
        self, storage: Storage, start: int, length: int, expected: bytes
    ) -> None:
        storage.put("object", b"0123456789")
        assert storage.read_range("object", start, length) == expected

    def test_a_range_of_no_bytes_still_needs_the_object(self, storage: Storage) -> None:
        with pytest.raises(NotFoundError):
            storage.read_range("absent", 0, 0)

    def test_read_many_keeps_the_order_and_marks_what_is_absent(self, storage: Storage) -> None:
        for number in range(20):
            storage.put(f"many/{number}", b"%d" % number)
        paths = [f"many/{number}" for number in (19, 3, 99, 0, 3)]
        assert storage.read_many(path for path in paths) == [b"19", b"3", None, b"0", b"3"]
        everything = [f"many/{number}" for number in range(20)]
        assert storage.read_many(everything) == [b"%d" % number for number in range(20)]

    def test_read_many_of_nothing_is_nothing(self, storage: Storage) -> None:
        assert storage.read_many([]) == []

    def test_info_tells_what_a_listing_tells(self, storage: Storage) -> None:
        storage.put("folder/object", b"12345")
        info = storage.info("folder/object")
        assert (info.path, info.size_bytes) == ("folder/object", 5)
        (listed,) = storage.list_tree("folder")
        assert listed[:2] == info[:2]
        # Some stores round one of the two to the second.
        assert abs(listed.modified_ms - info.modified_ms) <= 1000


class TestListing:
    def test_list_names_gives_the_objects_directly_in_the_folder(self, storage: Storage) -> None:
        for path in ("a/1", "a/2", "a/b/3", "ab/4", "5"):
            storage.put(path, b"")
        assert sorted(storage.list_names("a")) == ["1", "2"]
        assert storage.list_names("a/b") == ["3"]
        assert storage.list_names("") == ["5"]

    def test_list_names_gives_those_behind_a_name_that_need_not_be_there(
        self, storage: Storage
    ) -> None:
        for path in ("a/1", "a/12", "a/2.x", "a/3/1", "a/4", "a0", "b/5", "0", "9"):
            storage.put(path, b"")
        assert sorted(storage.list_names("a", "1")) == ["12", "2.x", "4"]
        assert sorted(storage.list_names("a", "2")) == ["2.x", "4"]
        assert storage.list_names("a", "2.x") == ["4"]
        assert storage.list_names("a", "4") == []
        assert sorted(storage.list_names("", "0")) == ["9", "a0"]
        assert storage.list_names("absent", "1") == []

    def test_list_tree_gives_every_object_below_ordered_by_path(self, storage: Storage) -> None:
        paths = ["a/1", "a/2", "a-b/4", "a/b/3", "a/b/c/d", "ab/4", "5"]
        for number, path in enumerate(paths):
            storage.put(path, b"x" * number)
        everything = storage.list_tree("")
        assert [info.path for info in everything] == sorted(paths)
        assert {info.path: info.size_bytes for info in everything} == {
            path: number for number, path in enumerate(paths)
        }
        assert [info.path for info in storage.list_tree("a")] == ["a/1", "a/2", "a/b/3", "a/b/c/d"]

    def test_a_folder_is_not_a_prefix_of_names(self, storage: Storage) -> None:
        storage.put("part=10/x", b"")
        assert storage.list_names("part=1") == []
        assert storage.list_tree("part=1") == []

    def test_an_absent_folder_is_empty(self, storage: Storage) -> None:
        assert storage.list_names("absent") == []
        assert storage.list_tree("absent/below") == []

    def test_a_listing_of_several_pages_is_complete(self, storage: Storage) -> None:
        names = [f"{number:03d}" for number in range(25)]
        for name in names:
            storage.put(f"pages/{name}", b"")
        assert sorted(storage.list_names("pages")) == names
        assert [info.path for info in storage.list_tree("pages")] == [f"pages/{n}" for n in names]

    def test_s2_a_listing_sees_every_write_that_returned(self, storage: Storage) -> None:
        expected: set[str] = set()
        for number in range(10):
            name = f"{number}"
            write = storage.put if number % 2 else storage.put_if_absent
            write(f"folder/{name}", b"")
            expected.add(name)
            assert set(storage.list_names("folder")) == expected
            if number % 3 == 0:
                storage.delete(f"folder/{name}")
                expected.remove(name)
                assert {info.path for info in storage.list_tree("folder")} == {
                    f"folder/{left}" for left in expected
                }

    def test_s3_a_reader_sees_whole_objects_only(self, real_storage: Storage) -> None:
        versions = [b"%d" % number * 40_000 for number in range(4)]
        real_storage.put("object", versions[0])
        seen: set[bytes] = set()

        def act(number: int) -> None:
            for turn in range(10):
                if number == 0:
                    seen.add(real_storage.read("object"))
                else:
                    real_storage.put("object", versions[(number + turn) % 4])

        race(3, act)
        assert seen <= set(versions)


class TestManyAtOnce:
    def test_several_are_deleted_also_such_as_are_not_there(self, storage: Storage) -> None:
        for name in "abc":
            storage.put(f"folder/{name}", b"1")
        storage.delete_many(["folder/a", "folder/never-there", "folder/c"])
        storage.delete_many(["folder/a"])
        storage.delete_many([])
        assert storage.list_names("folder") == ["b"]

    def test_answers_come_in_the_order_of_the_items(self, storage: Storage) -> None:
        names = [f"{n:03d}" for n in range(40)]
        storage.put_many({name: name.encode() for name in names})
        assert storage.at_once(storage.read, names) == [name.encode() for name in names]
        assert storage.at_once(storage.read, []) == []

    def test_the_first_error_is_raised(self, storage: Storage) -> None:
        storage.put("a", b"1")
        with pytest.raises(NotFoundError, match="missing"):
            storage.at_once(storage.read, ["a", "missing", "a"])


class TestDelete:
    def test_a_deleted_object_is_gone(self, storage: Storage) -> None:
        storage.put("folder/object", b"1")
        storage.put("folder/other", b"2")
        storage.delete("folder/object")
        with pytest.raises(NotFoundError):
            storage.read("folder/object")
        assert storage.list_names("folder") == ["other"]

    def test_s4_delete_is_idempotent(self, storage: Storage) -> None:
        storage.put("folder/object", b"1")
        storage.delete("folder/object")
        storage.delete("folder/object")
        storage.delete("folder/never-there")
        storage.delete("nowhere/never-there")

    def test_deleting_below_an_object_changes_nothing(self, storage: Storage) -> None:
        storage.put("object", b"1")
        storage.delete("object/below")
        assert storage.read("object") == b"1"

    def test_deleting_a_folder_leaves_what_is_in_it(self, storage: Storage) -> None:
        storage.put("folder/object", b"1")
        storage.delete("folder")
        assert storage.read("folder/object") == b"1"

    def test_the_last_object_of_a_folder_can_be_put_again(self, storage: Storage) -> None:
        for _ in range(3):
            storage.put("folder/object", b"1")
            storage.delete("folder/object")
        assert storage.list_names("folder") == []


class TestReplace:
    @pytest.fixture(autouse=True)
    def _only_where_it_exists(self, storage: Storage) -> None:
        if not storage.can_replace:
            pytest.skip("this storage says that it has no replace")

    def test_it_overwrites_the_version_that_is_there(self, storage: Storage) -> None:
        storage.put("lease", b"first")
        stored = storage.read_versioned("lease")
        assert stored.data == b"first"
        version = storage.replace("lease", b"second", version=stored.version)
        assert storage.read_versioned("lease") == (b"second", version)
        assert version != stored.version

    def test_it_takes_the_version_that_it_returned(self, storage: Storage) -> None:
        storage.put("lease", b"0")
        version = storage.read_versioned("lease").version
        for number in range(1, 4):
            version = storage.replace("lease", b"%d" % number, version=version)
        assert storage.read("lease") == b"3"

    def test_it_refuses_an_old_version_and_leaves_the_object(self, storage: Storage) -> None:
        storage.put("lease", b"first")
        old = storage.read_versioned("lease").version
        storage.replace("lease", b"second", version=old)
        with pytest.raises(ConflictError, match="lease") as caught:
            storage.replace("lease", b"third", version=old)
        assert caught.value.retry is Retry.FRESH_VIEW
        assert storage.read("lease") == b"second"

    def test_it_sees_an_overwrite_by_put(self, storage: Storage) -> None:
        storage.put("lease", b"first")
        old = storage.read_versioned("lease").version
        storage.put("lease", b"other")
        with pytest.raises(ConflictError):
            storage.replace("lease", b"third", version=old)
        assert storage.read("lease") == b"other"

    def test_it_never_creates(self, storage: Storage) -> None:
        storage.put("folder/lease", b"first")
        old = storage.read_versioned("folder/lease").version
        storage.delete("folder/lease")
        for path in ("folder/lease", "nowhere/lease"):
            with pytest.raises(ConflictError, match=path):
                storage.replace(path, b"second", version=old)
        assert storage.list_tree("") == []


def test_racing_replacements_lose_no_update(real_storage: Storage) -> None:
    if not real_storage.can_replace:
        pytest.skip("this storage says that it has no replace")
    real_storage.put("counter", b"0")

    def add_ten(_: int) -> None:
        left = 10
        while left:
            stored = real_storage.read_versioned("counter")
            try:
                real_storage.replace(
                    "counter", b"%d" % (int(stored.data) + 1), version=stored.version
                )
            except ConflictError:
                continue
            left -= 1

    race(3, add_ten)
    assert real_storage.read("counter") == b"30"


class TestRefusals:
    @pytest.mark.parametrize("path", BAD_PATHS)
    def test_a_path_that_names_no_object_is_refused(self, real_storage: Storage, path: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: real_storage.read(path),
            lambda: real_storage.read_versioned(path),
            lambda: real_storage.read_range(path, 0, 1),
            lambda: real_storage.read_many([path]),
            lambda: real_storage.info(path),
            lambda: real_storage.put(path, b""),
            lambda: real_storage.put_many({path: b""}),
            lambda: real_storage.put_if_absent(path, b""),
            lambda: real_storage.create_many({path: b""}),
            lambda: real_storage.replace(path, b"", version="any"),
            lambda: real_storage.delete(path),
        ]
        for call in calls:
            with pytest.raises(InvalidInputError) as caught:
                call()
            assert caught.value.kind is ErrorKind.INVALID_INPUT
        assert real_storage.list_tree("") == []

    @pytest.mark.parametrize("folder", BAD_FOLDERS)
    def test_a_folder_outside_the_base_is_refused(self, real_storage: Storage, folder: str) -> None:
        with pytest.raises(InvalidInputError):
            real_storage.list_names(folder)
        with pytest.raises(InvalidInputError):
            real_storage.list_tree(folder)

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
    def test_a_negative_range_is_refused(
        self, real_storage: Storage, start: int, length: int
    ) -> None:
        real_storage.put("object", b"0123456789")
        with pytest.raises(InvalidInputError, match="object"):
            real_storage.read_range("object", start, length)
