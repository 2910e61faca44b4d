"""Hudi's options that would change what happens, and that this release does not implement.

To accept one of them in silence would be to promise what is not done.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnsupportedOption:
    """A key of which only some values can be honoured."""

    key: str
    """In lower case. Ends in `*` for a family of keys."""
    honoured: tuple[str, ...]
    """Values that change nothing here, in upper case. Empty: the key is refused altogether."""
    advice: str

    def is_meant(self, key: str) -> bool:
        # Spark gives the keys of a data source in lower case.
        if self.key.endswith("*"):
            return key.lower().startswith(self.key.removesuffix("*"))
        return key.lower() == self.key

    def refuses(self, text: str) -> bool:
        """Whether a value of the key is not what happens here."""
        return text.strip().upper() not in self.honoured

    @property
    def limits(self) -> str:
        """What may be given instead, for people."""
        values = " or ".join(value or "nothing" for value in self.honoured)
        return f"only {values}" if self.honoured else "not at all"


_NO_JAVA = "Classes of Java cannot run here"
_INTERNAL = "It is for Hudi's own code"

UNSUPPORTED_OPTIONS: tuple[UnsupportedOption, ...] = (
    UnsupportedOption(
        "hoodie.table.base.file.format", ("PARQUET",), "Base files of data tables are Parquet"
    ),
    UnsupportedOption(
        "hoodie.datasource.write.drop.partition.columns",
        ("FALSE",),
        "Data files keep the partition columns",
    ),
    UnsupportedOption(
        "hoodie.populate.meta.fields", ("TRUE",), "New data files carry the meta columns"
    ),
    UnsupportedOption(
        "hoodie.table.multiple.base.file.formats.enable", ("FALSE",), "Base files are Parquet"
    ),
    UnsupportedOption(
        "hoodie.partition.metafile.use.base.format",
        ("FALSE",),
        "Partition metafiles are properties files",
    ),
    UnsupportedOption("hoodie.bootstrap.*", (), "Write the data into a new table instead"),
    UnsupportedOption(
        "hoodie.schema.on.read.enable", ("FALSE",), "Schemas evolve by adding columns"
    ),
    UnsupportedOption(
        "hoodie.write.table.version", ("9",), "Headwater writes table version 9 only"
    ),
    UnsupportedOption(
        "hoodie.datasource.write.payload.class",
        (),
        "Java payloads cannot run here. Those that do what a merge mode says are taken; otherwise "
        "use hoodie.record.merge.mode, with a function of headwater.merge.function if need be",
    ),
    UnsupportedOption(
        "hoodie.combine.before.upsert", ("TRUE",), "One row of each key counts in every upsert"
    ),
    UnsupportedOption(
        "hoodie.write.record.merge.custom.implementation.classes",
        (),
        "Java mergers cannot run here; use hoodie.record.merge.mode=CUSTOM with a function of "
        "headwater.merge.function",
    ),
    UnsupportedOption(
        "hoodie.datasource.write.record.merger.impls",
        (),
        "Java mergers cannot run here; use hoodie.record.merge.mode=CUSTOM with a function of "
        "headwater.merge.function",
    ),
    UnsupportedOption("hoodie.table.cdc.enabled", ("FALSE",), "Change data is not written"),
    UnsupportedOption(
        "hoodie.index.type",
        (
            "BUCKET",
            "SIMPLE",
            "GLOBAL_SIMPLE",
            "BLOOM",
            "GLOBAL_BLOOM",
            "RECORD_INDEX",
            "RECORD_LEVEL_INDEX",
            "GLOBAL_RECORD_LEVEL_INDEX",
        ),
        "Choose one of these",
    ),
    UnsupportedOption(
        "hoodie.archive.beyond.savepoint",
        ("FALSE",),
        "What a restore may take back stays on the active timeline",
    ),
    UnsupportedOption("hoodie.index.bucket.engine", ("SIMPLE",), "The number of buckets is fixed"),
    UnsupportedOption(
        "hoodie.table.keygenerator.type",
        ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM"),
        "Choose one of these, or leave the key out; it follows from the columns",
    ),
    *(
        UnsupportedOption(key, honoured, _NO_JAVA)
        for key, honoured in (
            ("hoodie.avro.write.support.class", ()),
            ("hoodie.parquet.spark.row.write.support.class", ()),
            ("hoodie.parquet.flink.rowdata.write.support.class", ()),
            ("hoodie.parquet.write.config.injector.class", ()),
            ("hoodie.storage.class", ()),
            ("hoodie.io.factory.class", ()),
            ("hoodie.keygen.datetime.parser.class", ()),
            ("hoodie.deltastreamer.keygen.datetime.parser.class", ()),
            ("hoodie.index.class", ("",)),
            ("hoodie.bulkinsert.user.defined.partitioner.class", ()),
            ("hoodie.writestatus.class", ()),
            ("hoodie.record.size.estimator.class", ()),
            ("hoodie.fileid.prefix.provider.class", ()),
            ("hoodie.client.init.callback.classes", ("",)),
            ("hoodie.write.merge.handle.class", ()),
            ("hoodie.write.concat.handle.class", ()),
            ("hoodie.compact.merge.handle.class", ()),
            ("hoodie.compaction.plan.generator", ()),
            ("hoodie.precommit.validators", ("",)),
            ("hoodie.prewrite.validators", ("",)),
        )
    ),
    UnsupportedOption(
        "hoodie.storage.layout.type", ("DEFAULT", "BUCKET"), "The layout follows from the index"
    ),
    UnsupportedOption(
        "hoodie.storage.layout.partitioner.class",
        ("ORG.APACHE.HUDI.TABLE.ACTION.COMMIT.SPARKBUCKETINDEXPARTITIONER",),
        "The layout follows from the index",
    ),
    UnsupportedOption(
        "hoodie.clustering.plan.strategy.class",
        ("ORG.APACHE.HUDI.CLIENT.CLUSTERING.PLAN.STRATEGY.SPARKSIZEBASEDCLUSTERINGPLANSTRATEGY",),
        "Clustering takes small files by size; choose partitions with "
        "hoodie.clustering.plan.strategy.partition.selected or a regular expression",
    ),
    UnsupportedOption(
        "hoodie.clustering.execution.strategy.class",
        ("ORG.APACHE.HUDI.CLIENT.CLUSTERING.RUN.STRATEGY.SPARKSORTANDSIZEEXECUTIONSTRATEGY",),
        "Clustering sorts rows and makes files of the size that is wanted",
    ),
    UnsupportedOption(
        "hoodie.clustering.plan.partition.filter.mode",
        ("NONE",),
        "Choose partitions with hoodie.clustering.plan.strategy.partition.selected or "
        "hoodie.clustering.plan.strategy.partition.regex.pattern",
    ),
    UnsupportedOption(
        "hoodie.clustering.updates.strategy",
        (),
        "Writes to rows that are being clustered go on; a clustering that is cancellable gives way",
    ),
    UnsupportedOption(
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
        ("FALSE",),
        "Schedule the clustering as cancellable: then it gives way to writes",
    ),
    UnsupportedOption(
        "hoodie.compaction.strategy",
        (
            "ORG.APACHE.HUDI.TABLE.ACTION.COMPACT.STRATEGY.LOGFILESIZEBASEDCOMPACTIONSTRATEGY",
            "ORG.APACHE.HUDI.TABLE.ACTION.COMPACT.STRATEGY.BOUNDEDIOCOMPACTIONSTRATEGY",
        ),
        "Compaction takes the file groups with the largest logs first, within "
        "hoodie.compaction.target.io, of partitions by hoodie.compaction.partition.path.regex",
    ),
    UnsupportedOption(
        "hoodie.write.lock.conflict.resolution.strategy",
        (
            "ORG.APACHE.HUDI.CLIENT.TRANSACTION."
            "SIMPLECONCURRENTFILEWRITESCONFLICTRESOLUTIONSTRATEGY",
            "ORG.APACHE.HUDI.CLIENT.TRANSACTION."
            "BUCKETINDEXCONCURRENTFILEWRITESCONFLICTRESOLUTIONSTRATEGY",
        ),
        "Conflicts are found by file groups and keys; a clustering that is cancellable gives way",
    ),
    UnsupportedOption(
        "hoodie.bucket.index.partition.expressions",
        (),
        "All partitions have hoodie.bucket.index.num.buckets",
    ),
    UnsupportedOption("hoodie.base.file.format", ("PARQUET",), "Base files are Parquet"),
    UnsupportedOption("hoodie.table.ro.file.format", ("PARQUET",), "Base files are Parquet"),
    UnsupportedOption("hoodie.table.log.file.format", ("HOODIE_LOG",), "Logs are Hudi's"),
    UnsupportedOption("hoodie.table.rt.file.format", ("HOODIE_LOG",), "Logs are Hudi's"),
    UnsupportedOption(
        "hoodie.parquet.writelegacyformat.enabled", ("FALSE",), "Files are as Spark reads them now"
    ),
    UnsupportedOption(
        "hoodie.parquet.outputtimestamptype", ("TIMESTAMP_MICROS",), "Times have microseconds"
    ),
    UnsupportedOption(
        "hoodie.parquet.write.utc-timezone.enabled", ("TRUE",), "Times are stored as of UTC"
    ),
    UnsupportedOption(
        "hoodie.hfile.writes.allow.duplicates", ("FALSE",), "An index has each key once"
    ),
    UnsupportedOption(
        "hoodie.datasource.write.slash.separated.date.partitioning",
        ("FALSE",),
        "Use the TIMESTAMP key generator with the output format yyyy/MM/dd",
    ),
    UnsupportedOption(
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
        ("FALSE",),
        "Such keys depend on the zone of each writer's Java runtime",
    ),
    UnsupportedOption(
        "hoodie.write.record.merge.strategy.id",
        (),
        "hoodie.record.merge.mode says how records are merged",
    ),
    UnsupportedOption(
        "hoodie.datasource.write.record.merger.strategy",
        (),
        "hoodie.record.merge.mode says how records are merged",
    ),
    UnsupportedOption(
        "hoodie.combine.before.insert",
        ("FALSE",),
        "An insert takes rows as they are; upsert them, or give "
        "hoodie.datasource.insert.dup.policy=drop",
    ),
    UnsupportedOption(
        "hoodie.merge.allow.duplicate.on.inserts",
        ("TRUE",),
        "An insert takes rows as they are; upsert them, or give "
        "hoodie.datasource.insert.dup.policy=drop",
    ),
    UnsupportedOption(
        "hoodie.datasource.merge.type", ("PAYLOAD_COMBINE",), "Logs are always merged"
    ),
    UnsupportedOption(
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        ("FALSE",),
        "Columns are not dropped; those that rows lack are null",
    ),
    UnsupportedOption(
        "hoodie.write.concurrency.schema.conflict.resolution.enable",
        ("TRUE",),
        "Schemas that do not go together are always a conflict",
    ),
    *(
        UnsupportedOption(key, (), "Columns are those of the rows and of the table")
        for key in (
            "hoodie.avro.schema",
            "hoodie.internal.schema",
            "hoodie.write.schema",
            "hoodie.write.partial.update.schema",
            "hoodie.bulkinsert.schema.ddl",
        )
    ),
    UnsupportedOption("hoodie.base.path", (), "Give the path to what opens the table"),
    UnsupportedOption("hoodie.allow.empty.commit", ("TRUE",), "A write without rows is a commit"),
    UnsupportedOption(
        "hoodie.allow.operation.metadata.field", ("FALSE",), "Use t.changes() to see changes"
    ),
    UnsupportedOption(
        "hoodie.write.track.event.time.watermark", ("FALSE",), "Commits hold no event times"
    ),
    UnsupportedOption(
        "hoodie.write.rolling.metadata.keys", ("",), "A commit holds its own metadata only"
    ),
    UnsupportedOption(
        "hoodie.rollback.instant.backup.enabled", ("FALSE",), "Rollbacks keep no copies"
    ),
    UnsupportedOption(
        "hoodie.archive.block.on.latest.clean.ectr",
        ("FALSE",),
        "Archival leaves hoodie.keep.min.commits, more than a clean retains",
    ),
    UnsupportedOption(
        "hoodie.clean.trigger.strategy",
        ("NUM_COMMITS",),
        "Cleaning is due after hoodie.clean.trigger.max.commits",
    ),
    UnsupportedOption(
        "hoodie.prewrite.cleaner.policy", ("NONE",), "Cleaning comes after a write, or on its own"
    ),
    UnsupportedOption(
        "hoodie.clean.partition.filter.*", (), "A clean goes over all partitions that changed"
    ),
    UnsupportedOption(
        "hoodie.cleaner.partition.filter.*", (), "A clean goes over all partitions that changed"
    ),
    UnsupportedOption("hoodie.metaserver.enabled", ("FALSE",), "Tables are found by their path"),
    UnsupportedOption(
        "hoodie.table.service.manager.enabled",
        ("FALSE",),
        "Run services with `headwater service run` where you like",
    ),
    UnsupportedOption(
        "hoodie.metadata.table.service.manager.enabled",
        ("FALSE",),
        "Run services with `headwater service run` where you like",
    ),
    UnsupportedOption(
        "hoodie.errortable.enable", ("FALSE",), "A row that cannot be written fails its write"
    ),
    UnsupportedOption(
        "hoodie.partition.ttl.inline", ("FALSE",), "Delete partitions with t.delete_partitions"
    ),
    UnsupportedOption(
        "hoodie.write.commit.callback.on",
        ("FALSE",),
        "Nobody is called after a commit; look at t.history(), or read a stream of changes",
    ),
    UnsupportedOption(
        "hoodie.metadata.auto.initialize",
        ("TRUE",),
        "A new table begins with its metadata table; hoodie.metadata.enable=false leaves it out",
    ),
    UnsupportedOption(
        "hoodie.metadata.dir.filter.regex", ("",), "The metadata table has all partitions"
    ),
    UnsupportedOption(
        "hoodie.metadata.index.bloom.filter.column.list",
        (),
        "Bloom filters are of record keys; use CREATE INDEX for other columns",
    ),
    UnsupportedOption(
        "hoodie.metadata.record.level.index.enable",
        ("FALSE",),
        "Create the table with hoodie.index.type=RECORD_LEVEL_INDEX",
    ),
    *(
        UnsupportedOption(key, (), "hoodie.metadata.record.index.*.filegroup.count counts for both")
        for key in (
            "hoodie.metadata.record.level.index.min.filegroup.count",
            "hoodie.metadata.record.level.index.max.filegroup.count",
            "hoodie.metadata.partitioned.record.index.*",
        )
    ),
    UnsupportedOption(
        "hoodie.metadata.index.expression.enable", ("FALSE",), "Expressions are not indexed"
    ),
    UnsupportedOption("hoodie.metadata.index.expression.*", (), "Expressions are not indexed"),
    UnsupportedOption("hoodie.expression.index.*", (), "Expressions are not indexed"),
    UnsupportedOption(
        "hoodie.metadata.index.secondary.enable", ("TRUE",), "Drop indexes by their names"
    ),
    *(
        UnsupportedOption(key, (), "Use t.indexes, or CREATE INDEX and DROP INDEX")
        for key in (
            "hoodie.metadata.index.secondary.column",
            "hoodie.metadata.index.drop",
            "hoodie.index.name",
            "hoodie.datasource.write.secondarykey.column",
            "hoodie.table.secondary.indexes.metadata",
        )
    ),
    UnsupportedOption(
        "hoodie.datasource.read.extract.partition.values.from.path",
        ("FALSE",),
        "Partition columns are read from data files",
    ),
    UnsupportedOption("hoodie.datasource.read.incr.path.glob", ("",), "Filter the rows instead"),
    UnsupportedOption("hoodie.datasource.read.incr.filters", ("",), "Filter the rows instead"),
    UnsupportedOption(
        "hoodie.datasource.read.schema.use.end.instanttime",
        ("FALSE",),
        "Rows have the columns that the table has now",
    ),
    UnsupportedOption(
        "hoodie.datasource.read.paths", (), "Filter the rows instead, by partition columns"
    ),
    *(
        UnsupportedOption(key, ("8", "9"), "Times of incremental reads are completion times")
        for key in (
            "hoodie.datasource.read.incr.table.version",
            "hoodie.datasource.read.streaming.table.version",
        )
    ),
    *(
        UnsupportedOption(key, ("FALSE", ""), "Use t.inspect.timeline() and t.inspect.files()")
        for key in (
            "hoodie.datasource.read.create.filesystem.relation",
            "hoodie.datasource.read.table.valued.function.*",
        )
    ),
    UnsupportedOption(
        "hoodie.datasource.write.streaming.ignore.failed.batch",
        ("FALSE",),
        "A batch that fails fails its query",
    ),
    UnsupportedOption(
        "hoodie.datasource.write.commitmeta.key.prefix",
        ("_",),
        "Options are not copied into commits",
    ),
    UnsupportedOption("hoodie.bulkinsert.overwrite.operation.type", (), _INTERNAL),
    UnsupportedOption("hoodie.static.overwrite.partition.paths", (), _INTERNAL),
    UnsupportedOption("_hoodie.*", (), _INTERNAL),
    UnsupportedOption("_.hoodie.*", (), _INTERNAL),
)
