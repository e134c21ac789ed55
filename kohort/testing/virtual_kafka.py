"""`VirtualKafka`: broker, clients and test on one loop, whose clock jumps when nothing is ready.

Hours pass in moments, and runs are reproducible: all random choices (network delays, ids, `random`)
come from the seed. Only the iteration order of sets differs between processes, unless
PYTHONHASHSEED is set.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from socket import socket
from typing import Any, Final, TypeVar, Unpack, cast

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import Api
from kohort.client.clock import monotonic_ms
from kohort.client.config import ConsumerConfig
from kohort.client.core.group.heartbeat import HeartbeatRules, Wait
from kohort.client.core.records import RawRecord
from kohort.client.group.heartbeat_thread import HeartbeatThread, heartbeats_are_sent_by
from kohort.client.net.address import Address
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.opening import open_connection
from kohort.testing.kit.broker import KitBroker
from kohort.testing.kit.faults import Fault, FaultParts, new_fault
from kohort.testing.kit.groups import KitGroup
from kohort.testing.kit.machine import HOST, MemoryMachine
from kohort.testing.kit.topics import Content, Produced, RecordParts, WantedRecords
from kohort.testing.virtual_clock import VirtualClock
from kohort.testing.virtual_network import VirtualNetwork
from kohort.testing.virtual_time import LIMIT_S, VirtualLoop, virtual_time


class LoopHeartbeats(HeartbeatThread):
    """Sends a consumer's heartbeats from a task of its loop instead of a thread."""

    def __init__(
        self,
        config: ConsumerConfig,
        rules: HeartbeatRules,
        *,
        loop: asyncio.AbstractEventLoop,
        on_findings: Callable[[], None],
    ) -> None:
        super().__init__(config, rules, loop=loop, on_findings=on_findings)
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._beat(), name=self._thread.name)

    def stop(self) -> None:
        super().stop()
        if self._task is not None:
            self._task.cancel()

    async def wait_stopped(self, timeout_s: float) -> bool:
        if self._task is None:
            return True
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        return bool(done)

    def _wake(self) -> None:
        self._woken.set()

    async def _beat(self) -> None:
        try:
            while True:
                self._woken.clear()
                now_ms = monotonic_ms()
                action = self._rules.next_action(now_ms)
                if not isinstance(action, Wait):
                    await self._act(action)
                    continue
                self._report_findings()
                left_s = None
                if action.until_ms is not None:
                    left_s = max(action.until_ms - now_ms, 1) / 1000
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._woken.wait()
        finally:
            self._disconnect()

    async def _connect(self, address: Address) -> BrokerConnection:
        self._connection = await open_connection(*address, self._connection_config)
        return self._connection

    async def _call(self, connection: Any, request: object, version: int, timeout_s: float) -> Any:  # noqa: ANN401
        return await connection.call(request, version=version, timeout_ms=round(timeout_s * 1000))


T = TypeVar("T")

PORT: Final = 92
"""A port without a real broker, so that connections outside the virtual network are refused."""

TRACE_LINES_MAX: Final = 1_000_000


class _Machine(MemoryMachine):
    clock: VirtualClock

    def __init__(self, network: VirtualNetwork, clock: VirtualClock, chance: random.Random) -> None:
        super().__init__(clock, chance)
        self._network = network

    def bind(
        self, host: str, port: int, *, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> list[socket]:
        del send_buffer_bytes, receive_buffer_bytes
        return [cast(socket, self._network.bind(host, port))]

    def lose(self, *, unsynced: bool, random: random.Random) -> MemoryMachine:
        assert self._random is not None
        other = _Machine(self._network, self.clock, self._random)
        self._copy_to(other)
        if unsynced:
            other.files.lose_power(random.randrange)
        return other


class VirtualKafka:
    """A broker on virtual time, with `Kafka`'s methods; methods that may wait are coroutines."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        seed: int = 0,
        limit_s: float = LIMIT_S,
    ) -> None:
        """
        Args:
            settings: like those of `Kafka`.
            limit_s: a longer run is ended by VirtualTimeError; a day by default.
        """
        self.limit_s = limit_s
        self.seed = seed
        """The seed that reproduces the run."""
        # Compiled clients take record timestamps from the system clock, and these must not be far
        # in the broker's future.
        self.clock = VirtualClock(wall_ms=time.time_ns() // 1_000_000)
        self.trace: list[str] = []
        """Every request to the broker, with the time in milliseconds."""
        chance = random.Random(seed)
        self._network = VirtualNetwork(random.Random(chance.getrandbits(64)))
        machine = _Machine(self._network, self.clock, random.Random(chance.getrandbits(64)))
        crashes = random.Random(chance.getrandbits(64))
        self._kit = KitBroker(settings or {}, machine, PORT, crashes)
        self._kit.faults.on_request = self._note
        self._began_ms = self.clock.monotonic_ms()
        self._why: dict[str, list[str]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """Address on the virtual network, which clients on the loop of `run` can reach."""
        return f"{HOST}:{PORT}"

    @property
    def now_ms(self) -> int:
        """Virtual time since the start, in milliseconds."""
        return self.clock.monotonic_ms() - self._began_ms

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and the broker on virtual time; the data is kept for the next run."""
        context = copy_context()
        context.run(heartbeats_are_sent_by.set, LoopHeartbeats)
        state = random.getstate()
        random.seed(self.seed)
        try:
            with (
                virtual_time(self.clock),
                asyncio.Runner(
                    loop_factory=lambda: VirtualLoop(self.clock, self._network, self.limit_s)
                ) as runner,
            ):
                return runner.run(self._beside(work), context=context)
        finally:
            random.setstate(state)

    async def _beside(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            await self._kit.start()
        except BaseException:
            work.close()
            raise
        try:
            return await work
        except BaseException:
            self._why = await self._kit.why()
            raise
        finally:
            await self._kit.stop()

    def why(self) -> dict[str, list[str]]:
        """Return the output of `kohort groups why` for each group at the end of a failed run."""
        return self._why

    def close(self) -> None:
        self._kit.machine.close()

    # Topics.

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        await self._kit.topics.create(name, partitions, configs)

    async def produce(self, topic: str, value: Content, **parts: Unpack[RecordParts]) -> Produced:
        """Append one record, like `Kafka.produce`."""
        return await self._kit.topics.produce(topic, value, **parts)

    async def records(self, topic: str, **wanted: Unpack[WantedRecords]) -> list[RawRecord]:
        """Return all records of a topic, like `Kafka.records`; the timeout is virtual time."""
        return await self._kit.topics.wait_records(topic, **wanted)

    def group(self, name: str) -> "VirtualGroup":
        return VirtualGroup(self._kit, name)

    # Faults.

    def fault(self, api: str, **parts: Unpack[FaultParts]) -> AbstractContextManager[Fault]:
        """Apply a fault while the context is open, like `Kafka.fault`."""
        return self._kit.faults.applied(new_fault(api, parts))

    # The broker as a whole; see `Kafka`.

    async def stop(self) -> None:
        await self._kit.stop()

    async def start(self) -> None:
        await self._kit.start()

    async def restart(self) -> None:
        await self._kit.restart()

    async def crash(self, *, lose_unsynced: bool = False) -> None:
        await self._kit.crash(lose_unsynced=lose_unsynced)

    def fill_disk(self, *, bytes_left: int = 0) -> None:
        self._kit.fill_disk(bytes_left)

    def free_disk(self) -> None:
        self._kit.fill_disk(None)

    # Internals.

    def _note(self, ctx: RequestContext, api: Api) -> None:
        if len(self.trace) < TRACE_LINES_MAX:
            client = ctx.header.client_id or "-"
            self.trace.append(f"{self.now_ms} {client} {api.name} v{ctx.api_version}")


class VirtualGroup(KitGroup):
    """One group, with the methods of `KafkaGroup`; timeouts are virtual time."""

    def __init__(self, kit: KitBroker, name: str) -> None:
        super().__init__(name, lambda: kit.groups)
        self._kit = kit

    def hold_join(self, *, client_id: str | None = None) -> AbstractContextManager[Fault]:
        fault = new_fault("JoinGroup", {"group": self.name, "client_id": client_id}, hold=True)
        return self._kit.faults.applied(fault)
