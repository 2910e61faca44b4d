"""Lets Spark find the data source: it looks for `DefaultSource` in packages named pyspark_*."""

from headwater.spark.data_source import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
