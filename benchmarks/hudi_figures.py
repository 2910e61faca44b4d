"""What the comparison with Apache Hudi found: figures, and their text, JSON and picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Picture

OURS = "Headwater"
HUDI = "Apache Hudi"
LOGARITHMIC_ABOVE = 30  # The longest bar in shortest bars, above which a linear scale hides these.
COLORS = {OURS: "#1f77b4", HUDI: "#d95f02"}
FLOOR_COLORS = ("#9a9a9a", "#cfcfcf")
INK = "#333333"


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant of one job: its best turn in time, its worst in memory."""

    job: str
    variant: str
    floor: str | None  # The variant that is its floor; None for a floor.
    turns: tuple[float, ...]
    bytes_written: int
    peak_memory_mb: int

    @property
    def seconds(self) -> float:
        return min(self.turns)


@dataclass(frozen=True, slots=True)
class Figure:
    job: str
    variant: str
    seconds: float
    to_hudi: float
    to_floor: float | None  # Plain Parquet in the same Spark.
    to_hudi_over_floors: float | None  # (ours / its floor) / (Hudi / its floor).
    bytes_written: int
    peak_memory_mb: int
    turns: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run: what was measured, and under what circumstances."""

    date: str
    versions: Mapping[str, str]
    machine: Mapping[str, str | int]
    settings: Mapping[str, Any]
    notes: Sequence[str]
    titles: Mapping[str, str]
    figures: Sequence[Figure]


def compare(measured: Sequence[Measured]) -> list[Figure]:
    seconds = {(m.job, m.variant): m.seconds for m in measured}
    over_floor = {
        (m.job, m.variant): m.seconds / seconds[m.job, m.floor]
        for m in measured
        if m.floor is not None
    }
    figures = []
    for m in measured:
        to_floor = over_floor.get((m.job, m.variant))
        figures.append(
            Figure(
                job=m.job,
                variant=m.variant,
                seconds=m.seconds,
                to_hudi=m.seconds / seconds[m.job, HUDI],
                to_floor=to_floor,
                to_hudi_over_floors=(
                    None if to_floor is None else to_floor / over_floor[m.job, HUDI]
                ),
                bytes_written=m.bytes_written,
                peak_memory_mb=m.peak_memory_mb,
                turns=m.turns,
            )
        )
    return figures


def text_of(report: Report) -> str:
    lines = [
        f"{'':53} {'ratio to':>9} {'ratio to':>9} {'to Hudi, each':>14} {'MB':>8} {'peak':>7}",
        f"{'job':18} {'variant':25} {'seconds':>8} {'Hudi':>9} {'its floor':>9} "
        f"{'over its floor':>14} {'written':>8} {'MB':>7}",
        *(
            f"{figure.job:18} {figure.variant:25} {figure.seconds:8.2f} {figure.to_hudi:9.2f} "
            f"{_ratio(figure.to_floor):>9} {_ratio(figure.to_hudi_over_floors):>14} "
            f"{figure.bytes_written / 1e6:8.1f} {figure.peak_memory_mb:7,}"
            for figure in report.figures
        ),
    ]
    lines += ["", *report.notes, ""]
    for name in ("versions", "machine", "settings"):
        lines.append(f"{name}:")
        for key, value in getattr(report, name).items():
            if isinstance(value, Mapping):
                lines.append(f"  {key}:")
                lines += [f"    {inner} = {given}" for inner, given in value.items()]
            else:
                lines.append(f"  {key} = {value}")
    return "\n".join(lines)


def write_json(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(report), indent=2) + "\n")


def write_picture(report: Report, path: Path) -> None:
    """Draw the seconds as bars, one group for each job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Text stays text, and the same figures make the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "headwater"}):
        dated = {"Date": None} if path.suffix == ".svg" else None
        _picture(report).savefig(path, metadata=dated)


def _picture(report: Report) -> Picture:
    jobs = list(dict.fromkeys(figure.job for figure in report.figures))
    variants = list(dict.fromkeys(figure.variant for figure in report.figures))
    floors = [variant for variant in variants if variant not in COLORS]
    colors = {**COLORS, **dict(zip(floors, FLOOR_COLORS, strict=False))}
    seconds = {(figure.job, figure.variant): figure.seconds for figure in report.figures}
    longest, shortest = max(seconds.values()), min(seconds.values())
    is_log = longest / shortest > LOGARITHMIC_ABOVE
    picture = Picture(figsize=(9, 1.2 + 0.95 * len(jobs)), layout="constrained", facecolor="white")
    axes = picture.add_subplot()
    height = 0.8 / len(variants)
    for place, variant in enumerate(variants):
        shift = (place - (len(variants) - 1) / 2) * height
        bars = axes.barh(
            [row + shift for row in range(len(jobs))],
            [seconds[job, variant] for job in jobs],
            height=height * 0.9,
            color=colors[variant],
            label=variant,
        )
        axes.bar_label(
            bars,
            [f"{seconds[job, variant]:.2f} s" for job in jobs],
            padding=3,
            fontsize=8,
            color=INK,
        )
    axes.set_yticks(range(len(jobs)), [report.titles[job] for job in jobs], color=INK)
    axes.invert_yaxis()
    if is_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlim(shortest / 2, longest * 2)
    else:
        axes.set_xlim(0, longest * 1.12)
    axes.set_xlabel(f"seconds, best turn; less is better{', logarithmic' if is_log else ''}")
    axes.set_title(
        f"{OURS} and {HUDI}, {report.versions['hudi']}, {report.date[:10]}",
        loc="left",
        fontsize=11,
        color=INK,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    picture.legend(loc="outside lower center", ncols=len(variants), frameon=False, fontsize=8.5)
    return picture


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
