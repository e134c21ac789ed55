"""What is done for a record in one turn of the loop, however large the group."""

import asyncio

import pytest

from kohort.broker.history.history import LONG_RUNNING_MS, MORE_AFTER_MS, RebalanceHistory
from kohort.broker.history.restoring import restore
from kohort.broker.history.rings import Rings
from kohort.broker.history.topic import RUNNING
from kohort.broker.runtime.slices import ITERATIONS_BETWEEN, SLICE_MS, Slice
from kohort.groups.events import JoinReceived
from kohort.groups.history.entry import Entry
from kohort.groups.reasons import NO_REASON
from kohort.groups.requests import Now
from kohort.groups.steps import FEW
from kohort.testing.virtual_clock import VirtualClock
from tests.support.measures.busy_clock import BusyClock
from tests.support.measures.bytecodes import BYTECODES_PER_MS, WorkClock, metered
from tests.support.virtual_time import virtual
from tests.support.waiting import counted_turns
from tests.unit.broker.history.test_history import MemoryHistoryLog, members, rebalance, start_one

SIZE = 1_500

BYTECODES_PER_TURN = (SLICE_MS + 1) * BYTECODES_PER_MS
"""A slice, and its last step. The whole of such a record takes twenty times as many."""


@virtual
async def test_no_turn_of_a_record_looks_at_all_members(clock: VirtualClock) -> None:
    work, most = WorkClock(clock), 0
    history = RebalanceHistory(clock=work)
    await history.start(MemoryHistoryLog())
    rebalance(history, "warm up")
    await asyncio.sleep(1)
    rebalance(history, size=SIZE)
    with metered(work) as meter:
        while history.totals("g") == (0, 0) or len(history._queue):
            before = meter.count
            await asyncio.sleep(0)
            most = max(most, meter.count - before)
    assert meter.count > 10 * BYTECODES_PER_TURN, "nothing was counted"
    assert most < BYTECODES_PER_TURN
    await history.close()


@virtual
async def test_what_was_known_of_a_large_rebalance_is_let_go_of_in_slices(
    clock: VirtualClock,
) -> None:
    assert clock.monotonic_ms(), "the loop's own; the history has one by which work takes time"
    history = RebalanceHistory(clock=BusyClock())
    await history.start(MemoryHistoryLog())
    rebalance(history, size=SIZE)
    while history.totals("g") == (0, 0):  # noqa: ASYNC110 - turns are what is counted.
        await asyncio.sleep(0)
    turns = 0
    rebalance(history, "next")
    while history.totals("next") == (0, 0):
        turns += 1
        await asyncio.sleep(0)
    # Its members, twice, and their joins.
    assert turns >= 3 * SIZE // (SLICE_MS * FEW)
    await history.close()


@virtual
async def test_a_large_record_is_made_after_the_responses_of_groups_have_been_sent(
    clock: VirtualClock,
) -> None:
    history = RebalanceHistory(clock=clock)
    await history.start(MemoryHistoryLog())
    answers = [3]
    seen = list[int]()

    def answer_some(time_slice: Slice) -> bool:
        del time_slice
        answers[0] -= 1
        return answers[0] > 0

    history.add_listener(lambda record: seen.append(answers[0]))
    history.answer_slices.add(answer_some)
    rebalance(history, size=SIZE)
    await asyncio.sleep(1)
    assert seen == [0]
    await history.close()


@virtual
async def test_what_a_slice_has_recorded_is_written_before_others_run(clock: VirtualClock) -> None:
    assert clock.monotonic_ms(), "the loop's own; the history has one by which work takes time"
    log = MemoryHistoryLog()
    history = RebalanceHistory(clock=BusyClock(SLICE_MS))
    await history.start(log)
    rebalance(history, "warm up")
    await asyncio.sleep(1)
    log.entries.clear()
    for _ in range(4):
        rebalance(history)
    written = list[int]()
    while len(log.entries) < 4:
        await asyncio.sleep(0)
        written.append(len(log.entries))
    assert [written.count(records) for records in (1, 2, 3)] == [ITERATIONS_BETWEEN] * 3
    await history.close()


@virtual
async def test_large_rebalances_that_take_long_are_written_down_one_by_one(
    clock: VirtualClock,
) -> None:
    history, log = RebalanceHistory(clock=clock), MemoryHistoryLog()
    await history.start(log)
    now_ms = clock.monotonic_ms()
    groups = [f"g{number}" for number in range(3)]
    for group_id in groups:
        start_one(history, group_id, at_ms=now_ms)
        for ref in members(5_000):
            joined = JoinReceived(ref, NO_REASON, (("range", b""),))
            history.observe(group_id, joined, Now(now_ms, now_ms))
    await asyncio.sleep(LONG_RUNNING_MS / 1_000 - 0.5)
    counts = set()
    for _ in range(20):
        await asyncio.sleep(MORE_AFTER_MS / 2_000)
        counts.add(len(log.entries))
    assert counts >= {1, 2, 3}
    assert [(entry.group_id, entry.kind) for entry in log.entries] == [
        (group_id, RUNNING) for group_id in groups
    ]
    await history.close()


@pytest.mark.parametrize("entry_ms", [0, SLICE_MS])
async def test_a_start_that_reads_large_records_answers_probes_meanwhile(entry_ms: int) -> None:
    entries = [Entry(f"g{n}", "rebalance", 1, b"x", 0) for n in range(20)]
    clock, log = BusyClock(entry_ms), MemoryHistoryLog(entries)
    async with counted_turns() as turns:
        assert await restore(log, Rings(100, 1 << 30), clock) == []
    assert (turns.count >= 20) == (entry_ms > 0)
