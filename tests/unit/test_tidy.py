"""What no linter holds: every module of the product is used by the product."""

from __future__ import annotations

import ast
from pathlib import Path

import headwater

ROOT = Path(headwater.__file__).parent
ENTRIES = {
    "headwater",
    "headwater.cli.start",  # The command.
    "headwater.config.reference",  # `python -m`, for the reference pages.
    "headwater.spark.data_source",  # Spark finds it by its name.
    "headwater.format.timeline.commit_json",  # Of version 6, whose tables are not read yet.
}


def modules() -> dict[str, Path]:
    """Return the modules of the product, without the simulator."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not name.startswith("headwater.testing"):
            found[name] = path
    return found


def imported_by(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_every_module_of_the_product_is_imported_by_the_product() -> None:
    known = modules()
    used = set().union(*(imported_by(path) for path in known.values()), ENTRIES)
    # A package is used by whoever uses a module in it.
    used |= {name.rpartition(".")[0] for name in used}
    source = ROOT.parent / "pyspark_headwater"
    used |= set().union(*(imported_by(path) for path in source.rglob("*.py")))
    unused = sorted(
        name
        for name, path in known.items()
        if name not in used and not (path.name == "__init__.py" and not path.read_text())
    )
    assert unused == []
