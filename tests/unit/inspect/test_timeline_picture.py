"""Pictures of timelines: what is drawn is looked for in the SVG's and the figure's own words."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidInputError, StorageError, UnsupportedError
from headwater.inspect.timeline import OPERATION, SCHEMA
from headwater.inspect.timeline_picture import draw_timeline, timeline_figure
from headwater.model.instant import instant_time_at

pytest.importorskip("matplotlib", reason="the pictures extra is not installed")

BEGIN_MS = 1_790_000_000_000
PNG = b"\x89PNG\r\n\x1a\n"


def instant(
    start_ms: int,
    length_ms: int | None,
    operation: str | None = "UPSERT",
    *,
    action: str = "deltacommit",
    state: str = "completed",
) -> dict[str, Any]:
    completed = None if length_ms is None else instant_time_at(BEGIN_MS + start_ms + length_ms)
    return {
        "requested_time": instant_time_at(BEGIN_MS + start_ms),
        "action": action,
        "state": state,
        "completion_time": completed,
        "operation": operation,
    }


def timeline(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA.append(OPERATION))


def axes_of(rows: pa.Table) -> Any:
    """Return the axes after they were laid out and drawn."""
    figure: Any = timeline_figure(rows, "Timeline of trips")
    figure.draw_without_rendering()
    return figure.axes[0]


def row_labels(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def bars(axes: Any) -> list[Any]:
    return [container.patches[0] for container in axes.containers]


def test_every_instant_has_a_row_with_its_name_and_how_long_it_took() -> None:
    axes = axes_of(
        timeline(
            instant(0, 1500, "BULK_INSERT"),
            instant(2000, 12),
            instant(2100, 150_000, None, action="clean"),
        )
    )
    assert row_labels(axes) == [
        "bulk insert (deltacommit)   14:13:20.000",
        "upsert (deltacommit)   14:13:22.000",
        "clean   14:13:22.100",
    ]
    shown = [text.get_text() for text in axes.texts]
    assert [text for text in ("1.5 s", "12 ms", "2.5 min") if text not in shown] == []
    legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert legend == ["bulk insert", "upsert", "clean"]


def test_a_pending_instant_is_hatched_and_runs_out_of_the_picture() -> None:
    axes = axes_of(
        timeline(
            instant(0, 9000),
            instant(1000, None, None, state="inflight"),
            instant(9000, None, None, action="compaction", state="requested"),
        )
    )
    right = axes.get_xlim()[1]
    done, inflight, requested = bars(axes)
    assert done.get_hatch() is None
    assert done.get_x() + done.get_width() < right
    hatches = {done.get_hatch(), inflight.get_hatch(), requested.get_hatch()}
    assert len(hatches) == 3
    for bar in (inflight, requested):
        assert bar.get_x() + bar.get_width() > right
    legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert legend[-2:] == ["inflight", "requested"]


def test_an_aborted_instant_ends_in_the_picture() -> None:
    axes = axes_of(timeline(instant(0, None, None, state="aborted"), instant(0, 9000)))
    aborted, _ = bars(axes)
    assert aborted.get_hatch() is not None
    assert aborted.get_x() + aborted.get_width() < axes.get_xlim()[1] / 2 + axes.get_xlim()[0] / 2


def test_a_short_instant_in_a_long_timeline_is_some_pixels_wide() -> None:
    axes = axes_of(timeline(instant(0, 1), instant(0, 30 * 24 * 3_600_000)))
    short, _ = bars(axes)
    (left, _), (right, _) = short.get_window_extent().get_points()
    assert right - left >= 3
    assert "2026-09-21" in row_labels(axes)[0]


@pytest.mark.parametrize("count", [1, 5, 60])
def test_labels_of_rows_and_ticks_never_overlap(count: int) -> None:
    operations = ["UPSERT", "INSERT_OVERWRITE_TABLE", "DELETE"]
    axes = axes_of(
        timeline(*(instant(i * 700, 20 + i * 13, operations[i % 3]) for i in range(count)))
    )
    rows = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert len(rows) == count
    for one, next_one in pairwise(rows):
        assert not one.overlaps(next_one)
    ticks = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert len(ticks) >= 2
    for one, next_one in pairwise(ticks):
        assert not one.overlaps(next_one)
    # Nothing is cut off on the left.
    assert min(label.x0 for label in rows) >= 0


def test_instants_that_are_no_dates_are_counted_and_not_drawn() -> None:
    bootstrap = {**instant(0, 0), "requested_time": "0" * 17, "completion_time": "0" * 16 + "1"}
    axes = axes_of(timeline(bootstrap, instant(0, 5)))
    assert len(bars(axes)) == 1
    assert any("1 without a date, not drawn" in text.get_text() for text in axes.texts)


def test_a_table_draws_itself_to_each_path_by_suffix(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "trips", schema="id string", record_key="id")
    rows = pa.table({"id": ["a"]})
    table.upsert(rows)
    table.delete(rows)
    svg, png = tmp_path / "timeline.svg", tmp_path / "timeline.PNG"
    table.inspect.draw_timeline(svg, str(png))
    assert png.read_bytes().startswith(PNG)
    text = svg.read_text()
    # Letters are outlines in the SVG, each text under a comment that has its words.
    assert re.search(r"<!-- upsert \(commit\) ", text)
    assert re.search(r"<!-- delete \(commit\) ", text)
    assert "<!-- Timeline of trips (UTC) -->" in text


def test_an_empty_timeline_is_a_picture_too(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "trips", schema="id string", record_key="id")
    table.inspect.draw_timeline(tmp_path / "timeline.svg")
    assert "<!-- no instants -->" in (tmp_path / "timeline.svg").read_text()


def test_operations_are_those_of_the_commits(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "trips", schema="id string", record_key="id")
    rows = pa.table({"id": ["a"]})
    table.bulk_insert(rows)
    table.upsert(rows)
    table.overwrite(rows)
    found = table.inspect.timeline(operations=True)
    assert found["operation"].to_pylist() == ["BULK_INSERT", "UPSERT", "INSERT_OVERWRITE_TABLE"]
    assert found.drop_columns("operation") == table.inspect.timeline()


@pytest.mark.parametrize("paths", [[], ["timeline.pdf"], ["timeline.png", "timeline"]])
def test_other_suffixes_are_refused_before_anything_is_written(
    tmp_path: Path, paths: list[str]
) -> None:
    with pytest.raises(InvalidInputError, match=r"\.svg or \.png"):
        draw_timeline(timeline(), [tmp_path / path for path in paths], title="")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"absent.timeline\.png"):
        draw_timeline(timeline(instant(0, 5)), [tmp_path / "absent" / "timeline.png"], title="")


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"pip install \"headwater\[pictures\]\""):
        draw_timeline(timeline(), [tmp_path / "timeline.svg"], title="")


def test_neither_a_table_nor_a_picture_loads_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys, headwater as hw\n"
        f"t = hw.create_table({str(tmp_path / 'trips')!r}, schema='id string', record_key='id')\n"
        "t.inspect.timeline()\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"t.inspect.draw_timeline({str(tmp_path / 'timeline.svg')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
