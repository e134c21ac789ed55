"""The stream of changes: who hears what, how often, and how little waits for a slow one."""

import asyncio
import json
from itertools import pairwise
from typing import Any, cast

from kohort.broker.console import hub as hubs
from kohort.broker.console.hub import (
    ANY,
    APART_MS,
    BURST,
    EVERY_MS,
    HELLO,
    QUIET,
    STREAMS_MAX,
    EventHub,
    EventStream,
    Pace,
)
from kohort.groups.events import Event, GroupRemoved, OffsetsStored, UnusedIdDropped
from kohort.groups.requests import Now
from kohort.testing.virtual_clock import VirtualClock

CHANGE = UnusedIdDropped("m")


class Groups:
    """Tells its observers."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.observers: list[EventHub] = []

    def add_observer(self, observer: EventHub) -> None:
        self.observers.append(observer)

    def remove_observer(self, observer: EventHub) -> None:
        self.observers.remove(observer)

    def happen(self, *group_ids: str, event: Event = CHANGE) -> None:
        now = Now(self.clock.monotonic_ms(), self.clock.wall_ms())
        for group_id in group_ids:
            for observer in self.observers:
                if event.__class__ in observer.observed:
                    observer.observe(group_id, event, now)


def hub() -> tuple[EventHub, Groups]:
    clock = VirtualClock()
    groups = Groups(clock)
    return EventHub(cast("Any", groups), clock), groups


async def opened(one: EventHub) -> EventStream:
    stream = one.open()
    assert stream is not None
    assert await stream.wait_chunk() == HELLO
    return stream


def told(chunk: bytes | None) -> Any:  # noqa: ANN401 - as JSON has it.
    assert chunk is not None
    assert chunk.startswith(b"event: groups\ndata: ")
    assert chunk.endswith(b"\n\n")
    return json.loads(chunk.split(b"data: ")[1])


async def test_all_streams_are_told_the_same_bytes_of_what_changed() -> None:
    one, groups = hub()
    first, second = await opened(one), await opened(one)
    groups.happen("a", "b", "a")
    chunk = await first.wait_chunk()
    assert told(chunk) == {"any": False, "changed": ["a", "b"]}
    assert await second.wait_chunk() is chunk


async def test_nothing_is_watched_while_no_one_listens() -> None:
    one, groups = hub()
    assert groups.observers == []
    first, second = await opened(one), await opened(one)
    assert groups.observers == [one]
    first.close()
    first.close()
    assert groups.observers == [one]
    second.close()
    assert groups.observers == []
    assert one.stream_count == 0


def test_what_a_rebalance_is_made_of_is_told_within_a_tenth_of_a_second() -> None:
    pace, now_ms = Pace(), 10_000
    for number in range(BURST):
        left_ms = pace.left_ms(now_ms)
        assert left_ms == (APART_MS if number else 0)
        now_ms += left_ms
        pace.record(now_ms)
    assert pace.left_ms(now_ms) > 500


def test_changes_that_do_not_end_are_told_once_a_second() -> None:
    pace, now_ms = Pace(), 10_000
    sent_ms = []
    for _ in range(20):
        now_ms += pace.left_ms(now_ms)
        pace.record(now_ms)
        sent_ms.append(now_ms)
    assert {later - earlier for earlier, later in pairwise(sent_ms[BURST:])} == {EVERY_MS}
    assert pace.left_ms(now_ms + 400) == EVERY_MS - 400
    # Each second without a change allows one more at once.
    now_ms += 3 * EVERY_MS
    assert [send(pace, now_ms), send(pace, now_ms + APART_MS)] == [0, 0]
    assert pace.left_ms(now_ms + 2 * APART_MS) == 0
    assert send(pace, now_ms + 2 * APART_MS) == 0
    assert pace.left_ms(now_ms + 3 * APART_MS) == EVERY_MS - 3 * APART_MS


def send(pace: Pace, now_ms: int) -> int:
    left_ms = pace.left_ms(now_ms)
    pace.record(now_ms)
    return left_ms


async def test_a_change_is_told_when_the_pace_allows_it() -> None:
    one, groups = hub()
    stream = await opened(one)
    groups.happen("a")
    assert told(await stream.wait_chunk())["changed"] == ["a"]
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    groups.happen("b")
    assert told(await stream.wait_chunk())["changed"] == ["b"]
    # The clock of the groups stands still, so that the second waits the whole distance.
    assert loop.time() - started_s >= APART_MS / 1_000 - 0.005


async def test_commits_are_not_told() -> None:
    one, groups = hub()
    await opened(one)
    groups.happen("a", event=OffsetsStored(3))
    assert one._timer is None
    groups.happen("a", event=GroupRemoved(expired=False))
    assert one._timer is not None


async def test_who_does_not_listen_is_told_only_that_anything_may_have_changed() -> None:
    one, groups = hub()
    stream = await opened(one)
    for number in range(50):
        groups.happen(f"group-{number}")
        one._send_changes()
    assert await stream.wait_chunk() == ANY
    assert stream._pending is None


async def test_more_changes_than_an_event_lists_are_any() -> None:
    one, groups = hub()
    stream = await opened(one)
    groups.happen(*(f"group-{number}" for number in range(hubs.CHANGED_MAX + 1)))
    assert await stream.wait_chunk() == ANY
    groups.clock.advance(2_000)
    groups.happen("x" * (hubs.CHANGED_CHARS_MAX + 1))
    assert await stream.wait_chunk() == ANY
    groups.clock.advance(2_000)
    groups.happen("c")
    assert told(await stream.wait_chunk())["changed"] == ["c"]


async def test_there_are_so_many_streams_and_no_more() -> None:
    one, _ = hub()
    streams = [await opened(one) for _ in range(STREAMS_MAX)]
    assert one.open() is None
    streams[0].close()
    assert one.open() is not None


async def test_a_stream_with_nothing_to_tell_says_so(monkeypatch: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(hubs, "QUIET_S", 0.0)
    one, _ = hub()
    stream = await opened(one)
    assert await stream.wait_chunk() == QUIET


async def test_a_stream_that_is_closed_ends_its_wait() -> None:
    one, _ = hub()
    stream = await opened(one)
    waiting = asyncio.ensure_future(stream.wait_chunk())
    await asyncio.sleep(0)
    stream.close()
    assert await waiting is None
