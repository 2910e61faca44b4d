"""Which table a name means: one of Spark's catalog, or a path as in headwater.`/tables/trips`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from sqlglot import exp

from headwater.config.registry import check_options
from headwater.errors import ErrorKind, NotFoundError
from headwater.table import Table, open_table

PATH_QUALIFIERS = frozenset({"headwater", "hudi"})
"""What may stand before a path in backticks."""
PROVIDERS = frozenset({"headwater", "hudi"})
"""Data sources whose tables are ours."""
SESSION_CATALOG = "spark_catalog"
"""The catalog that knows tables of ours by their names."""

_LOCATION = "Location"
_PROVIDER = "Provider"
_CASE_SENSITIVE = "spark.sql.caseSensitive"


@dataclass(frozen=True, slots=True)
class Names:
    """The tables that statements of one session may name."""

    spark: SparkSession
    options: Mapping[str, str]
    """Options that every table is opened with."""
    this: Table | None = None
    """The table that `this` names, for `Table.sql`."""
    statement: str = ""
    """The statement that names them, as it was given."""

    def find(self, name: exp.Table) -> Table | None:
        """Return the table of a name; None if it is not one of ours."""
        if self.this is not None and self._is_this(name):
            return _with_defaults(self.this, self.options)
        path = self.path_of(name)
        return None if path is None else open_table(path, self.options)

    def get(self, name: exp.Table) -> Table:
        """Return the table of a name.

        Raises:
            NotFoundError: kind NOT_A_TABLE; there is no such table, or it is not one of ours.
        """
        found = self.find(name)
        if found is None:
            raise NotFoundError(
                f"{text_of(name)} is no table of headwater. Create it with CREATE TABLE ... USING "
                f"headwater LOCATION '...', or name its path as in headwater.`/path/of/it`",
                kind=ErrorKind.NOT_A_TABLE,
                table=text_of(name),
            )
        return found

    def path_of(self, name: exp.Table) -> str | None:
        """Return where the table of a name is; None if it is not one of ours."""
        if self.this is not None and self._is_this(name):
            return self.this.uri
        if name.db.lower() in PATH_QUALIFIERS and ("/" in name.name or ":" in name.name):
            return name.name
        return self._location_of(name)

    def column(self, name: str, columns: Sequence[str]) -> str | None:
        """Return the column that a name means to Spark: in any case, unless the session says so."""
        if name in columns:
            return name
        if str(self.spark.conf.get(_CASE_SENSITIVE, "false")).lower() == "true":
            return None
        return next((known for known in columns if known.lower() == name.lower()), None)

    def _is_this(self, name: exp.Table) -> bool:
        return not name.db and name.name.lower() == "this"

    def _location_of(self, name: exp.Table) -> str | None:
        if name.catalog.lower() not in ("", SESSION_CATALOG):
            return None
        # DESCRIBE asks the data source, which Spark does not tell where the table is.
        database = f" IN {exp.to_identifier(name.db).sql('spark')}" if name.db else ""
        pattern = name.name.replace("'", "\\'")
        if name.db and not self.spark.catalog.databaseExists(name.db):
            return None
        listed = self.spark.sql(f"SHOW TABLE EXTENDED{database} LIKE '{pattern}'").collect()
        found = [row for row in listed if row["tableName"].lower() == name.name.lower()]
        if any(row["isTemporary"] for row in found) and not name.db:
            return None  # To Spark, too, a temporary view comes before a table of its name.
        for row in found:
            told = dict(line.partition(": ")[::2] for line in row["information"].splitlines())
            if told.get(_PROVIDER, "").lower() in PROVIDERS and _LOCATION in told:
                return plain_path(told[_LOCATION])
        return None


def _with_defaults(table: Table, options: Mapping[str, str]) -> Table:
    """Return a table with options for what those it was opened with do not say."""
    if not options:
        return table
    known = {**check_options(options).known, **table.context.options}
    return Table(replace(table.context, options=known))


def text_of(name: exp.Table) -> str:
    """Return a name as SQL writes it, without its alias."""
    bare = exp.Table(this=name.this, db=name.args.get("db"), catalog=name.args.get("catalog"))
    return bare.sql(dialect="spark")


def plain_path(location: str) -> str:
    """Return a location of Spark's as a path: it writes those of local disks as file:/path."""
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    return location
