"""Checks of a built release: what is in wheel and sdist, and the quick start from the wheel.

python scripts/check_release.py contents DIST
python scripts/check_release.py quick-start VENV

Needs nothing that is not in Python itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK_START = ROOT / "docs" / "guide" / "quick-start.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPARK = "SparkSession"


def problems_of_contents(dist: Path) -> list[str]:
    """Return what is missing from the files of a release, or should not be there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stem = f"{project['name']}-{project['version']}"
    wheel, sdist = dist / f"{stem}-py3-none-any.whl", dist / f"{stem}.tar.gz"
    problems = [f"{path.name} was not built" for path in (wheel, sdist) if not path.is_file()]
    if problems:
        return problems
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        metadata = opened.read(f"{stem}.dist-info/METADATA").decode()
        entry_points = opened.read(f"{stem}.dist-info/entry_points.txt").decode()
    modules = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.suffix == ".py" or path.parent.name == "assets"
        if "headwater/testing" not in path.as_posix()
    }
    problems += [f"the wheel lacks {name}" for name in sorted(modules - names)]
    wanted = ("headwater/", "pyspark_headwater/", f"{stem}.dist-info/")
    problems += [f"the wheel has {name}" for name in sorted(names) if not name.startswith(wanted)]
    problems += [f"the wheel has {name}" for name in sorted(names) if "/testing/" in name]
    if "headwater/py.typed" not in names:
        problems.append("the wheel is not typed")
    if f"{stem}.dist-info/licenses/LICENSE" not in names:
        problems.append("the wheel has no licence")
    for name, function in project["scripts"].items():
        if f"{name} = {function}" not in entry_points:
            problems.append(f"the wheel has no command {name}")
    for line in (f"Version: {project['version']}", "License-Expression: Apache-2.0"):
        if line not in metadata:
            problems.append(f"the metadata does not say {line!r}")
    if f"## {project['version']}" not in (ROOT / "CHANGELOG.md").read_text():
        problems.append(f"the changelog does not know {project['version']}")
    with tarfile.open(sdist) as opened_sdist:
        sources = {name.partition("/")[2] for name in opened_sdist.getnames()}
    for name in (
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "Makefile",
        "constraints-newest.txt",
    ):
        if name not in sources:
            problems.append(f"the sdist lacks {name}")
    return problems


def run_quick_start(environment: Path) -> None:
    """Run the quick start as printed, with the wheel; what needs no Java, where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "bin"
        tools.mkdir()
        for name in ("sh", "cat", "head", "ls"):  # No java among them.
            found = next(p for p in map(Path, ("/bin", "/usr/bin")) if (p / name).exists())
            (tools / name).symlink_to(found / name)
        bare = {"PATH": f"{environment / 'bin'}{os.pathsep}{tools}", "HOME": folder}
        whole = {**os.environ, "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        whole.pop("PYTHONPATH", None)
        for kind, block in BLOCK.findall(QUICK_START.read_text()):
            needs_java = SPARK in block
            if kind == "python":
                command = [str(environment / "bin" / "python"), "-c", block]
            else:
                command = ["/bin/sh", "-ec", re.sub(r"^\$ ", "", block, flags=re.MULTILINE)]
            subprocess.run(
                command,
                cwd=folder,
                env=whole if needs_java else bare,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            print(f"  ran {'with Spark' if needs_java else 'without Java'}: {block.split()[0]} ...")


def main() -> None:
    what, where = sys.argv[1:]
    if what == "quick-start":
        run_quick_start(Path(where))
        return
    problems = problems_of_contents(Path(where))
    if problems:
        raise SystemExit("The release is not whole:\n" + "\n".join(problems))
    print("Contents and metadata are whole.")


if __name__ == "__main__":
    main()
