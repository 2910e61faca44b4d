"""Who a client says it is: options, environment, profiles, Hadoop's keys, and what is not shown."""

from __future__ import annotations

import http.server
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.config.registry import check_options
from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.open_storage import open_storage

SECRET = "a-secret-of-ours"
HOUR = timedelta(hours=1)


class Client:
    """What a server heard from whoever asked it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def keys_of(self, options: dict[str, str]) -> list[str]:
        """Return the ids of the keys that a read with these options is signed with."""
        self.heard.clear()
        open_storage("s3://bucket/table", options).read("a")
        return [text.partition("Credential=")[2].partition("/")[0] for text in self.heard]


@contextmanager
def serving() -> Iterator[Client]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server_of.heard.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.send_header("Content-Length", "1")
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(b"x")

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        server_of = Client(server.server_port)
        try:
            yield server_of
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as found:
        yield found


def test_the_environment_says_all(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", client.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert client.keys_of({}) == ["of-environment"]
    given = {
        "headwater.storage.access_key_id": "of-options",
        "headwater.storage.secret_access_key": SECRET,
    }
    assert client.keys_of(given) == ["of-options"]


def test_keys_of_a_profile_are_read_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("headwater.seams.aws_profile._READ_AGAIN_AFTER", -HOUR)
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "config").write_text(f"[profile work]\nendpoint_url = {client.endpoint}\n")

    def write_keys(name: str) -> None:
        (folder / "credentials").write_text(
            f"[default]\naws_access_key_id = {name}-default\naws_secret_access_key = {SECRET}\n"
            f"[work]\naws_access_key_id = {name}\naws_secret_access_key = {SECRET}\n"
            "aws_session_token = a-token\n"
        )

    plain = {"headwater.storage.allow_http": "true"}
    write_keys("first")
    named = {**plain, "headwater.storage.profile": "work"}
    assert client.keys_of(named) == ["first"]
    write_keys("renewed")
    assert client.keys_of(named) == ["renewed"]
    assert client.keys_of({**plain, "headwater.storage.endpoint": client.endpoint}) == [
        "renewed-default"
    ]
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert client.keys_of(plain) == ["renewed"]


def test_a_profile_that_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(InvalidInputError, match="'nobody'") as caught:
        open_storage("s3://bucket/table", {"headwater.storage.profile": "nobody"})
    assert caught.value.kind is ErrorKind.INVALID_OPTION


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
def test_keys_of_hadoop_mean_the_same(client: Client, prefix: str) -> None:
    given = {
        "fs.s3a.access.key": "of-hadoop",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.endpoint": f"127.0.0.1:{client.port}",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.threads.max": "64",
    }
    options = check_options({f"{prefix}{key}": value for key, value in given.items()})
    assert not options.unknown
    assert client.keys_of(dict(options.known)) == ["of-hadoop"]
    assert "/eu-west-1/" in client.heard[0]


RENEWED: list[str] = []


def provide() -> dict[str, Any]:
    RENEWED.append("")
    return {
        "access_key_id": f"key-{len(RENEWED)}",
        "secret_access_key": SECRET,
        "token": "a-token",
        "expires_at": datetime.now(UTC) - HOUR,
    }


def test_a_function_gives_keys_whenever_the_last_have_expired(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = type(os)("keys_of_this_test")
    module.provide = provide  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keys_of_this_test", module)
    RENEWED.clear()
    options = {
        "headwater.storage.endpoint": client.endpoint,
        "headwater.storage.allow_http": "true",
        "headwater.storage.credential_provider": "keys_of_this_test:provide",
    }
    storage = open_storage("s3://bucket/renewed", options)
    storage.read("a")
    storage.read("a")
    assert len(RENEWED) == 2
    for name in ("nothing", "os:nothing", "no_such_module:f", "os:name"):
        with pytest.raises(InvalidInputError, match="credential_provider"):
            open_storage("s3://b", {**options, "headwater.storage.credential_provider": name})


def test_no_secret_shows(tmp_path: Path) -> None:
    options = check_options(
        {
            "headwater.storage.secret_access_key": SECRET,
            "headwater.storage.access_key_id": "id",
            "fs.s3a.session.token": SECRET,
        }
    )
    table = hw.create_table(tmp_path / "t", schema="id string", record_key="id")
    shown = [repr(options), repr(open_storage("s3://bucket/t", options.known))]
    context = table.context
    reached = replace(context, options={**context.options, **options.known})
    shown += [repr(reached), repr(replace(table, context=reached)), str(vars(reached).keys())]
    assert not [text for text in shown if SECRET in text]
    with pytest.raises(InvalidInputError) as caught:
        open_storage("s3://bucket/t", {**options.known, "headwater.storage.nonsense": SECRET})
    assert SECRET not in str(caught.value)
