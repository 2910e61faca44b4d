"""Statements that are none are refused in words, however they are broken."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidInputError
from headwater.spark_sql import procedures, run

BROKEN = ["SELECT 'a", "SELECT " + "(" * 5_000, "SELECT " + "NOT " * 5_000 + "a", "SELECT [1, FROM"]


@pytest.mark.parametrize("statement", BROKEN, ids=["text", "brackets", "levels", "list"])
def test_a_statement_that_cannot_be_parsed(statement: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be parsed"):
        run._parsed(statement)
    with pytest.raises(InvalidInputError, match="cannot be parsed"):
        procedures._parsed(f"run_clean(table => {statement.removeprefix('SELECT ')}")
