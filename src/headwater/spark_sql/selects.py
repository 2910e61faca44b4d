"""SELECT: tables of ours become views of the session, read as of the time that a query names.

Spark runs the query. What it cannot say to a Python data source is resolved before: TIMESTAMP AS OF
and VERSION AS OF, the table function hudi_table_changes, paths in backticks, and a condition on the
one table of a query, by which files are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from sqlglot import exp

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.spark_sql.names import Names

CHANGES = "hudi_table_changes"
INSTEAD = {
    "hudi_query": "use TIMESTAMP AS OF, or hudi_table_changes",
    "hudi_query_timeline": "use CALL show_timeline('table')",
    "hudi_filesystem_view": "use t.inspect.files() in Python",
    "hudi_metadata": "use t.inspect in Python",
}
"""Hudi's table functions that are not here, and what is."""
_CHANGES_TAKES = (
    f"{CHANGES} takes a table, 'latest_state' or 'cdc', a begin time and, if wanted, an end time"
)


def run_select(query: exp.Expr, names: Names) -> DataFrame | None:
    """Run a query; None if it names no table of ours, and is for Spark alone."""
    with resolved(query, names) as (text, is_ours):
        return names.spark.sql(text) if is_ours else None


@contextmanager
def resolved(query: exp.Expr, names: Names) -> Iterator[tuple[str, bool]]:
    """Give the text of a query for Spark, and whether it names tables of ours.

    The views that stand for them are there while the block runs: a DataFrame made in it keeps what
    it needs.
    """
    query = query.copy()
    views: list[str] = []
    try:
        for place in list(query.find_all(exp.Table)):
            frame = None if _is_of_query(place) else _frame_of(place, names)
            if frame is None:
                continue
            view = f"headwater_view_{len(views)}_{id(query):x}"
            frame.createOrReplaceTempView(view)
            views.append(view)
            _replace(place, view)
        yield query.sql(dialect="spark"), bool(views)
    finally:
        for view in views:
            names.spark.catalog.dropTempView(view)


def _is_of_query(place: exp.Table) -> bool:
    """Whether a name is that of a WITH of the query; within its own definition it is not."""
    if place.db or isinstance(place.this, exp.Func):
        return False
    above: exp.Expr | None = place
    inside = set()
    while above is not None:
        if isinstance(above, exp.CTE):
            inside.add(above.alias.lower())
        known = {each.alias.lower() for each in getattr(above.args.get("with_"), "expressions", [])}
        if place.name.lower() in known - inside:
            return True
        above = above.parent
    return False


def _frame_of(place: exp.Table, names: Names) -> DataFrame | None:
    if isinstance(place.this, exp.Func):
        function = place.this.name.lower()
        if function in INSTEAD:
            raise UnsupportedError(f"{function} is not supported: {INSTEAD[function]}")
        return _changes(place.this, names) if function == CHANGES else None
    version = place.args.get("version")
    path = names.path_of(place)
    if path is None:
        return None
    as_of = None if version is None else _time_of(version)
    return names.get(place).read(where=_condition_on(place), as_of=as_of, spark=names.spark)


def _time_of(version: exp.Version) -> str:
    value = version.expression
    if version.args.get("kind") != "AS OF" or not isinstance(value, exp.Literal):
        raise UnsupportedError(
            f"A table is read AS OF a literal, got {version.sql(dialect='spark')}"
        )
    return str(value.this)


def _condition_on(place: exp.Table) -> str | None:
    """Return the WHERE of a query whose one source is this table, without the table's name."""
    source = place.parent
    select = source.parent if isinstance(source, exp.From) else None
    if (
        not isinstance(select, exp.Select)
        or select.args.get("joins")
        or select.args.get("laterals")
    ):
        return None
    where = select.args.get("where")
    if where is None or where.find(exp.Query, exp.Anonymous):
        return None
    condition = where.this.copy()
    for column in condition.find_all(exp.Column):
        if column.table and column.table.lower() == place.alias_or_name.lower():
            column.set("table", None)
    return str(condition.sql(dialect="spark"))


def _changes(call: exp.Func, names: Names) -> DataFrame:
    arguments = call.expressions
    if not 3 <= len(arguments) <= 4 or not all(isinstance(a, exp.Literal) for a in arguments):
        raise InvalidInputError(_CHANGES_TAKES)
    name, kind, after, *until = (str(argument.this) for argument in arguments)
    if kind not in ("latest_state", "cdc"):
        raise InvalidInputError(f"{_CHANGES_TAKES}; got {kind!r}")
    place = exp.to_table(name, dialect="spark")
    if "/" in name:
        place = exp.Table(
            this=exp.to_identifier(name, quoted=True), db=exp.to_identifier("headwater")
        )
    begin = None if after in ("earliest", "0") else after
    return names.get(place).changes(
        begin, until[0] if until else None, cdc=kind == "cdc", spark=names.spark
    )


def _replace(place: exp.Table, view: str) -> None:
    """Let a view stand in a table's place; columns that name the table find it by its alias."""
    alias = place.alias or (None if isinstance(place.this, exp.Func) else place.name)
    stands = exp.to_table(view, dialect="spark")
    if alias:
        stands.set(
            "alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=not alias.isidentifier()))
        )
    for part in ("joins", "sample", "pivots"):
        if place.args.get(part):
            stands.set(part, place.args[part])
    place.replace(stands)
