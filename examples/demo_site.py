"""The processes of the demo: started, told what to do, listened to, and one of them killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo_rows import Batch
from demo_screen import Lane, Screen

SCRIPT = Path(__file__).with_name("demo_job.py")
SILENT_S_MAX = 300.0
"""After so long without a word from anybody the demo gives up; only a failure takes that long."""

Answer = dict[str, Any]


class Failed(Exception):
    """A process ended by itself, or answers no more."""


class Differs(Exception):
    """The table does not hold what it should."""


class Site:
    """All processes, and which batches they say are committed."""

    def __init__(self, screen: Screen, table: Path, output: Path, key_count: int) -> None:
        self.screen, self.table, self.output, self.key_count = screen, table, output, key_count
        self.acknowledged: list[Batch] = []
        self.next_batch: dict[str, int] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._answers: queue.Queue[tuple[str, Answer]] = queue.Queue()
        self._listeners: list[threading.Thread] = []
        self._early: list[tuple[str, Answer]] = []
        """Answers that came while another one was waited for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            if kind is not None:
                process.kill()
            _close_orders(process)
        for process in self._running.values():
            process.wait()
        self._running.clear()
        for listener in self._listeners:
            listener.join()

    def start(self, name: str, *, is_spark: bool = False) -> None:
        self.screen.lanes[name] = Lane()
        command = [sys.executable, str(SCRIPT), name, str(self.table), str(self.key_count)]
        if is_spark:
            command += ["--spark", str(self.output / "spark.log")]
        with self._errors_of(name).open("w") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # Ctrl-C is for the director, which then ends all others.
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._running[name] = process
        listener = threading.Thread(target=self._listen, args=(name, process), daemon=True)
        self._listeners.append(listener)
        listener.start()

    def tell(self, name: str, do: str, **fields: Any) -> None:
        process = self._running[name]
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise Failed(self._how_it_ended(name)) from error

    def until(self, name: str, event: str, order: str | None = None) -> Answer:
        """Wait for an answer; what others say meanwhile is shown, and kept for who asks."""

        def is_it(who: str, answer: Answer) -> bool:
            wanted = who == name and answer["event"] == event
            return wanted and order in (None, answer.get("order"))

        for number, (who, answer) in enumerate(self._early):
            if is_it(who, answer):
                del self._early[number]
                return answer
        while True:
            who, answer = self._next()
            if is_it(who, answer):
                return answer
            self._early.append((who, answer))

    def until_acknowledged(self, counts: dict[str, int]) -> None:
        """Wait until each of some processes has so many commits in all."""
        while any(len(self.screen.lanes[name].commits) < count for name, count in counts.items()):
            self._early.append(self._next())

    def done(self, name: str, do: str, **fields: Any) -> Answer:
        """Give an order and wait until it is carried out."""
        self.tell(name, do, **fields)
        return self.until(name, "done", do)

    def hear(self, name: str, event: str, **fields: Any) -> None:
        """Take an answer of a process that was not started here, from any thread."""
        self._answers.put((name, {"event": event, **fields}))

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        _close_orders(process)
        self.screen.lanes[name].set("dead", "killed with SIGKILL")

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as answers:
            for line in answers:
                self._answers.put((name, json.loads(line)))
        self._answers.put((name, {"event": "ended"}))

    def _next(self) -> tuple[str, Answer]:
        try:
            name, answer = self._answers.get(timeout=SILENT_S_MAX)
        except queue.Empty:
            raise Failed(f"No process said anything for {SILENT_S_MAX:.0f} s.") from None
        if answer["event"] == "ended" and name in self._running:
            raise Failed(self._how_it_ended(name))
        if answer["event"] == "failed":
            raise Failed(f"The process {name} failed: {answer['why']}")
        self._show(name, answer)
        return name, answer

    def _show(self, name: str, answer: Answer) -> None:
        lane = self.screen.lanes[name]
        match answer:
            case {"event": "acknowledged" | "done", "writer": writer, "batch": number}:
                self.acknowledged.append(Batch(writer, number, self.key_count))
                lane.commits.append(time.monotonic())
                lane.set("idle", f"batch {number} is committed")
                self.screen.event(name, f"commit {answer['instant']}, its batch {number}")
                self.screen.looked()
            case {"event": "ready"}:
                lane.set("idle", "ready")
            case {"event": "writing"}:
                lane.set("work", f"upserts batch {answer['batch']}")
            case {"event": "begun"}:
                lane.set("work", answer["order"].replace("_", " "))
                self.screen.looked()
            case {"event": "held"}:
                lane.set("held", answer["where"])
            case {"event": "done"}:
                lane.set("idle", f"{answer['order'].replace('_', ' ')} done")
                self.screen.looked()

    def _how_it_ended(self, name: str) -> str:
        code = self._running[name].wait()
        said = self._errors_of(name).read_text(errors="replace").strip().splitlines()
        return f"The process {name} ended by itself with code {code}: " + "\n".join(said[-12:])

    def _errors_of(self, name: str) -> Path:
        return self.output / f"{name}.log"


def _close_orders(process: subprocess.Popen[str]) -> None:
    """Give no more orders; what a process did not take before it ended is lost on it."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
