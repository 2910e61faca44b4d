"""The simulator itself, on protocols small enough to know by heart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from headwater.errors import (
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    NotFoundError,
    StorageError,
)
from headwater.seams.clock import Timer
from headwater.testing.actor import Body, Nondeterminism, Process, ProcessRules
from headwater.testing.baton import GreenletBaton, ThreadBaton
from headwater.testing.explore import Trace, exhaust, hunt, replay, run
from headwater.testing.faults import Fate, Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.report import Regression, load_regression, save_regression, show
from headwater.testing.scenarios.swarm import swarm
from headwater.testing.schedule import Pct, Random, Sticky, Strategy
from headwater.testing.shrink import shrink, switches
from headwater.testing.simulation import Invariant, Scenario, Simulation
from headwater.testing.world import World, WorldRules, standalone_storage

HEARTBEAT_MS = 5_000


def _nothing(world: World) -> None:
    pass


def _scenario(
    actors: dict[str, Body],
    *,
    faults: Faults | None = None,
    set_up: Callable[[World], None] = _nothing,
    invariants: tuple[Invariant, ...] = (),
    world: WorldRules | None = None,
    processes: ProcessRules | None = None,
) -> Scenario:
    return Scenario(
        name="toy",
        actors=actors,
        set_up=set_up,
        invariants=invariants,
        faults=faults or Faults(),
        world=world or WorldRules(),
        processes=processes or ProcessRules(),
    )


# RFC-79 as written, in a few lines: one heartbeat per plan, no attempts.


def _toy_executor(*, is_guard_outside: bool) -> Body:
    def body(process: Process) -> str:
        try:
            return execute(process)
        except ConflictError:
            return "waited too long"

    def execute(process: Process) -> str:
        storage, clock = process.storage, process.clock

        def is_active() -> bool:
            try:
                beat_ms: int = json.loads(storage.read("hb/P"))["beat_ms"]
            except NotFoundError:
                return False
            return beat_ms + HEARTBEAT_MS > clock.now_ms()

        if is_guard_outside and is_active():
            return "refused"
        held = process.lock.acquire(timeout_ms=10**9)
        try:
            names = storage.list_names("timeline")
            if "P.commit" in names:
                return "returned"
            if not is_guard_outside and is_active():
                return "refused"
            storage.put("hb/P", json.dumps({"beat_ms": clock.now_ms()}).encode())
        finally:
            held.release()
        if "P.inflight" in names:
            storage.delete("data/P")
        storage.put("timeline/P.inflight", b"")
        storage.put("data/P", process.name.encode())
        held = process.lock.acquire(timeout_ms=10**9)
        try:
            storage.put("timeline/P.commit", process.name.encode())
        finally:
            held.release()
        storage.delete("hb/P")
        return "committed"

    return body


def _commit_has_its_data(step: Step, simulation: Simulation) -> Iterator[str]:
    commit = simulation.world.objects.get("timeline/P.commit")
    data = simulation.world.objects.get("data/P")
    if commit is not None and (data is None or data.data != commit.data):
        yield f"{commit.data!r} committed, but the data is {data and data.data!r}"


def _toy_deadlines(world: World) -> list[int]:
    found = world.objects.get("hb/P")
    return [] if found is None else [json.loads(found.data)["beat_ms"] + HEARTBEAT_MS]


def toy_guard(faults: Faults, *, is_guard_outside: bool = False) -> Scenario:
    body = _toy_executor(is_guard_outside=is_guard_outside)
    scenario = _scenario(
        {"X": body, "Y": body},
        faults=faults,
        invariants=(Invariant(id="DANGLING", check=_commit_has_its_data),),
    )
    return replace(scenario, deadlines_ms=_toy_deadlines)


class TestExhaustiveSearch:
    def test_the_guard_survives_every_interleaving_and_one_crash(self) -> None:
        report = exhaust(toy_guard(Faults(crashes=1)))
        assert report.violation is None
        assert report.is_complete

    def test_it_finds_a_guard_check_outside_the_lock(self) -> None:
        report = exhaust(toy_guard(Faults(), is_guard_outside=True))
        assert report.violation is not None
        assert report.violation.invariant == "DANGLING"
        assert report.runs < 100

    def test_it_finds_that_rfc_79_as_written_breaks_with_one_stall(self) -> None:
        report = exhaust(toy_guard(Faults(ticks=1)))
        assert report.violation is not None
        assert report.violation.invariant == "DANGLING"
        assert report.runs < 200

    def test_a_decision_list_reproduces_what_was_found(self) -> None:
        scenario = toy_guard(Faults(ticks=1))
        report = exhaust(scenario)
        assert replay(scenario, report.decisions).violation == report.violation

    @pytest.mark.parametrize(
        "faults",
        [
            Faults(crashes=1, lost_replies=1),
            Faults(ticks=2),
            Faults(lock_expiries=1, failures=1),
            Faults(limbos=1, clock_steps=1),
            Faults(crashes=1, restarts=1),
        ],
    )
    def test_the_state_cache_loses_no_outcome(self, faults: Faults) -> None:
        def body(process: Process) -> str:
            try:
                held = process.lock.acquire(timeout_ms=30_000)
                process.storage.put("a", str(process.clock.now_ms()).encode())
                held.check()
                held.release()
                return process.storage.read("a").decode()
            except HeadwaterError as error:
                return type(error).__name__

        scenario = _scenario(
            {"X": body, "Y": body}, faults=faults, world=WorldRules(lock="lease", lease_ms=9)
        )
        cached, plain = exhaust(scenario), exhaust(scenario, has_cache=False)
        assert cached.results == plain.results
        assert len(cached.results) > 2
        assert cached.runs < plain.runs

    def test_without_preemptions_each_actor_runs_to_its_end_or_to_a_lock(self) -> None:
        scenario = toy_guard(Faults())
        free = exhaust(scenario)
        bound = exhaust(scenario, preemptions_max=0)
        assert bound.is_complete
        assert bound.runs < free.runs
        assert bound.results <= free.results

    def test_a_mark_that_is_never_reached_fails_the_search(self) -> None:
        scenario = replace(
            toy_guard(Faults()),
            marks={"never": lambda step, simulation: False, "always": lambda step, s: True},
        )
        report = exhaust(scenario)
        assert report.missing_marks == ("never",)
        assert not report.is_good

    def test_twins_are_searched_once(self) -> None:
        scenario = toy_guard(Faults(crashes=1))
        both = exhaust(scenario)
        one = exhaust(replace(scenario, has_twins=True))
        words = [{tuple(sorted(w for _, w in ends)) for ends in r.results} for r in (both, one)]
        assert words[0] == words[1]
        assert one.runs < both.runs


class TestStrategies:
    @pytest.mark.parametrize("strategy", [Random, Sticky, Pct])
    def test_each_finds_the_planted_bug(self, strategy: Callable[[int], Strategy]) -> None:
        report = hunt(toy_guard(Faults(), is_guard_outside=True), strategy, range(500))
        assert report.violation is not None

    def test_a_seed_gives_the_same_run_twice(self) -> None:
        for seed in range(5):
            assert run(swarm(seed), Pct(seed)) == run(swarm(seed), Pct(seed))

    def test_the_order_in_which_actors_are_built_does_not_matter(self) -> None:
        for seed in range(5):
            # Of twins that have done nothing yet the first one stands for all.
            scenario = replace(swarm(seed), twins=(), has_twins=False)
            trace = run(scenario, Sticky(seed))
            other = replace(scenario, actors=dict(reversed(list(scenario.actors.items()))))
            again = replay(other, trace.decisions)
            assert again.steps == trace.steps
            assert again.objects == trace.objects

    def test_threads_give_the_same_runs_as_greenlets(self) -> None:
        for seed in range(20):
            scenario = swarm(seed)
            traces = [
                run(
                    replace(scenario, processes=replace(scenario.processes, baton=baton)), Pct(seed)
                )
                for baton in (GreenletBaton, ThreadBaton)
            ]
            assert traces[0].steps == traces[1].steps
            assert traces[0].objects == traces[1].objects


def _write_and_tidy(process: Process) -> str:
    try:
        process.storage.put("a", b"1")
        process.storage.put("b", b"2")
    finally:
        process.storage.delete("a")
    return "done"


class TestCrash:
    def test_a_dead_process_does_not_tidy_up(self) -> None:
        scenario = _scenario({"X": _write_and_tidy}, faults=Faults(crashes=1))
        trace = replay(scenario, ["run X", "crash X drop"])
        assert trace.objects == {"a": b"1"}
        assert trace.results == {"X": "crashed"}

    def test_the_call_it_made_may_have_taken_effect(self) -> None:
        scenario = _scenario({"X": _write_and_tidy}, faults=Faults(crashes=1))
        trace = replay(scenario, ["run X", "crash X apply"])
        assert trace.objects == {"a": b"1", "b": b"2"}

    def test_the_call_it_made_may_land_later(self) -> None:
        faults = Faults(crashes=1, limbos=1, fates=(Fate.LIMBO,))
        scenario = _scenario({"X": _write_and_tidy}, faults=faults)
        trace = replay(scenario, ["run X", "crash X limbo", "land 0"])
        assert trace.objects == {"a": b"1", "b": b"2"}

    def test_no_except_exception_swallows_it(self) -> None:
        def body(process: Process) -> str:
            try:
                process.storage.put("a", b"1")
            except Exception:  # noqa: BLE001
                process.storage.put("handler", b"ran")
            return "went on"

        trace = replay(_scenario({"X": body}, faults=Faults(crashes=1)), ["crash X drop"])
        assert trace.objects == {}
        assert trace.violation is None

    def test_who_swallows_it_all_the_same_is_reported(self) -> None:
        def body(process: Process) -> str:
            try:
                process.storage.put("a", b"1")
            except BaseException:  # noqa: BLE001
                return "survived"
            return "done"

        report = exhaust(_scenario({"X": body, "Y": body}, faults=Faults(crashes=1)))
        assert report.violation is not None
        assert report.violation.invariant == "SIM-CRASH"

    def test_who_goes_on_calling_for_ever_is_stopped_and_reported(self) -> None:
        def body(process: Process) -> str:
            while True:
                with suppress(BaseException):
                    process.storage.put("a", b"1")
                    return "done"

        trace = replay(_scenario({"X": body}, faults=Faults(crashes=1)), ["crash X drop"])
        assert trace.violation is not None
        assert "swallows its own crash" in trace.violation.message
        assert trace.objects == {}

    def test_a_restarted_process_has_its_name_but_no_id_of_its_former_self(self) -> None:
        def body(process: Process) -> str:
            process.storage.put(f"{process.ids.owner}/{process.ids.new_uuid()}", b"")
            return "done"

        scenario = _scenario({"X": body}, faults=Faults(crashes=1, restarts=1))
        trace = replay(scenario, ["crash X apply", "restart X", "run X"])
        first, second = sorted(trace.objects)
        assert first.split("/")[0] == second.split("/")[0] == "X"
        assert len({*first.split("/")[1:], *second.split("/")[1:]}) == 6
        assert trace.results == {"X": "done"}

    def test_an_error_nobody_expected_is_a_finding(self) -> None:
        def body(process: Process) -> str:
            process.storage.read("absent")
            return "done"

        trace = run(_scenario({"X": body}), Random(0))
        assert trace.violation is not None
        assert trace.violation.invariant == "SIM-ERROR"
        assert "absent" in trace.violation.message


def _put_and_tell(process: Process) -> str:
    try:
        process.storage.put_if_absent("a", process.name.encode())
    except StorageError:
        return "unknown"
    return "done"


class TestStorageFaults:
    def test_a_lost_reply_takes_effect(self) -> None:
        scenario = _scenario({"X": _put_and_tell}, faults=Faults(lost_replies=1))
        trace = replay(scenario, ["lost X"])
        assert trace.objects == {"a": b"X"}
        assert trace.results == {"X": "unknown"}

    def test_a_failure_does_not(self) -> None:
        scenario = _scenario({"X": _put_and_tell}, faults=Faults(failures=1))
        trace = replay(scenario, ["fail X"])
        assert trace.objects == {}
        assert trace.results == {"X": "unknown"}

    def test_a_write_in_limbo_lands_unless_the_name_was_taken_meanwhile(self) -> None:
        scenario = _scenario({"X": _put_and_tell, "Y": _put_and_tell}, faults=Faults(limbos=1))
        assert replay(scenario, ["limbo X", "land 0"]).objects == {"a": b"X"}
        assert replay(scenario, ["limbo X", "run Y", "land 0"]).objects == {"a": b"Y"}

    def test_a_write_in_limbo_need_not_land_before_the_actors_end(self) -> None:
        scenario = _scenario({"X": _put_and_tell}, faults=Faults(limbos=1))
        report = exhaust(scenario)
        assert report.is_complete
        assert report.results == {(("X", "done"),), (("X", "unknown"),)}

    def test_f10_a_listing_of_several_pages_mixes_moments(self) -> None:
        def lister(process: Process) -> str:
            return ",".join(process.storage.list_names("f"))

        def mover(process: Process) -> str:
            process.storage.put("f/d", b"")
            process.storage.delete("f/a")
            return "done"

        def fill(world: World) -> None:
            for name in "abc":
                world.apply("set-up", Op(Kind.PUT, f"f/{name}"))

        scenario = _scenario(
            {"L": lister, "M": mover},
            set_up=fill,
            world=WorldRules(page_size=2),
            processes=ProcessRules(page_size=2),
        )
        seen = {dict(ends)["L"] for ends in exhaust(scenario).results}
        assert seen == {"a,b,c", "a,b,c,d", "b,c,d"}


class TestLocks:
    @staticmethod
    def _hold(process: Process) -> str:
        try:
            held = process.lock.acquire(timeout_ms=30_000)
        except ConflictError as conflict:
            return "timed out" if conflict.kind is ErrorKind.LOCK_TIMEOUT else "conflict"
        process.storage.put("a", b"1")
        try:
            held.check()
        except FencedError:
            return "fenced"
        held.release()
        return "done"

    def test_two_never_hold_it_at_once(self) -> None:
        report = exhaust(_scenario({"X": self._hold, "Y": self._hold}))
        assert report.results == {(("X", "done"), ("Y", "done"))}

    def test_a_session_dies_with_its_holder(self) -> None:
        scenario = _scenario({"X": self._hold, "Y": self._hold}, faults=Faults(crashes=1))
        trace = replay(scenario, ["run X", "crash X drop", "run Y"])
        assert trace.results == {"X": "crashed", "Y": "done"}
        assert not any(str(step.action) == "idle" for step in trace.steps)

    @pytest.mark.parametrize(("lease_ms", "end"), [(20_000, "done"), (90_000, "timed out")])
    def test_a_lease_outlives_its_holder(self, lease_ms: int, end: str) -> None:
        scenario = _scenario(
            {"X": self._hold, "Y": self._hold},
            faults=Faults(crashes=1),
            world=WorldRules(lock="lease", lease_ms=lease_ms),
        )
        trace = replay(scenario, ["run X", "crash X drop", "idle", "run Y"])
        assert trace.results == {"X": "crashed", "Y": end}

    def test_a_lease_that_ends_under_a_live_holder_is_noticed_by_check(self) -> None:
        scenario = _scenario(
            {"X": self._hold, "Y": self._hold},
            faults=Faults(lock_expiries=1),
            world=WorldRules(lock="lease"),
        )
        trace = replay(scenario, ["run X", "expire table", "run Y", "run X", "run X"])
        assert trace.results == {"X": "fenced", "Y": "done"}

    def test_a_lease_never_ends_under_a_live_holder_without_that_fault(self) -> None:
        scenario = _scenario(
            {"X": self._hold, "Y": self._hold},
            faults=Faults(ticks=3),
            world=WorldRules(lock="lease", lease_ms=1),
        )
        words = {word for ends in exhaust(scenario).results for _, word in ends}
        assert words == {"done", "timed out"}

    def test_tokens_grow_with_every_acquisition(self) -> None:
        def body(process: Process) -> str:
            held = process.lock.acquire(timeout_ms=1)
            held.release()
            return str(held.token)

        report = exhaust(_scenario({"X": body, "Y": body}))
        assert report.results == {(("X", "1"), ("Y", "2")), (("X", "2"), ("Y", "1"))}

    def test_an_expired_lock_can_be_seen_and_broken(self) -> None:
        def dies(process: Process) -> str:
            process.lock.acquire(timeout_ms=1)
            process.storage.put("a", b"")
            return "done"

        def breaker(process: Process) -> str:
            with pytest.raises(ConflictError):
                process.lock.break_expired()
            process.clock.sleep_ms(200)
            found = process.lock.inspect()
            assert found is not None
            assert found.is_expired
            broken = process.lock.break_expired()
            assert broken is not None
            assert process.lock.inspect() is None
            return broken.owner

        scenario = _scenario(
            {"X": dies, "Y": breaker},
            faults=Faults(crashes=1),
            world=WorldRules(lock="lease", lease_ms=100),
        )
        trace = replay(scenario, ["run X", "crash X drop"])
        assert trace.violation is None
        assert trace.results["Y"] == "X"


class TestTime:
    def test_a_clock_shows_world_time_and_the_offset_of_its_process(self) -> None:
        def body(process: Process) -> str:
            return str(process.clock.now_ms() - process.clock.monotonic_ms())

        scenario = _scenario({"X": body, "Y": body}, faults=Faults(clock_steps=1))
        scenario = replace(scenario, offsets_ms={"Y": -70})
        assert replay(scenario, []).results == {"X": "0", "Y": "-70"}
        assert replay(scenario, ["step X -3600000"]).results == {"X": "-3600000", "Y": "-70"}

    def test_a_short_pause_ends_whenever_the_scheduler_likes(self) -> None:
        def sleeper(process: Process) -> str:
            began_ms = process.clock.monotonic_ms()
            process.clock.sleep_ms(300)
            return str(process.clock.monotonic_ms() - began_ms)

        report = exhaust(_scenario({"X": sleeper, "Y": sleeper}))
        assert report.is_complete
        assert report.results == {(("X", "300"), ("Y", "300"))}

    def test_a_long_pause_needs_a_tick_or_an_idle_world(self) -> None:
        def sleeper(process: Process) -> str:
            process.clock.sleep_ms(60_000)
            return ",".join(process.storage.list_names("f"))

        def writer(process: Process) -> str:
            process.storage.put("f/a", b"")
            process.storage.put("f/b", b"")
            return "done"

        scenario = _scenario({"S": sleeper, "W": writer})
        assert {dict(ends)["S"] for ends in exhaust(scenario).results} == {"a,b"}
        stalled = replace(scenario, faults=Faults(ticks=1))
        assert {dict(ends)["S"] for ends in exhaust(stalled).results} == {"", "a", "a,b"}

    def test_a_clock_is_not_read_at_once_while_time_can_move(self) -> None:
        def body(process: Process) -> str:
            before = process.clock.monotonic_ms()
            after = process.clock.monotonic_ms()
            return "same" if before == after else "later"

        scenario = _scenario({"X": body}, faults=Faults(ticks=1))
        scenario = replace(scenario, deadlines_ms=lambda world: [world.rules.start_ms + 5])
        assert {dict(ends)["X"] for ends in exhaust(scenario).results} == {"same", "later"}
        eager = replace(scenario, has_eager_clocks=True)
        assert {dict(ends)["X"] for ends in exhaust(eager).results} == {"same"}


def _beating(process: Process) -> str:
    beats = count(1)

    def beat() -> bool:
        process.storage.put("beat", str(next(beats)).encode())
        return True

    timer = process.clock.every_ms(1_000, beat, "beat")
    process.clock.sleep_ms(2_500)
    timer.cancel()
    return process.storage.read("beat").decode()


class TestTimers:
    TICKERS = ProcessRules(has_tickers=True)

    def test_a_timer_fires_while_its_process_sleeps(self) -> None:
        trace = run(_scenario({"X": _beating}, processes=self.TICKERS), Random(1))
        assert trace.results == {"X": "2"}

    def test_a_failed_timer_fires_no_more(self) -> None:
        faults = Faults(ticker_failures=1)
        scenario = _scenario({"X": _beating}, faults=faults, processes=self.TICKERS)
        trace = replay(scenario, ["idle", "run X/1", "run X/1", "stop X/1", "idle"])
        assert trace.results == {"X": "1"}

    def test_cancel_waits_for_a_call_under_way(self) -> None:
        def body(process: Process) -> str:
            def beat() -> bool:
                process.storage.put("begun", b"")
                process.storage.put("ended", b"")
                return True

            timer: Timer = process.clock.every_ms(1_000, beat, "beat")
            process.clock.sleep_ms(1_500)
            timer.cancel()
            return ",".join(process.storage.list_names(""))

        scenario = _scenario({"X": body}, faults=Faults(ticks=2), processes=self.TICKERS)
        seen = {dict(ends)["X"] for ends in exhaust(scenario).results}
        assert seen == {"", "begun,ended"}

    def test_a_timer_left_running_is_a_finding(self) -> None:
        def body(process: Process) -> str:
            process.clock.every_ms(1_000, lambda: True, "forgotten")
            process.storage.put("a", b"")
            return "done"

        trace = run(_scenario({"X": body}, processes=self.TICKERS), Random(0))
        assert trace.violation is not None
        assert "forgotten" in trace.violation.message

    def test_an_error_ends_the_timer_and_nothing_else(self) -> None:
        def body(process: Process) -> str:
            def beat() -> bool:
                process.storage.read("absent")
                return True

            timer = process.clock.every_ms(1_000, beat, "beat")
            process.clock.sleep_ms(5_000)
            timer.cancel()
            return "done"

        trace = run(_scenario({"X": body}, processes=self.TICKERS), Random(0))
        assert trace.results == {"X": "done"}
        assert trace.violation is None

    def test_without_tickers_a_timer_never_fires(self) -> None:
        def body(process: Process) -> str:
            timer = process.clock.every_ms(1, lambda: True, "never")
            process.clock.sleep_ms(10_000)
            timer.cancel()
            return "done"

        trace = run(_scenario({"X": body}), Random(0))
        assert [step.actor for step in trace.steps if step.action.thread] == []
        assert trace.results == {"X": "done"}


def test_a_process_that_remembers_other_runs_is_reported() -> None:
    calls = count()

    def body(process: Process) -> str:
        process.storage.put(f"{next(calls)}", b"")
        process.storage.put("again", b"")
        return "done"

    with pytest.raises(Nondeterminism, match="global state"):
        exhaust(_scenario({"X": body, "Y": _put_and_tell}, faults=Faults(lost_replies=2)))


def _broken_trace() -> tuple[Scenario, Trace]:
    scenario = toy_guard(Faults(ticks=2, crashes=1))
    for seed in count():
        trace = run(scenario, Random(seed))
        if trace.violation is not None and any("tick" in text for text in trace.decisions):
            return scenario, trace
    raise AssertionError


def test_a_failing_run_shrinks_and_still_fails() -> None:
    scenario, trace = _broken_trace()
    small = shrink(scenario, trace)
    assert small.violation is not None
    assert trace.violation is not None
    assert small.violation.invariant == trace.violation.invariant
    assert len(small.steps) <= len(trace.steps)
    assert switches(small) <= switches(trace)
    assert sum("crash" in text for text in small.decisions) == 0


def test_a_report_shows_every_step_and_the_results() -> None:
    scenario, trace = _broken_trace()
    small = shrink(scenario, trace)
    text = show("toy", small, before=trace, seed=7)
    assert text.startswith("DANGLING ")
    assert "seed 7" in text
    assert f"{len(trace.steps)} -> {len(small.steps)} steps" in text
    assert "time advances by" in text
    assert "put(timeline/P.commit" in text
    assert text.splitlines()[-1].startswith("results: X ")


def test_a_regression_is_saved_and_loaded(tmp_path: Path) -> None:
    regression = Regression("toy", "INV-00", "because", ("run X", "tick next"))
    save_regression(tmp_path / "INV-00-toy.json", regression)
    assert load_regression(tmp_path / "INV-00-toy.json") == regression


def test_outside_a_scenario_storage_takes_effect_at_once() -> None:
    storage = standalone_storage(page_size=2)
    for name in "abc":
        storage.put(f"f/{name}", name.encode())
    assert storage.list_names("f") == ["a", "b", "c"]
    assert storage.read_many(["f/b", "f/x"]) == [b"b", None]


def test_two_worlds_share_nothing_after_a_fork() -> None:
    world = World(WorldRules())
    world.apply("X", Op(Kind.PUT, "a", b"1"))
    twin = world.fork()
    assert twin.key() == world.key()
    twin.apply("X", Op(Kind.DELETE, "a"))
    world.apply("X", Op(Kind.PUT, "b", b"2"))
    assert list(twin.objects) == []
    assert list(world.objects) == ["a", "b"]
    assert twin.key() != world.key()
