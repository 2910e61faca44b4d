"""What `warm` does to a worker process; each test uses a process of its own."""

from __future__ import annotations

import subprocess
import sys


def test_a_warm_worker_keeps_what_it_knows_of_archives() -> None:
    program = (
        "import gc, zipimport\n"
        "from headwater.spark.worker import warm\n"
        "cold = zipimport.zipimporter.invalidate_caches\n"
        "warm()\n"
        "first = gc.get_freeze_count()\n"
        "kept = zipimport.zipimporter.invalidate_caches\n"
        "held = [object() for _ in range(10)]\n"
        "warm()\n"
        "print(kept is not cold, first > 0, gc.get_freeze_count() <= first)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["True", "True", "True"]
