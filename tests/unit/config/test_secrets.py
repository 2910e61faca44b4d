"""Keys of storage are in nothing that is printed or logged, wherever they were given."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.config.registry import check_options
from headwater.config.secrets import Options, without_url_secrets
from headwater.errors import HeadwaterError
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.seams.open_storage import open_storage
from headwater.table import Table

SECRET = "wJalrXUtnFEMI-SECRET"
STORAGE = {
    "headwater.storage.secret_access_key": SECRET,
    "headwater.storage.sas_token": f"sig={SECRET}",
    "headwater.storage.something_new": SECRET,
    "headwater.storage.endpoint": f"http://me:{SECRET}@127.0.0.1:1",
    "headwater.storage.region": "us-east-1",
}


def test_options_show_no_secret_and_keep_their_values() -> None:
    options = check_options(STORAGE)
    for text in (repr(options), str(options.known), f"{options.all}"):
        assert SECRET not in text
        assert "us-east-1" in text
        assert "127.0.0.1" in text
    assert options.known["headwater.storage.secret_access_key"] == SECRET
    copy = pickle.loads(pickle.dumps(options.known))
    assert isinstance(copy, Options)
    assert copy == STORAGE


def test_a_table_and_what_belongs_to_it_show_no_secret(tmp_path: Path) -> None:
    made = hw.create_table(tmp_path / "t", schema="id string", record_key="id", buckets=1)
    made.insert(pa.table({"id": ["a"]}))
    context = replace(made.context, options={**made.context.options, **STORAGE})
    table = Table(context)
    plan = plan_snapshot(context, ReadRequest())
    shown = [repr(table), str(table), repr(table.context), repr(table.services), repr(plan)]
    shown += [repr(table.indexes), repr(table.inspect), repr(vars(table))]
    assert [text for text in shown if SECRET in text] == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: open_storage("s3://bucket/t", {**STORAGE, "headwater.storage.nonsense": SECRET}),
        lambda: open_storage(f"s3://me:{SECRET}@bucket/t"),
        lambda: open_storage(f"az://container/t?sv=1&sig={SECRET}"),
        lambda: open_storage("/tmp/t", {"headwater.storage.secret_access_key": SECRET}),
        lambda: check_options({**STORAGE, "hoodie.table.type": SECRET}),
        lambda: check_options({"headwater.storage.secret_access_key": [SECRET]}),
        lambda: hw.open_table("s3://bucket/t", STORAGE).read_arrow(),
    ],
)
def test_errors_and_logs_show_no_secret(
    call: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(HeadwaterError) as caught:
        call()
    told = "".join(traceback.format_exception_only(caught.value)) + repr(caught.value)
    assert SECRET not in told
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see http://me:pass@host/a?sig=1 now", "see http://***@host/a?*** now"),
        ("abfs://container@account.dfs.core.windows.net/t", None),
        ("what? nothing://is here", None),
        ("/plain/path?x", None),
    ],
)
def test_urls_are_shown_without_their_secrets(text: str, expected: str | None) -> None:
    assert without_url_secrets(text) == (text if expected is None else expected)
