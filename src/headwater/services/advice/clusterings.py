"""What a clustering would bring: fewer files, and values that lie in fewer of them.

Which files go together is up to the function that plans it (a bundle here, to tell it from file
groups). A bundle is left out that does not pay for itself. Where not all can be taken at once,
those go first that were not written for longest: nobody is likely to come in between, and they are
done for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.services.advice.advice import Advice, Need
from headwater.services.advice.costs import rewrite_cost
from headwater.services.advice.rewrites import groups_of, open_slices
from headwater.services.advice.settings import RewriteSettings, Scope
from headwater.services.advice.statistics import Overlap, TableStatistics
from headwater.services.advice.worth import FILE_BYTES
from headwater.services.clustering.plan import plan_clustering

QUIET_WRITES = 4
"""A file group is cold if none of the last so many writes wrote to it."""

_OVERLAP_MIN = 1.5
"""From how many files a value lies in on average sorting is thought of."""

_ALL = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bundle:
    """Slices that would be written anew together."""

    slices: tuple[FileSlice, ...]
    output_count: int

    @property
    def gain_of_files(self) -> int:
        # That logs would be merged as well is no reason: compaction does it, in nobody's way.
        return max(0, len(self.slices) - self.output_count) * FILE_BYTES

    @property
    def cost(self) -> int:
        return rewrite_cost(*self.slices)


def clustering_advice(
    known: TableStatistics, settings: RewriteSettings, scope: Scope
) -> Advice | None:
    """Return whether files should be put together, sorted if that is configured."""
    if known.is_bucketed is None:
        return None
    slices = open_slices(known, scope, Need.SMALL_FILES)
    if scope.is_cold_first:
        found = _advice_on(known, settings, scope, _cold(known, slices))
        if found is not None:
            return found
    return _advice_on(known, settings, scope, slices)


def _advice_on(
    known: TableStatistics, settings: RewriteSettings, scope: Scope, slices: Sequence[FileSlice]
) -> Advice | None:
    overlap = _worst_overlap(known)
    worth = [
        bundle
        for bundle in _bundles(known, settings, slices)
        if bundle.cost <= settings.reads_max * _gain(bundle, overlap, known)
    ]
    taken = _coldest(known, worth, settings.clustering.groups_max, scope.bytes_max)
    # Of a bundle that was cut the rest may not be worth it.
    bundles = _bundles(known, settings, taken)
    of_files = sum(bundle.gain_of_files for bundle in bundles)
    of_order = sum(_gain_of_order(bundle, overlap, known) for bundle in bundles)
    if not of_files + of_order:
        return None
    chosen = [one for bundle in bundles for one in bundle.slices]
    columns = settings.clustering.sort_columns
    arguments = f"sort_by={list(columns)!r}" if columns else ""
    return Advice(
        need=Need.UNSORTED if of_order > of_files else Need.SMALL_FILES,
        call=f"t.services.cluster(t.services.schedule_clustering({arguments}))",
        why="; ".join(_reasons(known, bundles, overlap)),
        gain_bytes=of_files + of_order,
        cost_bytes=rewrite_cost(*chosen),
        times_cancelled=known.cancelled_clusterings,
        file_groups=groups_of(chosen),
    )


def _reasons(
    known: TableStatistics, bundles: Sequence[_Bundle], overlap: Overlap | None
) -> Iterable[str]:
    files = sum(len(bundle.slices) for bundle in bundles)
    after = sum(bundle.output_count for bundle in bundles)
    if after < files:
        yield f"{files} files would fit into {after}"
    if overlap is not None:
        yield (
            f"a value of {overlap.column} may be in {overlap.depth:.1f} files of its partition, "
            f"of {overlap.file_count} in all, and would be in one if rows were sorted"
        )
    times = known.cancelled_clusterings
    if times:
        yield (
            f"writers cancelled it {times} times since one got through, so it comes after what is "
            "more likely to last: cluster partitions that are not written, or without cancellable"
        )


def _bundles(
    known: TableStatistics, settings: RewriteSettings, slices: Sequence[FileSlice]
) -> list[_Bundle]:
    """Return all that a plan would put together; how many it takes at once is decided later."""
    request = plan_clustering(
        slices,
        closed=(),
        config=replace(settings.clustering, groups_max=_ALL),
        sorted_by=known.sorted_by,
        is_bucketed=bool(known.is_bucketed),
        base_uri=known.base_uri,
        flags=PlanFlags(),
    )
    if request is None or request.clustering_plan is None:
        return []
    by_group = {one.group: one for one in slices}
    return [
        _Bundle(
            slices=tuple(
                by_group[FileGroupId(info.partition_path or "", info.file_id or "")]
                for info in group.slices or ()
            ),
            output_count=group.num_output_file_groups or 1,
        )
        for group in request.clustering_plan.input_groups or ()
    ]


def _coldest(
    known: TableStatistics, bundles: Sequence[_Bundle], count_max: int, bytes_max: int | None
) -> list[FileSlice]:
    """Return the slices of the coldest bundles that may be rewritten at once.

    The first is cut if it costs too much, but for the two slices that make it one.
    """
    taken: list[FileSlice] = []
    left = bytes_max
    ordered = sorted(bundles, key=lambda bundle: _hottest(known, bundle))
    for number, bundle in enumerate(ordered[:count_max]):
        if left is None or bundle.cost <= left:
            taken += bundle.slices
            left = None if left is None else left - bundle.cost
            continue
        if not number:
            taken += _cut(known, bundle, left)
        break
    return taken


def _cut(known: TableStatistics, bundle: _Bundle, bytes_max: int) -> list[FileSlice]:
    taken: list[FileSlice] = []
    for one in sorted(bundle.slices, key=lambda one: (_last_written(known, one), one.group)):
        if len(taken) >= 2 and rewrite_cost(*taken, one) > bytes_max:
            break
        taken.append(one)
    return taken


def _cold(known: TableStatistics, slices: Iterable[FileSlice]) -> list[FileSlice]:
    """Return the slices of groups that the last writes did not write to."""
    since = known.writes[-QUIET_WRITES:][:1]
    return [one for one in slices if not since or _last_written(known, one) < since[0]]


def _hottest(known: TableStatistics, bundle: _Bundle) -> tuple[InstantTime, FileGroupId]:
    return max((_last_written(known, one), one.group) for one in bundle.slices)


def _last_written(known: TableStatistics, one: FileSlice) -> InstantTime:
    """Return when a group was last written; "" if that is so long ago that nothing tells."""
    return known.written.get(one.group, InstantTime(""))


def _gain(bundle: _Bundle, overlap: Overlap | None, known: TableStatistics) -> int:
    return bundle.gain_of_files + _gain_of_order(bundle, overlap, known)


def _gain_of_order(bundle: _Bundle, overlap: Overlap | None, known: TableStatistics) -> int:
    """Return what a filter is spared: the bundle's part of what it is if all is sorted."""
    if overlap is None:
        return 0
    share = len(bundle.slices) / len(known.slices)
    return int(share * (overlap.spared_bytes + overlap.spared_files * FILE_BYTES))


def _worst_overlap(known: TableStatistics) -> Overlap | None:
    """Return the column whose values lie in the most files.

    None if they lie in few, or in buckets, which are not sorted against each other.
    """
    if known.is_bucketed:
        return None
    deep = [one for one in known.overlaps if one.depth >= _OVERLAP_MIN]
    return max(deep, key=lambda one: one.spared_bytes, default=None)
