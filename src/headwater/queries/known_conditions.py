"""What the expression of a filter tells about single columns, for skipping files.

comparison with a literal     a condition, if values are compared exactly; see `row_filter`
IN, IS NULL, a boolean        a condition
LIKE 'abc%'                   two: not before `abc`, and before `abd`
AND                           what each side tells
OR                            equalities of one column are an IN; else an alternative, if each
                              side tells something
NOT                           what the opposite tells
anything else                 nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from headwater.expressions.nodes import Call, Cast, Column, Function, Node
from headwater.expressions.nodes import Literal as Constant
from headwater.queries.predicate import Comparison, Condition, Predicate
from headwater.queries.row_filter import bind_condition

NOTHING = Predicate()

_COMPARISONS: Mapping[Function, Comparison] = MappingProxyType(
    {
        Function.EQUAL: Comparison.EQUAL,
        Function.NOT_EQUAL: Comparison.NOT_EQUAL,
        Function.LESS: Comparison.LESS,
        Function.LESS_EQUAL: Comparison.LESS_EQUAL,
        Function.GREATER: Comparison.GREATER,
        Function.GREATER_EQUAL: Comparison.GREATER_EQUAL,
    }
)
_OPPOSITES: Mapping[Function, Function] = MappingProxyType(
    {
        Function.EQUAL: Function.NOT_EQUAL,
        Function.NOT_EQUAL: Function.EQUAL,
        Function.LESS: Function.GREATER_EQUAL,
        Function.GREATER_EQUAL: Function.LESS,
        Function.GREATER: Function.LESS_EQUAL,
        Function.LESS_EQUAL: Function.GREATER,
    }
)
_MIRRORED: Mapping[Function, Function] = MappingProxyType(
    {
        Function.LESS: Function.GREATER,
        Function.GREATER: Function.LESS,
        Function.LESS_EQUAL: Function.GREATER_EQUAL,
        Function.GREATER_EQUAL: Function.LESS_EQUAL,
    }
)
_SURROGATES = range(0xD800, 0xE000)
_LAST_LETTER = 0x10FFFF


def known_conditions(node: Node, schema: pa.Schema) -> Predicate:
    """Return what a condition tells about the columns of a table."""
    match node:
        case Column():
            return _condition(node, Comparison.EQUAL, [True], schema)
        case Call(function=Function.AND):
            return _both(known_conditions(operand, schema) for operand in node.operands)
        case Call(function=Function.OR):
            return _either([known_conditions(operand, schema) for operand in node.operands])
        case Call(function=Function.NOT):
            return _negated(node.operands[0], schema)
        case Call(function=Function.IS_TRUE):
            return known_conditions(node.operands[0], schema)
        case Call(function=Function.IS_FALSE):
            return _negated(node.operands[0], schema)
        case Call(function=Function.IS_NULL):
            return _condition(node.operands[0], Comparison.IS_NULL, [], schema)
        case Call(function=Function.IN):
            values = [each.value for each in node.operands[1:] if isinstance(each, Constant)]
            known = [value for value in values if value is not None]
            return _condition(node.operands[0], Comparison.IN, known, schema)
        case Call(function=Function.LIKE):
            prefix = node.operands[2]
            return _prefixed(node.operands[0], prefix, schema)
        case Call(function=Function.STARTS_WITH):
            return _prefixed(node.operands[0], node.operands[1], schema)
        case Call(function=Function.SAME):
            return _same(node, schema)
        case Call() if node.function in _COMPARISONS:
            return _compared(node.function, node.operands, schema)
        case _:
            return NOTHING


def _negated(node: Node, schema: pa.Schema) -> Predicate:
    match node:
        case Column():
            return _condition(node, Comparison.EQUAL, [False], schema)
        case Call(function=Function.AND):
            return _either([_negated(operand, schema) for operand in node.operands])
        case Call(function=Function.OR):
            return _both(_negated(operand, schema) for operand in node.operands)
        case Call(function=Function.NOT):
            return known_conditions(node.operands[0], schema)
        case Call(function=Function.IS_NULL):
            return _condition(node.operands[0], Comparison.IS_NOT_NULL, [], schema)
        case Call() if node.function in _COMPARISONS:
            return _compared(_OPPOSITES[node.function], node.operands, schema)
        case _:
            return NOTHING


def _both(parts: Iterable[Predicate]) -> Predicate:
    known = list(parts)
    return Predicate(
        tuple(condition for part in known for condition in part.conditions),
        tuple(branches for part in known for branches in part.alternatives),
    )


def _either(branches: list[Predicate]) -> Predicate:
    if not all(branch.is_known for branch in branches):
        return NOTHING
    firsts = [branch.conditions[0] for branch in branches if branch.conditions]
    is_list = all(
        len(branch.conditions) == 1 and not branch.alternatives and first.is_equality
        for branch, first in zip(branches, firsts, strict=False)
    )
    if is_list and len(firsts) == len(branches) and len({each.column for each in firsts}) == 1:
        literals = tuple(literal for each in firsts for literal in each.literals)
        return Predicate((Condition(firsts[0].column, Comparison.IN, literals),))
    return Predicate((), (tuple(branches),))


def _compared(function: Function, operands: tuple[Node, ...], schema: pa.Schema) -> Predicate:
    left, right = operands
    if isinstance(left, Constant):
        function, left, right = _MIRRORED.get(function, function), right, left
    if not isinstance(right, Constant) or right.value is None:
        return NOTHING
    return _condition(left, _COMPARISONS[function], [right.value], schema)


def _same(node: Call, schema: pa.Schema) -> Predicate:
    left, right = node.operands
    if isinstance(left, Constant):
        left, right = right, left
    if not isinstance(right, Constant):
        return NOTHING
    if right.value is None:
        return _condition(left, Comparison.IS_NULL, [], schema)
    return _condition(left, Comparison.EQUAL, [right.value], schema)


def _prefixed(node: Node, prefix: Node, schema: pa.Schema) -> Predicate:
    if not isinstance(prefix, Constant) or not isinstance(prefix.value, str) or not prefix.value:
        return NOTHING
    after = _letter_after(prefix.value[-1])
    low = _condition(node, Comparison.GREATER_EQUAL, [prefix.value], schema)
    if after is None:
        return low
    beyond = prefix.value[:-1] + after
    return _both([low, _condition(node, Comparison.LESS, [beyond], schema)])


def _letter_after(letter: str) -> str | None:
    after = ord(letter) + 1
    return None if after in _SURROGATES or after > _LAST_LETTER else chr(after)


def _condition(
    node: Node, comparison: Comparison, literals: Sequence[object], schema: pa.Schema
) -> Predicate:
    while isinstance(node, Cast) and node.is_implicit:
        node = node.operand
    if not isinstance(node, Column) or len(node.path) > 1 or node.path[0] not in schema.names:
        return NOTHING
    condition = Condition(node.path[0], comparison, tuple(literals))  # type: ignore[arg-type]
    bound = bind_condition(condition, schema)
    return NOTHING if bound is None else Predicate((bound,))
