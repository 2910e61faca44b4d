"""Object stores on loopback: moto's S3 in this process, and versitygw and Azurite where they are.

The servers of other projects come from the cache that scripts/get-stores.sh fills, or from the
environment: HEADWATER_VERSITYGW and HEADWATER_AZURITE name the programs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from tests.support.server_processes import answers, free_port, is_open, running
from werkzeug.serving import make_server

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater" / "stores"

# The account that Azurite serves without being told; its key is in its documentation.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class S3Server(NamedTuple):
    host: str
    port: int

    @property
    def options(self) -> dict[str, str]:
        return {
            "headwater.storage.endpoint": f"http://{self.host}:{self.port}",
            "headwater.storage.region": "us-east-1",
            "headwater.storage.access_key_id": "test",
            "headwater.storage.secret_access_key": "test",
            "headwater.storage.allow_http": "true",
            "headwater.storage.proxy_excludes": self.host,
        }

    def behind(self, port: int) -> S3Server:
        """Return the server as one reaches it through a proxy."""
        return self._replace(port=port)

    def request(self, method: str, path: str) -> None:
        """Do without a client what the storage seam has no word for."""
        connection = http.client.HTTPConnection(self.host, self.port)
        try:
            connection.request(method, path)
            assert connection.getresponse().status == 200
        finally:
            connection.close()


class AzureServer(NamedTuple):
    host: str
    port: int

    @property
    def options(self) -> dict[str, str]:
        return {
            "headwater.storage.endpoint": f"http://{self.host}:{self.port}/{AZURITE_ACCOUNT}",
            "headwater.storage.account_name": AZURITE_ACCOUNT,
            "headwater.storage.access_key": AZURITE_KEY,
            "headwater.storage.allow_http": "true",
            "headwater.storage.proxy_excludes": self.host,
        }


@contextmanager
def moto_server(
    names_per_page: int = 1000, *, honours_preconditions: bool = True
) -> Iterator[S3Server]:
    """Serve moto's S3 on loopback, one request at a time.

    Args:
        honours_preconditions: there are servers that pass over If-None-Match.

    moto looks whether a name is free and then takes it, without a lock in between. Its own
    ThreadedMotoServer would let two creations of one name both succeed, as real S3 does not.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(names_per_page))
        application = DomainDispatcherApplication(create_backend_app)

        def without_preconditions(environ: dict[str, Any], *rest: Any) -> Any:
            environ.pop("HTTP_IF_NONE_MATCH", None)
            return application(environ, *rest)

        server = make_server(
            "127.0.0.1",
            0,
            application if honours_preconditions else without_preconditions,
            threaded=False,
            request_handler=MotoRequestHandler,
        )
        request_log = logging.getLogger("werkzeug")
        level = request_log.level
        request_log.setLevel(logging.ERROR)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield S3Server("127.0.0.1", server.server_port)
        server.shutdown()
        thread.join()
        server.server_close()
        request_log.setLevel(level)


@contextmanager
def versitygw(folder: Path, *buckets: str) -> Iterator[S3Server]:
    """Serve S3 from a folder; its buckets are folders in it."""
    program = _program("HEADWATER_VERSITYGW", CACHE / "bin" / "versitygw", "versitygw")
    for bucket in buckets:
        (folder / "data" / bucket).mkdir(parents=True)
    port = free_port()
    command = [program, "--access", "test", "--secret", "test", "--port", f"127.0.0.1:{port}"]
    command += ["--keep-alive", "--quiet"]  # As S3 itself: a client's connection serves it again.
    with _serving([*command, "posix", str(folder / "data")], folder, port):
        yield S3Server("127.0.0.1", port)


@contextmanager
def azurite(folder: Path, *containers: str) -> Iterator[AzureServer]:
    """Serve Azure's blobs from a folder."""
    program = _program(
        "HEADWATER_AZURITE", CACHE / "node_modules" / ".bin" / "azurite-blob", "azurite"
    )
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [program, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    with _serving(command, folder, port):
        server = AzureServer("127.0.0.1", port)
        for container in containers:
            _create_container(server, container)
        yield server


def _create_container(server: AzureServer, container: str) -> None:
    """Create a container; obstore has no word for it, but signs any request for a blob."""
    date = formatdate(usegmt=True)
    version = "2021-08-06"
    path = f"/{AZURITE_ACCOUNT}/{container}"
    signed = "\n".join(
        [
            "PUT",
            *[""] * 11,
            f"x-ms-date:{date}",
            f"x-ms-version:{version}",
            f"/{AZURITE_ACCOUNT}{path}",
            "restype:container",
        ]
    )
    digest = hmac.new(base64.b64decode(AZURITE_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Content-Length": "0",
        "Authorization": f"SharedKey {AZURITE_ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    connection = http.client.HTTPConnection(server.host, server.port)
    try:
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        reply = connection.getresponse()
        assert reply.status == 201, reply.read()
    finally:
        connection.close()


def _program(variable: str, cached: Path, name: str) -> str:
    given = os.environ.get(variable)
    found = given or (str(cached) if cached.exists() else shutil.which(name))
    if not found or not Path(found).exists():
        pytest.skip(f"{name} is not here: run scripts/get-stores.sh, or set {variable}")
    return found


@contextmanager
def _serving(command: list[str], folder: Path, port: int) -> Iterator[None]:
    log = folder / "server.log"
    with running(command, log):
        if not answers(partial(is_open, port)):
            pytest.fail(f"{command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
        yield
