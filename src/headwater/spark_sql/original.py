"""A statement as it was written, and where the parts of its tree are in it.

sqlglot spells a tree in its own way, which to Spark may mean something else: of to_char it makes
a cast, of percentile_cont an approximation. So the tree only tells what to replace, and all other
text is the writer's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import sqlglot
from sqlglot import TokenType, exp

from headwater.errors import check, raise_internal

_QUERY_BEGINS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES})
_CONDITION_ENDS = frozenset(
    {
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.WINDOW,
        TokenType.ORDER_BY,
        TokenType.SORT_BY,
        TokenType.CLUSTER_BY,
        TokenType.DISTRIBUTE_BY,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.UNION,
        TokenType.EXCEPT,
        TokenType.INTERSECT,
        TokenType.SELECT,
    }
)
"""What may come after the condition of a WHERE, unless a bracket or the end does."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Other text for what is between two places; the second is not part of it."""

    start: int
    end: int
    text: str


class Original:
    """The text of one statement, which was parsed."""

    def __init__(self, text: str) -> None:
        self._text = text
        tokens = sqlglot.tokenize(text, read="spark")
        self._tokens = [each for each in tokens if each.token_type is not TokenType.SEMICOLON]
        self._depths = _depths(self._tokens)

    @property
    def has_pipes(self) -> bool:
        """Whether it has an operator |>: sqlglot makes clauses of it that are in another order."""
        return any(each.token_type is TokenType.PIPE_GT for each in self._tokens)

    def query(self, part: exp.Expr, edits: Iterable[Edit]) -> str:
        """Return a query of the statement, or what it merges, as a query of its own.

        Args:
            part: the statement if it is a query, the query that it inserts or makes a table of, or
                the source of a MERGE.
        """
        first, end = self._extent(part)
        text = self._edited(self._tokens[first].start, self._tokens[end - 1].end + 1, edits)
        if isinstance(part.parent, exp.Merge):
            text = f"SELECT * FROM {text}"
        if part.parent is not None and part.parent.args.get("with_") is not None:
            with_ = self._edited(self._tokens[0].start, self._end_of_with(), edits)
            text = f"{with_}({text})"
        return text

    def condition(self, where: exp.Where) -> tuple[int, str] | None:
        """Return where the condition of a WHERE begins, and its text; None if it is not certain."""
        begins = [index for index in self._all((TokenType.WHERE,)) if self._is_before(index, where)]
        if not begins:
            return None
        first = begins[-1] + 1
        depth = self._depths[first]
        end = next(
            (
                index
                for index in range(first, len(self._tokens))
                if self._depths[index + 1] < depth
                or (
                    self._depths[index] == depth
                    and self._tokens[index].token_type in _CONDITION_ENDS
                )
            ),
            len(self._tokens),
        )
        if end == first:
            return None
        start = self._tokens[first].start
        text = self._text[start : self._tokens[end - 1].end + 1]
        return (start, text) if _parses_as(text, where.this) else None

    def end_of_call(self, call: exp.Func) -> int:
        """Return where the brackets of a function end, which begins where its name does."""
        starts = [each.start for each in self._tokens]
        opening = starts.index(call.meta["start"]) + 1
        closing = self._depths.index(self._depths[opening], opening + 1) - 1
        return int(self._tokens[closing].end) + 1

    def _extent(self, part: exp.Expr) -> tuple[int, int]:
        """Return the first token of a part, and the one after its last."""
        match part.parent:
            case None:
                return 0, len(self._tokens)
            case exp.Merge() as merge:
                using = self._first((TokenType.USING,), after=_end_of(merge.this))
                return using + 1, self._first((TokenType.ON,), after=self._tokens[using].end)
            case statement:
                return self._begin_of_query(after=_end_of(statement.this)), len(self._tokens)

    def _begin_of_query(self, *, after: int) -> int:
        for found in self._all(_QUERY_BEGINS):
            first = found
            while self._tokens[first - 1].token_type is TokenType.L_PAREN:
                first -= 1
            if self._tokens[found].start > after and self._depths[first] == 0:
                break
        else:
            raise_internal(f"No query is found in {self._text!r}")
        return first

    def _end_of_with(self) -> int:
        first = self._first((TokenType.INSERT, TokenType.MERGE), after=-1)
        return int(self._tokens[first].start)

    def _first(self, kinds: Collection[TokenType], *, after: int) -> int:
        """Return the first token of some kinds that is in no brackets."""
        found = (index for index in self._all(kinds) if self._tokens[index].start > after)
        bare = [index for index in found if self._depths[index] == 0]
        check(bool(bare), f"None of {kinds} is found in {self._text!r}")
        return bare[0]

    def _all(self, kinds: Collection[TokenType]) -> list[int]:
        return [index for index, each in enumerate(self._tokens) if each.token_type in kinds]

    def _is_before(self, index: int, tree: exp.Expr) -> bool:
        return bool(self._tokens[index].end < start_of(tree, default=-1))

    def _edited(self, start: int, end: int, edits: Iterable[Edit]) -> str:
        within = [each for each in edits if start <= each.start and each.end <= end]
        return edited(self._text[start:end], within, at=start)


def edited(text: str, edits: Iterable[Edit], *, at: int) -> str:
    """Return a piece of a statement, which begins at a place in it, with other text in places."""
    pieces, done = [], at
    for each in sorted(set(edits)):
        pieces += [text[done - at : each.start - at], each.text]
        done = each.end
    return "".join([*pieces, text[done - at :]])


def start_of(tree: exp.Expr, *, default: int) -> int:
    """Return where the first name or literal of a tree begins."""
    return min(
        (each.meta["start"] for each in tree.walk() if "start" in each.meta), default=default
    )


def _end_of(tree: exp.Expr) -> int:
    """Return the last sign of the last name or literal of a tree."""
    return max((each.meta["end"] for each in tree.walk() if "end" in each.meta), default=-1)


def _depths(tokens: list[sqlglot.Token]) -> list[int]:
    """Return how many brackets are open before each token, and at the end."""
    depths = [0]
    for each in tokens:
        opened = each.token_type is TokenType.L_PAREN
        closed = each.token_type is TokenType.R_PAREN
        depths.append(depths[-1] + opened - closed)
    return depths


def _parses_as(text: str, tree: exp.Expr) -> bool:
    try:
        return bool(sqlglot.parse_one(text, read="spark", into=exp.Condition) == tree)
    except sqlglot.ParseError:
        return False
