"""Where a view has its committed files from."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from headwater.kernel.view.committed_files import CommittedFiles


class FileSource(Protocol):
    """Committed files of one table, as of one listing of its timeline."""

    @property
    def missing(self) -> Collection[str]:
        """The paths of committed files that storage turned out not to have."""
        ...

    @property
    def forgets_cleaned(self) -> bool:
        """Whether files that a clean deleted are left out, instead of being `missing`."""
        ...

    def gather(
        self, files: CommittedFiles, partitions: Collection[str] | None, loaded: Collection[str]
    ) -> None:
        """Add the files of some partitions, by default of all, but of none in `loaded`.

        Nothing is added if it raises, so it may be tried again.
        """
        ...
