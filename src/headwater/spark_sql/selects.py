"""SELECT: tables of ours become views of the session, read as of the time that a query names.

Spark runs the query, as it was written but for the names of these views. What it cannot say to a
Python data source is resolved before: TIMESTAMP AS OF and VERSION AS OF, the table function
hudi_table_changes, paths in backticks, and a condition on the one table of a query, by which files
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from headwater.config.spark import SparkConfig
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.spark.read import read_snapshot
from headwater.spark.session import time_zone_of
from headwater.spark_sql.names import PATH_QUALIFIERS, SESSION_CATALOG, Names
from headwater.spark_sql.original import Edit, Original, edited
from headwater.table import Table

T = TypeVar("T", bound=exp.Expr)

CHANGES = "hudi_table_changes"
INSTEAD = {
    "hudi_query": "use TIMESTAMP AS OF, or hudi_table_changes",
    "hudi_query_timeline": "use CALL show_timeline('table')",
    "hudi_filesystem_view": "use t.inspect.files() in Python",
    "hudi_metadata": "use t.inspect in Python",
}
"""Hudi's table functions that are not here, and what is."""
_OF_ALL_ROWS = frozenset({"this", "db", "catalog", "alias", "version"})
"""What a place of a table may have so that a WHERE is evaluated on the table's rows as they are."""
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
    it needs. All else is given to Spark as it was written.

    Args:
        query: the statement, or a part of it that `Original.query` takes, in the statement's tree.
    """
    original = Original(names.statement)
    views: list[str] = []
    edits: list[Edit] = []
    stood_for: list[exp.Table] = []
    try:
        for place in _all(exp.Table, *_parts(query)):
            frame = None if _is_of_query(place) else _frame_of(place, names, original)
            if frame is None:
                continue
            view = f"headwater_view_{len(views)}_{id(views):x}"
            frame.createOrReplaceTempView(view)
            views.append(view)
            stood_for.append(place)
            edits.append(_replaced(place, view, original))
        edits += _shorter_names(query, stood_for, names)
        yield original.query(query, edits), bool(views)
    finally:
        for view in views:
            names.spark.catalog.dropTempView(view)


def _parts(query: exp.Expr) -> list[exp.Expr]:
    """Return a query, and a WITH before the statement that it is part of."""
    above = None if query.parent is None else query.parent.args.get("with_")
    return [query] if above is None else [above, query]


def _all(kind: type[T], *parts: exp.Expr) -> Iterator[T]:
    """Give what is of some kind, but in hints: sqlglot does not say where those are."""
    found = (each for part in parts for each in part.find_all(kind))
    return (each for each in found if each.find_ancestor(exp.Hint) is None)


def _is_of_query(place: exp.Table) -> bool:
    """Whether a name is that of a WITH of the query.

    In a definition of a WITH those before it are known, and itself only if it is RECURSIVE.
    """
    if place.db or isinstance(place.this, exp.Func):
        return False
    above: exp.Expr | None = place
    within: exp.Expr | None = None
    while above is not None:
        if isinstance(above, exp.CTE):
            within = above
        with_ = above.args.get("with_")
        if with_ is not None and place.name.lower() in _known_of(with_, within):
            return True
        above = above.parent
    return False


def _known_of(with_: exp.With, within: exp.Expr | None) -> set[str]:
    """Return the names of a WITH that are known within one of its definitions, or after them."""
    listed = list(with_.expressions)
    for index, each in enumerate(listed):
        if each is within:
            listed = listed[: index + bool(with_.args.get("recursive"))]
            break
    return {each.alias.lower() for each in listed}


def _frame_of(place: exp.Table, names: Names, original: Original) -> DataFrame | None:
    if isinstance(place.this, exp.Func):
        function = place.this.name.lower()
        if function in INSTEAD:
            raise UnsupportedError(f"{function} is not supported: {INSTEAD[function]}")
        return _changes(place.this, names) if function == CHANGES else None
    version = place.args.get("version")
    # A name of more parts than a table's is none of ours, whatever its last parts name.
    if not isinstance(place.this, exp.Identifier) or names.path_of(place) is None:
        return None
    as_of = None if version is None else _time_of(version)
    return _read(names.get(place), as_of, _condition_on(place, names, original), names.spark)


def _read(table: Table, as_of: str | None, where: str | None, spark: SparkSession) -> DataFrame:
    """Return a table's rows, but for files without rows that a condition of the query wants.

    The condition stays in the query, where Spark evaluates it: once, which matters to rand().
    """
    request = ReadRequest(as_of=as_of, where=where, zone=time_zone_of(spark))
    plan = plan_snapshot(table.context, request)
    spark_config = SparkConfig.from_options(table.context.options)
    return read_snapshot(spark, plan, spark_config=spark_config)


def _time_of(version: exp.Version) -> str:
    value = version.expression
    if version.args.get("kind") != "AS OF" or not isinstance(value, exp.Literal):
        raise UnsupportedError(
            f"A table is read AS OF a literal, got {version.sql(dialect='spark')}"
        )
    return str(value.this)


def _condition_on(place: exp.Table, names: Names, original: Original) -> str | None:
    """Return the WHERE that is evaluated on nothing but the rows of this table, if there is one.

    Parts of it that mean other things than columns of the table are none that files are skipped by.
    """
    source = place.parent
    select = source.parent if isinstance(source, exp.From) else None
    if (
        not isinstance(select, exp.Select)
        or select.args.get("joins")
        or select.args.get("laterals")
        or {name for name, given in place.args.items() if given} - _OF_ALL_ROWS
        or place.alias_column_names
        or original.has_pipes
    ):
        return None
    where = select.args.get("where")
    if where is None or (found := original.condition(where)) is None:
        return None
    start, text = found
    return edited(text, _without(where, _qualifiers(place, names), keep=0), at=start)


def _qualifiers(place: exp.Table, names: Names) -> list[tuple[str, ...]]:
    """Return what may stand before the columns of a table, in lower case, the longest first."""
    if place.alias:
        return [(place.alias.lower(),)]
    name = place.name.lower()
    if place.db.lower() in PATH_QUALIFIERS:
        return [(name,)]
    database = (place.db or names.spark.catalog.currentDatabase()).lower()
    return [(SESSION_CATALOG, database, name), (database, name), (name,)]


def _without(tree: exp.Expr, qualifiers: list[tuple[str, ...]], *, keep: int) -> list[Edit]:
    """Return edits after which columns have only the last words of some qualifiers."""
    edits = []
    for column in _all(exp.Column, tree):
        parts = column.parts
        words = tuple(part.name.lower() for part in parts)
        for qualifier in qualifiers:
            if len(parts) > len(qualifier) and words[: len(qualifier)] == qualifier:
                first, kept = parts[0], parts[len(qualifier) - keep]
                edits.append(Edit(first.meta["start"], kept.meta["start"], ""))
                break
    return edits


def _shorter_names(query: exp.Expr, stood_for: list[exp.Table], names: Names) -> list[Edit]:
    """Return edits of columns that name the database of a table, which a view has no more."""
    parts = _parts(query)
    if not any(len(column.parts) > 2 for column in _all(exp.Column, *parts)):
        return []
    named = [place for place in stood_for if not (place.alias or isinstance(place.this, exp.Func))]
    return [
        edit
        for place in named
        for part in parts
        for edit in _without(part, _qualifiers(place, names), keep=1)
    ]


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


def _replaced(place: exp.Table, view: str, original: Original) -> Edit:
    """Let a view stand in a table's place; columns that name the table find it by its alias."""
    if isinstance(place.this, exp.Func):
        return Edit(place.this.meta["start"], original.end_of_call(place.this), view)
    # An alias of the writer's comes after a TABLESAMPLE, and so need not come next.
    alias = place.name.replace("`", "``")
    stands = view if place.alias else f"({view} AS `{alias}`)"
    name = [place.args[part] for part in ("catalog", "db", "this") if place.args.get(part)]
    last = name[-1] if place.args.get("version") is None else place.args["version"].expression
    return Edit(name[0].meta["start"], last.meta["end"] + 1, stands)
