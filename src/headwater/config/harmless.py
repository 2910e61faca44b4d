"""Hudi's options that have no effect here and need none: they change no row, whatever they say.

Each reason is said once to whoever gives such an option. `*` stands for any text.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

HARMLESS_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "tables are not registered with a metastore; readers find them by their path": (
        "hoodie.datasource.hive_sync.*",
        "hoodie.datasource.meta*sync.*",
        "hoodie.meta.sync.*",
        "hoodie.meta_sync.*",
        "hoodie.gcp.bigquery.sync.*",
        "hoodie.spark.polaris.catalog.class",
    ),
    "Hudi's own metrics are not published": (
        "hoodie.metrics",
        "hoodie.metrics*",
        "hoodie.metadata.metrics.enable",
    ),
    "memory is bounded by headwater.write.task.memory.bytes": (
        "hoodie.memory.*",
        "hoodie.metadata.max.reader.*",
        "hoodie.metadata.spillable.map.path",
        "hoodie.cdc.file.group.iterator.memory.spill.bytes",
        "hoodie.file.index.cache.*",
    ),
    "Spark's cores and headwater.write.tasks say how many tasks there are": (
        "hoodie.*parallelism",
        "hoodie.copyonwrite.insert.split.size",
        "hoodie.copyonwrite.insert.auto.split",
        "hoodie.bloom.index.keys.per.bucket",
        "hoodie.metadata.range.repartition.*",
        "hoodie.metadata.repartition.*",
    ),
    "there is no timeline server": (
        "hoodie.embed.timeline.server",
        "hoodie.embed.timeline.server.async",
        "hoodie.embed.timeline.server.gzip",
        "hoodie.embed.timeline.server.threads",
        "hoodie.embed.timeline.server.reuse.*",
        "hoodie.filesystem.view.*",
        "hoodie.filesystem.remote.*",
    ),
    "rows are not handed over between threads": (
        "hoodie.write.executor.*",
        "hoodie.write.buffer.*",
    ),
    "rows are Arrow batches in every write": (
        "hoodie.datasource.write.row.writer.enable",
        "hoodie.spark.sql.optimized.writes.enable",
    ),
    "no DataFrame of a write is cached": (
        "hoodie.*.storage.level",
        "hoodie.*.index.use.caching",
        "hoodie.release.resource.on.completion.enable",
    ),
    "stores list what was written to them": (
        "hoodie.consistency.check.*",
        "hoodie.optimistic.consistency.guard.*",
        "hoodie.fs.atomic_creation.support",
    ),
    "the storage client tries again by itself; headwater.storage.* has its settings": (
        "hoodie.filesystem.operation.retry.*",
    ),
    "rollbacks always go by markers, and are planned once": (
        "hoodie.rollback.using.markers",
        "hoodie.rollback.avoid.duplicate.plan",
    ),
    "sorted files are spilled instead": (
        "hoodie.common.spillable.diskmap.*",
        "hoodie.common.diskmap.*",
    ),
    "files are found by the metadata table or by listing, and skipped where indexes allow": (
        "hoodie.file.index.enable",
        "hoodie.enable.data.skipping",
        "hoodie.bucket.index.query.pruning",
        "hoodie.datasource.read.file.index.*",
        "hoodie.layout.optimize.data.skipping.enable",
    ),
    "schemas are always checked before they change": ("hoodie.avro.schema.*",),
    "columns that the rows of a write lack are null in every write": (
        "hoodie.datasource.write.reconcile.schema",
        "hoodie.write.set.null.for.missing.columns",
    ),
    "incremental reads go by completion times, in which there are no holes, and never give a row "
    "again that a service moved": (
        "hoodie.read.timeline.holes.resolution.policy",
        "hoodie.datasource.read.incr.skip_cluster",
        "hoodie.datasource.read.incr.skip_compact",
    ),
    "changes that are no longer there are an error, and never guessed from the whole table": (
        "hoodie.datasource.read.incr.fallback.fulltablescan.enable",
    ),
    "partition columns are read from data files": (
        "hoodie.datasource.read.partition.value.extractor.enabled",
        "hoodie.datasource.partition_extractor_class",
        "hoodie.table.partition_extractor_class",
    ),
    "there is one reader of file slices, and it merges by keys": (
        "hoodie.file.group.reader.enabled",
        "hoodie.merge.use.record.positions",
        "hoodie.write.record.positions",
        "hoodie.compaction.lazy.block.read",
        "hoodie.compaction.reverse.log.read",
        "hoodie.optimized.log.blocks.scan.enable",
        "hoodie.metadata.optimized.log.blocks.scan.enable",
        "hoodie.merge.data.validation.enabled",
        "hoodie.write.merge.handle.fallback",
    ),
    "there are no columns of type BLOB": ("hoodie.read.blob.inline.mode",),
    "base files are Parquet": ("hoodie.orc.*", "hoodie.lance.*", "hoodie.hfile.max.file.size"),
    "row groups, pages, blocks and encodings are those that readers are fast with": (
        "hoodie.parquet.block.size",
        "hoodie.parquet.page.size",
        "hoodie.parquet.dictionary.enabled",
        "hoodie.parquet.field_id.write.enabled",
        "hoodie.hfile.block.size",
        "hoodie.hfile.compression.algorithm",
    ),
    "every write makes log files of its own": (
        "hoodie.logfile.max.size",
        "hoodie.logfile.data.block.max.size",
        "hoodie.metadata.max.logfile.size",
    ),
    "sizes of records are taken from earlier commits, or from the rows themselves": (
        "hoodie.parquet.compression.ratio",
        "hoodie.logfile.to.parquet.compression.ratio",
        "hoodie.record.size.estimation.threshold",
        "hoodie.record.size.estimator.average.metadata.size",
    ),
    "only small files without logs are filled up": (
        "hoodie.merge.small.file.group.candidates.limit",
    ),
    "tables with a BLOOM index have filters made for the keys of each file": (
        "hoodie.parquet.bloom.filter.enabled",
        "hoodie.bloom.index.filter.type",
    ),
    "how keys are looked up changes no row": (
        "hoodie.bloom.index.prune.by.ranges",
        "hoodie.bloom.index.use.treebased.filter",
        "hoodie.bloom.index.bucketized.checking",
        "hoodie.bloom.index.fileid.key.sorting.enable",
        "hoodie.bucket.index.remote.partitioner.enable",
    ),
    "the number of buckets is fixed, and the same for all partitions": (
        "hoodie.bucket.index.max.num.buckets",
        "hoodie.bucket.index.min.num.buckets",
        "hoodie.bucket.index.split.threshold",
        "hoodie.bucket.index.merge.threshold",
        "hoodie.bucket.index.partition.rule.type",
    ),
    "in what order a bulk insert writes rows is said by "
    "hoodie.bulkinsert.user.defined.partitioner.sort.columns": (
        "hoodie.bulkinsert.sort.mode",
        "hoodie.bulkinsert.sort.suffix.record_key",
    ),
    "one row of each key is deleted": ("hoodie.combine.before.delete",),
    "MERGE writes partial rows wherever the table allows": (
        "hoodie.spark.sql.merge.into.partial.updates",
    ),
    "a row that cannot be written fails its write": ("hoodie.write.ignore.failed",),
    "tables of other versions are neither upgraded nor written": (
        "hoodie.write.auto.upgrade",
        "hoodie.write.complex.keygen.*",
        "hoodie.skip.default.partition.validation",
    ),
    "files that were written twice are removed, and tasks that run twice do no harm": (
        "hoodie.fail.job.on.duplicate.data.file.detection",
        "hoodie.block.writes.on.speculative.execution",
    ),
    "who writes is said by headwater.writer.id": ("hoodie.write.application.id",),
    "secrets are hidden by what their keys are called": ("hoodie.sensitive.config.keys",),
    "event times are not kept in commits": ("hoodie.payload.event.time.field",),
    "times are issued under the table's lock; headwater.clock.ahead.max.ms bounds the skew": (
        "hoodie.time.generator.*",
    ),
    "hoodie.write.lock.wait_time_ms bounds the waiting for a lock": (
        "hoodie.write.lock.wait_time_ms_between_retry",
        "hoodie.write.lock.max_wait_time_ms_between_retry",
        "hoodie.write.lock.num_retries",
        "hoodie.write.lock.client.*",
        "hoodie.auto.adjust.lock.configs",
    ),
    "locks of Hive's metastore are not supported, so nothing reads their settings": (
        "hoodie.write.lock.hivemetastore.*",
        "hoodie.write.lock.heartbeat_interval_ms",
    ),
    "the service that keeps markers batches them by itself": (
        "hoodie.markers.timeline_server_based.batch.interval_ms",
    ),
    "services run after a write if their own options say so, and otherwise where they are asked "
    "for: t.services, CALL, or `headwater service run` beside the writers": (
        "hoodie.table.services.enabled",
        "hoodie.table.services.incremental.enabled",
        "hoodie.datasource.compaction.async.enable",
        "hoodie.datasource.clustering.async.enable",
        "hoodie.datasource.write.streaming.disable.compaction",
        "hoodie.compact.schedule.inline",
        "hoodie.log.compaction.enable",
        "hoodie.clustering.schedule.inline",
        "hoodie.clustering.async.*",
        "hoodie.clean.async",
        "hoodie.clean.async.enabled",
        "hoodie.archive.async",
    ),
    "a service that fails is logged and comes again; it takes no write with it": (
        "hoodie.fail.on.timeline.archiving",
        "hoodie.fail.writes.on.inline.table.service.exception",
        "hoodie.write.can.ignore.post.commit.failures",
        "hoodie.post.commit.failures.ignored",
        "hoodie.metadata.write.fail.on.table.service.failures",
    ),
    "a clean is planned from the timeline, and does all that is due": (
        "hoodie.clean.incremental.enabled",
        "hoodie.cleaner.incremental.mode",
        "hoodie.clean.multiple.enabled",
        "hoodie.clean.allow.multiple",
        "hoodie.clean.optimize.using.local.engine.context",
        "hoodie.clean.max.commits.to.clean",
        "hoodie.write.empty.clean.interval.hours",
        "hoodie.clean.delete.bootstrap.base.file",
        "hoodie.cleaner.delete.bootstrap.base.file",
    ),
    "archived instants are written as files of the archived timeline, of which there are few": (
        "hoodie.commits.archival.batch",
        "hoodie.timeline.compaction.target.file.max.bytes",
        "hoodie.timeline.manifest.retained.versions",
    ),
    "how a clustering packs files and makes curves changes no row": (
        "hoodie.clustering.plan.strategy.file.slices.sort.by",
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
        "hoodie.clustering.plan.strategy.binary.copy.schema.evolution.enable",
        "hoodie.clustering.plan.generation.use.local.engine.context",
        "hoodie.layout.optimize.enable",
        "hoodie.layout.optimize.curve.build.method",
        "hoodie.layout.optimize.build.curve.sample.size",
    ),
    "executions that died are found by their heartbeats: "
    "headwater.table.service.rollback.delay.minutes": (
        "hoodie.clustering.enable.expirations",
        "hoodie.clustering.expiration.threshold.mins",
    ),
    "nothing reads it without another option, which is refused": (
        "hoodie.clustering.plan.strategy.daybased.*",
        "hoodie.clustering.plan.strategy.cluster.*",
        "hoodie.clustering.plan.strategy.earliest.commit.to.cluster",
        "hoodie.clustering.fail.on.pending.ingestion.during.conflict.resolution",
        "hoodie.compaction.daybased.target.partitions",
        "hoodie.metaserver.*",
        "hoodie.errortable.*",
        "hoodie.precommit.validators.*",
        "hoodie.partition.ttl.*",
        "hoodie.write.commit.callback.*",
        "hoodie.write.rolling.metadata.timeline.lookback.commits",
        "hoodie.rollback.instant.backup.dir",
        "hoodie.table.service.manager.*",
        "hoodie.metadata.table.service.manager.*",
    ),
    "the metadata table is written and kept in order by every commit, under the table's lock": (
        "hoodie.metadata.streaming.write.*",
        "hoodie.metadata.write.concurrency.mode",
        "hoodie.metadata.compact.max.delta.seconds",
        "hoodie.metadata.compact.trigger.strategy",
        "hoodie.metadata.log.compaction.*",
        "hoodie.metadata.derive.from.datatable.clean.policy",
        "hoodie.metadata.max.deltacommits.when_pending",
    ),
    "how the metadata table is read changes no row": (
        "hoodie.metadata.index.column.stats.processing.mode.override",
        "hoodie.metadata.index.column.stats.inmemory.projection.threshold",
        "hoodie.metadata.file.cache.max.size.mb",
        "hoodie.metadata.bloom.filter.*",
        "hoodie.hfile.block.cache.*",
    ),
    "indexes are built by t.indexes.create or CREATE INDEX, beside writers, and go when they are "
    "dropped; those of a new table begin with its first write": (
        "hoodie.metadata.index.async",
        "hoodie.metadata.auto.delete.partitions",
        "hoodie.metadata.record.level.index.defer.init",
        "hoodie.metadata.record.index.growth.factor",
        "hoodie.metadata.record.index.enable.validation.on.initialization",
    ),
    "Spark starts a stream again that failed, with the same batch": (
        "hoodie.datasource.write.streaming.retry.*",
    ),
    "Hudi Streamer is another program": ("hoodie.streamer.*", "hoodie.deltastreamer.*"),
}


def harmless_reason(key: str) -> str | None:
    """Return why a key has no effect here; None if it may have one."""
    # Spark gives the keys of a data source in lower case.
    lowered = key.lower()
    for why, patterns in HARMLESS_OPTIONS.items():
        if any(fnmatchcase(lowered, pattern) for pattern in patterns):
            return why
    return None
