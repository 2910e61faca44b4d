#!/bin/sh
# Build wheel and sdist into dist, and check them as somebody would who has nothing else: what is
# in them, their metadata, and the quick start from the wheel in an empty environment, its part for
# Arrow with no Java on the path.
set -eu

python="${PYTHON:-python3}"
tools=build/release
fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT

[ -x "$tools/bin/python" ] || "$python" -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --upgrade "pip>=25.1,<27"
"$tools/bin/python" -m pip install --quiet --group release
rm -rf dist
"$tools/bin/python" -m build --outdir dist . >"$fresh/build.log" 2>&1 || { cat "$fresh/build.log"; exit 1; }
"$tools/bin/python" -m twine check --strict dist/*
"$python" scripts/check_release.py contents dist

echo "Installing the wheel into an empty environment ..."
"$python" -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --constraint constraints.txt dist/*.whl
"$python" scripts/check_release.py quick-start "$fresh/venv"
ls -l dist
