"""How many files a value lies in, by the smallest and largest value that each file has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.files import BaseFile
from headwater.services.advice.statistics import Overlap


def overlap_of(column: str, files: Sequence[BaseFile], low: pa.Array, high: pa.Array) -> Overlap:
    """Return how files lie over each other, partition by partition.

    Args:
        low: the smallest value in each file, null where it is not known.
        high: the largest.
    """
    is_known = pc.and_(pc.is_valid(low), pc.is_valid(high)).to_numpy(zero_copy_only=False)
    known = np.flatnonzero(is_known)
    depths = np.ones(len(known))
    partitions = np.array([files[at].partition for at in known.tolist()], np.object_)
    lows, highs = _ranks(low.take(pa.array(known)), high.take(pa.array(known)))
    for partition in np.unique(partitions):
        inside = partitions == partition
        depths[inside] = _depths(lows[inside], highs[inside])
    sizes = np.array([files[at].size_bytes for at in known.tolist()], np.float64)
    spared_files, spared_bytes = 0.0, 0.0
    for partition in np.unique(partitions):
        inside = partitions == partition
        deeper = float(depths[inside].mean()) - 1
        spared_files += deeper
        spared_bytes += deeper * float(sizes[inside].mean())
    return Overlap(
        column=column,
        file_count=len(known),
        depth=float(depths.mean()) if len(known) else 1.0,
        spared_files=spared_files,
        spared_bytes=int(spared_bytes),
    )


def _depths(lows: npt.NDArray[np.int64], highs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for a value in the middle of each file how many files it may be in."""
    middles = (lows + highs) // 2
    begun = np.searchsorted(np.sort(lows), middles, side="right")
    ended = np.searchsorted(np.sort(highs), middles, side="left")
    return begun - ended


def _ranks(low: pa.Array, high: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return bounds as numbers that compare as they do."""
    both = pa.concat_arrays([low, high])
    ranks = pc.rank(both, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks[: len(low)], ranks[len(low) :]
