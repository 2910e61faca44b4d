"""`headwater fsck`: what is wrong with a table, and mending what is safe to mend.

What is looked at is in `inspect.damage`. With `--repair` the plan is shown, and done once somebody
has said yes: writes that dead processes left are rolled back, indexes are built again, and files
written again that the journal has. No file that a commit lists is deleted, and none is renamed;
what only a copy or a savepoint can mend is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from headwater.cli.arguments import (
    OutputFormat,
    TableOptions,
    TablePath,
    open_given_table,
    parse_options,
)
from headwater.cli.exit_codes import PROBLEMS_FOUND
from headwater.cli.output import Format, output_of
from headwater.cli.progress import shown_while
from headwater.errors import CorruptTableError, ErrorKind, HeadwaterError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.inspect.damage.problem import Problem, Repair
    from headwater.kernel.journal.lost_config import LostConfig
    from headwater.table import Table


def fsck(
    path: TablePath,
    options: TableOptions = None,
    *,
    deep: bool = typer.Option(False, "--deep", help="Read every data file that is in use."),
    repair: bool = typer.Option(False, "--repair", help="Repair what is safe to repair."),
    dry_run: bool = typer.Option(False, "--dry-run", help="With --repair: show the plan only."),
    yes: bool = typer.Option(False, "--yes", help="With --repair: do not ask."),
    output: OutputFormat = Format.TEXT,
) -> None:
    """Check a table: timelines, files, keys and indexes. Exit code 1 if something is wrong."""
    try:
        table = open_given_table(path, options)
    except HeadwaterError as error:
        lost = _lost_config(path, options, error)
        if lost is None and isinstance(error, NotFoundError):
            raise
        problems = _closed(path, error, is_in_journal=lost is not None)
        _show(problems, output)
        if lost is None or not repair or not _may_do(problems, dry_run=dry_run, yes=yes):
            raise typer.Exit(PROBLEMS_FOUND) from error
        lost.write_again()
        table = open_given_table(path, options)
        repair = False  # What else is wrong is found now, and was not in the plan.
    with table:
        with shown_while("reading every file" if deep else "looking at every file"):
            problems = table.inspect.problems(deep=deep)
        _show(problems, output)
        if repair and problems.num_rows:
            problems = _repaired(table, problems, deep=deep, dry_run=dry_run, yes=yes)
    if problems.num_rows:
        raise typer.Exit(PROBLEMS_FOUND)


def _show(problems: pa.Table, output: Format) -> None:
    if output is not Format.TEXT or not problems.num_rows:
        output_of(output).show_rows(problems, nothing="No problems found.")
        return
    for one in problems.to_pylist():  # Sentences: a table of so many columns is not read.
        typer.echo(f"{one['check']}: {one['subject']}")
        typer.echo(f"  {one['problem']}")
        for title, name in (("since", "instant"), ("at stake", "at_stake"), ("do", "advice")):
            if one[name]:
                typer.echo(f"  {title}: {one[name]}")


def find_problems(table: Table, *, is_deep: bool = False) -> Iterator[Problem]:
    """Give all that is wrong with a table."""
    from headwater.inspect.damage import find_problems

    return find_problems(table.context, is_deep=is_deep)


def _lost_config(path: str, options: list[str] | None, error: HeadwaterError) -> LostConfig | None:
    """Return what the journal has, if that is what keeps the table from being opened."""
    from headwater.config.registry import check_options
    from headwater.kernel.journal.lost_config import LostConfig
    from headwater.opening import Place

    damage = (ErrorKind.NOT_A_TABLE, ErrorKind.CORRUPT_PROPERTIES, ErrorKind.CORRUPT_CHECKSUM)
    if error.kind not in damage:
        return None
    place = Place.at(path, check_options(parse_options(options)))
    lost = LostConfig(place.storage, place.clock, place.ids)
    return None if lost.slot is None else lost


def _closed(path: str, error: HeadwaterError, *, is_in_journal: bool) -> pa.Table:
    import pyarrow as pa

    from headwater.inspect.damage.problem import FROM_JOURNAL, SCHEMA, Repair

    problem = {
        "check": "table",
        "subject": str(error.context.get("path", path)),
        "problem": str(error),
        "at_stake": "all rows: the table cannot be opened",
        "advice": FROM_JOURNAL if is_in_journal else "restore the file from a copy",
        "repair": Repair.WRITE_FILES.value if is_in_journal else None,
    }
    return pa.Table.from_pylist([problem], schema=SCHEMA)


def _may_do(problems: pa.Table, *, dry_run: bool, yes: bool) -> list[Repair]:
    """Show what would be done about problems; return it if it may be done."""
    import pyarrow.compute as pc

    from headwater.inspect.damage.problem import Repair

    what = {
        Repair.ROLL_BACK: "Roll back the writes that dead processes left",
        Repair.BUILD_INDEXES: "Drop the indexes that are damaged, with those that need them, and "
        "build them again; reads and writes go on meanwhile",
        Repair.WRITE_FILES: "Write the files again that are not what the journal says",
        Repair.DELETE_LATE: "Delete the files that have the time of a commit that lists others",
    }
    found = set(problems["repair"].drop_null().to_pylist())
    plan = [step for step in Repair if step.value in found]
    rest = problems.filter(pc.is_null(problems["repair"])).num_rows
    for number, step in enumerate(plan, start=1):
        typer.echo(f"{number}. {what[step]}.", err=True)
    if rest:
        typer.echo(f"{rest} problems cannot be repaired here; see their advice.", err=True)
    return [] if not plan or dry_run or not (yes or typer.confirm("Go on?", err=True)) else plan


def _repaired(
    table: Table, problems: pa.Table, *, deep: bool, dry_run: bool, yes: bool
) -> pa.Table:
    """Show the plan, do it if it may be done, and return what is wrong afterwards."""
    import pyarrow.compute as pc

    from headwater.inspect.damage.problem import Repair
    from headwater.kernel.journal.storage import find_journal

    plan = _may_do(problems, dry_run=dry_run, yes=yes)
    if not plan:
        return problems
    for step in plan:
        damaged = problems.filter(pc.equal(problems["repair"], step.value))
        subjects = set(damaged["subject"].to_pylist())
        match step:
            case Repair.ROLL_BACK:
                table.services.rollback_failed_writes(wait=True)
            case Repair.BUILD_INDEXES:
                _build_indexes(table, subjects)
            case Repair.WRITE_FILES:
                journaled, _ = find_journal(table.storage)
                if journaled is not None:
                    journaled.files.write_again(sorted(subjects))
            case Repair.DELETE_LATE:
                table.storage.delete_many(sorted(subjects))
    return table.inspect.problems(deep=deep)


def _build_indexes(table: Table, damaged: set[str]) -> None:
    from headwater.kernel.index_definitions import load_index_definitions
    from headwater.metadata.definitions import columns_again
    from headwater.metadata.partition_kinds import SECONDARY_INDEX_PREFIX

    config = table.context.load_config()
    names = [*config.metadata_partitions]
    try:
        definitions = load_index_definitions(table.storage, config)
    except CorruptTableError:
        definitions = {}  # They are what is damaged; dropping the indexes writes them anew.
    # What is not the name of an index is a file of the metadata table: then all are built again.
    again = [name for name in names if name in damaged] if damaged <= set(names) else names
    if "files" in again:
        again = names
    elif "record_index" in again:
        again = [name for name in names if name in again or name.startswith(SECONDARY_INDEX_PREFIX)]
    columns = columns_again(definitions, again)
    needed_last = ("record_index", "files")
    for name in sorted(again, key=lambda name: (name in needed_last, name == "files")):
        table.indexes.drop(name)
    secondary = (name for name in again if name.startswith(SECONDARY_INDEX_PREFIX))
    unknown = [name for name in secondary if name not in columns]
    table.indexes.create([name for name in again if name not in unknown], columns=columns)
    if "column_stats" in again and "column_stats" not in columns:
        typer.echo(
            "column_stats is on the columns that the options name now; if it was on others, drop "
            "it and create it again with columns=[...].",
            err=True,
        )
    for name in unknown:
        typer.echo(
            f"{name} was dropped, and nobody knows which column it was on: create it again with "
            f"t.indexes.create({name!r}, columns=[...]).",
            err=True,
        )
