"""Creating data files, small ones too, so that a reply that gets lost does not fail a task."""

from __future__ import annotations

from headwater.seams.storage import Storage


def create_data_file(storage: Storage, path: str, data: bytes) -> None:
    """Create a data file of bytes that are there already; others go through `open_output`.

    Raises:
        AlreadyExistsError: there is one of other bytes.
        StorageError: it is not there, or nobody knows; its retry says whether to try again.
    """
    with storage.open_output(path) as sink:
        sink.write(data)
