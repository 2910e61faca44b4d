"""The Spark data source: `format("headwater")`, in batches and as a stream.

    spark.read.format("headwater").load(path)
    df.write.format("headwater").options(**options).mode("append").save(path)
    spark.readStream.format("headwater").load(path)
    df.writeStream.format("headwater").option("checkpointLocation", ...).start(path)

Options are those of Hudi's data source (`config.source`), of tables and of writers. The first write
makes the table, with the columns of the DataFrame; later ones check that their options agree with
it. Mode overwrite replaces rows, never the table.

Rows are written by the tasks that the DataFrame has, without a shuffle (`source_writer`). On
merge-on-read tables every task appends a log file to every file group it has rows of, so a
DataFrame of many tasks is better repartitioned by its key. Writes that rewrite base files with keys
end on the machine of the driver; `Table.upsert(df)` spreads those over the cluster.

A DataFrame reads the table as it was when `load` returned, however often it is used; with a schema
of the user's own, as it is when each action starts.

Spark finds the class by itself, through the package `pyspark_headwater`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headwater.config.source import SourceConfig
from headwater.spark.session import with_our_interpreter

FORMAT = "headwater"
HUDI = "hudi"


class HeadwaterDataSource(DataSource):
    """One table, as a reader or writer of Spark names it.

    Methods import what they need: Spark asks each question in a process of its own, and to find out
    that there is such a source takes none of it.
    """

    _pinned: str | None = None
    """The completion time whose columns Spark was told; it travels with the pickled source."""
    _shows_meta_columns = False

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from headwater.spark.schemas import frame_schema_of
        from headwater.spark.source_reader import load_source_view, source_schema

        config = self._config()
        view = load_source_view(config)
        self._pinned = view.instant
        asked = config.shows_meta_columns
        has_meta = self._shows_meta_columns if asked is None else asked
        return frame_schema_of(source_schema(config, view.schema(), has_meta=has_meta))

    def reader(self, schema: StructType) -> DataSourceReader:
        from headwater.spark.source_reader import FilteredTableReader, TableReader

        config = self._config()
        kind = FilteredTableReader if config.takes_filters else TableReader
        return kind(config, schema, self._pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headwater.spark.source_stream import TableStreamReader

        return TableStreamReader(self._config(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headwater.spark.source_writer import TableWriter, begin_write

        config = self._config()
        return TableWriter(config, begin_write(config, schema, is_overwrite=overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from headwater.spark.source_sink import TableStreamWriter

        return TableStreamWriter(self._config(), schema, is_overwrite=overwrite)

    def _config(self) -> SourceConfig:
        return SourceConfig.from_options(dict(self.options))


def register(spark: SparkSession, name: str = FORMAT) -> None:
    """Let a session know the data source under a name, such as `hudi` for jobs that exist.

    Under that one it shows the meta columns, as Hudi's does.
    """

    is_hudi = name.lower() == HUDI

    class NamedDataSource(HeadwaterDataSource):
        _shows_meta_columns = is_hudi

        @classmethod
        def name(cls) -> str:
            return name

    with_our_interpreter(spark).dataSource.register(NamedDataSource)
