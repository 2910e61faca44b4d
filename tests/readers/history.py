"""What a history of a table is, and how a reader is held to it.

A history is a function that writes to a table in a folder and yields a `Step` wherever readers are
to agree. It says itself what must be there by then; the suite asks each reader whether it finds the
same as `ArrowReader`. A table is written once, whoever reads it: each step keeps a copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.readers.readers import (
    LOG_FILES,
    Answers,
    ArrowReader,
    Changes,
    FileSlices,
    Limit,
    Omits,
    Question,
    Reader,
    Refuses,
    Snapshot,
)
from tests.support.tables import FENCED, LOCKED, tables_with
from tests.support.two_readers import META, in_order, without

import headwater as hw
from headwater.table import Table


@dataclass(frozen=True)
class Step:
    """A moment at which readers are asked."""

    name: str
    table: Table
    limits: Mapping[str, Limit] = field(default_factory=dict)
    """What readers cannot do here, by their names."""
    questions: Sequence[Question] = (Snapshot(),)
    is_milestone: bool = True
    """Whether readers that take their time are asked, too."""


Write = Callable[..., Iterator[Step]]


@dataclass(frozen=True)
class History:
    name: str
    write: Callable[[Path], Iterator[Step]]
    is_long: bool
    """Whether quick readers read it in `make test-more` only."""
    is_on_spark: bool
    """Whether Spark reads it in `make test`."""


HISTORIES: dict[str, History] = {}
"""All there are, by name; the modules beside this one fill it."""


def history(
    *, long: Iterable[str] = (), spark: Iterable[str] = (), **axes: Mapping[str, Any]
) -> Callable[[Write], Write]:
    """Register a history for each combination of the values of its axes.

    Args:
        long: ids of combinations that quick readers leave to `make test-more`, besides every
            second one of several axes: the first half has every two values of three axes together.
        spark: ids of combinations that Spark reads in `make test`; it leaves the others.
        axes: arguments of the function, whose values have ids.
    """

    def register(write: Write) -> Write:
        found = set()
        for places in product(*(range(len(axis)) for axis in axes.values())):
            chosen = [
                list(axis.items())[at] for axis, at in zip(axes.values(), places, strict=True)
            ]
            label = "-".join(key for key, _ in chosen)
            found.add(label)
            name = "-".join(filter(None, (write.__name__, label)))
            arguments = dict(zip(axes, (value for _, value in chosen), strict=True))

            def run(path: Path, arguments: dict[str, Any] = arguments) -> Iterator[Step]:
                return write(path, **arguments)

            is_long = label in set(long) or (len(axes) > 1 and sum(places) % 2 == 1)
            HISTORIES[name] = History(name, run, is_long, label in set(spark))
        unknown = {*long, *spark} - found
        assert not unknown, f"{write.__name__} has no {unknown}"
        return write

    return register


@dataclass(frozen=True)
class Recorded:
    """A step with a copy of its table, and what is to be found there."""

    step: Step
    path: Path
    slices: FileSlices
    answers: Sequence[pa.Table]

    def open(self) -> Table:
        return hw.open_table(self.path, self.step.table.context.options)


@lru_cache(maxsize=2)
def recorded(name: str, folder: Path, *, is_fenced: bool = False) -> Sequence[Recorded]:
    """Run a history once for all readers in turn; folders are gone when others came."""
    with tables_with(FENCED if is_fenced else LOCKED):
        return _record(name, folder / ("fenced" if is_fenced else "locked") / name)


def _record(name: str, kept: Path) -> Sequence[Recorded]:
    ours = ArrowReader()
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    found = []
    for number, step in enumerate(HISTORIES[name].write(kept)):
        copy = kept / f"step-{number}" / step.table.name
        # Storage never changes a file in its place, so that links are as good as copies.
        shutil.copytree(step.table.uri, copy, copy_function=os.link)
        answers = [ours.ask(step.table, question) for question in step.questions]
        found.append(Recorded(step, copy, ours.slices(step.table), answers))
    return found


def check_history(reader: Reader, steps: Sequence[Recorded]) -> None:
    """Check that a reader finds what it should after each step; skip in the end if it cannot.

    A skip says why. Whatever else the history has is checked before that, also that the reader
    still refuses what it is said to refuse.
    """
    limits = []
    for recording in steps:
        step = recording.step
        if not (step.is_milestone or reader.is_quick):
            continue
        limit = step.limits.get(reader.name)
        if limit is not None and not isinstance(limit, Omits):
            limits.append(f"{reader.name}, {step.name}: {limit.why}")
        match limit:
            case None:
                _check_step(reader, recording)
            case Omits(columns):
                _check_step(reader, recording, columns)
            case Refuses(message):
                with pytest.raises(Exception, match=message):
                    reader.ask(recording.open(), step.questions[0])
            case Answers(column, values):
                found = reader.ask(recording.open(), step.questions[0])
                assert tuple(found[column].to_pylist()) == values, step.name
    if limits:
        pytest.skip("; ".join(limits))


def _check_step(reader: Reader, recording: Recorded, skip: Sequence[str] = ()) -> None:
    step, table = recording.step, recording.open()
    if LOG_FILES not in skip:
        slices = reader.slices(table)
        assert slices in (None, recording.slices), f"other files: {step.name}"
    for question, answer in zip(step.questions, recording.answers, strict=True):
        found = reader.ask(table, question)
        if isinstance(question, Changes):
            found = found.drop_columns([name for name in META if name in found.schema.names])
        if found.num_columns and not {*skip} - {LOG_FILES}:
            assert found.schema.names == answer.schema.names, f"other columns: {step.name}"
        ours = without(in_order(answer), skip)
        theirs = without(in_order(_as(answer.schema, found)), skip)
        assert theirs == ours, f"other rows: {step.name}, {question}"


def _as(schema: pa.Schema, found: pa.Table) -> pa.Table:
    """Return rows in the types of a schema: timestamps in its zone, maps and texts as it has."""
    for place, column in enumerate(found.schema):
        wanted = schema.get_field_index(column.name)
        if wanted >= 0 and pa.types.is_timestamp(column.type):
            cast = found.column(place).cast(schema.field(wanted).type)
            found = found.set_column(place, column.name, cast)
    return found
