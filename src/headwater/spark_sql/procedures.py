"""CALL: services and questions by the names of Hudi's procedures.

Arguments are given by position or by name, as in `CALL run_clean(table => 'trips')`. `table` is a
name of the catalog; `path` may stand in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headwater.errors import InvalidInputError, NotFoundError
from headwater.model.summary import summary_of
from headwater.spark_sql.names import Names
from headwater.table import Table

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Procedure:
    """What CALL can do with a table."""

    parameters: tuple[str, ...]
    """Names after `table`, in the order of positions."""
    run: Callable[[Table, Arguments], pa.Table]
    doc: str


def call_procedure(text: str, names: Names) -> pa.Table:
    """Run `name(arguments)` and return its rows.

    Raises:
        NotFoundError: there is no such procedure, or no such table.
        InvalidInputError: an argument is wrong, missing, or not one of the procedure's.
        Others: see the service that runs.
    """
    call = _parsed(text)
    name = call.name.lower() if isinstance(call, exp.Anonymous) else call.sql_name().lower()
    if name == "help":
        return _help()
    if name not in PROCEDURES:
        raise NotFoundError(
            f"There is no procedure {name}; there are {', '.join(sorted(PROCEDURES))}"
        )
    procedure = PROCEDURES[name]
    given = _bound(name, procedure, call.expressions)
    return procedure.run(_table_of(name, given, names), given)


def _parsed(text: str) -> exp.Func:
    try:
        call = sqlglot.parse_one(f"SELECT {text}", read="spark").expressions[0]
    except (sqlglot.ParseError, sqlglot.TokenError, RecursionError) as error:
        raise InvalidInputError(f"CALL {text} cannot be parsed: {error}") from error
    if not isinstance(call, exp.Func):
        raise InvalidInputError(f"CALL needs a procedure with arguments, got {text}")
    return call


def _bound(name: str, procedure: Procedure, given: Iterable[exp.Expr]) -> dict[str, Any]:
    names = ("table", *procedure.parameters)
    bound: dict[str, Any] = {}
    for position, argument in enumerate(given):
        if isinstance(argument, exp.Kwarg | exp.PropertyEQ | exp.EQ):
            key, value = argument.this.name.lower(), argument.expression
        elif position < len(names):
            key, value = names[position], argument
        else:
            raise InvalidInputError(f"{name} takes {', '.join(names)}; there is one more argument")
        if key not in (*names, "path"):
            raise InvalidInputError(f"{name} has no argument {key}; it takes {', '.join(names)}")
        bound[key] = _value(name, key, value)
    return bound


def _value(name: str, key: str, value: exp.Expr) -> Any:
    try:
        return value.to_py()
    except ValueError:
        raise InvalidInputError(
            f"{name}: {key} needs a literal, got {value.sql(dialect='spark')}"
        ) from None


def _table_of(name: str, given: Arguments, names: Names) -> Table:
    if "path" in given:
        path = exp.Table(
            this=exp.to_identifier(given["path"], quoted=True), db=exp.to_identifier("headwater")
        )
        return names.get(path)
    if "table" not in given:
        raise InvalidInputError(f"{name} needs table => '...' or path => '...'")
    return names.get(exp.to_table(str(given["table"]), dialect="spark"))


# The procedures --------------------------------------------------------------------------------


def _run_compaction(table: Table, given: Arguments) -> pa.Table:
    instant = _text(given, "timestamp")
    match str(given.get("op", "run")).lower():
        case "schedule":
            return _rows([{"instant": table.services.schedule_compaction()}])
        case "run" | "execute" | "scheduleandexecute":
            return _results([table.services.compact(instant)])
        case op:
            raise InvalidInputError(f"op is schedule, run or scheduleandexecute, got {op!r}")


def _run_clustering(table: Table, given: Arguments) -> pa.Table:
    instant = _text(given, "instants")
    columns = _text(given, "order")
    partitions = _text(given, "selected_partitions")
    op = str(given.get("op", "scheduleandexecute")).lower()
    if op not in ("schedule", "execute", "scheduleandexecute"):
        raise InvalidInputError(f"op is schedule, execute or scheduleandexecute, got {op!r}")
    if instant is None and op != "execute":
        instant = table.services.schedule_clustering(
            None if columns is None else columns.split(","),
            order=_text(given, "order_strategy"),
            partitions=None if partitions is None else partitions.split(","),
            cancellable=bool(given.get("cancellable", False)),
        )
        if op == "schedule" or instant is None:
            return _rows([{"instant": instant}])
    return _results([table.services.cluster(instant)])


def _run_clean(table: Table, given: Arguments) -> pa.Table:
    return _results(table.services.clean())


def _archive(table: Table, given: Arguments) -> pa.Table:
    done = table.services.archive()
    return _rows([{"instant": str(each.requested_time)} for each in done.archived], "instant")


def _rollback(table: Table, given: Arguments) -> pa.Table:
    return _results([table.services.rollback(_needed(given, "instant_time"))])


def _create_savepoint(table: Table, given: Arguments) -> pa.Table:
    saved = table.services.savepoint(
        _text(given, "commit_time"),
        comment=_text(given, "comments") or "",
        user=_text(given, "user"),
    )
    return _results([saved])


def _delete_savepoint(table: Table, given: Arguments) -> pa.Table:
    table.services.delete_savepoint(_needed(given, "instant_time"))
    return _rows([{"is_deleted": True}])


def _restore(table: Table, given: Arguments) -> pa.Table:
    return _results([table.services.restore(_needed(given, "instant_time"))])


def _show_commits(table: Table, given: Arguments) -> pa.Table:
    return table.history().slice(0, _limit(given, 10))


def _show_timeline(table: Table, given: Arguments) -> pa.Table:
    shown = table.inspect.timeline(operations=True)
    return shown.slice(max(0, shown.num_rows - _limit(given, 20)))


def _show_plans(*actions: str) -> Callable[[Table, Arguments], pa.Table]:
    def show(table: Table, given: Arguments) -> pa.Table:
        shown = table.inspect.plans()
        chosen = [index for index, one in enumerate(shown["action"].to_pylist()) if one in actions]
        return shown.take(pa.array(chosen, pa.int64()))

    return show


def _show_properties(table: Table, given: Arguments) -> pa.Table:
    entries = table.config.to_properties()
    return _rows([{"key": key, "value": value} for key, value in sorted(entries.items())], "key")


def _cancel(table: Table, given: Arguments) -> pa.Table:
    instant = _needed(given, "instant_time")
    table.services.request_cancel(instant, reason=_text(given, "reason") or "asked for in SQL")
    return _rows([{"is_cancelled": True}])


PROCEDURES: Mapping[str, Procedure] = {
    "run_compaction": Procedure(("op", "timestamp"), _run_compaction, "compact log files"),
    "run_clustering": Procedure(
        ("op", "order", "order_strategy", "selected_partitions", "instants", "cancellable"),
        _run_clustering,
        "lay rows out anew",
    ),
    "run_clean": Procedure((), _run_clean, "delete files that no reader needs"),
    "archive_commits": Procedure((), _archive, "move old instants to the archived timeline"),
    "rollback_to_instant": Procedure(
        ("instant_time",), _rollback, "roll back a failed write or the last commit"
    ),
    "create_savepoint": Procedure(
        ("commit_time", "user", "comments"), _create_savepoint, "protect a commit"
    ),
    "delete_savepoint": Procedure(
        ("instant_time",), _delete_savepoint, "protect a commit no longer"
    ),
    "rollback_to_savepoint": Procedure(
        ("instant_time",), _restore, "take back what came after a savepoint"
    ),
    "show_savepoints": Procedure(
        (), lambda table, _: _results(table.services.savepoints()), "savepoints"
    ),
    "show_commits": Procedure(("limit",), _show_commits, "commits, newest first"),
    "show_timeline": Procedure(("limit",), _show_timeline, "instants, oldest first"),
    "show_compaction": Procedure(
        (), _show_plans("compaction", "logcompaction"), "compactions that wait or run"
    ),
    "show_clustering": Procedure((), _show_plans("clustering"), "clusterings that wait or run"),
    "show_rollbacks": Procedure((), lambda table, _: table.inspect.conflicts(), "what gave way"),
    "show_indexes": Procedure((), lambda table, _: table.indexes.list(), "indexes and their state"),
    "show_table_properties": Procedure((), _show_properties, "what the table says of itself"),
    "cancel_clustering": Procedure(("instant_time", "reason"), _cancel, "cancel a clustering"),
}


def _help() -> pa.Table:
    return _rows(
        [
            {
                "procedure": name,
                "arguments": ", ".join(("table | path", *each.parameters)),
                "description": each.doc,
            }
            for name, each in sorted(PROCEDURES.items())
        ]
    )


def _text(given: Arguments, key: str) -> str | None:
    value = given.get(key)
    return None if value is None else str(value)


def _limit(given: Arguments, otherwise: int) -> int:
    text = str(given.get("limit", otherwise))
    if not text.isascii() or not text.isdigit():
        raise InvalidInputError(f"limit is a whole number, got {text!r}")
    return int(text)


def _needed(given: Arguments, key: str) -> str:
    value = _text(given, key)
    if value is None:
        raise InvalidInputError(f"{key} is missing")
    return value


def _results(done: Iterable[Any]) -> pa.Table:
    return _rows([summary_of(one) for one in done if one is not None])


def _rows(rows: list[dict[str, Any]], *columns: str) -> pa.Table:
    if rows:
        return pa.Table.from_pylist(rows)
    return pa.table({name: pa.array([], pa.string()) for name in columns or ("instant",)})
