"""The network between consumers and their brokers, in memory and on virtual time.

Consumers connect as they always do: the loop's `getaddrinfo` and `create_connection` lead here, and
their own connections read and write the bytes. A host may refuse, or swallow whatever is sent to it
as a machine does that is gone without a word; a process may be cut off with all that it has.
"""

import asyncio
import contextvars
import socket
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from random import Random
from typing import Any, Final, Protocol

from kohort.client.net.address import Address
from kohort.testing.virtual_clock import VirtualClock
from tests.simulation.loop import SimulatedLoop

PROCESS: contextvars.ContextVar[int] = contextvars.ContextVar("process", default=0)
"""Whose connections are made."""


SPINNING_TURNS: Final = 20_000
"""Turns of the loop without a millisecond's rest."""


class Host(Enum):
    UP = "up"
    REFUSES = "refuses"
    """The machine is there, the broker is not."""
    SILENT = "silent"
    """No answer at all, not even a refusal."""


class Server(Protocol):
    def received(self, wire: "Wire", frame: bytes) -> None:
        """A whole request, without its size. To be answered by `wire.answer`, sooner or later."""


class Network:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.hosts: dict[Address, Host] = {}
        self.servers: dict[Address, Server] = {}
        self.cut_off: set[int] = set()
        """Processes whose bytes get nowhere."""
        self.wires: dict[Wire, None] = {}
        self.delay_ms_max = 3
        self.loses_answers = 0.0
        """The part of answers with which the connection is lost."""
        self.frames = 0
        self.waiting: set[asyncio.Future[None]] = set()
        """Fetches that brokers hold back."""

    def delay_s(self) -> float:
        return self.random.randint(0, self.delay_ms_max) / 1000

    def set_host(self, address: Address, state: Host, server: Server | None = None) -> None:
        """Connections that are there are lost, or fall silent with it."""
        self.hosts[address] = state
        if server is not None:
            self.servers[address] = server
        if state is Host.REFUSES:
            self.lose(lambda wire: wire.address == address)

    def lose(self, which: "Callable[[Wire], bool]") -> None:
        """Connections break, and both sides hear of it."""
        for wire in [one for one in self.wires if which(one)]:
            wire.lose(ConnectionResetError("lost by the network"))

    def is_silent(self, wire: "Wire") -> bool:
        return self.hosts[wire.address] is Host.SILENT or wire.process in self.cut_off


class ConsumersClock(VirtualClock):
    """On which no moment lasts: each turn of the loop takes ten nanoseconds. Else who waits until a
    time, and comes a rounding error before it, would wait for nothing for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        """Turns of the loop, in this millisecond."""

    def now_s(self) -> float:
        return self.monotonic_ms() / 1000 + self.turns * 1e-8


class ConsumersLoop(SimulatedLoop):
    """Whose connections are those of a `Network`."""

    def __init__(self, clock: ConsumersClock, network: Network) -> None:
        super().__init__(clock, latency_ms=lambda: 1, listen=lambda *_: None)
        self._network = network
        self._clock = clock
        self._turned_ms = 0

    def time(self) -> float:
        return self._clock.now_s()

    def _run_once(self) -> None:
        """A turn of the loop. Many of them in a moment are somebody who waits for nothing."""
        clock = self._clock
        now_ms = clock.monotonic_ms()
        if now_ms != self._turned_ms:
            self._turned_ms, clock.turns = now_ms, 0
        clock.turns += 1
        if clock.turns > SPINNING_TURNS:
            clock.turns = 0
            tasks = "; ".join(str(one) for one in asyncio.all_tasks(self))
            raise AssertionError(f"the loop spins: {tasks}")
        super()._run_once()  # type: ignore[misc]

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:  # noqa: ANN401
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        **_: Any,  # noqa: ANN401
    ) -> "tuple[Wire, asyncio.BufferedProtocol]":
        network, address = self._network, Address(host, port)
        await asyncio.sleep(network.delay_s())
        state = network.hosts.get(address, Host.SILENT)
        if state is Host.SILENT or PROCESS.get() in network.cut_off:
            await self.create_future()
        if state is Host.REFUSES:
            raise ConnectionRefusedError(f"{address} refuses")
        protocol = protocol_factory()
        wire = Wire(network, address, PROCESS.get(), protocol)
        network.wires[wire] = None
        protocol.connection_made(wire)
        return wire, protocol


class Wire(asyncio.Transport):
    """One connection: the consumer's transport, and what its broker answers through.

    What is sent arrives in its order. Requests that are not there when the consumer hangs up may
    arrive all the same.
    """

    def __init__(
        self, network: Network, address: Address, process: int, protocol: asyncio.BufferedProtocol
    ) -> None:
        super().__init__()
        self.address = address
        self.process = process
        self.is_lost = False
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._unsent: deque[bytes] = deque()
        self._asked = False
        """A request is at the broker."""

    # The consumer's side.

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._unsent.append(b"".join(list_of_data)[4:])
        if len(self._unsent) == 1 and not self._asked:
            self._loop.call_later(self._network.delay_s(), self._arrive)

    def abort(self) -> None:
        if self._unsent and self._network.random.random() < 0.5:
            self._unsent.clear()
        self._end(None)

    close = abort

    def is_closing(self) -> bool:
        return self.is_lost

    # What happens to it.

    def lose(self, error: Exception) -> None:
        self._unsent.clear()
        self._end(error)

    def answer(self, frame: bytes) -> None:
        """The broker's answer to the request that it has."""
        network = self._network
        if self.is_lost or network.is_silent(self):
            return
        if network.random.random() < network.loses_answers:
            self.lose(ConnectionResetError("lost with an answer"))
            return
        self._loop.call_later(network.delay_s(), self._receive, frame)

    def _arrive(self) -> None:
        network = self._network
        is_there = network.hosts[self.address] is Host.UP and self.process not in network.cut_off
        if not self._unsent or not is_there:
            return
        self._asked = True
        network.frames += 1
        network.servers[self.address].received(self, self._unsent.popleft())

    def _receive(self, frame: bytes) -> None:
        self._asked = False
        if self.is_lost or self._network.is_silent(self):
            return
        if self._unsent:
            self._loop.call_later(self._network.delay_s(), self._arrive)
        data = len(frame).to_bytes(4, "big") + frame
        while data and not self.is_lost:
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)

    def _end(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._network.wires.pop(self, None)
            self._loop.call_soon(self._protocol.connection_lost, error)
