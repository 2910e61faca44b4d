"""A merge as people write it: clause after clause, then `execute()`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headwater.context import TableContext
from headwater.model.commit import Commit
from headwater.statements.merge import Clause, MergeRequest, run_merge


@dataclass(frozen=True, repr=False)
class MergeBuilder:
    """A merge that is being written; every method returns another one. See `Table.merge`."""

    context: TableContext
    source: pa.Table
    request: MergeRequest
    done: Callable[[Commit], Commit]

    def when_matched_update(
        self, set: Mapping[str, Any] | None = None, *, where: str | None = None
    ) -> MergeBuilder:
        """Update records that a source row matches.

        Args:
            set: by column a SQL expression on `t` and `s`, or a value that is no text. Without, all
                columns that the source has are set to what it has.
            where: on which records besides; others go to the next clause.
        """
        return self._matched(Clause(set, where))

    def when_matched_delete(self, *, where: str | None = None) -> MergeBuilder:
        """Delete records that a source row matches."""
        return self._matched(Clause(where=where, is_delete=True))

    def when_not_matched_insert(
        self, values: Mapping[str, Any] | None = None, *, where: str | None = None
    ) -> MergeBuilder:
        """Insert source rows that match nothing.

        Args:
            values: by column a SQL expression on `s`, or a value that is no text; other columns are
                null. Without, all columns that the source has.
            where: on which source rows besides.
        """
        clauses = (*self.request.not_matched, Clause(values, where))
        return replace(self, request=replace(self.request, not_matched=clauses))

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Any], *, where: str | None = None
    ) -> MergeBuilder:
        """Update records that no source row matches; all of the table is read for it.

        Args:
            set: by column a SQL expression on `t`, or a value that is no text.
            where: on which records besides; others go to the next clause of this kind.
        """
        return self._not_matched_by_source(Clause(set, where))

    def when_not_matched_by_source_delete(self, *, where: str | None = None) -> MergeBuilder:
        """Delete records that no source row matches; all of the table is read for it."""
        return self._not_matched_by_source(Clause(where=where, is_delete=True))

    def execute(self) -> Commit:
        """Do all of it as one write.

        Raises: see `statements.merge.run_merge`.
        """
        return self.done(run_merge(self.context, self.source, self.request))

    def _not_matched_by_source(self, clause: Clause) -> MergeBuilder:
        clauses = (*self.request.not_matched_by_source, clause)
        return replace(self, request=replace(self.request, not_matched_by_source=clauses))

    def _matched(self, clause: Clause) -> MergeBuilder:
        clauses = (*self.request.matched, clause)
        return replace(self, request=replace(self.request, matched=clauses))
