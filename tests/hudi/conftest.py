"""Apache Hudi in a session of its own for the whole run; `make test-hudi` runs what is here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.hudi_peer import HudiPeer, NoHudiError, find_bundle

from headwater.config.table_options import FENCED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker("hudi")
            # Two engines take turns for minutes; this only ends what hangs.
            item.add_marker(pytest.mark.timeout(7200))


@pytest.fixture(scope="session")
def hudi() -> Iterator[HudiPeer]:
    """A Spark session with Hudi on its class path."""
    try:
        bundle = find_bundle()
    except NoHudiError as missing:
        pytest.skip(str(missing))
    with HudiPeer(bundle) as peer:
        yield peer


@pytest.fixture(params=["lock", "journal"])
def decided(request: pytest.FixtureRequest) -> dict[str, str]:
    """Options of tables that decide under their lock, and by a journal, which Hudi knows not."""
    return {FENCED.key: str(request.param == "journal").lower()}
