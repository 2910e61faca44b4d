"""What a table needs, decided on its statistics alone."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.services.advice.advice import Advice, Need, ranked
from headwater.services.advice.clusterings import clustering_advice
from headwater.services.advice.rewrites import (
    compaction_advice,
    log_compaction_advice,
    waiting_advice,
)
from headwater.services.advice.settings import RewriteSettings, Scope
from headwater.services.advice.statistics import IndexState, TableStatistics
from headwater.services.advice.worth import (
    FILE_BYTES,
    HELD_UP_BYTES,
    KEPT_SHARE,
    NAME_BYTES,
)

_NAMED_MAX = 3
"""How many instants a reason names."""


def advise(
    known: TableStatistics, settings: RewriteSettings, scope: Scope | None = None
) -> list[Advice]:
    """Return what the table needs, by gain over cost, the best first.

    What would not pay within `settings.reads_max` reads is left out, but not what others wait for.
    """
    optional = (*_tidying(known), *_rewrites(known, settings, scope or Scope()))
    worth = (one for one in optional if one.reads_to_pay <= settings.reads_max)
    return ranked((*_repairs(known), *worth))


def _repairs(known: TableStatistics) -> Iterator[Advice]:
    """Give what others wait for."""
    failed = (*known.failed_writes, *known.failed_plans)
    if failed:
        yield Advice(
            need=Need.FAILED_WRITES,
            call="t.services.rollback_failed_writes()",
            why=f"{len(failed)} writes or plans failed and are still pending ({_some(failed)}): "
            "cleaning, archival and the metadata table stop at them",
            gain_bytes=HELD_UP_BYTES * len(failed),
            cost_bytes=0,
        )
    if known.unfinished:
        yield Advice(
            need=Need.UNFINISHED_CLEAN,
            call="t.services.clean()",
            why=f"Somebody began {_some(known.unfinished)} and is gone; a clean finishes it",
            gain_bytes=HELD_UP_BYTES,
            cost_bytes=0,
        )
    for plan in known.waiting_plans:
        yield waiting_advice(known, plan)
    if known.expired_lock is not None:
        yield Advice(
            need=Need.EXPIRED_LOCK,
            call="headwater lock break PATH",
            why=f"{known.expired_lock} held the table lock when its lease ran out. Whoever needs "
            "the lock next takes it over; breaking it now spares them the wait",
            gain_bytes=HELD_UP_BYTES,
            cost_bytes=0,
        )
    yield from _unfinished_indexes(known)


def _unfinished_indexes(known: TableStatistics) -> Iterator[Advice]:
    unfinished = [name for name, state in known.indexes.items() if state is IndexState.UNFINISHED]
    dropped = [name for name, state in known.indexes.items() if state is IndexState.DROPPED]
    cost_bytes = known.base_files * FILE_BYTES
    if unfinished:
        yield Advice(
            need=Need.UNFINISHED_INDEX,
            call="t.indexes.run()",
            why=f"{_some(unfinished)} was planned or half built, and nobody works on it: every "
            "commit writes to it, and no read uses it",
            gain_bytes=HELD_UP_BYTES + cost_bytes,
            cost_bytes=cost_bytes,
            indexes=tuple(unfinished),
        )
    if dropped:
        yield Advice(
            need=Need.DROPPED_INDEX,
            call="t.services.clean()",
            why=f"{_some(dropped)} was dropped when a commit was taken back, and waits to be built "
            "again",
            gain_bytes=HELD_UP_BYTES + cost_bytes,
            cost_bytes=cost_bytes,
            indexes=tuple(dropped),
        )


def _tidying(known: TableStatistics) -> Iterator[Advice]:
    """Give what is in nobody's way, and costs whoever lists or looks things up."""
    behind = known.metadata_table
    if behind is not None and behind.is_due:
        waits = behind.waits_for
        yield Advice(
            need=Need.METADATA_LOGS,
            call=(
                "t.services.rollback_failed_writes(wait=True)"
                if waits
                else "t.services.compact_metadata_table()"
            ),
            why=f"The metadata table has {behind.commits} commits in logs, and is to be compacted "
            f"from {behind.commits_max} on" + (f"; it waits for {_some(waits)}" if waits else ""),
            gain_bytes=behind.commits * FILE_BYTES,
            cost_bytes=2 * behind.size_bytes,
        )
    if known.obsolete_files:
        yield Advice(
            need=Need.OBSOLETE_FILES,
            call="t.services.clean()",
            why=f"{known.obsolete_files} files of {known.obsolete_bytes} bytes are needed by no "
            "view within retention",
            gain_bytes=known.obsolete_files * NAME_BYTES + known.obsolete_bytes // KEPT_SHARE,
            cost_bytes=0,
        )
    if known.archivable:
        yield Advice(
            need=Need.LONG_TIMELINE,
            call="t.services.archive()",
            why=f"The active timeline has {known.instant_count} instants, of which "
            f"{known.archivable} can be archived",
            gain_bytes=known.archivable * NAME_BYTES,
            cost_bytes=0,
        )
    missing = [name for name, state in known.indexes.items() if state is IndexState.MISSING]
    if missing:
        files = known.base_files
        yield Advice(
            need=Need.MISSING_INDEX,
            call=f"t.indexes.create({missing!r})",
            why=f"The options ask for {_some(missing)}, and the table has it not: reads list "
            f"folders, or open files ({files}) that an index would let them skip",
            gain_bytes=max(1, files) * FILE_BYTES,
            cost_bytes=files * FILE_BYTES,
            indexes=tuple(missing),
        )


def _rewrites(known: TableStatistics, settings: RewriteSettings, scope: Scope) -> Iterator[Advice]:
    if not known.is_rewritable:
        return
    for make in (compaction_advice, log_compaction_advice, clustering_advice):
        found = make(known, settings, scope)
        if found is not None:
            yield found


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
