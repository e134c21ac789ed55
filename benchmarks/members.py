"""A hundred thousand live members: how long they hold up the loop, and what they leave in memory.

A whole broker runs in a process of its own, without a network: members are driven through the
coordinator, so that every turn of the loop that is measured is the broker's own work. They join,
send heartbeats, fall silent all at once, come again, some leave together, and the others are loaded
by a broker that starts in another process. When they are gone, no group, timer or parked
request may be left, and no memory but for the history that is kept of them on purpose.

A turn is measured in processor time of the loop's thread: what other processes take from it is not
the broker's doing.
"""

import asyncio
import itertools
import json
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.in_process import broker_here
from kohort.broker.app import Broker
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.memory.keeper import GIVEN_BACK_AFTER_LOOKS, LOOK_EVERY_S
from kohort.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    SyncRequest,
)
from kohort.protocol.errors import ErrorCode

TITLE: Final = "100,000 members of groups"

SHAPES: Final = {"1,000 groups of 100": (1_000, 100), "20 groups of 5,000": (20, 5_000)}
"""How many groups, of how many members."""

PHASES: Final = (
    "join",
    "heartbeats",
    "expiry",
    "sweep",
    "give back",
    "2,000 leave with one request",
    "stop",
    "load",
    "expiry after the load",
)

TURN_LIMIT_MS: Final = 20

_SESSION_MS: Final = 90_000
"""Longer than all of them take to join, on a machine that is busy."""

_LEAVING: Final = 2_000
"""The number of members of one group that leave, at most all."""

_REBALANCE_MS: Final = 300_000
_SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
_MOVES_PER_TURN: Final = 10
"""What the clients do in one turn of the loop: sockets that have become readable."""


def measure(bench: Bench) -> Iterable[Row]:
    once = replace(bench, runs=1)  # Minutes each, and the longest of very many turns.
    for shape in SHAPES:
        figures = once.measure_ours(partial(_measure_in_process, bench.directory, shape))
        for phase in PHASES:
            # No request is served before the groups are loaded.
            limit = None if phase == "load" else TURN_LIMIT_MS
            yield Row(
                f"{shape}: longest turn, {phase}", "ms", figures[f"turn: {phase}"], limit=limit
            )
        yield Row(f"{shape}: until all have synced", "s", figures["joined"])
        yield Row(f"{shape}: loaded by a start", "s", figures["loaded"])
        yield Row(f"{shape}: memory of one member", "KiB", figures["member"])
        yield Row(f"{shape}: memory once they have gone", "MiB more", figures["left"])
        yield Row(f"{shape}: the history's part of that", "MiB", figures["history"])


def _measure_in_process(scratch: Path, shape: str) -> Measured:
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        for part in ("live", "restart"):
            command = [sys.executable, "-m", "benchmarks.members", shape, directory, part]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            measured |= json.loads(output)
    return measured


class TurnMeter(selectors.DefaultSelector):
    """How much the loop's thread has worked between two looks at its sockets: one turn."""

    def __init__(self) -> None:
        super().__init__()
        self._began_s = time.thread_time()
        self._longest_s = 0.0

    def take_longest_ms(self) -> float:
        """Since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1e3

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """A turn ends here, and the next one begins."""
        self._longest_s = max(self._longest_s, time.thread_time() - self._began_s)
        ready = super().select(timeout)
        self._began_s = time.thread_time()
        return ready


class Members:
    """The clients of all groups, who do what clients do, a few in each turn."""

    def __init__(self, broker: Broker, group_count: int, group_size: int) -> None:
        self._groups = broker.services.groups
        self._classic = broker.services.classic_groups
        self._places = list(
            itertools.product(map("group-{}".format, range(group_count)), range(group_size))
        )
        self._moves: deque[Callable[[], None]] = deque()
        self.joined: list[tuple[str, JoinResult]] = []
        self._synced_count = 0

    async def come(self) -> None:
        """All join, and get their assignment."""
        self.joined, self._synced_count = [], 0
        await self._make(partial(self._join, group_id) for group_id, _ in self._places)
        while self._synced_count < len(self._places):
            await self._make(())

    async def beat(self) -> None:
        """One heartbeat of each."""
        await self._make(partial(self._beat, *one) for one in self.joined)

    def leaving(self) -> Callable[[], Later[LeaveResult]]:
        """Some of the first group leave with one request, as an administrator has it done, when
        what is returned is called.
        """
        first = self.joined[0][0]
        ids = [joined.member_id for group_id, joined in self.joined if group_id == first]
        # One stays: an empty group would be written to the log.
        entries = [LeaveEntry(member_id) for member_id in ids[1:][:_LEAVING]]
        return partial(self._classic.leave, first, entries)

    async def forget(self) -> None:
        """What the clients knew, which is nothing of the broker's."""
        while self.joined:
            del self.joined[-_MOVES_PER_TURN:]
            await asyncio.sleep(0)
        self._places.clear()

    async def _make(self, moves: Iterable[Callable[[], None]]) -> None:
        # One by one: to make them all at once would be a turn of ours that the meter holds against
        # the broker.
        moves = iter(moves)
        while some := [*islice(moves, _MOVES_PER_TURN)] or self._take_moves():
            for move in some:
                move()
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _take_moves(self) -> list[Callable[[], None]]:
        return [self._moves.popleft() for _ in range(min(_MOVES_PER_TURN, len(self._moves)))]

    def _join(self, group_id: str) -> None:
        request = JoinRequest(
            member_id="",
            instance_id=None,
            client_id="bench",
            client_host="127.0.0.1",
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", _SUBSCRIPTION),),
            requires_known_id=False,
        )
        answer = self._classic.join(group_id, request).into(partial(self._on_joined, group_id))
        assert isinstance(answer, Later), "a join waits for the others"

    def _on_joined(self, group_id: str, result: JoinResult) -> None:
        assert result.error is ErrorCode.NONE, result.error
        self.joined.append((group_id, result))
        self._moves.append(partial(self._sync, group_id, result))

    def _sync(self, group_id: str, joined: JoinResult) -> None:
        shares = {member.member_id: b"assignment" for member in joined.members}
        request = SyncRequest(joined.member_id, None, joined.generation, assignments=shares)
        self._classic.sync(group_id, request).into(self._on_synced)

    def _on_synced(self, result: Any) -> None:  # noqa: ANN401 - a SyncResult.
        assert result.error is ErrorCode.NONE, result.error
        self._synced_count += 1

    def _beat(self, group_id: str, joined: JoinResult) -> None:
        error = self._groups.heartbeat(group_id, joined.member_id, None, joined.generation)
        assert error is ErrorCode.NONE, error


class Run:
    """One process's measurements."""

    def __init__(self, shape: str, directory: Path, meter: TurnMeter) -> None:
        self._meter = meter
        self._group_count, self._group_size = SHAPES[shape]
        self._directory = directory
        self.figures: dict[str, float] = {}

    @property
    def _member_count(self) -> int:
        return self._group_count * self._group_size

    async def live(self) -> None:
        """Two crowds; the second is there when the broker stops."""
        async with broker_here(self._directory) as broker:
            await self._live_once(broker)
            members = Members(broker, self._group_count, self._group_size)
            await members.come()
            leave = members.leaving()
            await asyncio.sleep(0)  # What the client does to ask is not the broker's.
            self._meter.take_longest_ms()
            left = await leave()
            assert set(left.entries) == {ErrorCode.NONE}
            await asyncio.sleep(1)
            self.figures["turn: 2,000 leave with one request"] = self._meter.take_longest_ms()
        self.figures["turn: stop"] = self._meter.take_longest_ms()

    async def _live_once(self, broker: Broker) -> None:
        members = Members(broker, self._group_count, self._group_size)
        await self._warm_up(broker)
        idle_kib = resident_kib()
        meter = self._meter
        meter.take_longest_ms()
        began_s = time.perf_counter()
        await members.come()
        self.figures["joined"] = time.perf_counter() - began_s
        self.figures["turn: join"] = meter.take_longest_ms()
        assert broker.services.groups.host.stats()["members"] == self._member_count
        self.figures["member"] = (resident_kib() - idle_kib) / self._member_count
        await members.beat()
        # The timers look at the deadlines that the heartbeats have moved.
        await asyncio.sleep(_SESSION_MS / 2_000)
        await members.beat()
        self.figures["turn: heartbeats"] = meter.take_longest_ms()
        await self._wait_gone(broker)
        self.figures["turn: expiry"] = meter.take_longest_ms()
        await members.forget()
        meter.take_longest_ms()
        await broker.services.groups.host.sweep()
        await asyncio.sleep(2)
        self.figures["turn: sweep"] = meter.take_longest_ms()
        check_nothing_left(broker)
        while broker.history.stats()["waiting"]:  # noqa: ASYNC110 - there is no event.
            await asyncio.sleep(0.5)
        await asyncio.sleep(LOOK_EVERY_S * (GIVEN_BACK_AFTER_LOOKS[1] + 1))
        self.figures["turn: give back"] = meter.take_longest_ms()
        self.figures["left"] = (resident_kib() - idle_kib) / 1_024
        self.figures["history"] = broker.history.stats()["memory_bytes"] / 2**20

    async def restart(self) -> None:
        """The members of the broker before are loaded, and never heard of again."""
        began_s = time.perf_counter()
        meter = self._meter
        meter.take_longest_ms()
        async with broker_here(self._directory) as broker:
            self.figures["loaded"] = time.perf_counter() - began_s
            await asyncio.sleep(0)
            self.figures["turn: load"] = meter.take_longest_ms()
            assert broker.services.groups.host.stats()["members"] == self._member_count
            await self._wait_gone(broker)
            self.figures["turn: expiry after the load"] = meter.take_longest_ms()

    async def _warm_up(self, broker: Broker) -> None:
        """One group comes and goes, and with it what a first group loads."""
        await Members(broker, 1, 10).come()
        await self._wait_gone(broker)
        await broker.services.groups.host.sweep()
        await asyncio.sleep(2)

    async def _wait_gone(self, broker: Broker) -> None:
        while broker.services.groups.host.stats()["members"]:  # noqa: ASYNC110 - there is no event.
            await asyncio.sleep(0.5)


def check_nothing_left(broker: Broker) -> None:
    """No group, no timer, no waiting request."""
    left = {name: count for name, count in broker.services.groups.host.stats().items() if count}
    timers = broker.services.purgatory.stats()
    left |= {name: sum(counts.values()) for name, counts in timers.items() if any(counts.values())}
    if left:
        raise RuntimeError(f"members have left something behind: {left}")


def resident_kib() -> int:
    """Memory in use by this process."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


def _main() -> None:
    shape, directory, *parts = sys.argv[1:]
    if parts:
        print(json.dumps(_run_part(shape, Path(directory), parts[0])))
    else:
        print(json.dumps(_measure_in_process(Path(directory), shape)))
        progress("")


def _run_part(shape: str, directory: Path, part: str) -> dict[str, float]:
    meter = TurnMeter()
    run = Run(shape, directory, meter)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(meter)) as runner:
        runner.run(run.live() if part == "live" else run.restart())
    return run.figures


if __name__ == "__main__":
    _main()
