"""Which Python the workers of Spark are told to run; each case in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headwater.seams.worker_python import offered_interpreter

PROGRAM = "import os, headwater; print(os.environ.get('PYSPARK_PYTHON'))"


def interpreter_named(**environment: str) -> str:
    clean = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def test_it_is_the_one_of_the_driver_if_nobody_names_another() -> None:
    assert interpreter_named() == sys.executable


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"PYSPARK_PYTHON": "/opt/python"}, "/opt/python"),
        ({"PYSPARK_DRIVER_PYTHON": "/opt/python"}, "None"),
        ({"YARN_CONF_DIR": "/etc/hadoop"}, "None"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, "None"),
    ],
)
def test_what_others_decide_is_left_alone(environment: dict[str, str], named: str) -> None:
    assert interpreter_named(**environment) == named


def test_only_this_interpreter_counts_as_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert offered_interpreter() == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert offered_interpreter() is None
