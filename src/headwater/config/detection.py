"""How a writer finds out, while it still writes, that another one is ahead of it (RFC-56)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.lock import PROVIDER
from headwater.config.markers import MARKERS_TYPE, MarkerType
from headwater.config.option import Option, OptionReader, ValueType, milliseconds
from headwater.config.option_config import OptionConfig, inferred, setting

_HUDI = "org.apache.hudi."
_IN_PROCESS = ("in_process", "InProcessLockProvider")


@unique
class DetectionStrategy(StrEnum):
    """A way to look for conflicts; what counts as one is the same for all."""

    DIRECT = "direct"  # Tasks look at the markers of others before they make their own.
    TRANSACTION_DIRECT = "transaction_direct"  # The same, under a lock for each file group.
    BLOOM_DIRECT = "bloom_direct"  # Bloom filters tell which markers need a look.
    ASYNC = "async"  # The marker service looks, again and again.
    BLOOM_ASYNC = "bloom_async"  # The same, with bloom filters first.

    @property
    def markers(self) -> MarkerType:
        """The kind of markers that the strategy works with on the writer's own side."""
        if self in (DetectionStrategy.ASYNC, DetectionStrategy.BLOOM_ASYNC):
            return MarkerType.TIMELINE_SERVER_BASED
        return MarkerType.DIRECT

    @property
    def has_filters(self) -> bool:
        return self in (DetectionStrategy.BLOOM_DIRECT, DetectionStrategy.BLOOM_ASYNC)


_DEFAULTS = {
    MarkerType.DIRECT: DetectionStrategy.DIRECT,
    MarkerType.TIMELINE_SERVER_BASED: DetectionStrategy.ASYNC,
}
_CLASSES = {
    # As Hudi released them.
    "SimpleDirectMarkerBasedDetectionStrategy": DetectionStrategy.DIRECT,
    "SimpleTransactionDirectMarkerBasedDetectionStrategy": DetectionStrategy.TRANSACTION_DIRECT,
    "AsyncTimelineServerBasedDetectionStrategy": DetectionStrategy.ASYNC,
    # As RFC-56 calls them.
    "SimpleDirectMarkerBasedEarlyConflictDetectionStrategy": DetectionStrategy.DIRECT,
    "SimpleTransactionDirectMarkerBasedEarlyConflictDetectionStrategy": (
        DetectionStrategy.TRANSACTION_DIRECT
    ),
    "BloomDirectMarkerBasedEarlyConflictDetectionStrategy": DetectionStrategy.BLOOM_DIRECT,
    "AsyncTimelineMarkerEarlyConflictDetectionStrategy": DetectionStrategy.ASYNC,
    "BloomAsyncTimelineMarkerEarlyConflictDetectionStrategy": DetectionStrategy.BLOOM_ASYNC,
}


def _parse_strategy(text: str) -> DetectionStrategy:
    name = text.strip()
    if name.upper() in DetectionStrategy.__members__:
        return DetectionStrategy[name.upper()]
    if name.startswith(_HUDI):
        name = name.rpartition(".")[2]
    if name not in _CLASSES:
        raise ValueError(text)
    return _CLASSES[name]


_STRATEGY: ValueType[DetectionStrategy] = ValueType(
    f"one of {', '.join(DetectionStrategy)}, or Hudi's class name of one of them",
    _parse_strategy,
    str,
)

DETECTION_ENABLED = Option(
    "hoodie.write.concurrency.early.conflict.detection.enable",
    bool,
    default=True,
    aliases=("hoodie.write.lock.early.conflict.detection.enable",),
    doc="Whether a write stops as soon as it is known to lose against another one, and not only "
    "when it commits. Only optimistic concurrency control detects. Stock Hudi's default is false.",
)
DETECTION_STRATEGY = Option(
    "hoodie.write.concurrency.early.conflict.detection.strategy",
    _STRATEGY,
    default=None,
    aliases=("hoodie.write.lock.early.conflict.detection.strategy",),
    doc="How conflicts are looked for: `direct`, `transaction_direct`, `bloom_direct`, `async`, "
    "`bloom_async`, or Hudi's class name of one of them. All apply the same rule. Default: "
    f"`direct`, or `async` if {MARKERS_TYPE.key} is {MarkerType.TIMELINE_SERVER_BASED}.",
)
DETECTION_CHECKS_COMMITS = Option(
    "hoodie.write.concurrency.early.conflict.check.commit.conflict",
    bool,
    default=True,
    aliases=("hoodie.write.lock.early.conflict.check.commit",),
    doc="Whether writes that have committed since this one began count too; their markers are "
    "gone. Costs one listing of the timeline per task and second. Stock Hudi's default is false.",
)
DETECTION_DELAY = Option(
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms",
    milliseconds(minimum=0),
    default=0,
    aliases=("hoodie.write.lock.early.conflict.async.checker.batch.interval",),
    doc="How long the marker service waits, after its first marker, until it begins to look for "
    "conflicts.",
)
DETECTION_PERIOD = Option(
    "hoodie.write.concurrency.async.conflict.detector.period_ms",
    milliseconds(minimum=1),
    default=1_000,
    aliases=("hoodie.write.lock.early.conflict.async.checker.period",),
    doc="How often the marker service looks for conflicts. A look costs one listing for each other "
    "writer and reads what is new. Stock Hudi's default is 30000.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionConfig(OptionConfig):
    is_enabled: bool = setting(DETECTION_ENABLED)
    strategy: DetectionStrategy = inferred(
        DETECTION_STRATEGY, lambda reader: _DEFAULTS[reader.read(MARKERS_TYPE)]
    )
    checks_commits: bool = setting(DETECTION_CHECKS_COMMITS)
    delay_ms: int = setting(DETECTION_DELAY)
    period_ms: int = setting(DETECTION_PERIOD)

    def _check(self, reader: OptionReader) -> None:
        markers, provider = reader.read(MARKERS_TYPE), reader.read(PROVIDER) or ""
        reader.require(
            self.strategy.markers is markers,
            f"{DETECTION_STRATEGY.key}={self.strategy} needs "
            f"{MARKERS_TYPE.key}={self.strategy.markers}, got {markers}",
        )
        reader.require(
            self.strategy is not DetectionStrategy.TRANSACTION_DIRECT
            or not provider.endswith(_IN_PROCESS),
            f"{DETECTION_STRATEGY.key}={self.strategy} needs a lock that tasks in other processes "
            f"share, but {PROVIDER.key} is {provider}",
        )
