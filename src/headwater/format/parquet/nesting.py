"""How deep columns may be nested, such that Arrow reads the files again that it writes."""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import InvalidInputError

_LEVELS_MAX = 99
"""Beyond that Arrow's reader gives up; its writer does not."""


def check_nesting(schema: pa.Schema) -> None:
    """Refuse columns of which no file could be read again.

    Raises:
        InvalidInputError: a column has too many levels.
    """
    for field in schema:
        levels = _levels(field.type)
        if levels > _LEVELS_MAX:
            raise InvalidInputError(
                f"Column {field.name} is nested too deeply: it has {levels} levels in Parquet, of "
                f"which readers take {_LEVELS_MAX}. A list or map makes two of them, a struct or a "
                "plain value one. Take some of them apart, or store the column as text"
            )


def _levels(arrow: pa.DataType) -> int:
    """Return the nodes of Parquet's schema from a column down to its deepest value."""
    inner = max((_levels(arrow.field(at).type) for at in range(arrow.num_fields)), default=0)
    if pa.types.is_map(arrow):
        return 1 + inner  # Arrow shows its entries as a struct.
    return inner + (2 if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) else 1)
