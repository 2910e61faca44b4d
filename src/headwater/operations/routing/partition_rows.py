"""Rows by the partitions that they belong to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def rows_by_partition(paths: pa.DictionaryArray) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Give each partition path that a row has, with the numbers of its rows in their order."""
    codes = paths.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(paths.dictionary)))
    start = 0
    for partition, end in zip(paths.dictionary.to_pylist(), ends.tolist(), strict=True):
        if end > start:
            yield partition, order[start:end]
        start = end
