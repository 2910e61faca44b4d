"""The process of one command: what is settled once, before the command line is read."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

LOOKING = frozenset(
    {
        ("conflict", "list"),
        ("heartbeat", "list"),
        ("index", "list"),
        ("lock", "show"),
        ("plan", "list"),
        ("plan", "show"),
        ("table", "describe"),
        ("table", "history"),
        ("table", "schema"),
        ("timeline", "show"),
    }
)
"""Commands that read no rows, so that no function of the user's runs in them."""


def start() -> int:
    """Run the command that this process was started for, and return its exit code."""
    only_looks = _only_looks(sys.argv[1:])
    # Importing makes many objects and little garbage, and looking ends before there is any.
    gc.disable()
    if only_looks:
        leave_out_pandas()
    try:
        from headwater.cli.main import main
    except KeyboardInterrupt:  # Nothing was begun. On a busy machine this takes seconds.
        from headwater.cli.exit_codes import INTERRUPTED

        return INTERRUPTED
    if not only_looks:
        gc.enable()
    return main()


def leave_out_pandas() -> None:
    """Keep pyarrow from importing pandas, for the rest of this process.

    It does so for the first array that it makes of Python values, and where pandas is installed
    that takes longer than all else a short command does. It asks once and remembers the answer.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas())
    try:
        pa.array([0])
    finally:
        del sys.meta_path[0]


class _NoPandas:
    """Answers for as long as it is asked that there is no pandas."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def _only_looks(arguments: Sequence[str]) -> bool:
    return tuple(arguments[:2]) in LOOKING and not {"-h", "--help"} & set(arguments)


if __name__ == "__main__":
    sys.exit(start())
