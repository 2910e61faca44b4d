"""Columns as statements declare them, as text for Spark's types."""

from __future__ import annotations

from typing import cast

from pyspark.sql.types import StructType
from sqlglot import exp

from headwater.errors import InvalidInputError, UnsupportedError

_KEPT = (exp.NotNullColumnConstraint, exp.CommentColumnConstraint)


def columns_of(ddl: str) -> StructType:
    """Return Spark's columns of text such as `id` BIGINT NOT NULL."""
    return cast("StructType", StructType.fromDDL(ddl))


def column_text(column: exp.Expr) -> str:
    """Return a column's name and type.

    Raises:
        UnsupportedError: it is declared to be what tables do not keep, such as a default.
        InvalidInputError: it is no column.
    """
    if not isinstance(column, exp.ColumnDef) or column.args.get("kind") is None:
        raise InvalidInputError(
            f"CREATE TABLE takes columns, not {column.sql(dialect='spark')}; a record key is given "
            "by TBLPROPERTIES (primaryKey = '...')"
        )
    constraints = [each.kind for each in column.args.get("constraints") or ()]
    for each in constraints:
        if not isinstance(each, _KEPT):
            raise UnsupportedError(
                f"{each.sql(dialect='spark')} of column {column.name} is not supported, only a "
                "type, NOT NULL and COMMENT. Leave it out; a record key is given by TBLPROPERTIES "
                "(primaryKey = '...')"
            )
    is_required = any(
        isinstance(each, exp.NotNullColumnConstraint) and not each.args.get("allow_null")
        for each in constraints
    )
    return (
        f"`{column.name}` {type_of(column.args['kind'], column.name)}"
        f"{' NOT NULL' if is_required else ''}"
    )


def type_of(kind: exp.DataType, column: str) -> str:
    """Return a type as Spark writes it.

    Raises:
        UnsupportedError: a text has a length, which nobody would hold rows to.
    """
    for each in kind.find_all(exp.DataType):
        if each.this in (exp.DType.VARCHAR, exp.DType.CHAR) and each.expressions:
            raise UnsupportedError(
                f"Column {column} is {kind.sql(dialect='spark')}, but tables hold texts of any "
                "length. Declare it as STRING"
            )
    return kind.sql(dialect="spark")
