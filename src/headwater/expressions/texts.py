"""Texts in expressions: patterns, parts, and what is made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headwater.expressions.java_regex import re2_of
from headwater.expressions.nodes import Call, Function, Literal, Node
from headwater.expressions.parse import Tree, flattened

if TYPE_CHECKING:
    from headwater.expressions.compile import Compile, Compiler

_OF_ONE: Mapping[type[Tree], tuple[Function, pa.DataType]] = MappingProxyType(
    {
        exp.Upper: (Function.UPPER, pa.string()),
        exp.Lower: (Function.LOWER, pa.string()),
        exp.Length: (Function.LENGTH, pa.int32()),
        exp.Trim: (Function.TRIM, pa.string()),
    }
)
_WITH_PART: Mapping[type[Tree], Function] = MappingProxyType(
    {
        exp.StartsWith: Function.STARTS_WITH,
        exp.EndsWith: Function.ENDS_WITH,
        exp.Contains: Function.CONTAINS,
    }
)


def _text(compiler: Compiler, tree: Tree) -> Node:
    return compiler.cast(compiler.compile(tree), pa.string(), tree)


def _pattern(compiler: Compiler, tree: Tree) -> str | None:
    pattern = compiler.compile(tree)
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str | None):
        raise compiler.refused(tree, "The pattern is a text")
    return pattern.value


def _like(compiler: Compiler, tree: Tree, escape: str = "\\") -> Node:
    pattern = _pattern(compiler, tree.expression)
    values = _text(compiler, tree.this)
    if pattern is None:
        return Literal(None, pa.bool_())
    regex, prefix = _regex(compiler, pattern, escape, tree)
    ignores_case = isinstance(tree, exp.ILike)
    flags = "(?is)" if ignores_case else "(?s)"
    beginning = Literal("" if ignores_case else prefix, pa.string())
    operands = (values, Literal(flags + regex, pa.string()), beginning)
    like = Call(Function.LIKE, operands, pa.bool_())
    return Call(Function.NOT, (like,), pa.bool_()) if tree.args.get("negate") else like


def _matches(compiler: Compiler, tree: Tree) -> Node:
    pattern = _pattern(compiler, tree.expression)
    values = _text(compiler, tree.this)
    if pattern is None:
        return Literal(None, pa.bool_())
    try:
        regex = re2_of(pattern)
        pc.match_substring_regex(pa.array([""]), regex)
    except (ValueError, pa.ArrowInvalid) as error:
        raise compiler.refused(
            tree.expression, f"The regular expression cannot be evaluated: {error}"
        ) from error
    operands = (values, Literal(regex, pa.string()), Literal("", pa.string()))
    return Call(Function.LIKE, operands, pa.bool_())


def _escape(compiler: Compiler, tree: Tree) -> Node:
    escape = tree.expression.name
    inner = tree.this
    if len(escape) != 1 or not isinstance(inner, exp.Like | exp.ILike):
        raise compiler.refused(tree, "ESCAPE takes one character")
    return _like(compiler, inner, escape)


def _regex(compiler: Compiler, pattern: str, escape: str, tree: Tree) -> tuple[str, str]:
    """Return a pattern in the syntax of RE2, and the text that it begins with."""
    parts, prefix, signs = list[str](), list[str](), iter(pattern)
    for sign in signs:
        is_wild = sign in ("%", "_") and sign != escape
        if sign == escape:
            escaped = next(signs, None)
            if escaped is None or escaped not in ("%", "_", escape):
                raise compiler.refused(
                    tree, f"{escape} in a pattern stands before %, _ or {escape}"
                )
            sign = escaped
        if not is_wild and len(prefix) == len(parts):
            prefix.append(sign)
        parts.append((".*" if sign == "%" else ".") if is_wild else re.escape(sign))
    return rf"\A{''.join(parts)}\z", "".join(prefix)


def _of_one(compiler: Compiler, tree: Tree) -> Node:
    function, kind = _OF_ONE[type(tree)]
    if any(value for name, value in tree.args.items() if name != "this"):
        raise compiler.refused(tree, f"{function} takes one text")
    return Call(function, (_text(compiler, tree.this),), kind)


def _with_part(compiler: Compiler, tree: Tree) -> Node:
    part = compiler.compile(tree.expression)
    if not isinstance(part, Literal) or not isinstance(part.value, str):
        raise compiler.refused(tree, "The part to look for is a text")
    operands = (_text(compiler, tree.this), part)
    return Call(_WITH_PART[type(tree)], operands, pa.bool_())


def _concat(compiler: Compiler, tree: Tree) -> Node:
    parts = tree.expressions or flattened(tree, exp.DPipe)
    return Call(Function.CONCAT, tuple(_text(compiler, part) for part in parts), pa.string())


def _substring(compiler: Compiler, tree: Tree) -> Node:
    start = _number(compiler, tree.args["start"], tree)
    given = tree.args.get("length")
    length = None if given is None else _number(compiler, given, tree)
    begin = start - 1 if start > 0 else start  # Zero means the first letter as well.
    return _slice(compiler, tree, begin, length)


def _left(compiler: Compiler, tree: Tree) -> Node:
    return _slice(compiler, tree, 0, _number(compiler, tree.expression, tree))


def _slice(compiler: Compiler, tree: Tree, begin: int, length: int | None) -> Node:
    """Return some letters of a text, from one that is counted from the end if it is negative."""
    end = None if length is None else begin + max(length, 0)
    if begin < 0 and end is not None and end >= 0:
        end = None
    if length is not None and length <= 0:
        begin, end = 0, 0
    bounds = (Literal(begin, pa.int64()), Literal(end, pa.int64()))
    return Call(Function.SUBSTRING, (_text(compiler, tree.this), *bounds), pa.string())


def _number(compiler: Compiler, tree: Tree, of: Tree) -> int:
    node = compiler.compile(tree)
    if not isinstance(node, Literal) or not isinstance(node.value, int):
        raise compiler.refused(of, "Places and lengths are whole numbers")
    return node.value


TEXT_FUNCTIONS: Mapping[type[Tree], Compile] = MappingProxyType(
    {
        exp.Like: _like,
        exp.ILike: _like,
        exp.RegexpLike: _matches,
        exp.Escape: _escape,
        exp.Concat: _concat,
        exp.DPipe: _concat,
        exp.Substring: _substring,
        exp.Left: _left,
        **dict.fromkeys(_OF_ONE, _of_one),
        **dict.fromkeys(_WITH_PART, _with_part),
    }
)
