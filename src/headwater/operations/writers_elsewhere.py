"""Writers of other engines that would not notice that file groups are replaced under them (N-125).

Under non-blocking control a writer of ours looks, when it commits, whether a file group of its was
replaced meanwhile. Apache Hudi's does not: it refuses to touch the file groups of a clustering that
was planned before it began, and that is all. What it commits to a group that has been replaced is
gone for Hudi, and for us the bucket has two file groups. So nothing is replaced while such a writer
is at work. Under optimistic control Hudi compares what it wrote with what was replaced.
"""

from __future__ import annotations

from headwater.config.write import ConcurrencyMode
from headwater.context import TableContext
from headwater.errors import ConflictError, ErrorKind
from headwater.kernel.txn.foreign import is_dead_elsewhere
from headwater.kernel.txn.steps import pending_ingestion


def check_nobody_else_writes(table: TableContext) -> None:
    """Refuse to replace file groups while another engine is at a write, under non-blocking control.

    Raises:
        ConflictError: kind ALREADY_RUNNING; the error names the write.
    """
    if table.write_config.concurrency_mode is not ConcurrencyMode.NON_BLOCKING:
        return
    for write in pending_ingestion(table.load_timeline()):
        if not table.is_ours(write) and not is_dead_elsewhere(
            table.foreign_rule, table.storage, table.layout.timeline, write
        ):
            raise ConflictError(
                f"{write} of another engine is under way on table {table.config.name}, and it does "
                "not notice that file groups are replaced under it. Try again when it has ended",
                kind=ErrorKind.ALREADY_RUNNING,
                instant=write.requested_time,
            )
