"""What a marker may announce.

Announced files that no commit lists are deleted, so a marker must never name anything but a data
file: not the table's own records, and nothing outside the table.
"""

from __future__ import annotations

from headwater.errors import InvalidInputError
from headwater.kernel.layout import HOODIE
from headwater.kernel.txn.markers import Marker
from headwater.model.files import parse_data_file
from headwater.model.instant import InstantTime
from headwater.seams.storage_arguments import check_path

# The longest key that S3 takes.
DATA_PATH_BYTES_MAX = 1_024


def check_data_path(path: str) -> None:
    """Refuse a path that cannot be that of a data file.

    Raises:
        InvalidInputError: it is not the normal path of a file below the table's base, or lies among
            the table's own records.
    """
    check_path(path)
    if path.split("/")[0] == HOODIE:
        raise InvalidInputError(f"{path!r} is among the table's own records, not its data")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidInputError(f"{path!r} cannot be written as UTF-8") from None
    if length > DATA_PATH_BYTES_MAX:
        raise InvalidInputError(
            f"A path of {length} bytes is longer than {DATA_PATH_BYTES_MAX}: {path[:100]!r}..."
        )


def check_marker_of(time: InstantTime, marker: Marker) -> None:
    """Refuse a marker that does not announce a data file of instant `time`.

    Raises:
        InvalidInputError: the path is none, or names a file of another instant, which may be
            committed already.
    """
    check_data_path(marker.data_path)
    file = parse_data_file(marker.data_path)
    if file is None or file.instant_time != time:
        raise InvalidInputError(
            f"{marker.data_path!r} does not name a data file of instant {time}, which these "
            "markers are for"
        )
