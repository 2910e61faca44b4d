"""Names of new file groups, made without randomness, so that a retried task makes the same ones.

The first eight characters of the id of a bucket's group are the bucket's number.
"""

from __future__ import annotations

import hashlib

from headwater.model.instant import InstantTime


def named_bucket(file_id: str) -> int | None:
    """Return the bucket that a file id names; None if it names none."""
    head = file_id[:8]
    return int(head) if len(head) == 8 and head.isascii() and head.isdecimal() else None


def seeded_file_id(seed: str, bucket: int | None = None) -> str:
    """Return an id that nobody else gets who has another seed."""
    digest = hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()
    head = digest[:8] if bucket is None else f"{bucket:08d}"
    return f"{head}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}-0"


def generation_file_id(bucket: int, replaced_by: InstantTime | None) -> str:
    """Return the id of the group that a bucket has since an instant replaced the one before.

    All writers give it the same id, or two that start it at the same time would make two groups of
    it. Hudi's do too: where nothing was replaced, the rest are zeros.
    """
    digits = f"{replaced_by or '':0<24}"
    return f"{bucket:08d}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:]}-0"
