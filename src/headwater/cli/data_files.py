"""Rows in files beside the table: Parquet, Arrow, CSV and lines of JSON, by their endings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

_FORMATS = {
    ".parquet": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


def read_data_files(paths: Sequence[Path], like: pa.Schema | None = None) -> pa.Table:
    """Return the rows of files.

    Args:
        like: the types that columns of text formats are read as, where it names them.

    Raises:
        NotFoundError: a file does not exist.
        InvalidInputError: a file's ending says nothing, or it does not hold what its ending says.
    """
    import pyarrow as pa

    tables = [_read(path, like) for path in paths]
    try:
        return pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        names = ", ".join(map(str, paths))
        raise InvalidInputError(f"The columns of {names} do not fit together: {error}") from error


def write_data_file(rows: pa.Table, path: Path) -> None:
    """Write rows to a file, in the format of its ending.

    Raises:
        InvalidInputError: the ending says nothing, or the format has no room for a column's type.
    """
    import pyarrow as pa

    try:
        match _format_of(path):
            case "parquet":
                import pyarrow.parquet as pq

                pq.write_table(rows, path)
            case "ipc":
                import pyarrow.feather as feather

                feather.write_feather(rows, path, compression="uncompressed")
            case "csv":
                import pyarrow.csv as pacsv

                pacsv.write_csv(rows, path)
            case _:
                _write_json(rows, path)
    except pa.ArrowException as error:
        raise InvalidInputError(f"{path} cannot hold these rows: {error}") from error


def _read(path: Path, like: pa.Schema | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.dataset as ds

    kind = _format_of(path)
    if not path.exists():
        raise NotFoundError(f"There is no file {path}")
    try:
        found = ds.dataset(path, format=kind)
        if kind in ("csv", "json") and like is not None:
            types = {field.name: field for field in like}
            fields = [types.get(field.name, field) for field in found.schema]
            found = ds.dataset(path, format=kind, schema=pa.schema(fields))
        return found.to_table()
    except pa.ArrowException as error:
        raise InvalidInputError(f"{path} is not what its ending says: {error}") from error


def _format_of(path: Path) -> str:
    try:
        return _FORMATS[path.suffix.lower()]
    except KeyError:
        raise InvalidInputError(
            f"{path} has an ending that says nothing; there are {', '.join(_FORMATS)}"
        ) from None


def _write_json(rows: pa.Table, path: Path) -> None:
    import json

    with path.open("w", encoding="utf-8") as out:
        for batch in rows.to_batches():
            out.writelines(
                json.dumps(row, default=_json_value, ensure_ascii=False) + "\n"
                for row in batch.to_pylist()
            )


def _json_value(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
