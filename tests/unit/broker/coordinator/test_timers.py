"""Thousands of sessions that start together have their timers in slices."""

import asyncio
from typing import cast

from kohort.broker.coordinator.host import GroupHost
from kohort.broker.coordinator.timers import GroupTimers
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.timing_wheel import KeyedTimers
from kohort.broker.runtime.slices import SLICE_MS, RoundRobin
from kohort.groups.effects import TimerKey
from kohort.groups.steps import FEW
from tests.support.measures.busy_clock import BusyClock
from tests.support.waiting import next_slice


def report(doing: str, error: Exception) -> None:
    raise AssertionError(doing) from error


SCHEDULED_PER_TURN = SLICE_MS * FEW
"""With a clock by which a few take a millisecond."""


def new_queue() -> RoundRobin:
    return RoundRobin(BusyClock())


class Sessions:
    """The timers of a group of `count` members, and what the host of groups gives them."""

    def __init__(self, count: int, queue: RoundRobin | None = None) -> None:
        self.keys = [TimerKey("session", f"m{number}") for number in range(count)]
        self.inner: KeyedTimers[TimerKey] = Purgatory(report=report).keyed_timers(
            lambda keys, now_ms: None, kind="Heartbeat"
        )
        self.session_slices = queue or new_queue()
        self.timers = GroupTimers(cast(GroupHost, self), lambda keys, now_ms: None)

    def new_timers(self, on_expired: object, kind: str) -> KeyedTimers[TimerKey]:
        del on_expired
        assert kind == "Heartbeat"
        return self.inner


async def test_no_turn_schedules_more_than_its_share() -> None:
    sessions = Sessions(3 * SCHEDULED_PER_TURN + 1)
    seen: list[int] = []
    sessions.timers.schedule_soon(dict.fromkeys(sessions.keys, 5))
    while not seen or seen[-1] < len(sessions.keys):
        seen.append(len(sessions.inner))
        await next_slice()
    assert seen == [min(turn * SCHEDULED_PER_TURN, len(sessions.keys)) for turn in range(5)]


async def test_no_turn_schedules_more_than_that_of_all_groups_together() -> None:
    queue = new_queue()
    groups = [Sessions(SCHEDULED_PER_TURN + 1, queue) for _ in range(5)]
    for one in groups:
        one.timers.schedule_soon(dict.fromkeys(one.keys, 5))
    seen = [0]
    while seen[-1] < 5 * (SCHEDULED_PER_TURN + 1):
        await next_slice()
        seen.append(sum(len(one.inner) for one in groups))
        assert seen[-2] < seen[-1] <= seen[-2] + SCHEDULED_PER_TURN
    assert len(seen) == 1 + 2 * len(groups)
    groups[0].timers.schedule_soon(dict.fromkeys(groups[0].keys, 9))
    await next_slice()
    assert groups[0].inner.deadline_ms(groups[0].keys[0]) == 9, "the queue has stopped"


async def test_what_is_said_later_counts() -> None:
    sessions = Sessions(3)
    one, two, three = sessions.keys
    sessions.timers.schedule_soon({one: 5, two: 5})
    sessions.timers.schedule(one, 7)
    sessions.timers.cancel(two)
    sessions.timers.schedule_soon({three: 5})
    sessions.timers.schedule_soon({three: 9})
    await asyncio.sleep(0)
    assert [sessions.inner.deadline_ms(key) for key in sessions.keys] == [7, None, 9]


async def test_nothing_comes_back_after_all_were_cancelled() -> None:
    sessions = Sessions(2 * SCHEDULED_PER_TURN)
    sessions.timers.schedule_soon(dict.fromkeys(sessions.keys, 5))
    await asyncio.sleep(0)
    sessions.timers.cancel_all()
    await asyncio.sleep(0)
    assert len(sessions.inner) == 0
