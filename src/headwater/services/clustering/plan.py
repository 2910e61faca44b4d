"""Which file groups are clustered together, and into how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headwater.config.clustering import (
    CLUSTERING_FILE_BYTES,
    CLUSTERING_SORT_COLUMNS,
    ROW_ORDER,
    ClusteringConfig,
    RowOrder,
)
from headwater.errors import InvalidInputError
from headwater.kernel.file_ids import named_bucket
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    RequestedReplace,
    SliceInfo,
)
from headwater.services.rewrite_files import io_metrics

EXECUTION_STRATEGY = (
    "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
)
"""What stock Hudi would execute the plan by."""

CLUSTER = "CLUSTER"


def plan_clustering(
    slices: Iterable[FileSlice],
    *,
    closed: Collection[FileGroupId],
    config: ClusteringConfig,
    sorted_by: Mapping[InstantTime, str],
    is_bucketed: bool,
    base_uri: str,
    flags: PlanFlags,
) -> RequestedReplace | None:
    """Plan to cluster file groups; None if none of them would gain by it.

    Args:
        slices: what readers see of every file group.
        closed: groups that another pending plan names.
        sorted_by: the order (see `order_text`) that clusterings gave to their rows, by instant.
    """
    open_slices = [
        one
        for one in slices
        if one.group not in closed and config.takes_partition(one.group.partition)
    ]
    wanted = order_text(config)
    settled = {
        one.group
        for one in open_slices
        if wanted and not one.appended_logs and sorted_by.get(one.base_instant) == wanted
    }
    groups = (
        _groups_of_buckets(open_slices, settled, config)
        if is_bucketed
        else _groups_by_size(open_slices, settled, config)
    )
    chosen = tuple(_group(some, config, is_bucketed, base_uri) for some in groups)
    chosen = chosen[: config.groups_max]
    if not chosen:
        return None
    plan = ClusteringPlan(
        input_groups=chosen,
        strategy=ClusteringStrategy(
            strategy_class_name=EXECUTION_STRATEGY, strategy_params=strategy_params(config)
        ),
        extra_metadata=flags.to_extra_metadata(),
    )
    return RequestedReplace(
        operation_type=CLUSTER, clustering_plan=plan, extra_metadata={}, version=1
    )


def order_text(config: ClusteringConfig) -> str:
    """Return a text that two clusterings share if they sort alike; empty if they do not sort."""
    return f"{config.order}({','.join(config.sort_columns)})" if config.sort_columns else ""


def strategy_params(config: ClusteringConfig) -> dict[str, str]:
    """Return what a plan says of its execution, under Hudi's names."""
    params = {CLUSTERING_FILE_BYTES.key: str(config.file_bytes)}
    if config.sort_columns:
        params[CLUSTERING_SORT_COLUMNS.key] = CLUSTERING_SORT_COLUMNS.encode(config.sort_columns)
        params[ROW_ORDER.key] = ROW_ORDER.encode(config.order)
    return params


def config_of_plan(plan: ClusteringPlan, config: ClusteringConfig) -> ClusteringConfig:
    """Return how a plan is to be executed: as it says, and as configured where it does not say."""
    params = (plan.strategy.strategy_params if plan.strategy else None) or {}
    columns = params.get(CLUSTERING_SORT_COLUMNS.key, "")
    order = params.get(ROW_ORDER.key)
    size = params.get(CLUSTERING_FILE_BYTES.key)
    return replace(
        config,
        sort_columns=CLUSTERING_SORT_COLUMNS.parse(columns),
        order=RowOrder.LINEAR if order is None else ROW_ORDER.parse(order),
        file_bytes=config.file_bytes if size is None else CLUSTERING_FILE_BYTES.parse(size),
    )


def parse_order(text: str) -> RowOrder:
    """Raises:
    InvalidInputError: there is no such order.
    """
    if text not in list(RowOrder):
        raise InvalidInputError(f"An order is one of {', '.join(RowOrder)}, got {text!r}")
    return RowOrder(text)


def _groups_of_buckets(
    slices: Iterable[FileSlice], settled: Collection[FileGroupId], config: ClusteringConfig
) -> Iterator[list[FileSlice]]:
    """Give each bucket for itself.

    A bucket that has two file groups is left alone (N-125): what is made of it has one name.
    """
    slices = list(slices)
    group_counts = Counter(_bucket(one) for one in slices)
    for one in slices:
        is_alone = group_counts[_bucket(one)] == 1
        if is_alone and one.group not in settled and (one.appended_logs or config.sort_columns):
            yield [one]


def _bucket(one: FileSlice) -> tuple[str, int | str]:
    number = named_bucket(one.group.file_id)
    return one.group.partition, one.group.file_id if number is None else number


def _groups_by_size(
    slices: Iterable[FileSlice], settled: Collection[FileGroupId], config: ClusteringConfig
) -> Iterator[list[FileSlice]]:
    """Give what to put together, partition by partition, oldest files first.

    Rows that are in order already move again only with new ones, and only out of small files.
    """
    by_partition: dict[str, list[FileSlice]] = {}
    for one in slices:
        base_bytes = 0 if one.base is None else one.base.size_bytes
        is_full = (
            not config.sort_columns and not one.appended_logs and base_bytes >= config.file_bytes
        )
        is_settled = one.group in settled and base_bytes >= config.file_bytes // 2
        if base_bytes < config.small_file_limit and not is_full and not is_settled:
            by_partition.setdefault(one.group.partition, []).append(one)
    for partition in sorted(by_partition):
        found = by_partition[partition]
        if all(one.group in settled for one in found):
            continue
        for some in _packed(sorted(found, key=_age), config.group_bytes_max):
            is_fewer = _output_count(some, config) < len(some)
            if is_fewer or config.sort_columns or any(one.appended_logs for one in some):
                yield some


def _packed(slices: Sequence[FileSlice], bytes_max: int) -> Iterator[list[FileSlice]]:
    packed: list[FileSlice] = []
    size = 0
    for one in slices:
        if packed and size + one.size_bytes > bytes_max:
            yield packed
            packed, size = [], 0
        packed.append(one)
        size += one.size_bytes
    if packed:
        yield packed


def _age(one: FileSlice) -> tuple[InstantTime, FileGroupId]:
    return one.base_instant, one.group


def _output_count(slices: Collection[FileSlice], config: ClusteringConfig) -> int:
    size = sum(one.size_bytes for one in slices)
    return max(1, -(-size // config.file_bytes))


def _group(
    slices: Sequence[FileSlice], config: ClusteringConfig, is_bucketed: bool, base_uri: str
) -> ClusteringGroup:
    infos = tuple(
        SliceInfo(
            data_file_path=None if one.base is None else f"{base_uri}/{one.base.path}",
            delta_file_paths=tuple(f"{base_uri}/{log.path}" for log in one.logs),
            file_id=one.group.file_id,
            partition_path=one.group.partition,
        )
        for one in slices
    )
    return ClusteringGroup(
        slices=infos,
        metrics=io_metrics(slices),
        num_output_file_groups=1 if is_bucketed else _output_count(slices, config),
    )
