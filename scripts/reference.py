"""The reference pages made from the code: the API, the command line, errors, files, metrics.

python scripts/reference.py     writes docs/reference/{api,command-line,errors,files,metrics}.md
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

import headwater as hw
from headwater.cli.exit_codes import exit_code_of
from headwater.cli.explanations import EXPLANATIONS
from headwater.cli.main import app
from headwater.errors import ErrorKind, HeadwaterError
from headwater.inspect import Inspect
from headwater.kernel import layout
from headwater.kernel.txn.locks.storage_based import FOLDER as LOCKS
from headwater.metadata.indexes import Indexes
from headwater.model.commit import Commit, Redone
from headwater.scan import Scan
from headwater.seams import metrics
from headwater.seams.metrics import METRICS
from headwater.services import Services
from headwater.services.advice.advice import Advice
from headwater.services.auto.run import AutoReport
from headwater.services.rewrite import Rewritten
from headwater.services.upgrade import Upgrade
from headwater.statements.merge_builder import MergeBuilder
from headwater.telemetry.collected import prometheus_name
from headwater.telemetry.serve import MetricsServer

FOLDER = Path(__file__).parents[1] / "docs" / "reference"

FUNCTIONS = (
    "create_table",
    "open_table",
    "upgrade_table",
    "register",
    "sql",
    "serve_metrics",
    "use_opentelemetry",
    "configure_logging",
)
CLASSES = {
    "Table": (hw.Table, "`t`: one table, as this process reaches it."),
    "Scan": (Scan, "`t.scan(...)`: rows that are about to be read."),
    "MergeBuilder": (MergeBuilder, "`t.merge(...)`: the clauses of a merge."),
    "Services": (Services, "`t.services`: what keeps a table in order."),
    "Indexes": (Indexes, "`t.indexes`: the table's indexes."),
    "Inspect": (Inspect, "`t.inspect`: questions about a table; answers are Arrow tables."),
    "Commit": (Commit, "What a write returns."),
    "Redone": (Redone, "`Commit.redone`."),
    "Upgrade": (Upgrade, "What `upgrade_table` returns."),
    "MetricsServer": (MetricsServer, "What `serve_metrics` returns."),
    "Rewritten": (Rewritten, "What `compact`, `log_compact` and `cluster` return."),
    "Advice": (Advice, "What `advise` returns, a list of them."),
    "AutoReport": (AutoReport, "What `run_auto` returns."),
}
FILES: dict[str, tuple[str, str, str]] = {
    # By path: whose format, what it holds, and who takes it away.
    layout.PROPERTIES: ("Hudi", "what the table says of itself", "nobody"),
    layout.PROPERTIES_BACKUP: ("Hudi", "the same while it is replaced", "who replaced it"),
    f"{layout.BUCKET_INDEX}/**": ("Hudi", "buckets that are not all alike", "Hudi"),
    layout.INDEX_DEFINITIONS: (
        "Hudi",
        "what indexes are of, unless table config says where",
        "nobody",
    ),
    f"{layout.SCHEMAS}/*": ("Hudi", "the schemas of a table that evolves on read", "Hudi"),
    f"{layout.TableLayout().timeline}/*": (
        "Hudi; the state `aborted` is ours",
        "the active timeline: one file for each state of an instant",
        "archival",
    ),
    f"{layout.TableLayout().history}/*": ("Hudi", "the archived timeline", "archival"),
    f"{layout.METADATA}/**": ("Hudi", "the metadata table: the indexes", "its own services"),
    f"{layout.HEARTBEATS}/INSTANT": (
        "Hudi",
        "an empty file whose modification time shows that a writer lives",
        "its writer, or the rollback",
    ),
    f"{layout.MARKERS}/INSTANT/**": (
        "Hudi",
        "markers: data files that a write has announced",
        "its commit or rollback",
    ),
    f"{LOCKS}/*.json": ("Hudi, with fields of ours", "locks of the storage-based provider", "-"),
    f"{layout.JOURNAL}/NUMBER.slot": (
        "ours",
        "one decision of a fenced table (ADR 14)",
        "a later checkpoint",
    ),
    f"{layout.JOURNAL}/NUMBER.checkpoint": (
        "ours",
        "what the decisions up to that one add up to",
        "the second checkpoint after it",
    ),
    f"{layout.JOURNAL}/*.turn": (
        "ours",
        "that somebody who lost many slots asks the others to wait for its decision",
        "who asked, or who has waited in vain",
    ),
    f"{layout.ATTEMPTS}/INSTANT/NUMBER.json": (
        "ours",
        "one execution of an instant: its owner, its number, since when (ADR 2)",
        "the end of the instant; clean sweeps what is left",
    ),
    f"{layout.CANCELS}/INSTANT": (
        "ours",
        "that a plan is cancelled, by which write and why",
        "the abort of the plan",
    ),
    layout.CANCEL_COUNT: ("ours", "how often plans of the table were cancelled", "nobody"),
    f"{layout.DETECTION}/INSTANT/**": (
        "ours",
        "bloom filters of markers, and the signal that a write has lost",
        "its commit or rollback",
    ),
    f"{layout.SINKS}/NAME.json": (
        "ours",
        "the last batch that a streaming query has begun",
        "nobody",
    ),
    layout.UPGRADE: ("ours", "that the table is being upgraded", "the upgrade, or the next one"),
    layout.CLOCK: ("ours", "an empty file, written to learn the time of the store", "who wrote it"),
}
_INTERNAL = {"context", "create", "load"}
"""Names of `Table` that people do not need: `create_table` and `open_table` are for them."""


def api_page() -> str:
    """Return every public name with its signature and docstring."""
    parts = ["# Python API\n", "Made from the code by `make docs`. `import headwater as hw`.\n"]
    parts.append("## Functions\n")
    for name in FUNCTIONS:
        parts += _entry(f"hw.{name}", getattr(hw, name), level=3)
    for name, (kind, what) in CLASSES.items():
        parts += [f"## {name}\n", f"{what}\n"]
        parts += _fields(kind)
        for member, value in _members(kind):
            parts += _entry(member, value, level=3, of=name)
    parts += [
        "## Errors\n",
        "One tree: `HeadwaterError` with `kind`, `retry`, `message` and `context`. Its classes are "
        + ", ".join(f"`{cls.__name__}`" for cls in _error_classes())
        + ". What each kind means: [errors](errors.md).\n",
    ]
    return "\n".join(parts)


def command_line_page() -> str:
    """Return every command with its arguments and options."""
    parts = [
        "# Command line\n",
        "Made from the declarations of commands by `make docs`. How to work with it, and exit "
        "codes: [the guide](../guide/command-line.md).\n",
    ]
    assert app.registered_callback is not None
    assert app.registered_callback.callback is not None
    rows = [one.row() for one in _parameters(app.registered_callback.callback)]
    parts += ["Before the words of any command:\n"]
    parts += ["| option | default | meaning |", "|---|---|---|", *rows, ""]
    for words, command in sorted(commands_of(app, ("headwater",)), key=lambda pair: pair[0]):
        parts += [f"## {' '.join(words)}\n", f"{_sentence(inspect.getdoc(command))}\n"]
        parameters = _parameters(command)
        arguments = [one for one in parameters if isinstance(one.info, ArgumentInfo)]
        shown = "".join(f" {one.shown}" for one in arguments)
        parts.append(f"```text\n{' '.join(words)}{shown} [OPTIONS]\n```\n")
        rows = [one.row() for one in parameters]
        parts += ["| argument or option | default | meaning |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def errors_page() -> str:
    """Return every kind of error with its class, exit code, cause and remedy."""
    parts = [
        "# Errors\n",
        "Made from the declarations by `make docs`. Every error has a kind, which stays the same "
        "from release to release. `headwater explain KIND` says the same as this page.\n",
        "| kind | class | exit code | cause | what to do |",
        "|---|---|---|---|---|",
    ]
    for kind in sorted(ErrorKind):
        cls = class_of(kind)
        cause, remedy = EXPLANATIONS[kind]
        code = exit_code_of(cls("", kind=kind))
        parts.append(f"| `{kind}` | `{cls.__name__}` | {code} | {cause} | {remedy} |")
    return "\n".join(parts) + "\n"


def files_page() -> str:
    """Return the files below `.hoodie`, and whose they are."""
    parts = [
        "# Files of a table\n",
        "Made from the declarations by `make docs`. Data files lie in the folders of their "
        "partitions, as Hudi names them. All else is below `.hoodie`. Other engines ignore what is "
        "ours; each file of it says the version of its format and the release that wrote it.\n",
        "| path | whose | what it holds | who takes it away |",
        "|---|---|---|---|",
    ]
    parts += [
        f"| `{path}` | {whose} | {what} | {end} |" for path, (whose, what, end) in FILES.items()
    ]
    return "\n".join(parts) + "\n"


def metrics_page() -> str:
    """Return every metric with its kind, unit, labels and meaning."""
    parts = [
        "# Metrics\n",
        "Made from the declarations by `make docs`. How to have them, what to look at and when to "
        "be woken: [the guide](../guide/metrics.md).\n",
        f"{_sentence((metrics.__doc__ or '').partition(chr(10) * 2)[2])}\n",
        "| OpenTelemetry | Prometheus | kind | unit | labels | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        parts.append(
            f"| `{metric.name}` | `{prometheus_name(metric)}` | {type(metric).__name__.lower()} "
            f"| `{metric.unit}` | {labels} | {_sentence(metric.help)} |"
        )
    return "\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api_page,
    "command-line.md": command_line_page,
    "errors.md": errors_page,
    "files.md": files_page,
    "metrics.md": metrics_page,
}


def class_of(kind: ErrorKind) -> type[HeadwaterError]:
    """Return the class that errors of a kind have: the one whose own kind begins the same."""
    family = kind.value.partition(".")[0]
    if kind is ErrorKind.EARLY_CONFLICT:
        family = kind.value
    return next(cls for cls in _error_classes() if cls.default_kind.value == family)


def _error_classes() -> list[type[HeadwaterError]]:
    named = (getattr(hw, name) for name in hw.__all__ if name.endswith("Error"))
    found = [cls for cls in named if cls is not HeadwaterError]
    return [*found, *(sub for cls in found for sub in cls.__subclasses__() if sub not in found)]


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        is_shown = not name.startswith("_") and name not in _INTERNAL
        if is_shown and (inspect.isfunction(value) or _is_property(value)):
            yield name, value


def _is_property(value: Any) -> bool:
    return isinstance(value, property) or type(value).__name__ == "cached_property"


def _fields(kind: type) -> list[str]:
    found = {
        name: annotation
        for name, annotation in vars(kind).get("__annotations__", {}).items()
        if not name.startswith("_") and name not in _INTERNAL
    }
    if not found:
        return []
    rows = [f"| `{name}` | `{_cell(_plain(annotation))}` |" for name, annotation in found.items()]
    return ["| field | type |", "|---|---|", *rows, ""]


def _entry(name: str, value: Any, *, level: int, of: str = "") -> list[str]:
    function = value
    if isinstance(value, property):
        function = value.fget
    elif _is_property(value):
        function = value.func
    shown = name
    if inspect.isfunction(value):
        shown = f"{name}{_signature(value)}"
    doc = inspect.getdoc(function)
    heading = f"{of}.{name}" if of else name
    parts = [f"{'#' * level} {heading}\n"]
    if inspect.isfunction(value):
        parts.append(f"```text\n{shown}\n```\n")
    if doc:
        parts.append(f"{_markdown(doc)}\n")
    return parts


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    given = [one for one in signature.parameters.values() if one.name != "self"]
    shown, is_keyword = [], False
    for one in given:
        if one.kind is one.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            shown.append("*")
        text = f"*{one.name}" if one.kind is one.VAR_POSITIONAL else one.name
        if one.annotation is not one.empty:
            text += f": {_plain(one.annotation)}"
        if one.default is not one.empty:
            shown_default = getattr(one.default, "__name__", None) or repr(one.default)
            text += f" = {shown_default}"
        shown.append(text)
    result = signature.return_annotation
    arrow = "" if result is signature.empty else f" -> {_plain(result)}"
    return f"({', '.join(shown)}){arrow}"


def _plain(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None)
    return str(text or annotation)


def _markdown(doc: str) -> str:
    """Return a docstring with its sections as lists."""
    lines, section = [], ""
    for line in doc.splitlines():
        if match := re.match(r"^(Args|Raises|Returns):\s*(.*)$", line):
            section = match.group(1)
            lines.append(f"*{section}:* {match.group(2)}".rstrip() + "\n")
        elif section and (match := re.match(r"^    (\S[^:]*): (.*)$", line)):
            lines.append(f"- `{match.group(1)}`: {match.group(2)}")
        elif section and line.startswith("    "):
            lines.append(f"  {line.strip()}" if lines[-1].startswith(("-", " ")) else line.strip())
        else:
            lines.append(line)
    return "\n".join(lines)


def commands_of(
    group: typer.Typer, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    """Give the words and the function of every command."""
    for command in group.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.strip("_").replace("_", "-")
        yield (*words, name), command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands_of(inner.typer_instance, (*words, str(inner.name)))


class _Parameter(NamedTuple):
    name: str
    kind: Any
    info: OptionInfo | ArgumentInfo
    default: Any

    @property
    def shown(self) -> str:
        if isinstance(self.info, ArgumentInfo):
            name = self.info.metavar or self.name.upper()
            return name if self.default is inspect.Parameter.empty else f"[{name}]"
        # Inside of Annotated the first name is where a default would be.
        first = [str(self.info.default)] if str(self.info.default).startswith("-") else []
        given = [*first, *(self.info.param_decls or ())]
        names = given or [f"--{self.name.replace('_', '-')}"]
        return ", ".join(str(name).partition("/")[0] for name in names)

    @property
    def value(self) -> str:
        """What the option takes."""
        kinds = [one for one in _parts(self.kind) if one is not NoneType]
        if isinstance(self.info, ArgumentInfo) or kinds == [bool]:
            return ""
        if isinstance(kinds[0], type) and issubclass(kinds[0], Enum):
            return " " + "\\|".join(str(one.value) for one in kinds[0])
        if self.info.metavar:
            return f" {self.info.metavar}"
        return {int: " NUMBER", float: " NUMBER"}.get(kinds[0], " TEXT")

    def row(self) -> str:
        default = getattr(self.default, "value", self.default)
        says_default = default not in (None, False, inspect.Parameter.empty)
        shown = f"`{default}`" if says_default else ""
        return f"| `{self.shown}`{self.value} | {shown} | {_sentence(self.info.help)} |"


def _parts(kind: Any) -> list[Any]:
    if get_origin(kind) in (Union, UnionType):
        return [part for one in get_args(kind) for part in _parts(one)]
    return [kind]


def _parameters(command: Callable[..., Any]) -> list[_Parameter]:
    hints = get_type_hints(command, include_extras=True)
    found = []
    for name, one in inspect.signature(command).parameters.items():
        hint, default, info = hints[name], one.default, None
        if hint is typer.Context:
            continue
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            info = next(x for x in extras if isinstance(x, OptionInfo | ArgumentInfo))
        elif isinstance(default, OptionInfo | ArgumentInfo):
            info, default = default, default.default
        if info is None:
            is_needed = default is inspect.Parameter.empty
            info = ArgumentInfo() if is_needed else OptionInfo()
        found.append(_Parameter(name, hint, info, default))
    return found


def _sentence(text: str | None) -> str:
    return _cell(" ".join((text or "").split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


if __name__ == "__main__":
    main()
