"""Of Apache Hudi and us one stands still in an operation while the other does one of its own.

Before any of its changes of storage the one that stands still is alive, and slow: its heartbeat
goes on or counts for long. What both were told must be what is there, as if one had come after the
other, for every reader; and both must be able to write on. HEADWATER_STILL_CASES says of how many
situations, chosen at random; `make still-hudi` takes hundreds.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.hudi.two_engines import (
    EAGER,
    OPTIONS,
    OUR_OPERATIONS,
    SHAPES,
    THEIR_OPERATIONS,
    Effect,
    Pair,
    Rows,
    World,
    all_pairs,
    make_world,
    merges,
    open_again,
    outcomes,
    trips,
)
from tests.support.hudi_gate import HudiGate
from tests.support.hudi_peer import HudiError, HudiPeer, NoHudiError, find_bundle
from tests.support.stopped_process import StoppedProcess, before_call

import headwater as hw
from headwater.errors import HeadwaterError
from headwater.model.instant import InstantTime, State
from headwater.table import Table

CASES = int(os.environ.get("HEADWATER_STILL_CASES", "6"))
PAIRS = sorted(all_pairs())
THEIR_CHANGES, OUR_CALLS = 40, 90
"""About how many an operation makes. One that makes fewer is done before the other begins."""
OUR_REWRITES = ("compaction", "log compaction", "clustering")
BESIDE_S = 8.0
"""For so long one stands still at most: what waits for it does so for good reason."""


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HudiPeer, HudiGate]]:
    try:
        bundle = find_bundle()
        gate = HudiGate(bundle, tmp_path_factory.mktemp("gate"))
    except NoHudiError as missing:
        pytest.skip(str(missing))
    with HudiPeer(bundle, settings=gate.settings) as hudi:
        yield hudi, gate


class Job(threading.Thread):
    """Something that is done meanwhile, and how it ended."""

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__()
        self._do = do
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._do()
        except (HudiError, HeadwaterError) as error:
            self.error = error


def pick(seed: int) -> tuple[random.Random, Pair]:
    chance = random.Random(seed)
    return chance, chance.choice(PAIRS)


def world_of(pair: Pair, folder: Path) -> World:
    shape = SHAPES[pair.shape]
    return make_world(folder, shape, is_saved=pair.has_savepoint, is_compacted=pair.is_compacted)


def is_before_its_look(world: World, own: Collection[InstantTime]) -> bool:
    """Whether Hudi has requested a write and may still have to look what there is (N-193)."""
    pending = world.table.context.load_timeline().pending
    return any(
        one.state is State.REQUESTED and one.action.is_ingestion and one.requested_time not in own
        for one in pending
    )


def has_more(world: World) -> bool:
    """Whether anything has completed since the last commit that the world was made with."""
    return world.table.context.load_timeline().completed[-1].requested_time != world.last


@pytest.mark.parametrize("seed", range(CASES))
def test_hudi_stands_still(gated: tuple[HudiPeer, HudiGate], tmp_path: Path, seed: int) -> None:
    hudi, gate = gated
    chance, pair = pick(seed)
    world = world_of(pair, tmp_path)
    before = {one.requested_time for one in world.table.context.load_timeline().instants}
    with gate.before_change(world.path, chance.randrange(THEIR_CHANGES)):
        theirs = Job(partial(THEIR_OPERATIONS[pair.theirs].do, hudi, world))
        if gate.wait(lambda: not theirs.is_alive()) and is_before_its_look(world, before):
            gate.go()
            theirs.join()
        where = gate.calls[-1:]
        ours = Job(lambda: OUR_OPERATIONS[pair.ours].do(open_again(world.table), world))
        ours.join(BESIDE_S)
    theirs.join()
    ours.join()
    check(hudi, world, pair, theirs.error, ours.error, f"{pair}, Hudi before {where}")


@pytest.mark.parametrize("seed", range(1_000, 1_000 + CASES))
def test_we_stand_still(gated: tuple[HudiPeer, HudiGate], tmp_path: Path, seed: int) -> None:
    hudi, _ = gated
    chance, pair = pick(seed)
    world = world_of(pair, tmp_path)
    number = chance.randrange(OUR_CALLS)

    def act(table: Table) -> None:
        OUR_OPERATIONS[pair.ours].do(table, world)

    stops = before_call(number)
    with StoppedProcess(partial(open_again, world.table), act, stops=stops) as process:
        is_stopped = process.is_stopped_or_done()
        if pair.theirs == "rollback" and pair.ours in OUR_REWRITES and has_more(world):
            pytest.skip("Hudi takes a commit back though others are built on it (N-189)")
        theirs = Job(partial(THEIR_OPERATIONS[pair.theirs].do, hudi, world))
        theirs.join()
        told = process.resume() if is_stopped else process.wait()
    assert told.error is None or isinstance(told.error, HeadwaterError), repr(told.error)
    where = told.calls[number : number + 1]
    check(hudi, world, pair, theirs.error, told.error, f"{pair}, we before {where}")


def check(
    hudi: HudiPeer,
    world: World,
    pair: Pair,
    their_error: Exception | None,
    our_error: Exception | None,
    at: str,
) -> None:
    """Check what is there, and that both can go on."""
    done: list[Effect] = []
    perhaps: list[Effect] = []
    theirs, ours = THEIR_OPERATIONS[pair.theirs].effect, OUR_OPERATIONS[pair.ours].effect
    (perhaps if their_error else done).append(theirs)
    # What takes commits back is refused before it begins, or goes on later.
    if our_error is None or pair.ours in ("rollback", "restore"):
        (perhaps if our_error else done).append(ours)
    expected = outcomes(world, done, perhaps)
    at = f"{at}; Hudi: {their_error or 'done'}; we: {our_error or 'done'}"
    table = hw.open_table(world.table.uri, OPTIONS)

    end_plans(hudi, world, pair)
    table.services.clean()  # It ends what was left half-way.
    now = everybody_reads(hudi, table, at)
    assert now in expected, at
    assert table.inspect.problems(deep=True).to_pylist() == [], at

    mine: Rows = {"after": ("sf", 80), "a": ("sf", 80)}
    other: Rows = {"too": ("ny", 90), "b": ("sf", 90)}
    table.reload().upsert(trips(mine))
    THEIR_OPERATIONS["upsert"].do(hudi, world)
    hudi.write(trips(other), table.uri, world.theirs)
    for effect in (merges(mine), THEIR_OPERATIONS["upsert"].effect, merges(other)):
        now = effect(world, now) or {}
    assert everybody_reads(hudi, table, at) == now, at

    eager = hw.open_table(table.uri, EAGER)
    if pair.shape != "copy on write":
        eager.services.compact()
    eager.services.clean()
    eager.services.archive()
    assert everybody_reads(hudi, table, at) == now, at
    assert table.reload().inspect.problems(deep=True).to_pylist() == [], at


def end_plans(hudi: HudiPeer, world: World, pair: Pair) -> None:
    """End what keeps writes off its file groups: a plan whose execution was refused."""
    again = {"clustering": ("run_clustering", "execute"), "compaction": ("run_compaction", "run")}
    if world.table.inspect.plans().num_rows and pair.theirs in again:
        procedure, operation = again[pair.theirs]
        world.call(hudi, procedure, f"op => '{operation}'")
    if world.table.inspect.plans().num_rows and pair.ours in OUR_REWRITES:
        OUR_OPERATIONS[pair.ours].do(open_again(world.table), world)


def everybody_reads(hudi: HudiPeer, table: Table, at: str) -> Rows:
    found = {
        "we": rows_in(table.reload().read_arrow(["id", "city", "fare"])),
        **{
            f"Hudi, metadata {use}": rows_in(
                hudi.read(
                    table.uri, {"hoodie.metadata.enable": use}, columns=["id", "city", "fare"]
                )
            )
            for use in ("true", "false")
        },
    }
    assert all(one == found["we"] for one in found.values()), f"{at}: {found}"
    return found["we"]


def rows_in(found: pa.Table) -> Rows:
    some = found.to_pylist()
    assert len({row["id"] for row in some}) == len(some), some
    return {row["id"]: (row["city"], row["fare"]) for row in some}
