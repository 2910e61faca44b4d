"""Elements of arrays, values of maps and fields of structs that are inside of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from sqlglot import exp

from headwater.errors import check
from headwater.expressions.coercion import common_type
from headwater.expressions.nodes import Call, Function, Literal, Node
from headwater.expressions.parse import Tree
from headwater.expressions.scope import match_name
from headwater.expressions.sql_types import evaluated_type

if TYPE_CHECKING:
    from headwater.expressions.compile import Compile, Compiler


def is_array(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def field_of(compiler: Compiler, of: Tree, field: Tree) -> Node:
    """Return a field of a struct that is no column, but an element of one."""
    struct = compiler.compile(of)
    names = [each.name for each in struct.type] if pa.types.is_struct(struct.type) else []
    name = match_name(field.name, names)
    if name is None:
        has = ", ".join(names) or f"no fields, being of type {struct.type}"
        raise compiler.refused(field, f"There is no field {field.name}; it has {has}")
    kind = evaluated_type(struct.type.field(name).type)
    return Call(Function.FIELD, (struct, Literal(name, pa.string())), kind)


def element_or_null(compiler: Compiler, tree: Tree) -> Node:
    """Compile `get(array, index)`."""
    array, index = tree.expressions
    return _element(compiler, array, index, Function.ELEMENT_OR_NULL, tree)


def size_of(compiler: Compiler, tree: Tree, container: Tree) -> Node:
    """Compile `size`, `cardinality` and `array_size`."""
    node = compiler.compile(container)
    if not (is_array(node.type) or pa.types.is_map(node.type)):
        raise compiler.refused(tree, f"This is a {node.type}, neither an array nor a map")
    return Call(Function.SIZE, (node,), pa.int32())


def _bracket(compiler: Compiler, tree: Tree) -> Node:
    if len(tree.expressions) != 1:
        raise compiler.refused(tree, "One index or key is needed")
    if pa.types.is_map(compiler.compile(tree.this).type):
        return _value(compiler, tree.this, tree.expressions[0])
    function = Function.ELEMENT_FROM_ONE if tree.args.get("offset") == 1 else Function.ELEMENT
    return _element(compiler, tree.this, tree.expressions[0], function, tree)


def _element(compiler: Compiler, array: Tree, at: Tree, function: Function, tree: Tree) -> Node:
    node, index = compiler.compile(array), compiler.compile(at)
    if not is_array(node.type):
        raise compiler.refused(tree, f"This is a {node.type}, neither an array nor a map")
    if not (isinstance(index, Literal) and isinstance(index.value, int)):
        raise compiler.refused(tree, "The index is a whole number")
    if function is Function.ELEMENT_FROM_ONE and index.value == 0:
        raise compiler.refused(tree, "The index of element_at begins at 1")
    return Call(function, (node, index), evaluated_type(node.type.value_type))


def _value(compiler: Compiler, of: Tree, at: Tree) -> Node:
    node = compiler.compile(of)
    key = _wanted(compiler, at, evaluated_type(node.type.key_type))
    if key.value is None:
        return Literal(None, evaluated_type(node.type.item_type))
    return Call(Function.VALUE, (node, key), evaluated_type(node.type.item_type))


def _contains(compiler: Compiler, tree: Tree) -> Node:
    node = compiler.compile(tree.this)
    if not is_array(node.type):
        raise compiler.refused(tree, f"This is a {node.type}, not an array")
    wanted = _wanted(compiler, tree.expression, evaluated_type(node.type.value_type))
    if wanted.value is None:
        return Literal(None, pa.bool_())
    return Call(Function.ARRAY_CONTAINS, (node, wanted), pa.bool_())


def _contains_key(compiler: Compiler, tree: Tree) -> Node:
    node = compiler.compile(tree.this)
    if not pa.types.is_map(node.type):
        raise compiler.refused(tree, f"This is a {node.type}, not a map")
    wanted = _wanted(compiler, tree.args["key"], evaluated_type(node.type.key_type))
    if wanted.value is None:
        return Literal(None, pa.bool_())
    return Call(Function.MAP_CONTAINS_KEY, (node, wanted), pa.bool_())


def _wanted(compiler: Compiler, tree: Tree, kind: pa.DataType) -> Literal:
    """Return what is looked for among values of a type, which must hold it as it is."""
    node = compiler.compile(tree)
    if not isinstance(node, Literal):
        raise compiler.refused(tree, "What is looked for is a constant")
    if pa.types.is_nested(kind) or common_type(Literal(None, kind), node) != kind:
        raise compiler.refused(tree, f"A {node.type} is not looked for among values of {kind}")
    found = compiler.cast(node, kind, tree)
    check(isinstance(found, Literal), "A constant stays one")
    return cast(Literal, found)


CONTAINER_FUNCTIONS: Mapping[type[Tree], Compile] = MappingProxyType(
    {
        exp.Bracket: _bracket,
        exp.ArrayContains: _contains,
        exp.MapContainsKey: _contains_key,
        exp.ArraySize: lambda compiler, tree: size_of(compiler, tree, tree.this),
    }
)
