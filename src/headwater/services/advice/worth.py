"""What counts for how much when advice is ranked. All of it is in bytes that are read or written.

None of these is exact, and none has to be: they put what opening, listing and committing costs on
one scale with bytes, about as an object store does at 50 megabytes and 50 requests a second.
"""

from __future__ import annotations

MEBIBYTE = 1024 * 1024

FILE_BYTES = MEBIBYTE
"""A file that a read has to open."""
COMMIT_BYTES = 4 * MEBIBYTE
"""What planning and committing cost a service, however little it rewrites."""
NAME_BYTES = 16 * 1024
"""An instant or a file that nobody needs: listings name it, and indexes may."""
KEPT_SHARE = 100
"""Bytes in storage that nobody reads count for one in so many."""
HELD_UP_BYTES = 64 * MEBIBYTE
"""What other work waits for: a dead write that stops cleaning, a plan that closes file groups."""
