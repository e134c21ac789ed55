"""The task beside the groups: it makes records in their order, and is never in the way."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

import pytest

from kohort.broker.history import closing_queue
from kohort.broker.history.history import LONG_RUNNING_MS, HistoryLimits, RebalanceHistory
from kohort.broker.history.topic import RUNNING
from kohort.broker.network.service import ConnectionInfo
from kohort.groups.events import (
    CauseAdded,
    GroupRemoved,
    JoinPhaseEnd,
    JoinPhaseEnded,
    JoinReceived,
    MemberRef,
    OffsetsStored,
    RebalanceAvoided,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    ShareEpochBumped,
    SharePartitionsAssigned,
    SyncReceived,
    Trigger,
    TriggerKind,
)
from kohort.groups.history.entry import Entry
from kohort.groups.history.fold import SETTLE_MS, GroupFold
from kohort.groups.history.json_form import parse_text
from kohort.groups.history.model import AssignedRecord, HistoryRecord, RebalanceRecord
from kohort.groups.kinds import GroupKind
from kohort.groups.reasons import NO_REASON
from kohort.groups.requests import Connection, Now
from kohort.groups.steps import at_once
from kohort.testing.kit.groups import history_records
from kohort.testing.virtual_clock import VirtualClock
from tests.support.virtual_time import virtual


class MemoryHistoryLog:
    """Keeps what is written; a slow one waits before that."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries = list(entries)
        self.lost_count = 0
        self.append_count = 0
        self.delay_s = 0.0

    async def append(self, entries: Sequence[Entry]) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.entries += entries
        self.append_count += 1

    def is_whole(self) -> bool:
        return True

    def read(self) -> Iterator[Entry]:
        return iter(list(self.entries))


def members(count: int) -> tuple[MemberRef, ...]:
    return tuple(MemberRef(f"m{number}", None, "c", "/h") for number in range(count))


def rebalance(
    history: RebalanceHistory,
    group_id: str = "g",
    *,
    at_ms: int = 0,
    size: int = 3,
    connection: Connection | None = None,
) -> None:
    """Have one whole rebalance. With `connection`, its cause is a member that left on it."""
    now = Now(at_ms, at_ms)
    refs = members(size)
    trigger = Trigger(TriggerKind.LEADER_REJOINED, refs[0])
    if connection is not None:
        trigger = Trigger(TriggerKind.MEMBER_LEFT, refs[0], connection=connection)
    history.observe(group_id, RebalanceStarted(trigger, "Stable", 1, refs, GroupKind.CLASSIC), now)
    for ref in refs:
        history.observe(group_id, JoinReceived(ref, NO_REASON, (("range", b""),)), now)
    end = JoinPhaseEnded(JoinPhaseEnd.ALL_JOINED, 2, "range", "m0", refs, (), (), "consumer")
    history.observe(group_id, end, now)
    for ref in refs:
        history.observe(group_id, SyncReceived(ref.member_id, is_leader=ref is refs[0]), now)
    assignments = dict.fromkeys((ref.member_id for ref in refs), b"")
    history.observe(group_id, RebalanceEnded(RebalanceEnd.STABLE, 2, assignments), now)


def start_one(history: RebalanceHistory, group_id: str = "g", *, at_ms: int = 0) -> None:
    trigger = Trigger(TriggerKind.MEMBER_LEFT)
    started = RebalanceStarted(trigger, "Stable", 1, members(2), GroupKind.CLASSIC)
    history.observe(group_id, started, Now(at_ms, at_ms))


def sequences(records: Sequence[HistoryRecord]) -> list[int]:
    return [record.sequence for record in records]


def outcomes(records: Sequence[HistoryRecord]) -> list[str]:
    return [record.outcome for record in records if isinstance(record, RebalanceRecord)]


@virtual
async def test_the_last_ones_are_kept(clock: VirtualClock) -> None:
    history = RebalanceHistory(HistoryLimits(size=3), clock)
    for _ in range(5):
        rebalance(history)
    history.drain()
    assert sequences(history_records(history, "g")) == [3, 4, 5]
    assert history_records(history, "unheard of") == []
    assert history.totals("g") == (5, 0)
    assert history.totals("unheard of") == (0, 0)
    assert list(history.groups()) == ["g"]


@virtual
async def test_the_one_that_runs_comes_last(clock: VirtualClock) -> None:
    history = RebalanceHistory(clock=clock)
    rebalance(history)
    start_one(history)
    history.drain()
    assert outcomes(history_records(history, "g")) == ["stable", "running"]
    assert history.totals("g") == (1, 0)
    start_one(history, "new")
    assert set(history.groups()) == {"g", "new"}


@virtual
async def test_a_look_in_steps_shows_the_moment_of_the_call(clock: VirtualClock) -> None:
    history = RebalanceHistory(clock=clock)
    start_one(history)
    steps = history.open_text_steps("g")
    assert steps is not None
    joined = JoinReceived(members(1)[0], NO_REASON, (("range", b""),))
    history.observe("g", joined, Now(5, 5))
    history.observe("g", CauseAdded(Trigger(TriggerKind.MEMBER_LEFT)), Now(6, 6))
    then = parse_text(at_once(steps))
    (now,) = history_records(history, "g")
    assert isinstance(then, RebalanceRecord)
    assert isinstance(now, RebalanceRecord)
    assert (len(then.further_causes), len(now.further_causes)) == (0, 1)
    assert [member.join_received_ms for member in then.members] == [None, None]
    assert history.open_text_steps("unheard of") is None


@virtual
async def test_listeners_hear_each_record_once_when_it_is_complete(clock: VirtualClock) -> None:
    history, heard = RebalanceHistory(clock=clock), list[HistoryRecord]()
    history.add_listener(heard.append)
    await history.start(MemoryHistoryLog())
    start_one(history)
    await asyncio.sleep(LONG_RUNNING_MS / 1_000 + 2)
    assert heard == []
    rebalance(history, at_ms=clock.monotonic_ms())
    history.observe(
        "g", RebalanceAvoided(Trigger(TriggerKind.FOLLOWER_REJOINED)), Now(1, clock.wall_ms())
    )
    await asyncio.sleep(1)
    assert sequences(heard) == [1, 2, 3]
    assert heard == history_records(history, "g")
    await history.close()
    assert sequences(heard) == [1, 2, 3]


@virtual
async def test_a_listener_that_fails_does_not_stop_the_history(clock: VirtualClock) -> None:
    history, heard, log = RebalanceHistory(clock=clock), list[HistoryRecord](), MemoryHistoryLog()

    def fail(record: HistoryRecord) -> None:
        raise ValueError(record.sequence)

    history.add_listener(fail)
    history.add_listener(heard.append)
    await history.start(log)
    rebalance(history)
    rebalance(history)
    await asyncio.sleep(1)
    assert sequences(history_records(history, "g")) == [1, 2]
    assert sequences(heard) == [1, 2]
    assert [entry.sequence for entry in log.entries] == [1, 2]
    await history.close()


def test_a_mistake_of_the_history_is_none_of_the_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a mistake of ours")

    history = RebalanceHistory(clock=VirtualClock())
    rebalance(history)
    with monkeypatch.context() as patch:
        patch.setitem(GroupFold.handlers, JoinPhaseEnded, fail)
        rebalance(history)
    rebalance(history)
    history.drain()
    assert sequences(history_records(history, "g")) == [1, 3]
    assert [
        one.levelname for one in caplog.records if one.name == "kohort.broker.history.history"
    ] == ["ERROR"]


@virtual
async def test_what_comes_together_is_written_together(clock: VirtualClock) -> None:
    history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await history.start(log)
    for number in range(15):
        rebalance(history, f"g{number}")
    await asyncio.sleep(1)
    assert len(log.entries) == 15
    assert log.append_count == 1
    await history.close()


@virtual
async def test_a_rebalance_that_takes_long_is_written_down_as_running_once(
    clock: VirtualClock,
) -> None:
    history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await history.start(log)
    start_one(history, at_ms=clock.monotonic_ms())
    await asyncio.sleep(LONG_RUNNING_MS / 1_000 - 2)
    assert log.entries == []
    await asyncio.sleep(60)
    assert [(entry.kind, entry.sequence) for entry in log.entries] == [(RUNNING, 1)]
    await history.close()
    assert [entry.kind for entry in log.entries] == [RUNNING, "rebalance"]
    assert outcomes(history_records(history, "g")) == ["unfinished"]


@virtual
async def test_a_consumer_group_takes_long_after_two_heartbeat_intervals(
    clock: VirtualClock,
) -> None:
    history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await history.start(log)
    started = RebalanceStarted(
        Trigger(TriggerKind.MEMBER_LEFT),
        "Stable",
        1,
        members(2),
        GroupKind.CONSUMER,
        heartbeat_interval_ms=5_000,
    )
    history.observe("g", started, Now(clock.monotonic_ms(), 0))
    await asyncio.sleep(10.5)
    assert log.entries == []
    await asyncio.sleep(3)
    assert [entry.kind for entry in log.entries] == [RUNNING]
    await history.close()


@virtual
async def test_the_history_goes_on_after_an_unforeseen_error(
    clock: VirtualClock,
) -> None:
    history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await history.start(log)

    async def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryHistoryLog, "append", fail)
        rebalance(history, "a", at_ms=clock.monotonic_ms())
        await asyncio.sleep(0.5)
    rebalance(history, "b", at_ms=clock.monotonic_ms())
    await asyncio.sleep(2)
    assert [entry.group_id for entry in log.entries] == ["b"]
    assert outcomes(history_records(history, "a")) == ["stable"]
    await history.close()


@virtual
async def test_an_error_with_one_group_does_not_end_the_look_at_others(
    clock: VirtualClock,
) -> None:
    history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await history.start(log)
    for group_id in ("bad", "good"):
        start_one(history, group_id, at_ms=clock.monotonic_ms())
        now = Now(clock.monotonic_ms(), clock.wall_ms())
        end = JoinPhaseEnded(JoinPhaseEnd.ALL_JOINED, 2, "range", "m0", members(2), (), ())
        history.observe(group_id, end, now)
        history.observe(group_id, SyncReceived("m0", is_leader=True), now)
        assignments = {"m0": b"", "m1": b""}
        history.observe(group_id, RebalanceEnded(RebalanceEnd.STABLE, 2, assignments), now)
    settle = GroupFold.settle
    broken = history._folds["bad"]

    def fail_for_one(fold: GroupFold) -> None:
        if fold is broken:
            raise RuntimeError("unforeseen")
        settle(fold)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupFold, "settle", fail_for_one)
        await asyncio.sleep(SETTLE_MS / 1_000 + 60)
    assert [entry.group_id for entry in log.entries] == ["good"]
    await history.close()


@pytest.mark.parametrize("stays_open", [True, False])
@virtual
async def test_a_second_after_a_member_left_its_connection_tells_why(
    clock: VirtualClock, stays_open: bool
) -> None:
    history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await history.start(log)
    connection = ConnectionInfo("/127.0.0.1")
    rebalance(history, at_ms=clock.monotonic_ms(), connection=connection)
    await asyncio.sleep(0.5)
    assert log.entries == []
    connection.is_open = stays_open
    await asyncio.sleep(1.5)
    (record,) = history_records(history, "g")
    assert isinstance(record, RebalanceRecord)
    assert record.trigger.still_connected is stays_open
    assert [entry.sequence for entry in log.entries] == [1]
    await history.close()


@virtual
async def test_after_a_crash_the_running_one_is_unfinished_and_numbers_go_on(
    clock: VirtualClock,
) -> None:
    crashed, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await crashed.start(log)
    rebalance(crashed, at_ms=clock.monotonic_ms())
    start_one(crashed, at_ms=clock.monotonic_ms())
    await asyncio.sleep(60)
    assert crashed._worker is not None
    crashed._worker.cancel()
    history = RebalanceHistory(clock=clock)
    await history.start(log)
    history.end_recovery()
    assert outcomes(history_records(history, "g")) == ["stable", "unfinished"]
    rebalance(history, at_ms=clock.monotonic_ms())
    await asyncio.sleep(1)
    assert sequences(history_records(history, "g")) == [1, 2, 3]
    assert [entry.sequence for entry in log.entries] == [1, 2, 2, 3]
    await history.close()


@virtual
async def test_assignments_of_a_share_group_are_there_after_a_start(clock: VirtualClock) -> None:
    stopped, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await stopped.start(log)
    (ref,) = members(1)
    now = Now(clock.monotonic_ms(), clock.wall_ms())
    stopped.observe("g", ShareEpochBumped(Trigger(TriggerKind.MEMBER_ADDED, ref)), now)
    stopped.observe("g", SharePartitionsAssigned(2, 1, 1, ()), now)
    await stopped.close()
    assert [(entry.kind, entry.sequence) for entry in log.entries] == [("assigned", 1)]
    history = RebalanceHistory(clock=clock)
    await history.start(log)
    history.end_recovery()
    (record,) = history_records(history, "g")
    assert isinstance(record, AssignedRecord)
    assert record.trigger.member_id == ref.member_id
    assert history.totals("g") == (1, 0)
    await history.close()


@virtual
async def test_a_stop_waits_for_what_is_being_written_but_not_for_ever(clock: VirtualClock) -> None:
    for delay_s, written in ((2.0, 3), (3_600.0, 0)):
        history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
        await history.start(log)
        log.delay_s = delay_s
        rebalance(history, "g1")
        await asyncio.sleep(1)
        rebalance(history, "g2")
        start_one(history, "g3")
        await history.close()
        assert len(log.entries) == written


@virtual
async def test_the_history_of_a_removed_group_stays_for_a_while(clock: VirtualClock) -> None:
    limits = HistoryLimits(removed_retention_ms=60_000)
    history = RebalanceHistory(limits, clock)
    await history.start(MemoryHistoryLog())
    for group_id in ("gone", "next", "other"):
        rebalance(history, group_id)
    history.observe("gone", GroupRemoved(expired=False), Now(0, 0))
    await asyncio.sleep(30)
    assert sequences(history_records(history, "gone")) == [1]
    # It may come back under its name, and goes on with its numbers.
    rebalance(history, "gone")
    history.observe("next", GroupRemoved(expired=False), Now(0, 0))
    await asyncio.sleep(90)
    history.observe("other", GroupRemoved(expired=False), Now(0, 0))
    await asyncio.sleep(1)
    assert sequences(history_records(history, "gone")) == [1, 2]
    assert history_records(history, "next") == []
    assert sequences(history_records(history, "other")) == [1]
    await history.close()


@virtual
async def test_other_events_and_groups_without_rebalances_cost_no_memory(
    clock: VirtualClock,
) -> None:
    history = RebalanceHistory(clock=clock)
    for number in range(1_000):
        history.observe(f"g{number}", OffsetsStored(1), Now(0, 0))
        history.observe(f"g{number}", JoinReceived(members(1)[0], NO_REASON, ()), Now(0, 0))
        history.observe(f"g{number}", GroupRemoved(expired=True), Now(0, 0))
    assert history._folds == {}
    assert len(history._queue) == 0


def test_more_rebalances_than_records_can_be_made_of_are_dropped_and_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing_queue, "WEIGHT_MAX", 5_000)
    history = RebalanceHistory(clock=VirtualClock())
    logger = logging.getLogger("kohort.broker.history.closing_queue")
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        for _ in range(100):
            rebalance(history, size=100)
    finally:
        logger.removeHandler(handler)
    dropped = history.stats()["dropped"]
    assert dropped > 0
    assert len(lines) == 1
    history.drain()
    assert 20 < history.totals("g")[0] == 100 - dropped


@virtual
async def test_the_log_of_the_broker_is_not_flooded(clock: VirtualClock) -> None:
    history = RebalanceHistory(clock=clock)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kohort.broker.history")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        for _ in range(300):
            rebalance(history)
        history.drain()
        clock.advance(60_000)
        rebalance(history)
        history.drain()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert len(lines) == 101
    assert lines[-1].endswith("(and 200 more like it)")
    assert lines[0].startswith("Group g rebalanced at 00:00:00, generation 1 -> 2, because")
