"""How the key of a lock becomes one component of a path, on every store."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

from headwater.errors import InvalidInputError

# File systems allow 255 bytes for a name; suffixes such as `.epoch.takeover` need room as well.
QUOTED_LENGTH_MAX = 160
_PREFIX_LENGTH = 80


def quote_lock_key(key: str) -> str:
    """Return a name for `key` made of ASCII letters, digits, `.`, `-` and `%` only.

    Different keys have different names. `_` and `~` are escaped too: the first keeps the names
    apart from those Hudi gives its own locks (`table_lock`), the second marks a shortened name.

    Raises:
        InvalidInputError: the key is empty.
    """
    if not key:
        raise InvalidInputError(
            "A lock needs a key that is not empty, such as a partition and file id"
        )
    quoted = quote(key, safe="").replace("_", "%5F").replace("~", "%7E")
    if len(quoted) <= QUOTED_LENGTH_MAX:
        return quoted
    return f"{quoted[:_PREFIX_LENGTH]}~{sha256(key.encode()).hexdigest()}"
