"""From the syntax tree of a SQL expression to typed nodes, bound to the columns of some rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from headwater.config.limits import OPERATIONS_MAX
from headwater.errors import InvalidInputError
from headwater.expressions.casts import can_cast
from headwater.expressions.coercion import (
    DECIMAL_PRECISION_MAX,
    common_type,
    decimal_for,
    is_number,
    is_text,
)
from headwater.expressions.containers import (
    CONTAINER_FUNCTIONS,
    element_or_null,
    field_of,
    size_of,
)
from headwater.expressions.evaluate import evaluate
from headwater.expressions.nodes import Call, Cast, Column, Function, Literal, Node, columns_of
from headwater.expressions.now import with_now_said
from headwater.expressions.parse import Tree, flattened, parse_expression, refused
from headwater.expressions.scope import Scope, match_name
from headwater.expressions.sql_types import evaluated_type, is_assignable, type_of
from headwater.expressions.texts import TEXT_FUNCTIONS
from headwater.expressions.times import TIME_FUNCTIONS, days_added, interval_of, shifted

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1

_BINARY: Mapping[type[Tree], Function] = MappingProxyType(
    {
        exp.EQ: Function.EQUAL,
        exp.NEQ: Function.NOT_EQUAL,
        exp.LT: Function.LESS,
        exp.LTE: Function.LESS_EQUAL,
        exp.GT: Function.GREATER,
        exp.GTE: Function.GREATER_EQUAL,
        exp.NullSafeEQ: Function.SAME,
    }
)
_ARITHMETIC: Mapping[type[Tree], Function] = MappingProxyType(
    {
        exp.Add: Function.ADD,
        exp.Sub: Function.SUBTRACT,
        exp.Mul: Function.MULTIPLY,
        exp.Div: Function.DIVIDE,
        exp.Mod: Function.REMAINDER,
    }
)


def compile_condition(
    text: str, scope: Scope, zone: str = "UTC", now: datetime | None = None
) -> Node:
    """Return a SQL condition as a node of booleans.

    Args:
        zone: that of times which do not say theirs.
        now: what the time is taken to be, if the text may ask for it.

    Raises:
        InvalidInputError: the text is no condition on these columns that can be evaluated; the
            message has the place and what is supported.
    """
    if now is not None:
        text = with_now_said(text, scope.names, zone, now)
    tree = parse_expression(text)
    node = Compiler(text, scope, zone).compile(tree)
    return as_condition(node, tree, text)


def compile_conjuncts(text: str, scope: Scope, zone: str) -> list[Node]:
    """Return the conjuncts of a SQL condition that can be evaluated, and leave the others out."""
    try:
        tree = parse_expression(text)
    except InvalidInputError:
        return []
    found = []
    for conjunct in _conjuncts(tree):
        try:
            node = Compiler(text, scope, zone).compile(conjunct)
            found.append(as_condition(node, conjunct, text))
        except (InvalidInputError, RecursionError):
            continue
    return found


def compile_value(
    text: str, scope: Scope, kind: pa.DataType, zone: str = "UTC", now: datetime | None = None
) -> Node:
    """Return a SQL expression as a node of values for a column of some type.

    Who stores them gives them the column's width: of a time, of bytes, and of what is nested.

    Args and raises: as `compile_condition`.
    """
    if now is not None:
        text = with_now_said(text, scope.names, zone, now)
    tree = parse_expression(text)
    compiler = Compiler(text, scope, zone)
    node = compiler.compile(tree)
    if not is_assignable(node.type, kind):
        raise refused(text, tree, f"A value of type {node.type} does not go into one of {kind}")
    evaluated = evaluated_type(kind)
    return compiler.cast(node, evaluated, tree) if can_cast(node.type, evaluated) else node


Compile: TypeAlias = Callable[["Compiler", Tree], Node]


class Compiler:
    """Compiles one expression."""

    def __init__(self, text: str, scope: Scope, zone: str) -> None:
        self._text = text
        self._scope = scope
        self.zone = zone
        self._compiled: dict[int, Node] = {}
        self._kept: list[Tree] = []
        """What was compiled, so that no other part gets its id: some are made on the way."""
        self._weighed: dict[int, tuple[Node, int]] = {}
        """How many operations nodes stand for, by id; the nodes are kept for the same reason."""

    def compile(self, tree: Tree) -> Node:
        """Return the node of a part of the expression; what is constant is evaluated here.

        A part is compiled once, whoever asks how often: parts that are nested and each asked for
        twice would otherwise double the work at every level.
        """
        node = self._compiled.get(id(tree))
        if node is None:
            node = self._compile(tree)
            if self._operations(node) > OPERATIONS_MAX.value:
                raise self.refused(tree, f"This stands for more operations than {OPERATIONS_MAX}")
            if not isinstance(node, Literal) and not any(columns_of(node)):
                node = _folded(node)
            self._compiled[id(tree)] = node
            self._kept.append(tree)
        return node

    def _operations(self, node: Node) -> int:
        """Return how many operations a node stands for; what it holds twice is done twice."""
        if not node.operands:
            return 0
        if id(node) not in self._weighed:
            self._weighed[id(node)] = node, 1 + sum(map(self._operations, node.operands))
        return self._weighed[id(node)][1]

    def cast(self, node: Node, kind: pa.DataType, tree: Tree) -> Node:
        """Return a node converted without being told to."""
        if node.type == kind:
            return node
        if not can_cast(node.type, kind):
            raise self.refused(tree, f"A value of type {node.type} cannot become {kind}")
        cast = Cast(node, kind, self.zone, is_implicit=True)
        return _folded(cast) if isinstance(node, Literal) else cast

    def _compile(self, tree: Tree) -> Node:
        kind = type(tree)
        if kind in _BINARY:
            return self._comparison(_BINARY[kind], tree.this, tree.expression)
        if kind in _ARITHMETIC:
            return self._calculation(_ARITHMETIC[kind], tree)
        found = _COMPILERS.get(kind)
        if found is None:
            raise self.refused(tree, f"{_named(tree)} cannot be evaluated here")
        return found(self, tree)

    def _column(self, tree: Tree) -> Node:
        identifiers = tree.parts if isinstance(tree, exp.Column | exp.Dot) else [tree]
        parts = [part.name for part in identifiers]
        try:
            path = self._scope.find(parts)
        except LookupError as error:
            raise self.refused(tree, f"The name is ambiguous: {error}") from error
        if path is None:
            raise self.refused(
                tree,
                f"The column {'.'.join(parts)} does not exist; the columns are {self._scope.shown}",
            )
        kind = self._scope.columns.field(path[0]).type
        found = [path[0]]
        for part in path[1:]:
            names = [field.name for field in kind] if pa.types.is_struct(kind) else []
            name = match_name(part, names)
            if name is None:
                has = ", ".join(names) or f"no fields, being of type {kind}"
                raise self.refused(tree, f"{'.'.join(found)} has no field {part}; it has {has}")
            kind = kind.field(name).type
            found.append(name)
        return Column(tuple(found), evaluated_type(kind))

    def _dot(self, tree: Tree) -> Node:
        inner = tree
        while isinstance(inner, exp.Dot):
            inner = inner.this
        is_name = isinstance(inner, exp.Column | exp.Identifier)
        return self._column(tree) if is_name else field_of(self, tree.this, tree.expression)

    def _named_like_now(self, tree: Tree) -> Node:
        """Compile a column with the name of a function: what means one was replaced before."""
        return self._column(exp.to_identifier(tree.sql(dialect="spark").rstrip("()").lower()))

    def _number(self, tree: Tree) -> Node:
        text = tree.name
        if tree.args.get("is_string"):
            return Literal(text, pa.string())
        return self._number_of(text, tree)

    def _number_of(self, text: str, tree: Tree) -> Node:
        kind = float if "e" in text.lower() else Decimal if "." in text else int
        try:
            number = kind(text)
        except (ValueError, InvalidOperation) as error:
            raise self.refused(tree, f"{text} is no number") from error
        if isinstance(number, float):
            if not math.isfinite(number):
                raise self.refused(tree, f"The number {text} is too large")
            return Literal(number, pa.float64())
        if isinstance(number, Decimal):
            return self._decimal(number, tree)
        if abs(number) <= _INT32_MAX:
            return Literal(number, pa.int32())
        if abs(number) <= _INT64_MAX:
            return Literal(number, pa.int64())
        return self._decimal(Decimal(number), tree)

    def _decimal(self, number: Decimal, tree: Tree) -> Node:
        _, digits, exponent = number.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale)
        if precision > DECIMAL_PRECISION_MAX:
            raise self.refused(tree, f"A number has at most {DECIMAL_PRECISION_MAX} digits")
        return Literal(number, pa.decimal128(precision, scale))

    def _negative(self, tree: Tree) -> Node:
        inner = tree.this
        if isinstance(inner, exp.Literal) and not inner.args.get("is_string"):
            if inner.name == str(_INT64_MAX + 1):
                return Literal(-_INT64_MAX - 1, pa.int64())
            if inner.name == str(_INT32_MAX + 1):
                return Literal(-_INT32_MAX - 1, pa.int32())
        operand = self._of_numbers(inner)
        return Call(Function.NEGATE, (operand,), operand.type)

    def _absolute(self, tree: Tree) -> Node:
        operand = self._of_numbers(tree.this)
        return Call(Function.ABSOLUTE, (operand,), operand.type)

    def _of_numbers(self, tree: Tree) -> Node:
        node = self.compile(tree)
        if is_text(node.type):
            return self.cast(node, pa.float64(), tree)
        if not is_number(node.type):
            raise self.refused(tree, f"This is a {node.type}, not a number")
        return node

    def _condition(self, tree: Tree) -> Node:
        return as_condition(self.compile(tree), tree, self._text)

    def _logic(self, tree: Tree) -> Node:
        function = Function.AND if isinstance(tree, exp.And) else Function.OR
        operands = tuple(self._condition(each) for each in flattened(tree, type(tree)))
        return Call(function, operands, pa.bool_())

    def _not(self, tree: Tree) -> Node:
        return Call(Function.NOT, (self._condition(tree.this),), pa.bool_())

    def _comparison(self, function: Function, left: Tree, right: Tree) -> Node:
        one, other = self._matched([left, right])
        if pa.types.is_nested(one.type):
            raise self.refused(left, f"Values of type {one.type} are not compared here")
        return Call(function, (one, other), pa.bool_())

    def _matched(self, trees: Sequence[Tree]) -> list[Node]:
        """Return several values in a type that all of them have in common."""
        nodes = [self.compile(tree) for tree in trees]
        widest = nodes[0]
        for node, tree in zip(nodes[1:], trees[1:], strict=True):
            kind = common_type(widest, node)
            if kind is None:
                raise self.refused(
                    tree, f"Values of type {widest.type} and {node.type} do not go together"
                )
            if kind != widest.type:
                widest = Literal(None, kind)
        kind = widest.type
        return [self.cast(node, kind, tree) for node, tree in zip(nodes, trees, strict=True)]

    def _distinct(self, tree: Tree) -> Node:
        same = self._comparison(Function.SAME, tree.this, tree.expression)
        return Call(Function.NOT, (same,), pa.bool_())

    def _calculation(self, function: Function, tree: Tree) -> Node:
        if function in (Function.ADD, Function.SUBTRACT):
            moved = self._moved(function, tree)
            if moved is not None:
                return moved
        left, right = self._of_numbers(tree.this), self._of_numbers(tree.expression)
        kind = common_type(left, right)
        if kind is None:
            raise self.refused(tree, f"{left.type} and {right.type} do not go together")
        if pa.types.is_decimal(kind):
            return self._decimal_calculation(function, left, right, tree)
        if function is Function.DIVIDE:
            kind = pa.float64()
        operands = (self.cast(left, kind, tree), self.cast(right, kind, tree))
        return Call(function, operands, kind)

    def _moved(self, function: Function, tree: Tree) -> Node | None:
        """Return a day or moment that something is added to; None if it is about numbers."""
        left, right = tree.this, tree.expression
        if function is Function.ADD and interval_of(self, left) is not None:
            left, right = right, left
        interval = interval_of(self, right)
        if interval is not None:
            interval = interval if function is Function.ADD else -interval
            return shifted(self, left, interval, tree)
        node = self.compile(left)
        if not pa.types.is_date(node.type):
            return None
        count = right if function is Function.ADD else exp.Neg(this=right)
        return days_added(self, node, count, tree)

    def _decimal_calculation(self, function: Function, left: Node, right: Node, tree: Tree) -> Node:
        one, other = decimal_for(left), decimal_for(right)
        if function is Function.MULTIPLY:
            scale, precision = one.scale + other.scale, one.precision + other.precision + 1
        else:
            scale = max(one.scale, other.scale)
            whole = max(one.precision - one.scale, other.precision - other.scale)
            precision = whole + scale + 1
        if function in (Function.DIVIDE, Function.REMAINDER) or precision > DECIMAL_PRECISION_MAX:
            raise self.refused(
                tree, f"{one} {function} {other} is not calculated here; cast to double"
            )
        operands = (self.cast(left, one, tree), self.cast(right, other, tree))
        return Call(function, operands, pa.decimal128(precision, scale))

    def _is(self, tree: Tree) -> Node:
        wanted = tree.expression
        if isinstance(wanted, exp.Null):
            return Call(Function.IS_NULL, (self.compile(tree.this),), pa.bool_())
        if isinstance(wanted, exp.Boolean):
            function = Function.IS_TRUE if wanted.this else Function.IS_FALSE
            return Call(function, (self._condition(tree.this),), pa.bool_())
        raise self.refused(tree, "IS takes NULL, TRUE or FALSE")

    def _in(self, tree: Tree) -> Node:
        if tree.args.get("query") is not None or not tree.expressions:
            raise self.refused(tree, "IN takes a list of values")
        nodes = self._matched([tree.this, *tree.expressions])
        if all(isinstance(node, Literal) for node in nodes[1:]):
            return Call(Function.IN, tuple(nodes), pa.bool_())
        equal = tuple(Call(Function.EQUAL, (nodes[0], each), pa.bool_()) for each in nodes[1:])
        return Call(Function.OR, equal, pa.bool_()) if len(equal) > 1 else equal[0]

    def _between(self, tree: Tree) -> Node:
        low = self._comparison(Function.GREATER_EQUAL, tree.this, tree.args["low"])
        high = self._comparison(Function.LESS_EQUAL, tree.this, tree.args["high"])
        return Call(Function.AND, (low, high), pa.bool_())

    def _case(self, tree: Tree) -> Node:
        if isinstance(tree, exp.If):
            branches = [(tree.this, tree.args["true"])]
            default = tree.args.get("false") or exp.Null()
        else:
            branches = [(each.this, each.args["true"]) for each in tree.args["ifs"]]
            default = tree.args.get("default") or exp.Null()
            if tree.this is not None:
                branches = [
                    (exp.EQ(this=tree.this, expression=wanted), value) for wanted, value in branches
                ]
        values = self._matched([*(value for _, value in branches), default])
        conditions = [self._condition(condition) for condition, _ in branches]
        turns = [node for pair in zip(conditions, values[:-1], strict=True) for node in pair]
        return Call(Function.CASE, (*turns, values[-1]), values[-1].type)

    def _coalesce(self, tree: Tree) -> Node:
        values = self._matched([tree.this, *tree.expressions])
        return Call(Function.COALESCE, tuple(values), values[0].type)

    def _null_if(self, tree: Tree) -> Node:
        is_equal = self._comparison(Function.EQUAL, tree.this, tree.expression)
        value = self.compile(tree.this)
        return Call(Function.CASE, (is_equal, Literal(None, value.type), value), value.type)

    def _cast(self, tree: Tree) -> Node:
        kind = type_of(tree.args["to"])
        operand = self.compile(tree.this)
        if kind is None or not can_cast(operand.type, kind):
            to = tree.args["to"].sql(dialect="spark")
            raise self.refused(tree, f"A value of type {operand.type} is not cast to {to} here")
        is_try = isinstance(tree, exp.TryCast)
        return Cast(operand, kind, self.zone, is_try=is_try)

    def _anonymous(self, tree: Tree) -> Node:
        name = tree.name.lower()
        if name in ("isnull", "isnotnull") and len(tree.expressions) == 1:
            is_null = Call(Function.IS_NULL, (self.compile(tree.expressions[0]),), pa.bool_())
            return is_null if name == "isnull" else Call(Function.NOT, (is_null,), pa.bool_())
        if name == "get" and len(tree.expressions) == 2:
            return element_or_null(self, tree)
        if name == "cardinality" and len(tree.expressions) == 1:
            return size_of(self, tree, tree.expressions[0])
        raise self.refused(tree, f"The function {tree.name} is not known")

    def _is_nan(self, tree: Tree) -> Node:
        number = self.cast(self._of_numbers(tree.this), pa.float64(), tree)
        return Call(Function.IS_NAN, (number,), pa.bool_())

    def _bytes(self, tree: Tree) -> Node:
        return Literal(bytes.fromhex(tree.name), pa.binary())

    def refused(self, tree: Tree, what: str) -> InvalidInputError:
        return refused(self._text, tree, what)


_COMPILERS: Mapping[type[Tree], Compile] = MappingProxyType(
    {
        exp.Column: Compiler._column,
        exp.Dot: Compiler._dot,
        exp.CurrentDate: Compiler._named_like_now,
        exp.CurrentTimestamp: Compiler._named_like_now,
        exp.Paren: lambda compiler, tree: compiler.compile(tree.this),
        exp.Literal: Compiler._number,
        exp.Null: lambda _, tree: Literal(None, pa.null()),
        exp.Boolean: lambda _, tree: Literal(bool(tree.this), pa.bool_()),
        exp.HexString: Compiler._bytes,
        exp.Neg: Compiler._negative,
        exp.Abs: Compiler._absolute,
        exp.And: Compiler._logic,
        exp.Or: Compiler._logic,
        exp.Not: Compiler._not,
        exp.NullSafeNEQ: Compiler._distinct,
        exp.Is: Compiler._is,
        exp.In: Compiler._in,
        exp.Between: Compiler._between,
        exp.Case: Compiler._case,
        exp.If: Compiler._case,
        exp.Coalesce: Compiler._coalesce,
        exp.Nullif: Compiler._null_if,
        exp.Cast: Compiler._cast,
        exp.TryCast: Compiler._cast,
        exp.Anonymous: Compiler._anonymous,
        exp.IsNan: Compiler._is_nan,
        **TEXT_FUNCTIONS,
        **TIME_FUNCTIONS,
        **CONTAINER_FUNCTIONS,
    }
)


def as_condition(node: Node, tree: Tree, text: str) -> Node:
    """Return a node of booleans.

    Raises:
        InvalidInputError: it is something else.
    """
    if pa.types.is_null(node.type):
        return Literal(None, pa.bool_())
    if not pa.types.is_boolean(node.type):
        raise refused(text, tree, f"This is a {node.type}, not a condition")
    return node


def _folded(node: Node) -> Node:
    """Return a node without columns as the literal that it always is."""
    value = evaluate(node, pa.RecordBatch.from_pylist([{"": 0}]))[0]
    return Literal(value.as_py(), node.type)


def _conjuncts(tree: Tree) -> list[Tree]:
    inner = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if not isinstance(inner, exp.And):
        return [inner]
    return [each for part in flattened(inner, exp.And) for each in _conjuncts(part)]


def _named(tree: Tree) -> str:
    if isinstance(tree, exp.Func):
        return f"The function {tree.sql_name().lower()}"
    return f"`{tree.sql(dialect='spark')}`"
