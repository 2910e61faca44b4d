from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.forks import in_a_child

from headwater.seams import ids as ids_seam
from headwater.seams.clock import SystemClock, Timer, while_kept
from headwater.seams.ids import Owner, SystemIds

SOON_S = 300  # How long to wait for what comes at once; reached only by a failure.


class TestSystemClock:
    def test_now_ms_counts_milliseconds_since_the_epoch(self) -> None:
        # 2020 and 2100: any other unit is off by a factor of a thousand.
        assert 1_577_836_800_000 < SystemClock().now_ms() < 4_102_444_800_000

    def test_monotonic_ms_passes_at_least_as_long_as_the_sleep(self) -> None:
        clock = SystemClock()
        before_ms = clock.monotonic_ms()
        clock.sleep_ms(5)
        # Both readings are cut to whole milliseconds.
        assert clock.monotonic_ms() - before_ms >= 4

    def test_a_timer_calls_until_it_is_told_to_stop(self) -> None:
        calls = []
        stopped = threading.Event()

        def call() -> bool:
            calls.append(threading.current_thread().name)
            if len(calls) == 3:
                stopped.set()
            return len(calls) < 3

        timer = SystemClock().every_ms(1, call, "ticker")
        assert stopped.wait(SOON_S)
        wait_for_the_end("ticker")
        assert calls == ["ticker"] * 3
        timer.cancel()

    def test_cancel_before_the_first_interval_means_no_call(self) -> None:
        called = threading.Event()

        def call() -> bool:
            called.set()
            return True

        timer = SystemClock().every_ms(60_000, call, "sleeper")
        timer.cancel()
        assert not called.is_set()
        assert "sleeper" not in running_threads()

    def test_cancel_returns_when_no_call_is_under_way(self) -> None:
        begun = threading.Event()
        may_end = threading.Event()
        ended = []

        def call() -> bool:
            begun.set()
            may_end.wait(SOON_S)
            ended.append(True)
            return True

        timer = SystemClock().every_ms(1, call, "slow")
        assert begun.wait(SOON_S)
        canceller = threading.Thread(target=timer.cancel)
        canceller.start()
        canceller.join(0.02)
        assert canceller.is_alive()
        assert ended == []
        may_end.set()
        canceller.join(SOON_S)
        assert not canceller.is_alive()
        assert ended == [True]
        assert "slow" not in running_threads()

    def test_cancel_twice_is_cancel(self) -> None:
        timer = SystemClock().every_ms(60_000, lambda: True, "twice")
        timer.cancel()
        timer.cancel()
        assert "twice" not in running_threads()

    def test_a_call_may_cancel_its_own_timer(self) -> None:
        timers: list[Timer] = []
        calls = []
        assigned = threading.Event()

        def call() -> bool:
            assigned.wait(SOON_S)
            timers[0].cancel()
            calls.append(1)
            return True

        timers.append(SystemClock().every_ms(1, call, "suicidal"))
        assigned.set()
        wait_for_the_end("suicidal")
        assert calls == [1]

    def test_n_194_a_timer_whose_start_is_interrupted_ends(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C comes while the thread is waited for, which is there by then."""
        start = threading.Thread.start

        def start_and_interrupt(thread: threading.Thread) -> None:
            start(thread)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start_and_interrupt)
            with pytest.raises(KeyboardInterrupt):
                SystemClock().every_ms(1, lambda: True, "interrupted")
        wait_for_the_end("interrupted")

    def test_n_194_a_timer_ends_with_what_it_works_for(self) -> None:
        class Job:
            def __init__(self) -> None:
                self.timer = SystemClock().every_ms(1, while_kept(self.work, left.set), "kept")

            def work(self) -> bool:
                worked.set()
                return True

        worked, left = threading.Event(), threading.Event()
        job = Job()
        assert worked.wait(SOON_S)
        assert not left.is_set()
        del job
        assert left.wait(SOON_S)
        wait_for_the_end("kept")

    def test_an_exception_ends_the_timer_and_is_logged(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls = []

        def call() -> bool:
            calls.append(1)
            raise RuntimeError("the lease is gone")

        with caplog.at_level(logging.ERROR, "headwater.seams.clock"):
            timer = SystemClock().every_ms(1, call, "failing")
            wait_for_the_end("failing")
        assert calls == [1]
        (record,) = caplog.records
        assert "name=failing" in record.getMessage()
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == "the lease is gone"
        timer.cancel()

    def test_a_timer_does_not_keep_the_process_alive(self) -> None:
        timer = SystemClock().every_ms(60_000, lambda: True, "daemon")
        assert running_threads()["daemon"].daemon
        timer.cancel()


def running_threads() -> dict[str, threading.Thread]:
    return {thread.name: thread for thread in threading.enumerate()}


def wait_for_the_end(name: str) -> None:
    thread = running_threads().get(name)
    if thread is not None:
        thread.join(SOON_S)
        assert not thread.is_alive()


class TestSystemIds:
    def test_a_uuid_is_random_and_in_its_usual_form(self) -> None:
        ids = SystemIds()
        made = [ids.new_uuid() for _ in range(100)]
        assert len(set(made)) == 100
        for text in made:
            assert str(uuid.UUID(text)) == text
            assert uuid.UUID(text).version == 4

    def test_jitter_stays_below_its_bound_and_reaches_every_number(self) -> None:
        ids = SystemIds()
        assert {ids.jitter(3) for _ in range(300)} == {0, 1, 2}
        assert ids.jitter(1) == 0

    def test_the_owner_is_this_process(self) -> None:
        owner = SystemIds().owner
        assert owner.host == socket.gethostname()
        assert owner.pid == os.getpid()
        assert len(owner.writer_id) == 12

    def test_the_owner_stays_and_differs_between_writers_of_one_process(self) -> None:
        ids = SystemIds()
        assert ids.owner == ids.owner
        assert ids.owner != SystemIds().owner

    def test_a_given_owner_is_kept(self) -> None:
        owner = Owner("host", 7, "writer")
        assert SystemIds(owner).owner is owner


class TestOwner:
    def test_people_read_host_process_and_writer(self) -> None:
        assert str(Owner("host", 7, "writer")) == "host/7/writer"

    def test_owners_are_compared_by_value(self) -> None:
        assert Owner("host", 7, "writer") == Owner("host", 7, "writer")
        assert Owner("host", 7, "writer") != Owner("host", 7, "other")

    def test_it_travels_to_another_process(self) -> None:
        owner = Owner("host", 7, "writer")
        assert pickle.loads(pickle.dumps(owner)) == owner


def an_ended_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


class TestIsGone:
    """N-61: a process that others take for ended has certainly ended."""

    def test_a_process_of_this_system_that_ended_is_gone(self) -> None:
        ids = SystemIds()
        assert not ids.is_gone(ids.owner)
        assert not ids.is_gone(replace(ids.owner, pid=os.getppid(), started=0))
        assert ids.is_gone(replace(ids.owner, pid=an_ended_process()))

    @pytest.mark.parametrize("space", ["", "another-boot pid:[1]"])
    def test_n_61_a_container_of_the_same_host_name_is_not_known_to_be_gone(
        self, space: str
    ) -> None:
        ids = SystemIds()
        owner = replace(ids.owner, pid=an_ended_process(), process_space=space)
        assert not ids.is_gone(owner)

    def test_n_61_the_name_of_the_host_does_not_matter(self) -> None:
        ids = SystemIds()
        assert ids.is_gone(replace(ids.owner, pid=an_ended_process(), host="renamed"))

    def test_n_61_a_zombie_is_gone(self) -> None:
        ids = SystemIds()
        child = subprocess.Popen([sys.executable, "-c", ""])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert ids.is_gone(replace(ids.owner, pid=child.pid, started=0))
        child.wait()

    def test_n_61_a_number_that_another_process_has_now_is_gone(self) -> None:
        ids = SystemIds()
        assert ids.owner.started
        assert ids.is_gone(replace(ids.owner, started=ids.owner.started - 1))

    def test_n_61_without_a_word_of_the_system_about_processes_only_numbers_count(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        ids = SystemIds()
        assert not ids.is_gone(ids.owner)
        monkeypatch.setattr(ids_seam, "_PROC", tmp_path)
        assert not ids.is_gone(replace(ids.owner, started=1))
        assert ids.is_gone(replace(ids.owner, pid=an_ended_process()))


class TestFork:
    """N-62: a forked child is a process of its own."""

    def test_n_62_a_child_is_another_owner(self) -> None:
        ids = SystemIds()
        seen = in_a_child(lambda: (ids.owner, ids.owner, os.getpid(), ids.is_gone(ids.owner)))
        first, second, pid, is_gone = seen
        assert first == second
        assert first.pid == pid
        assert first.writer_id != ids.owner.writer_id
        assert first.started >= ids.owner.started
        assert not is_gone
        assert ids.owner.pid == os.getpid()

    def test_n_62_a_child_is_gone_when_it_has_ended(self) -> None:
        ids = SystemIds()
        assert ids.is_gone(in_a_child(lambda: ids.owner))
        assert not in_a_child(lambda: ids.is_gone(ids.owner))

    def test_ids_that_travel_are_those_of_who_has_them(self) -> None:
        ids = SystemIds()
        assert pickle.loads(pickle.dumps(ids)).owner == ids.owner
