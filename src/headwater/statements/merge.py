"""MERGE: update, delete and insert the rows of a table by those of a source, as one write.

1. the source is loaded; what its rows are joined by says which files need not be read, unless a
   clause is about records that no source row matches;
2. rows of the table come in lots. Each lot is joined with the source by the equalities of `on`,
   and pairs for which the rest of `on` does not hold are dropped;
3. for each pair the first matched clause counts whose condition holds; two source rows that would
   change one record are an error;
4. records of the lot without a pair go to the first clause on records that are not matched by the
   source whose condition holds;
5. source rows without a pair go to the first not-matched clause whose condition holds.

A record key is there once, so a source row that matches nothing must not bring one that exists:
with inserts `on` has to compare the whole record key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import META_COLUMNS
from headwater.context import TableContext
from headwater.errors import InvalidInputError
from headwater.expressions.compile import compile_condition
from headwater.expressions.evaluate import evaluate
from headwater.expressions.nodes import Call, Cast, Column, Function, Node, columns_of, conjuncts_of
from headwater.expressions.scope import Scope
from headwater.metadata.view import IndexedView
from headwater.model.commit import Commit
from headwater.operations.plan import Operation
from headwater.operations.tasks.leaving import IS_LEAVING
from headwater.queries.predicate import Comparison, Condition, Predicate
from headwater.queries.pruning import KEYS_MAX
from headwater.statements.target import Target, run_statement
from headwater.statements.update import assign, compile_assignments

SOURCE = "s."
"""What names of source columns begin with beside those of the table."""

_TARGET_ALIASES, _SOURCE_ALIASES = ("t", "target"), ("s", "source")
_LOT_ROWS = 262_144
"""Rows of the table that are joined at a time: the source is hashed once for each lot."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clause:
    """What happens to rows; the first clause of its kind whose condition holds counts."""

    values: Mapping[str, Any] | None = None
    """What columns are set to. None: all to what the source has under their names."""
    where: str | None = None
    is_delete: bool = False


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What to merge and how."""

    on: str
    matched: tuple[Clause, ...] = ()
    not_matched: tuple[Clause, ...] = ()
    not_matched_by_source: tuple[Clause, ...] = ()
    zone: str = "UTC"


def run_merge(table: TableContext, source: pa.Table, request: MergeRequest) -> Commit:
    """Merge a source into a table.

    Args:
        source: with the types that tables store.

    Raises:
        InvalidInputError: the statement cannot be evaluated or sets what must not change, or two
            source rows match one record.
        UnsupportedError: the table merges by a function of the user's.
        Otherwise see `operations.write.run_write`.
    """
    if not (request.matched or request.not_matched or request.not_matched_by_source):
        raise InvalidInputError(
            "A merge needs a clause: when_matched_update, when_matched_delete, "
            "when_not_matched_insert, when_not_matched_by_source_update or "
            "when_not_matched_by_source_delete"
        )
    return run_statement(table, request.zone, lambda target: _merge(target, source, request))


def _merge(target: Target, source: pa.Table, request: MergeRequest) -> Commit:
    merge = Merge.compile(target, source, request)
    return target.write(
        Operation.UPSERT, merge.written, merge.new_rows, is_partial=merge.is_partial
    )


@dataclass(frozen=True, slots=True)
class _CompiledClause:
    assigned: dict[str, Node]
    where: Node | None
    is_delete: bool


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A merge that is bound to the columns of both sides."""

    target: Target
    source: pa.Table
    """Its columns under their names beside those of the table."""
    keys: tuple[tuple[Node, Node], ...]
    """What is equal in a pair: an expression on the table, and one on the source."""
    rest: Node | None
    """What else holds for a pair."""
    matched: tuple[_CompiledClause, ...]
    not_matched: tuple[_CompiledClause, ...]
    not_matched_by_source: tuple[_CompiledClause, ...]
    written: pa.Schema
    is_partial: bool
    used: frozenset[str] = field(default_factory=frozenset)
    """Columns of the table that are read."""

    @classmethod
    def compile(cls, target: Target, source: pa.Table, request: MergeRequest) -> Merge:
        """Bind a merge to the columns of its table and source.

        Raises: as `run_merge`.
        """
        source = source.drop_columns([c for c in source.column_names if c in META_COLUMNS])
        source = source.rename_columns([SOURCE + name for name in source.column_names])
        changing = (*request.matched, *request.not_matched_by_source)
        if any(clause for clause in changing if not clause.is_delete) or request.not_matched:
            target.check_updates()
        both, alone, own = _scopes(target, source)
        on = compile_condition(
            _spelled_on(request.on, target, source), both, request.zone, target.now
        )
        keys, rest = _split(on, request.on)
        if request.not_matched:
            _check_whole_key(target, keys, request.on)
        matched = tuple(_compiled(target, clause, both, source) for clause in request.matched)
        inserts = tuple(_compiled(target, clause, alone, source) for clause in request.not_matched)
        by_source = tuple(
            _compiled(target, clause, own, source) for clause in request.not_matched_by_source
        )
        clauses = (*matched, *by_source)
        is_partial = not inserts and bool(clauses) and target.writes_partially()
        assigned = {name for clause in clauses for name in clause.assigned}
        written = target.schema
        if is_partial:
            written = target.fields({*target.deciding_columns, *assigned})
        nodes = [node for pair in keys for node in pair] + ([] if rest is None else [rest])
        for clause in clauses:
            nodes += [*clause.assigned.values(), *([clause.where] if clause.where else [])]
        named = {column.path[0] for node in nodes for column in columns_of(node)}
        needed = written.names if clauses else target.key_columns
        if any(clause.is_delete for clause in clauses):
            written = written.append(pa.field(IS_LEAVING, pa.bool_()))
        return cls(
            target=target,
            source=source,
            keys=keys,
            rest=rest,
            matched=matched,
            not_matched=inserts,
            not_matched_by_source=by_source,
            written=written,
            is_partial=is_partial,
            used=frozenset(name for name in target.schema.names if name in {*named, *needed}),
        )

    def new_rows(self, view: IndexedView) -> Iterator[pa.RecordBatch]:
        """Give the rows to write, made of a view of the table."""
        source_keys = _key_table([node for _, node in self.keys], self.source)
        is_matched = np.zeros(self.source.num_rows, np.bool_)
        exists = np.zeros(self.source.num_rows, np.bool_)
        if self.source.num_rows == 0 and not self.not_matched_by_source:
            return
        known = None if self.not_matched_by_source else self._known(source_keys)
        for lot in _lots(self.target.read(view, self.used, known=known)):
            old, new = self._pairs(lot, source_keys)
            exists[new] = True
            pairs = self._combined(lot, old, new)
            if self.rest is not None:
                holds = _mask(evaluate(self.rest, pairs))
                old, new, pairs = old[holds], new[holds], pairs.filter(pa.array(holds))
            is_matched[new] = True
            yield from self._changed(lot, old, pairs)
            yield from self._unmatched(lot, old)
        yield from self._inserted(~is_matched, exists)

    def _known(self, source_keys: pa.Table) -> Predicate:
        """Return what the source tells about the rows of the table that it may match."""
        conditions = list[Condition]()
        for number, (node, _) in enumerate(self.keys):
            while isinstance(node, Cast) and node.is_implicit:
                node = node.operand
            if not isinstance(node, Column) or len(node.path) > 1:
                continue
            values = source_keys[f"k{number}"].drop_null()
            if pa.types.is_floating(values.type):
                continue
            distinct = pc.unique(values)
            if len(distinct) <= KEYS_MAX:
                literals = tuple(distinct.to_pylist())
                conditions.append(Condition(node.path[0], Comparison.IN, literals))
            else:
                bounds = pc.min_max(values).as_py()
                literals = (bounds["min"], bounds["max"])
                conditions.append(Condition(node.path[0], Comparison.BETWEEN, literals))
        return Predicate(tuple(conditions))

    def _pairs(self, lot: pa.Table, source_keys: pa.Table) -> tuple[Numbers, Numbers]:
        """Return the numbers of rows that go together, by the equalities."""
        names = [f"k{number}" for number in range(len(self.keys))]
        lot_keys = _key_table([node for node, _ in self.keys], lot)
        lot_keys = lot_keys.rename_columns([*names, "old"])
        joined = lot_keys.join(
            source_keys.rename_columns([*names, "new"]), names, join_type="inner", use_threads=False
        ).sort_by([("old", "ascending"), ("new", "ascending")])
        return joined["old"].to_numpy(), joined["new"].to_numpy()

    def _combined(self, lot: pa.Table, old: Numbers, new: Numbers) -> pa.RecordBatch:
        target, source = lot.take(pa.array(old)), self.source.take(pa.array(new))
        return _one_batch(
            pa.Table.from_arrays(
                [*target.columns, *source.columns],
                schema=pa.schema([*target.schema, *source.schema]),
            )
        )

    def _changed(
        self, lot: pa.Table, old: Numbers, pairs: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        is_open = np.ones(len(old), np.bool_)
        seen = np.zeros(lot.num_rows, np.bool_)
        for clause in self.matched:
            chosen = _chosen(clause, pairs, is_open)
            is_open &= ~chosen
            rows = old[chosen]
            is_repeated = seen[rows].any() or len(np.unique(rows)) < len(rows)
            seen[rows] = True
            if is_repeated:
                raise self._repeated(lot, old[chosen])
            if not len(rows):
                continue
            context = pairs.filter(pa.array(chosen))
            yield self._after(clause, context.select(lot.column_names), context)

    def _unmatched(self, lot: pa.Table, matched: Numbers) -> Iterator[pa.RecordBatch]:
        """Give what becomes of the records of a lot that no source row matches."""
        if not self.not_matched_by_source:
            return
        records = _one_batch(lot)
        is_open = np.ones(lot.num_rows, np.bool_)
        is_open[matched] = False
        for clause in self.not_matched_by_source:
            chosen = _chosen(clause, records, is_open)
            is_open &= ~chosen
            before = records.filter(pa.array(chosen))
            if before.num_rows:
                yield self._after(clause, before, before)

    def _after(
        self, clause: _CompiledClause, before: pa.RecordBatch, context: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Return what a clause makes of records.

        Args:
            context: the rows that new values are made of, as many.
        """
        if clause.is_delete:
            return self._as_written(before, is_delete=True)
        after = assign(before, context, clause.assigned)
        self.target.check_new_rows(before, after, clause.assigned)
        return self._as_written(after, is_delete=False)

    def _repeated(self, lot: pa.Table, rows: Numbers) -> InvalidInputError:
        numbers, counts = np.unique(rows, return_counts=True)
        at = int(numbers[np.argmax(counts)])
        record = lot.select(list(self.target.key_columns)).slice(at, 1).to_pylist()[0]
        key = ", ".join(f"{name}={value!r}" for name, value in record.items())
        return InvalidInputError(
            f"Several rows of the source match the record {key} of table "
            f"{self.target.table.config.name}, and it is not clear which counts. Make the source "
            "have one row for each record"
        )

    def _inserted(
        self, is_open: npt.NDArray[np.bool_], exists: npt.NDArray[np.bool_]
    ) -> Iterator[pa.RecordBatch]:
        source = _one_batch(self.source)
        for clause in self.not_matched:
            chosen = _chosen(clause, source, is_open)
            is_open &= ~chosen
            if (chosen & exists).any():
                raise InvalidInputError(
                    f"Rows of the source that match no row of table "
                    f"{self.target.table.config.name} by all of `on` have record keys that are "
                    "there already, so they cannot be inserted. Put what is not about the key into "
                    "the conditions of the clauses"
                )
            rows = source.filter(pa.array(chosen))
            if rows.num_rows:
                blank = pa.RecordBatch.from_arrays(
                    [pa.nulls(rows.num_rows, kind.type) for kind in self.target.schema],
                    schema=self.target.schema,
                )
                yield self._as_written(assign(blank, rows, clause.assigned), is_delete=False)

    def _as_written(self, rows: pa.RecordBatch, *, is_delete: bool) -> pa.RecordBatch:
        if IS_LEAVING in self.written.names:
            rows = rows.append_column(IS_LEAVING, pa.repeat(is_delete, rows.num_rows))
        return rows.select(self.written.names)


def _scopes(target: Target, source: pa.Table) -> tuple[Scope, Scope, Scope]:
    """Return the names for conditions on pairs, on source rows alone, and on records alone."""
    own = {name: name for name in target.schema.names}
    theirs = {name.removeprefix(SOURCE): name for name in source.column_names}
    if clash := [name for name in own if name in source.column_names]:
        raise InvalidInputError(f"The table has a column {clash[0]}, which means one of the source")
    targets = dict.fromkeys(_TARGET_ALIASES, own)
    sources = dict.fromkeys(_SOURCE_ALIASES, theirs)
    columns = pa.schema([*target.schema, *source.schema])
    return (
        Scope(columns, {**targets, **sources}),
        Scope(source.schema, sources),
        Scope(target.schema, targets),
    )


def _spelled_on(on: str, target: Target, source: pa.Table) -> str:
    """Return `on`, or for the name of a column that both sides have the equality of the two."""
    if on in target.schema.names and SOURCE + on in source.column_names:
        name = on.replace("`", "``")
        return f"t.`{name}` = s.`{name}`"
    return on


def _split(on: Node, text: str) -> tuple[tuple[tuple[Node, Node], ...], Node | None]:
    """Return the equalities between the two sides, and what else there is."""
    keys, rest = list[tuple[Node, Node]](), list[Node]()
    for conjunct in conjuncts_of(on):
        sides = conjunct.operands if _is_equality(conjunct) else ()
        origins = [_origin(side) for side in sides]
        if origins == [True, False]:
            keys.append((sides[0], sides[1]))
        elif origins == [False, True]:
            keys.append((sides[1], sides[0]))
        else:
            rest.append(conjunct)
    if not keys:
        raise InvalidInputError(
            f"A merge needs an equality between the table and the source, such as t.id = s.id; got "
            f"{text}"
        )
    if not rest:
        return tuple(keys), None
    return tuple(keys), rest[0] if len(rest) == 1 else Call(Function.AND, tuple(rest), pa.bool_())


def _is_equality(node: Node) -> bool:
    return isinstance(node, Call) and node.function is Function.EQUAL


def _origin(node: Node) -> bool | None:
    """Return whether an expression is on the table alone; False: on the source alone."""
    origins = {not column.path[0].startswith(SOURCE) for column in columns_of(node)}
    return origins.pop() if len(origins) == 1 else None


def _check_whole_key(target: Target, keys: Iterable[tuple[Node, Node]], on: str) -> None:
    compared = set()
    for node, _ in keys:
        while isinstance(node, Cast) and node.is_implicit:
            node = node.operand
        if isinstance(node, Column):
            compared.add(".".join(node.path))
    missing = [key for key in target.table.config.record_key_fields if key not in compared]
    if missing:
        raise InvalidInputError(
            f"A merge that inserts compares the whole record key, but `{on}` has no equality of "
            f"{', '.join(missing)} of table {target.table.config.name} with the source. Without, a "
            "row could be taken for new whose key is there"
        )


def _compiled(target: Target, clause: Clause, scope: Scope, source: pa.Table) -> _CompiledClause:
    where = None
    if clause.where is not None:
        where = compile_condition(clause.where, scope, target.zone, target.now)
    if clause.is_delete:
        return _CompiledClause({}, where, is_delete=True)
    values = clause.values
    if values is None:
        names = [name.removeprefix(SOURCE) for name in source.column_names]
        unknown = [name for name in names if name not in target.schema.names]
        if unknown:
            raise InvalidInputError(
                f"The source has columns {', '.join(unknown)}, which table "
                f"{target.table.config.name} does not. Name the columns to set, or leave them out"
            )
        values = {name: f"s.`{name.replace('`', '``')}`" for name in names}
    return _CompiledClause(compile_assignments(target, values, scope), where, is_delete=False)


def _key_table(nodes: Iterable[Node], rows: pa.Table) -> pa.Table:
    """Return the values that rows are joined by, and their numbers."""
    arrays = []
    for node in nodes:
        values = evaluate(node, rows)
        # The join goes by bits, and so finds 0.0 and -0.0 to be different.
        arrays.append(pc.add(values, 0.0) if pa.types.is_floating(values.type) else values)
    names = [f"k{number}" for number in range(len(arrays))]
    return pa.table([*arrays, pa.array(np.arange(rows.num_rows))], [*names, "row"])


def _chosen(
    clause: _CompiledClause, rows: pa.RecordBatch, is_open: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    if clause.where is None:
        return is_open.copy()
    chosen = is_open.copy()
    chosen[is_open] = _mask(evaluate(clause.where, rows.filter(pa.array(is_open))))
    return chosen


def _mask(holds: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = pc.fill_null(holds, False).to_numpy(zero_copy_only=False)
    return mask.astype(np.bool_)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def _lots(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _LOT_ROWS:
            yield pa.Table.from_batches(held).combine_chunks()
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()
