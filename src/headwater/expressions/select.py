"""A SELECT of each row by itself: columns made of expressions, and the rows that are wanted.

What looks at several rows (joins, aggregates, DISTINCT, ORDER BY, LIMIT) is refused: its answer
would depend on which rows happen to come together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from sqlglot import exp

from headwater.errors import InvalidInputError
from headwater.expressions.compile import Compiler, as_condition
from headwater.expressions.evaluate import evaluate, satisfying_rows
from headwater.expressions.nodes import Node
from headwater.expressions.now import with_now_said
from headwater.expressions.parse import Tree, parse_select, refused
from headwater.expressions.scope import Scope, match_name

_PARTS = frozenset({"expressions", "from_", "where", "kind"})


@dataclass(frozen=True, slots=True)
class Select:
    """The columns of the answer, and the condition for its rows."""

    columns: tuple[tuple[str, Node], ...]
    where: Node | None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, node.type) for name, node in self.columns])

    def run(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the answer for some rows.

        Raises:
            InvalidInputError: a value cannot be cast, or a number is out of range.
        """
        if self.where is not None:
            rows = satisfying_rows(rows, self.where)
        arrays = [evaluate(node, rows) for _, node in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def compile_select(
    text: str, columns: pa.Schema, table: str, zone: str = "UTC", now: datetime | None = None
) -> Select:
    """Return a SELECT from one table, bound to its columns.

    Args:
        table: the name that stands after FROM.
        zone, now: as for `compile_condition`.

    Raises:
        InvalidInputError: the text is no such SELECT; the message has the place.
    """
    if now is not None:
        text = with_now_said(text, columns.names, zone, now)
    tree = parse_select(text)
    alias = _checked_alias(tree, table, text)
    names = {name: name for name in columns.names}
    compiler = Compiler(text, Scope(columns, qualified={alias: names}), zone)
    found: dict[str, Node] = {}
    for item in tree.expressions:
        for name, node in _columns_of(item, compiler, columns, text):
            if name in found:
                raise refused(text, item, f"The column {name} comes twice")
            found[name] = node
    where = tree.args.get("where")
    condition = None if where is None else as_condition(compiler.compile(where.this), where, text)
    return Select(tuple(found.items()), condition)


def _checked_alias(tree: Tree, table: str, text: str) -> str:
    """Return the name by which columns may be qualified; refuse what is not about one row."""
    if not isinstance(tree, exp.Select):
        raise InvalidInputError(f"The transformation is one SELECT, got {text!r}")
    more = sorted(part.strip("_") for part, given in tree.args.items() if given)
    more = [part for part in more if part not in {name.strip("_") for name in _PARTS}]
    if more:
        raise InvalidInputError(
            "The transformation looks at each row by itself, because rows come together by chance: "
            f"SELECT ... FROM {table} WHERE ..., without {', '.join(more)}"
        )
    source = tree.args.get("from_")
    place = None if source is None else source.this
    if not isinstance(place, exp.Table) or place.db or place.name.lower() != table:
        raise InvalidInputError(f"The transformation selects FROM {table}, got {text!r}")
    return str(place.alias_or_name)


def _columns_of(
    item: Tree, compiler: Compiler, columns: pa.Schema, text: str
) -> list[tuple[str, Node]]:
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        if star.args.get("replace") or star.args.get("rename"):
            raise refused(text, item, "* takes EXCEPT (...) only")
        left_out = {_column_name(each, columns) for each in star.args.get("except_") or ()}
        names = [name for name in columns.names if name not in left_out]
        return [(name, compiler.compile(exp.column(name, quoted=True))) for name in names]
    if not item.alias_or_name:
        raise refused(text, item, "A value needs a name: ... AS name")
    name = item.alias_or_name
    inner = item.this if isinstance(item, exp.Alias) else item
    return [(name, compiler.compile(inner))]


def _column_name(tree: Tree, columns: pa.Schema) -> str:
    return match_name(tree.name, columns.names) or tree.name
