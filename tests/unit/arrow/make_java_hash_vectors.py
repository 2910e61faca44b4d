"""Write `java_hash_vectors.json`: hashes that a real JVM computes.

Run by hand when vectors are to be added: `python tests/unit/arrow/make_java_hash_vectors.py`. The
JVM is the one that PySpark starts; the file says which.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from pyspark.java_gateway import launch_gateway

VECTORS = Path(__file__).with_name("java_hash_vectors.json")
ALPHABETS = (
    "abcXYZ019-_:,",
    "äöüßéñ€漢字",
    "\U0001f600\U00010348\U0010ffff\ue000\uffff\u0080\u07ff\u0800",
    "\x00\x01\x7f \t\"'%",
)


def texts() -> list[str | None]:
    chosen = random.Random(20240229)
    fixed = [
        "",
        "a",
        "TXN-001",
        "uuid-0001",
        "Aa",
        "BB",
        "\x00",
        "\U0001f600",
        "polygenelubricants",
    ]
    drawn = [
        "".join(chosen.choices("".join(ALPHABETS[: 1 + n % 4]), k=chosen.randint(1, 40)))
        for n in range(200)
    ]
    return [*fixed, *drawn, "x" * 5000, "é" * 3000]


def main() -> None:
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    jvm: Any = gateway.jvm

    def list_hash(values: list[str | None]) -> int:
        java_list = jvm.java.util.ArrayList()
        for value in values:
            java_list.add(value)
        return int(java_list.hashCode())

    some = texts()
    values: list[list[str | None]] = [
        [None],
        ["1", "Alice"],
        [None, "Alice"],
        ["", "Alice"],
        [None, None],
        *(list(some[n : n + 3]) for n in range(0, 60, 3)),
    ]
    found = {
        "java_version": jvm.java.lang.System.getProperty("java.version"),
        "strings": [[text, int(jvm.java.util.Objects.hashCode(text))] for text in some],
        "lists": [[row, list_hash(row)] for row in values],
    }
    VECTORS.write_text(json.dumps(found, indent=0) + "\n", encoding="ascii")
    gateway.shutdown()


if __name__ == "__main__":
    main()
