"""Planted bugs in where log compactions lie, and in what may be planned beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from headwater.kernel.view import slicing
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.logcompact import logcompact

CompletionTimeOf = Callable[[InstantTime], InstantTime | None]

_place_logs = slicing._place_logs


def _nothing_pending(view: object) -> Mapping[Any, Any]:
    return {}


def _own_completion(output: Any, *arguments: object) -> list[InstantTime]:
    """Slice the output of a log compaction by when the log compaction completed."""
    return [output.completion_time]


def _without_inputs(
    logs: Iterable[LogFile],
    completion_time_of: CompletionTimeOf,
    as_of: InstantTime | None,
    log_compactions: Mapping[InstantTime, Collection[str]],
) -> Any:
    """Leave the inputs of log compactions out of the views of before, too."""
    taken = {name for names in log_compactions.values() for name in names}
    kept = [log for log in logs if log.name not in taken]
    return _place_logs(kept, completion_time_of, as_of, log_compactions)


_SLICING = "headwater.kernel.view.slicing"

MUTANTS = (
    Mutant(
        name="a second plan for a file group",
        scenario=lambda: logcompact(Faults()),
        patches=(
            (
                "headwater.kernel.view.table_view.TableView.pending_rewrites",
                property(_nothing_pending),
            ),
        ),
        must_violate=("INV-51",),
    ),
    Mutant(
        name="log compaction sliced by its own completion",
        scenario=lambda: logcompact(Faults()),
        patches=((f"{_SLICING}._content_times", _own_completion),),
        must_violate=("INV-48",),
        preemptions_max=2,
    ),
    Mutant(
        name="inputs of a log compaction removed whatever the time",
        scenario=lambda: logcompact(Faults()),
        patches=((f"{_SLICING}._place_logs", _without_inputs),),
        must_violate=("INV-48",),
    ),
)
