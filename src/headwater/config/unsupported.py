"""Hudi's options that would change what happens, and that this release does not implement.

To accept one of them in silence would be to promise what is not done.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnsupportedOption:
    """A key of which only some values can be honoured."""

    key: str
    """Ends in `*` for a family of keys."""
    honoured: tuple[str, ...]
    """Values that change nothing here, in upper case. Empty: the key is refused altogether."""
    advice: str

    def is_meant(self, key: str) -> bool:
        if self.key.endswith("*"):
            return key.startswith(self.key.removesuffix("*"))
        return key == self.key

    def refuses(self, key: str, text: str) -> bool:
        return self.is_meant(key) and text.strip().upper() not in self.honoured

    @property
    def limits(self) -> str:
        """What may be given instead, for people."""
        return f"only {' or '.join(self.honoured)}" if self.honoured else "not at all"


UNSUPPORTED_OPTIONS = (
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
        "hoodie.datasource.write.insert.drop.duplicates",
        ("FALSE",),
        "Rows whose keys exist are not dropped: leave them out with a left anti join, or upsert",
    ),
    UnsupportedOption(
        "hoodie.datasource.insert.dup.policy",
        ("NONE",),
        "Rows whose keys exist are not dropped: leave them out with a left anti join, or upsert",
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
        "hoodie.clean.failed.writes.policy",
        ("LAZY",),
        "Failed writes are rolled back by cleaning, once their writers are dead",
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
    UnsupportedOption(
        "hoodie.datasource.write.keygenerator.class",
        (),
        "Leave the key out; it follows from the record key and partition columns",
    ),
)
