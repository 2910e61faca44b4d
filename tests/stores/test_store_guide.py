"""The blocks of the guide to object stores, on servers of other projects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.stores.conftest import Store
from tests.support.store_servers import AZURITE_ACCOUNT, AZURITE_KEY

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "object-stores.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def run(blocks: list[str]) -> None:
    for block in blocks:
        exec(compile(block, "block", "exec"), {"__name__": "__main__"})


def test_blocks_on_s3(s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_store.options["headwater.storage.endpoint"])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    run([block for block in BLOCKS if "az://" not in block])


def test_blocks_on_azure(azure_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azure_store.options["headwater.storage.endpoint"])
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    run([block for block in BLOCKS if "az://" in block])
