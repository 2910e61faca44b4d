"""Statements that sqlglot cannot parse, and Spark may: those that are not about our tables."""

from __future__ import annotations

from collections.abc import Iterator

import sqlglot
from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from sqlglot import TokenType, exp

from headwater.errors import InvalidInputError
from headwater.spark_sql.names import PROVIDERS, Names
from headwater.spark_sql.selects import CHANGES, INSTEAD

_OWN_WORDS = PROVIDERS | {CHANGES, *INSTEAD}


def left_to_spark(error: InvalidInputError, names: Names) -> DataFrame:
    """Let Spark run a statement that was refused as none, unless it is about tables of ours.

    Raises:
        InvalidInputError: the error that is given; Spark does not take the statement either, or it
            names a table of ours.
    """
    is_syntax = isinstance(error.__cause__, sqlglot.ParseError)
    if not is_syntax or any(_is_ours(words, names) for words in _dotted(names.statement)):
        raise error
    try:
        return names.spark.sql(names.statement)
    except ParseException:
        raise error from None


def _is_ours(words: tuple[str, ...], names: Names) -> bool:
    """Whether a dotted name is that of a table of ours, or only statements of ours have it."""
    if not _OWN_WORDS.isdisjoint(word.lower() for word in words):
        return True
    place = exp.Table(
        **{
            part: exp.to_identifier(word, quoted=True)
            for part, word in zip(("this", "db", "catalog"), reversed(words), strict=False)
        }
    )
    return names.path_of(place) is not None


def _dotted(statement: str) -> Iterator[tuple[str, ...]]:
    """Give what may name a table: words with the words before them that dots join to them."""
    seen = set()
    words: tuple[str, ...] = ()
    is_joined = False
    for token in sqlglot.tokenize(statement, read="spark"):
        is_word = token.token_type in (TokenType.IDENTIFIER, TokenType.VAR)
        is_keyword = token.token_type is not TokenType.STRING and token.text.isidentifier()
        if is_word or is_keyword:
            words = (*words, token.text) if is_joined else (token.text,)
            if words not in seen:
                seen.add(words)
                yield words
        is_joined = token.token_type is TokenType.DOT
