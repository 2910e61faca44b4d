"""N-190: what is being written while archival takes the commits before it.

To Apache Hudi, where it lists files, what is older than the first commit of the active timeline is
completed. It must not see what nobody has committed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.hudi.test_hudi_takes_back_our_inputs import OPTIONS, fares, rows, when_it_has_written
from tests.hudi.test_hudi_takes_back_our_inputs import SCHEMA as COLUMNS
from tests.support.hudi_peer import HudiPeer
from tests.support.stopped_process import StoppedProcess
from tests.support.tables import COW, MOR, a_table

import headwater as hw

LITTLE = {
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
}


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("metadata", ["true", "false"], ids=["metadata table", "listing"])
def test_n_190_hudi_does_not_show_what_is_being_written(
    hudi: HudiPeer, tmp_path: Path, table_type: str, metadata: str, decided: dict[str, str]
) -> None:
    options = {**OPTIONS, **LITTLE, **decided}
    shape = a_table(tmp_path, COLUMNS, partition_by="city", ordering="ts", table_type=table_type)
    table = shape.with_options(options).create()
    expected = {}
    for number in range(3):
        table.upsert(rows((f"before {number}", "sf", number, number)))
        expected[f"before {number}"] = number

    def write(table: hw.Table) -> None:
        table.upsert(rows(("before 0", "sf", 9, 9), ("not yet", "oslo", 9, 9)))

    read = partial(hudi.read, table.uri, {"hoodie.metadata.enable": metadata})
    open_again = partial(hw.open_table, table.uri, options)
    with StoppedProcess(open_again, write, stops=when_it_has_written) as process:
        process.wait_until_stopped()
        for number in range(6):
            table.upsert(rows((f"beside {number}", "ny", number, number)))
            expected[f"beside {number}"] = number
        assert table.services.archive().archived
        assert fares(read()) == fares(table.read_arrow()) == expected
        assert process.resume().error is None
    expected |= {"before 0": 9, "not yet": 9}
    assert fares(read()) == fares(table.reload().read_arrow()) == expected
