"""The threads that obstore sends requests with, which a forked child does not have.

They begin with the first request of a process. A child that is forked later has obstore's memory
and none of its threads, so that a request of it, and of any store that it opens, would wait for
ever. Nothing can begin them anew; who forks before the first request has no such trouble.
"""

from __future__ import annotations

from headwater.errors import UnsupportedError
from headwater.seams.ids import this_process


class StoreThreads:
    """Those of this process, or of the one that it was forked from."""

    def __init__(self) -> None:
        self._process = ""

    def use(self, where: str) -> None:
        """Take note of a request to come.

        Raises:
            UnsupportedError: it would wait for ever.
        """
        process = this_process()
        if not self._process:
            self._process = process
        elif self._process != process:
            raise UnsupportedError(
                f"This process cannot reach {where}: it was forked from one that had used an "
                "object store, whose connections belong to threads that a forked process does not "
                "have. Nothing was sent. Start it another way, for example with "
                "multiprocessing.get_context('spawn'), or fork before the first table in a store "
                "is read or written"
            )


STORE_THREADS = StoreThreads()
