"""SQL conditions on the rows of a table: all of one, or what of it may skip files."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from headwater.arrow.meta_columns import META_COLUMNS
from headwater.expressions.nodes import Call, Function
from headwater.expressions.scope import Scope
from headwater.queries.known_conditions import known_conditions
from headwater.queries.predicate import Predicate


def filter_of(text: str, schema: pa.Schema, zone: str = "UTC") -> Predicate:
    """Return the whole of a condition on some columns.

    Args:
        zone: that of times which do not say theirs.

    Raises:
        InvalidInputError: the text is no condition on these columns that can be evaluated without
            Spark; the message has the place and what is supported.
    """
    # With sqlglot, which takes longer to load than all reads without a condition need.
    from headwater.expressions.compile import compile_condition

    node = compile_condition(text, table_scope(schema), zone)
    return replace(known_conditions(node, schema), expression=node)


def known_part_of(text: str, schema: pa.Schema, zone: str = "UTC") -> Predicate:
    """Return what is known of a condition that somebody else evaluates; it may be nothing."""
    from headwater.expressions.compile import compile_conjuncts

    nodes = compile_conjuncts(text, table_scope(schema), zone)
    return known_conditions(Call(Function.AND, tuple(nodes), pa.bool_()), schema)


def with_now(text: str, schema: pa.Schema, zone: str, now: datetime) -> str:
    """Return a condition in which the time is said that it asks for; see `expressions.now`."""
    from headwater.expressions.now import with_now_said

    return with_now_said(text, schema.names, zone, now)


def table_scope(schema: pa.Schema) -> Scope:
    """Return the names of a table's columns, meta columns among them."""
    return Scope(schema, hidden=frozenset(META_COLUMNS))
