"""Rows in files beside the table: Parquet, Arrow, CSV and lines of JSON, by their endings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidInputError, NotFoundError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.ingest.bad_rows import BadRows

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
        StorageError: the system does not let it be read.
    """
    import pyarrow as pa

    tables = [_read(path, like) for path in paths]
    try:
        return pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        names = ", ".join(map(str, paths))
        raise InvalidInputError(f"The columns of {names} do not fit together: {error}") from error


def write_data_file(rows: pa.Table, path: Path) -> None:
    """Write rows to a file, in the format of its ending; a file that is there stays until then.

    Raises:
        InvalidInputError: the ending says nothing, the format has no room for a column's type, or
            the path is a folder.
        NotFoundError: the folder does not exist.
        StorageError: the disk is full, or the system refuses.
    """
    kind = _format_of(path)
    with _naming_errors(path, "cannot hold these rows"):
        if path.is_dir():
            raise InvalidInputError(f"{path} is a folder; name a file in it")
        path = path.resolve()  # What a link leads to is replaced, not the link.
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            _write(rows, unfinished, kind)
            unfinished.replace(path)
        finally:
            # Where the folder is none, there is nothing to take away.
            with suppress(OSError):
                unfinished.unlink()


def _write(rows: pa.Table, path: Path, kind: str) -> None:
    match kind:
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


def _read(path: Path, like: pa.Schema | None) -> pa.Table:
    import pyarrow.dataset as ds

    kind = _format_of(path)
    with _naming_errors(path, "is not what its ending says"):
        if not path.exists():
            raise NotFoundError(f"There is no file {path}")
        if kind == "json":
            return _read_json(path, like)
        found = ds.dataset(path, format=kind)
        if kind == "csv" and like is not None:
            found = ds.dataset(path, format=kind, schema=_typed_like(found.schema, like))
        return found.to_table()


def _read_json(path: Path, like: pa.Schema | None) -> pa.Table:
    """Return the rows of lines of JSON, read as ingestion reads them."""
    import pyarrow as pa
    import pyarrow.json as pajson

    from headwater.ingest.formats.json_rows import read_json
    from headwater.ingest.formats.reading import Reading

    with path.open("rb") as file:
        found = pajson.open_json(file).schema
        columns = found if like is None else _typed_like(found, like)
        file.seek(0)
        parts = read_json(file, Reading(origin=str(path), columns=columns, bad=_no_bad_rows()))
        batches = [part.rows for part in parts]
    nullable = pa.schema([field.with_nullable(True) for field in columns])
    return pa.Table.from_batches(batches, schema=nullable)


def _typed_like(found: pa.Schema, like: pa.Schema) -> pa.Schema:
    """Return the columns of a text file, in the types of those that are known."""
    import pyarrow as pa

    types = {field.name: field for field in like}
    return pa.schema([types.get(field.name, field) for field in found])


def _no_bad_rows() -> BadRows:
    """Return what refuses a file for its first bad row."""
    from headwater.ingest.bad_rows import BadRow, BadRows

    class Refusing(BadRows):
        def add(self, row: BadRow) -> None:
            raise InvalidInputError(f"{row.origin} row {row.position}: {row.reason}")

    return Refusing("", None)


@contextmanager
def _naming_errors(path: Path, problem: str) -> Iterator[None]:
    """Say of what Arrow and the system raise which file it is about.

    Raises:
        InvalidInputError: the rows and the format do not go together.
        NotFoundError: the file or its folder does not exist.
        StorageError: the system failed.
    """
    import pyarrow as pa

    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        lost = f"file {path}" if path.parent.is_dir() else f"folder {path.parent}"
        raise NotFoundError(f"There is no {lost}") from error
    except (pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
        raise InvalidInputError(f"{path} {problem}: {error}") from error
    except OSError as error:
        if error.errno is None:  # Arrow's own, of bytes that it does not understand.
            raise InvalidInputError(f"{path} {problem}: {error}") from error
        raise StorageError(f"{path}: {error.strerror or error}") from error


def _format_of(path: Path) -> str:
    try:
        return _FORMATS[path.suffix.lower()]
    except KeyError:
        raise InvalidInputError(
            f"{path} has an ending that says nothing; there are {', '.join(_FORMATS)}"
        ) from None


def _write_json(rows: pa.Table, path: Path) -> None:
    import json

    import pyarrow as pa

    from headwater.ingest.formats.json_nesting import plain_type

    plain = pa.schema([field.with_type(plain_type(field.type)) for field in rows.schema])
    with path.open("w", encoding="utf-8") as out:
        for batch in rows.cast(plain).to_batches():
            out.writelines(
                json.dumps(row, default=_json_value, ensure_ascii=False) + "\n"
                for row in batch.to_pylist()
            )


def _json_value(value: Any) -> str:
    """Return what JSON has no value for as text that is read back as what it was."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                "JSON has no form for bytes that are no UTF-8; write .parquet or .arrow"
            ) from error
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
