"""From the syntax tree of a SQL expression to typed nodes, bound to the columns of some rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headwater.errors import InvalidInputError
from headwater.expressions.casts import can_cast
from headwater.expressions.coercion import (
    DECIMAL_PRECISION_MAX,
    common_type,
    decimal_for,
    is_number,
    is_text,
)
from headwater.expressions.evaluate import evaluate
from headwater.expressions.java_regex import re2_of
from headwater.expressions.nodes import Call, Cast, Column, Function, Literal, Node, columns_of
from headwater.expressions.parse import Tree, parse_expression, refused
from headwater.expressions.scope import Scope, match_name
from headwater.expressions.sql_types import evaluated_type, is_assignable, type_of

UTC = "UTC"

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
_TEXT_FUNCTIONS: Mapping[type[Tree], tuple[Function, pa.DataType]] = MappingProxyType(
    {
        exp.Upper: (Function.UPPER, pa.string()),
        exp.Lower: (Function.LOWER, pa.string()),
        exp.Length: (Function.LENGTH, pa.int32()),
        exp.Trim: (Function.TRIM, pa.string()),
    }
)
_PART_FUNCTIONS: Mapping[type[Tree], Function] = MappingProxyType(
    {
        exp.StartsWith: Function.STARTS_WITH,
        exp.EndsWith: Function.ENDS_WITH,
        exp.Contains: Function.CONTAINS,
    }
)
_DATE_FUNCTIONS: Mapping[type[Tree], Function] = MappingProxyType(
    {
        exp.Year: Function.YEAR,
        exp.Month: Function.MONTH,
        exp.Day: Function.DAY,
        exp.DayOfMonth: Function.DAY,
    }
)


def compile_condition(text: str, scope: Scope, zone: str = UTC) -> Node:
    """Return a SQL condition as a node of booleans.

    Args:
        zone: that of times which do not say theirs.

    Raises:
        InvalidInputError: the text is no condition on these columns that can be evaluated; the
            message has the place and what is supported.
    """
    tree = parse_expression(text)
    node = Compiler(text, scope, zone).compile(tree)
    return _as_condition(node, tree, text)


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
            found.append(_as_condition(node, conjunct, text))
        except (InvalidInputError, RecursionError):
            continue
    return found


def compile_value(text: str, scope: Scope, kind: pa.DataType, zone: str = UTC) -> Node:
    """Return a SQL expression as a node of values that a column of some type can hold.

    Raises: as `compile_condition`.
    """
    tree = parse_expression(text)
    compiler = Compiler(text, scope, zone)
    node = compiler.compile(tree)
    if not is_assignable(node.type, kind):
        raise refused(text, tree, f"A value of type {node.type} does not go into one of {kind}")
    return compiler.cast(node, kind, tree)


_Compile: TypeAlias = Callable[["Compiler", Tree], Node]


class Compiler:
    """Compiles one expression."""

    def __init__(self, text: str, scope: Scope, zone: str) -> None:
        self._text = text
        self._scope = scope
        self._zone = zone

    def compile(self, tree: Tree) -> Node:
        """Return the node of a part of the expression; what is constant is evaluated here."""
        node = self._compile(tree)
        is_constant = not isinstance(node, Literal) and not any(columns_of(node))
        return _folded(node) if is_constant else node

    def cast(self, node: Node, kind: pa.DataType, tree: Tree) -> Node:
        """Return a node converted without being told to."""
        if node.type == kind:
            return node
        if not can_cast(node.type, kind):
            raise self._refused(tree, f"A value of type {node.type} cannot become {kind}")
        cast = Cast(node, kind, self._zone, is_implicit=True)
        return _folded(cast) if isinstance(node, Literal) else cast

    def _compile(self, tree: Tree) -> Node:
        kind = type(tree)
        if kind in _BINARY:
            return self._comparison(_BINARY[kind], tree.this, tree.expression)
        if kind in _ARITHMETIC:
            return self._calculation(_ARITHMETIC[kind], tree)
        if kind in _TEXT_FUNCTIONS:
            return self._text_function(tree)
        if kind in _PART_FUNCTIONS:
            return self._part_function(tree)
        if kind in _DATE_FUNCTIONS:
            day = self.cast(self.compile(tree.this), pa.date32(), tree)
            return Call(_DATE_FUNCTIONS[kind], (day,), pa.int32())
        found = _COMPILERS.get(kind)
        if found is None:
            raise self._refused(tree, f"{_named(tree)} cannot be evaluated here")
        return found(self, tree)

    def _column(self, tree: Tree) -> Node:
        identifiers = tree.parts if isinstance(tree, exp.Column | exp.Dot) else [tree]
        parts = [part.name for part in identifiers]
        try:
            path = self._scope.find(parts)
        except LookupError as error:
            raise self._refused(tree, f"The name is ambiguous: {error}") from error
        if path is None:
            raise self._refused(
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
                raise self._refused(tree, f"{'.'.join(found)} has no field {part}; it has {has}")
            kind = kind.field(name).type
            found.append(name)
        return Column(tuple(found), evaluated_type(kind))

    def _number(self, tree: Tree) -> Node:
        text = tree.name
        if tree.args.get("is_string"):
            return Literal(text, pa.string())
        return self._number_of(text, tree)

    def _number_of(self, text: str, tree: Tree) -> Node:
        if "e" in text.lower():
            number = float(text)
            if not math.isfinite(number):
                raise self._refused(tree, f"The number {text} is too large")
            return Literal(number, pa.float64())
        if "." in text:
            return self._decimal(Decimal(text), tree)
        whole = int(text)
        if abs(whole) <= _INT32_MAX:
            return Literal(whole, pa.int32())
        if abs(whole) <= _INT64_MAX:
            return Literal(whole, pa.int64())
        return self._decimal(Decimal(whole), tree)

    def _decimal(self, number: Decimal, tree: Tree) -> Node:
        _, digits, exponent = number.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale)
        if precision > DECIMAL_PRECISION_MAX:
            raise self._refused(tree, f"A number has at most {DECIMAL_PRECISION_MAX} digits")
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
            raise self._refused(tree, f"This is a {node.type}, not a number")
        return node

    def _condition(self, tree: Tree) -> Node:
        return _as_condition(self.compile(tree), tree, self._text)

    def _logic(self, tree: Tree) -> Node:
        function = Function.AND if isinstance(tree, exp.And) else Function.OR
        operands = tuple(self._condition(each) for each in _flattened(tree, type(tree)))
        return Call(function, operands, pa.bool_())

    def _not(self, tree: Tree) -> Node:
        return Call(Function.NOT, (self._condition(tree.this),), pa.bool_())

    def _comparison(self, function: Function, left: Tree, right: Tree) -> Node:
        one, other = self._matched([left, right])
        if pa.types.is_nested(one.type):
            raise self._refused(left, f"Values of type {one.type} are not compared here")
        return Call(function, (one, other), pa.bool_())

    def _matched(self, trees: Sequence[Tree]) -> list[Node]:
        """Return several values in a type that all of them have in common."""
        nodes = [self.compile(tree) for tree in trees]
        widest = nodes[0]
        for node, tree in zip(nodes[1:], trees[1:], strict=True):
            kind = common_type(widest, node)
            if kind is None:
                raise self._refused(
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
        left, right = self._of_numbers(tree.this), self._of_numbers(tree.expression)
        kind = common_type(left, right)
        if kind is None:
            raise self._refused(tree, f"{left.type} and {right.type} do not go together")
        if pa.types.is_decimal(kind):
            return self._decimal_calculation(function, left, right, tree)
        if function is Function.DIVIDE:
            kind = pa.float64()
        operands = (self.cast(left, kind, tree), self.cast(right, kind, tree))
        return Call(function, operands, kind)

    def _decimal_calculation(self, function: Function, left: Node, right: Node, tree: Tree) -> Node:
        one, other = decimal_for(left), decimal_for(right)
        if function is Function.MULTIPLY:
            scale, precision = one.scale + other.scale, one.precision + other.precision + 1
        else:
            scale = max(one.scale, other.scale)
            whole = max(one.precision - one.scale, other.precision - other.scale)
            precision = whole + scale + 1
        if function in (Function.DIVIDE, Function.REMAINDER) or precision > DECIMAL_PRECISION_MAX:
            raise self._refused(
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
        raise self._refused(tree, "IS takes NULL, TRUE or FALSE")

    def _in(self, tree: Tree) -> Node:
        if tree.args.get("query") is not None or not tree.expressions:
            raise self._refused(tree, "IN takes a list of values")
        nodes = self._matched([tree.this, *tree.expressions])
        if all(isinstance(node, Literal) for node in nodes[1:]):
            return Call(Function.IN, tuple(nodes), pa.bool_())
        equal = tuple(Call(Function.EQUAL, (nodes[0], each), pa.bool_()) for each in nodes[1:])
        return Call(Function.OR, equal, pa.bool_()) if len(equal) > 1 else equal[0]

    def _between(self, tree: Tree) -> Node:
        low = self._comparison(Function.GREATER_EQUAL, tree.this, tree.args["low"])
        high = self._comparison(Function.LESS_EQUAL, tree.this, tree.args["high"])
        return Call(Function.AND, (low, high), pa.bool_())

    def _like(self, tree: Tree, escape: str = "\\") -> Node:
        pattern = self.compile(tree.expression)
        if not isinstance(pattern, Literal) or not (
            pattern.value is None or isinstance(pattern.value, str)
        ):
            raise self._refused(tree.expression, "The pattern is a text")
        values = self._of_text(tree.this)
        if pattern.value is None:
            return Literal(None, pa.bool_())
        flags = "(?is)" if isinstance(tree, exp.ILike) else "(?s)"
        regex, prefix = self._regex(pattern.value, escape, tree)
        if flags != "(?s)":
            prefix = ""
        operands = (values, Literal(flags + regex, pa.string()), Literal(prefix, pa.string()))
        like = Call(Function.LIKE, operands, pa.bool_())
        return Call(Function.NOT, (like,), pa.bool_()) if tree.args.get("negate") else like

    def _matches(self, tree: Tree) -> Node:
        pattern = self.compile(tree.expression)
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str | None):
            raise self._refused(tree.expression, "The pattern is a text")
        values = self._of_text(tree.this)
        if pattern.value is None:
            return Literal(None, pa.bool_())
        try:
            regex = re2_of(pattern.value)
            pc.match_substring_regex(pa.array([""]), regex)
        except (ValueError, pa.ArrowInvalid) as error:
            raise self._refused(
                tree.expression, f"The regular expression cannot be evaluated: {error}"
            ) from error
        operands = (values, Literal(regex, pa.string()), Literal("", pa.string()))
        return Call(Function.LIKE, operands, pa.bool_())

    def _escape(self, tree: Tree) -> Node:
        escape = tree.expression.name
        inner = tree.this
        if len(escape) != 1 or not isinstance(inner, exp.Like | exp.ILike):
            raise self._refused(tree, "ESCAPE takes one character")
        return self._like(inner, escape)

    def _regex(self, pattern: str, escape: str, tree: Tree) -> tuple[str, str]:
        """Return a pattern in the syntax of RE2, and the text that it begins with."""
        parts, prefix, signs = list[str](), list[str](), iter(pattern)
        for sign in signs:
            is_wild = sign in ("%", "_") and sign != escape
            if sign == escape:
                escaped = next(signs, None)
                if escaped is None or escaped not in ("%", "_", escape):
                    raise self._refused(
                        tree, f"{escape} in a pattern stands before %, _ or {escape}"
                    )
                sign = escaped
            if not is_wild and len(prefix) == len(parts):
                prefix.append(sign)
            parts.append((".*" if sign == "%" else ".") if is_wild else re.escape(sign))
        return rf"\A{''.join(parts)}\z", "".join(prefix)

    def _of_text(self, tree: Tree) -> Node:
        return self.cast(self.compile(tree), pa.string(), tree)

    def _text_function(self, tree: Tree) -> Node:
        function, kind = _TEXT_FUNCTIONS[type(tree)]
        if any(value for name, value in tree.args.items() if name != "this"):
            raise self._refused(tree, f"{function} takes one text")
        return Call(function, (self._of_text(tree.this),), kind)

    def _part_function(self, tree: Tree) -> Node:
        part = self.compile(tree.expression)
        if not isinstance(part, Literal) or not isinstance(part.value, str):
            raise self._refused(tree, "The part to look for is a text")
        return Call(_PART_FUNCTIONS[type(tree)], (self._of_text(tree.this), part), pa.bool_())

    def _concat(self, tree: Tree) -> Node:
        parts = tree.expressions or _flattened(tree, exp.DPipe)
        return Call(Function.CONCAT, tuple(self._of_text(part) for part in parts), pa.string())

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
            raise self._refused(tree, f"A value of type {operand.type} is not cast to {to} here")
        is_try = isinstance(tree, exp.TryCast)
        return Cast(operand, kind, self._zone, is_try=is_try)

    def _anonymous(self, tree: Tree) -> Node:
        name = tree.name.lower()
        if name in ("isnull", "isnotnull") and len(tree.expressions) == 1:
            is_null = Call(Function.IS_NULL, (self.compile(tree.expressions[0]),), pa.bool_())
            return is_null if name == "isnull" else Call(Function.NOT, (is_null,), pa.bool_())
        raise self._refused(tree, f"The function {tree.name} is not known")

    def _bytes(self, tree: Tree) -> Node:
        return Literal(bytes.fromhex(tree.name), pa.binary())

    def _refused(self, tree: Tree, what: str) -> InvalidInputError:
        return refused(self._text, tree, what)


_COMPILERS: Mapping[type[Tree], _Compile] = MappingProxyType(
    {
        exp.Column: Compiler._column,
        exp.Dot: Compiler._column,
        exp.Paren: lambda compiler, tree: compiler.compile(tree.this),
        exp.TsOrDsToDate: lambda compiler, tree: compiler.compile(tree.this),
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
        exp.Like: Compiler._like,
        exp.ILike: Compiler._like,
        exp.RegexpLike: Compiler._matches,
        exp.Escape: Compiler._escape,
        exp.Concat: Compiler._concat,
        exp.DPipe: Compiler._concat,
        exp.Case: Compiler._case,
        exp.If: Compiler._case,
        exp.Coalesce: Compiler._coalesce,
        exp.Nullif: Compiler._null_if,
        exp.Cast: Compiler._cast,
        exp.TryCast: Compiler._cast,
        exp.Anonymous: Compiler._anonymous,
    }
)


def _as_condition(node: Node, tree: Tree, text: str) -> Node:
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
    return [each for part in _flattened(inner, exp.And) for each in _conjuncts(part)]


def _flattened(tree: Tree, kind: type[Tree]) -> list[Tree]:
    """Return the operands of operators of one kind in a row; a chain of them may be long."""
    found: list[Tree] = []
    while isinstance(tree, kind):
        found.append(tree.expression)
        tree = tree.this
    return [tree, *reversed(found)]


def _named(tree: Tree) -> str:
    if isinstance(tree, exp.Func):
        return f"The function {tree.sql_name().lower()}"
    return f"`{tree.sql(dialect='spark')}`"
