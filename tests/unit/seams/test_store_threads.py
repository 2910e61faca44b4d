"""A forked child of a process that has used an object store: its requests would wait for ever."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys
from obstore.store import MemoryStore
from headwater.errors import UnsupportedError
from headwater.seams.object_store import ObjectStorage

def use(name, storage):
    storage.put(name, b"1")
    with storage.open_output(f"{name} in parts") as sink:
        sink.write(b"2" * 2**26)
    assert storage.list_names("") == [name, f"{name} in parts"]

storage = ObjectStorage(MemoryStore(), "memory://bucket")
if sys.argv[1] == "used":
    use("first", storage)
child = os.fork()
if child == 0:
    code = 1
    try:
        for again in (storage, ObjectStorage(MemoryStore(), "memory://another")):
            try:
                use("second", again)
                print("reached", flush=True)
            except UnsupportedError as error:
                print(error, flush=True)
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
use("first", ObjectStorage(MemoryStore(), "memory://third"))
"""


def said_by_child(before: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, before],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_a_child_is_told_that_it_cannot_reach_a_store() -> None:
    its_parents, its_own = said_by_child("used")
    assert "cannot reach memory://bucket/second: it was forked" in its_parents
    assert "memory://another/second" in its_own
    assert "get_context('spawn')" in its_own


def test_a_child_of_a_process_that_has_used_none_uses_its_own() -> None:
    assert said_by_child("not used") == ["reached", "reached"]
