from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import AzureStore, S3Store

from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.local import LocalStorage
from headwater.seams.object_store import ObjectStorage
from headwater.seams.open_storage import open_storage


class TestLocal:
    @pytest.mark.parametrize("prefix", ["", "file:", "file://", "FILE://", "file://localhost"])
    def test_a_path_and_a_file_uri_name_the_same_folder(self, tmp_path: Path, prefix: str) -> None:
        storage = open_storage(f"{prefix}{tmp_path}")
        assert isinstance(storage, LocalStorage)
        assert storage.uri == str(tmp_path)

    def test_the_escapes_of_a_file_uri_are_resolved(self, tmp_path: Path) -> None:
        folder = tmp_path / "a b#c"
        assert open_storage(folder.as_uri()).uri == str(folder)

    def test_a_path_is_taken_as_it_is(self, tmp_path: Path) -> None:
        assert open_storage(f"{tmp_path}/a%20b:c").uri == f"{tmp_path}/a%20b:c"

    def test_a_relative_path_starts_at_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert open_storage("tables/t").uri == str(tmp_path / "tables/t")

    def test_nothing_is_created_by_opening(self, tmp_path: Path) -> None:
        open_storage(str(tmp_path / "table"))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("options", "fsync"),
        [
            (None, True),
            ({"hoodie.table.name": "t"}, True),
            ({"headwater.storage.fsync": "true"}, True),
            ({"headwater.storage.fsync": "False"}, False),
        ],
    )
    def test_fsync_is_an_option(
        self, tmp_path: Path, options: dict[str, str] | None, fsync: bool
    ) -> None:
        storage = open_storage(str(tmp_path), options)
        assert repr(storage) == repr(LocalStorage(tmp_path, fsync=fsync))

    @pytest.mark.parametrize("uri", ["file://host/path", "file://", "file://localhost"])
    def test_a_file_uri_of_another_machine_is_refused(self, uri: str) -> None:
        with pytest.raises(InvalidInputError, match="file:///path"):
            open_storage(uri)


def test_memory_is_no_place_for_a_table_that_tasks_elsewhere_open_by_address() -> None:
    with pytest.raises(InvalidInputError, match="memory"):
        open_storage("memory://tables")


class TestObjectStores:
    @pytest.mark.parametrize(
        ("uri", "options", "store"),
        [
            ("s3://bucket/a/b", {}, 'S3Store(bucket="bucket", prefix="a/b")'),
            ("s3a://bucket/a/b/", {}, 'S3Store(bucket="bucket", prefix="a/b")'),
            ("gs://bucket/a", {"skip_signature": "true"}, 'GCSStore(bucket="bucket", prefix="a")'),
            (
                "az://box/a",
                {"account_name": "me"},
                'AzureStore(container_name="box", account_name="me", prefix="a")',
            ),
            (
                "abfs://box@me.dfs.core.windows.net/a",
                {},
                'AzureStore(container_name="box", account_name="me", prefix="a")',
            ),
            (
                "abfss://box@me.dfs.core.windows.net/a",
                {"access_key": "a2V5"},
                'AzureStore(container_name="box", account_name="me", prefix="a")',
            ),
        ],
    )
    def test_each_scheme_opens_its_store(
        self, uri: str, options: dict[str, str], store: str
    ) -> None:
        prefixed = {f"headwater.storage.{key}": value for key, value in options.items()}
        storage = open_storage(uri, {"hoodie.table.name": "t", **prefixed})
        assert isinstance(storage, ObjectStorage)
        assert repr(storage._store) == store
        assert storage.uri == uri.rstrip("/")

    def test_options_reach_the_store_and_its_client(self) -> None:
        storage = open_storage(
            "s3://bucket",
            {
                "headwater.storage.endpoint": "http://localhost:9",
                "headwater.storage.allow_http": "true",
                "headwater.storage.timeout": "5s",
            },
        )
        assert isinstance(storage, ObjectStorage)
        assert isinstance(storage._store, S3Store)
        assert storage._store.config == {
            "bucket": "bucket",
            "endpoint": "http://localhost:9",
            "copy_if_not_exists": "multipart",
        }
        assert storage._store.client_options == {"allow_http": "true", "timeout": "5s"}

    @pytest.mark.parametrize(
        "key",
        [
            *("a b", "a ", " a", "a%20b", "%41", "a%2Fb", "%2e%2e", "a%", "a+b", "a#b", "#"),
            *("a&b=c;d,e", "a:b", "a@b", "~", "*", "[a]", "a|b^c`{}<>\"'", "a/b%2F/c", "..."),
            *("\u00fc", "u\u0308", "\u2028"),
        ],
    )
    def test_a_key_is_taken_as_it_stands(self, key: str) -> None:
        storage = open_storage(f"s3://bucket/{key}")
        assert isinstance(storage, ObjectStorage)
        assert isinstance(storage._store, S3Store)
        assert storage._store.prefix == key
        assert storage.uri == f"s3://bucket/{key}"

    def test_one_slash_at_the_end_is_no_part_of_a_key_and_schemes_have_no_case(self) -> None:
        assert open_storage("S3://bucket/a/").uri == "s3://bucket/a"
        assert open_storage("s3://bucket/").uri == "s3://bucket"

    @pytest.mark.parametrize(
        ("uri", "why"),
        [
            ("s3://bucket//a", "empty part"),
            ("s3://bucket/a//b", "empty part"),
            ("s3://bucket/a//", "empty part"),
            ("s3://bucket/./a", "no folders"),
            ("s3://bucket/a/..", "no folders"),
            ("s3://bucket/a\nb", "control character"),
            ("s3://bucket/a?", "question mark"),
            ("s3://bucket/(a)?versionId=x", "question mark"),
            ("s3:///a", "no bucket"),
            ("s3://user@bucket/a", "name of a bucket"),
            ("s3://bucket:9000/a", "name of a bucket"),
            ("s3://buc%6bet/a", "name of a bucket"),
            ("s3://buc ket/a", "name of a bucket"),
            ("az://box/a\\b", "backslash"),
            ("az://box/a./b", "dot at the end"),
        ],
    )
    def test_what_would_be_read_in_another_way_is_refused(self, uri: str, why: str) -> None:
        with pytest.raises(InvalidInputError, match=f"is no address of a table: .*{why}") as caught:
            open_storage(uri)
        assert "versionId" not in str(caught.value)  # It could have been a key to the store.

    @pytest.mark.parametrize(
        ("uri", "key", "value"),
        [
            ("s3://bucket/a", "bucket", "other"),
            ("s3://bucket/a", "aws_bucket_name", "other"),
            ("gs://bucket/a", "google_bucket", "other"),
            ("az://box/a", "container_name", "other"),
            ("abfss://box@me.dfs.core.windows.net/a", "account_name", "you"),
        ],
    )
    def test_an_option_that_leads_elsewhere_than_the_address_is_refused(
        self, uri: str, key: str, value: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=f"{key}: it is 'other|you', but {uri} says"):
            open_storage(uri, {f"headwater.storage.{key}": value})

    def test_the_key_of_an_account_of_azure_is_for_that_account(self) -> None:
        options = {
            f"fs.azure.account.key.{account}.dfs.core.windows.net": key
            for account, key in {"you": "eW91", "me": "bWU="}.items()
        }
        storage = open_storage("abfss://box@me.dfs.core.windows.net/a", options)
        assert isinstance(storage, ObjectStorage)
        assert isinstance(storage._store, AzureStore)
        assert storage._store.config.get("account_key") == "bWU="

    @pytest.mark.parametrize("uri", ["s3:/bucket/a", "abfss:/box/a", "dbfs:/tables/a"])
    def test_an_address_that_went_through_pathlib_is_no_folder_of_this_machine(
        self, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(InvalidInputError, match="one slash where an address has two"):
            open_storage(uri)
        monkeypatch.chdir(tmp_path)
        assert open_storage(f"./{uri}").uri == f"{tmp_path}/{uri}"

    @pytest.mark.parametrize(
        ("endpoint", "why"),
        [
            ("localhost:9000", "does not begin with https"),
            ("http://localhost:9000", r"no TLS\. Set headwater\.storage\.allow_http=true"),
        ],
    )
    def test_an_endpoint_that_no_request_can_go_to_is_refused_at_once(
        self, endpoint: str, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(InvalidInputError, match=why):
            open_storage("s3://bucket/a", {"headwater.storage.endpoint": endpoint})
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(InvalidInputError, match=why):
            open_storage("s3://bucket/a")

    def test_a_location_without_a_bucket_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="s3://"):
            open_storage("s3://")


class TestRefusals:
    def test_an_unknown_scheme_is_answered_with_the_known_ones(self) -> None:
        with pytest.raises(InvalidInputError, match=r"'ftp'.*file, s3, s3a, gs, az"):
            open_storage("ftp://host/path")

    def test_an_empty_location_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="empty"):
            open_storage("")

    @pytest.mark.parametrize(
        ("uri", "key", "value"),
        [
            ("/tables/t", "fsync", "maybe"),
            ("/tables/t", "region", "eu"),
            ("s3://bucket", "fsync", "true"),
            ("s3://bucket", "nonsense", "1"),
            ("s3://bucket", "skip_signature", "maybe"),
            ("s3://bucket", "timeout", "soon"),
        ],
    )
    def test_an_option_the_storage_does_not_know_is_refused(
        self, uri: str, key: str, value: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=f"headwater.storage.*{key}") as caught:
            open_storage(uri, {f"headwater.storage.{key}": value})
        assert caught.value.kind is ErrorKind.INVALID_OPTION
