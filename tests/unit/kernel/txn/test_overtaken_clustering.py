"""N-184: another engine changes file groups of a clustering after it was planned.

Writes of ours keep off them, or lose. Hudi's do so only under some of its update strategies, and
what they changed would be lost with the groups.

N-189: another engine takes back what the clustering was planned on, which ours does not do. Its
rows would come back, or nobody could ever execute the plan, because its files are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from tests.support.dying import Killed
from tests.support.plan_site import (
    CANCELLABLE,
    CLUSTERED,
    GROUP,
    PLAN,
    REMOVABLE,
    WRITTEN,
    PlanSite,
)

from headwater.errors import ConflictError, CorruptTableError, ErrorKind
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import cancel_path
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.cancel import AbortedPlan
from headwater.kernel.txn.cancel_records import decode_entry
from headwater.kernel.txn.guard import Executed, Returned
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.model.service_metadata import RollbackMetadata
from headwater.testing.rows import base_file, log_file, metadata_of, stat_of
from headwater.testing.table import TIMELINE

PLAIN = PlanFlags()
OTHER = FileGroupId(GROUP.partition, "fg-other")
BEGAN, DONE = InstantTime("20251231235958500"), InstantTime("20251231235959400")


def commit(
    site: PlanSite,
    *,
    group: FileGroupId = GROUP,
    action: Action = Action.COMMIT,
    operation: str = "UPSERT",
    done: InstantTime = DONE,
) -> str:
    """Complete a write as an engine does that looks at no plans; return its data file."""
    is_log = action is Action.DELTA_COMMIT
    file = log_file(group, BEGAN, 0) if is_log else base_file(group, BEGAN, 0)
    site.storage.put(file.path, b"theirs")
    replaced = [GROUP] if action is Action.REPLACE_COMMIT else None
    metadata = metadata_of(operation, [stat_of(file, b"theirs")], replaced)
    completed = Instant(BEGAN, action, State.COMPLETED, done)
    site.storage.put(instant_path(TIMELINE, completed), encode_record(metadata))
    return file.path


def take_back(site: PlanSite, *times: InstantTime) -> None:
    """Complete a rollback as an engine does that looks at no plans."""
    metadata = RollbackMetadata(
        start_rollback_time=BEGAN,
        time_taken_in_millis=0,
        total_files_deleted=1,
        commits_rollback=times,
        partition_metadata={},
    )
    completed = Instant(BEGAN, Action.ROLLBACK, State.COMPLETED, DONE)
    site.storage.put(instant_path(TIMELINE, completed), encode_record(metadata))


def miss_a_file(attempt: Attempt, heartbeat: Heartbeat) -> None:
    raise CorruptTableError("it is gone", kind=ErrorKind.MISSING_DATA_FILE)


def planned(flags: PlanFlags) -> PlanSite:
    site = PlanSite()
    site.request(flags)
    return site


def files_of_ours(site: PlanSite) -> list[str]:
    return [
        path for path in site.objects() if path.startswith(f"{CLUSTERED.partition}/{CLUSTERED}")
    ]


def when_free(site: PlanSite) -> Executed | Returned | AbortedPlan:
    """Execute the plan, as soon as who died over it counts as dead."""
    process = site.process("F")
    try:
        return process.execute()
    except ConflictError as refused:
        if refused.kind not in (ErrorKind.ALREADY_RUNNING, ErrorKind.PLAN_CANCELLED):
            raise
        site.lapse()
        return process.execute()


@pytest.mark.parametrize(
    ("action", "group"),
    [(Action.COMMIT, GROUP), (Action.DELTA_COMMIT, GROUP), (Action.REPLACE_COMMIT, OTHER)],
)
@pytest.mark.parametrize("flags", [PLAIN, CANCELLABLE])
@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_n_184_an_overtaken_plan_cancels_itself_and_is_aborted(
    flags: PlanFlags, action: Action, group: FileGroupId, is_meanwhile: bool
) -> None:
    site = planned(flags)

    def overtake(attempt: Attempt, heartbeat: Heartbeat) -> None:
        if is_meanwhile:
            commit(site, group=group, action=action)

    if not is_meanwhile:
        commit(site, group=group, action=action)
    done = site.process("E").execute(overtake)
    assert isinstance(done, AbortedPlan)
    assert site.state() is State.ABORTED
    assert site.paths_of() == {f"{TIMELINE}/{PLAN}.clustering.aborted"}
    assert site.state(BEGAN) is State.COMPLETED


def test_n_184_an_overtaken_removable_plan_is_refused_and_can_be_rolled_back() -> None:
    site = planned(REMOVABLE)
    theirs = commit(site)
    process = site.process("E")
    with pytest.raises(ConflictError) as caught:
        process.execute()
    assert caught.value.kind is ErrorKind.PLAN_NOT_EXECUTABLE
    assert BEGAN in str(caught.value)
    process.rollbacks.roll_back(PLAN)
    assert site.state() is None
    assert theirs in site.objects()


def another_group(site: PlanSite) -> None:
    commit(site, group=OTHER)


def a_compaction(site: PlanSite) -> None:
    commit(site, operation="COMPACT")


def before_the_plan(site: PlanSite) -> None:
    commit(site, done=InstantTime("20251231235958600"))


@pytest.mark.parametrize("happened", [another_group, a_compaction, before_the_plan])
@pytest.mark.parametrize("flags", [PLAIN, CANCELLABLE, REMOVABLE])
def test_n_184_what_changed_no_row_since_the_plan_does_no_harm(
    flags: PlanFlags, happened: Callable[[PlanSite], None]
) -> None:
    site = planned(flags)
    happened(site)
    assert isinstance(site.process("E").execute(), Executed)


def test_n_184_wherever_the_process_dies_the_next_one_ends_the_plan() -> None:
    seen = set[State | None]()
    for writes_left in count():
        site = planned(PLAIN)
        commit(site)
        try:
            site.process("E", writes_left=writes_left).execute()
        except Killed:
            seen.add(site.state())
            done = when_free(site)
            if not isinstance(done, AbortedPlan):  # It had been aborted.
                assert done.instant.state is State.ABORTED
        else:
            break
        assert site.state() is State.ABORTED
        assert files_of_ours(site) == []
    assert seen >= {State.REQUESTED, State.INFLIGHT, State.ABORTED}


def test_n_184_the_entry_says_who_overtook_the_plan() -> None:
    for writes_left in count():
        site = planned(PLAIN)
        commit(site)
        with pytest.raises(Killed):
            site.process("E", writes_left=writes_left).execute()
        if cancel_path(PLAN) in site.objects():
            break
    entry = decode_entry(site.objects()[cancel_path(PLAN)])
    assert entry is not None
    assert entry.overtaken_by == BEGAN
    assert BEGAN in entry.reason


@pytest.mark.parametrize("flags", [PLAIN, CANCELLABLE])
@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_n_189_a_plan_whose_input_was_taken_back_is_aborted(
    flags: PlanFlags, is_meanwhile: bool
) -> None:
    site = planned(flags)

    def undo(attempt: Attempt, heartbeat: Heartbeat) -> None:
        if is_meanwhile:
            take_back(site, WRITTEN)

    if not is_meanwhile:
        take_back(site, WRITTEN)
    assert isinstance(site.process("E").execute(undo), AbortedPlan)
    assert site.state() is State.ABORTED
    assert files_of_ours(site) == []


@pytest.mark.parametrize("flags", [PLAIN, CANCELLABLE])
def test_n_189_so_is_one_that_misses_files_because_of_that(flags: PlanFlags) -> None:
    site = planned(flags)
    with pytest.raises(CorruptTableError):
        site.process("E").execute(miss_a_file)
    assert site.state() is State.INFLIGHT
    take_back(site, WRITTEN)
    assert isinstance(site.process("F").execute(miss_a_file), AbortedPlan)
    assert site.paths_of() == {f"{TIMELINE}/{PLAN}.clustering.aborted"}


def test_n_189_a_removable_one_can_be_rolled_back() -> None:
    site = planned(REMOVABLE)
    take_back(site, WRITTEN)
    process = site.process("E")
    with pytest.raises(ConflictError, match="taken back") as caught:
        process.execute()
    assert caught.value.kind is ErrorKind.PLAN_NOT_EXECUTABLE
    process.rollbacks.roll_back(PLAN)
    assert site.state() is None


def test_n_189_so_can_a_removable_one_that_misses_files() -> None:
    site = planned(REMOVABLE)
    take_back(site, WRITTEN)
    process = site.process("E")
    with pytest.raises(CorruptTableError):
        process.execute(miss_a_file)
    process.rollbacks.roll_back(PLAN)
    assert site.state() is None


@pytest.mark.parametrize("flags", [PLAIN, CANCELLABLE, REMOVABLE])
def test_n_189_what_else_is_taken_back_does_no_harm(flags: PlanFlags) -> None:
    site = planned(flags)
    take_back(site, InstantTime("20251231235957000"))
    assert isinstance(site.process("E").execute(), Executed)
