"""An edge of a broker without sockets: a service that does what requests say of themselves."""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import TypeVar

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.server.server import NetworkServer
from kohort.broker.network.service import CloseConnection, ConnectionInfo, Listener, ResponseBuffers
from kohort.broker.runtime.deferred import Deferred, Tasks
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.codec import Buffer
from kohort.testing.virtual_clock import VirtualClock
from tests.support.network.memory_transport import MemoryTransport
from tests.support.network.wire import framed

T = TypeVar("T")


class Echo:
    """Answers with the request. What a request says of itself is done first."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.parked: dict[bytes, Deferred[None]] = {}
        self.tasks: Tasks = set()
        self.promised: dict[bytes, Deferred[None]] = {}
        self.lost: list[ConnectionInfo] = []
        self.response = b""

    def forget(self) -> None:
        self.begun.clear()
        self.parked.clear()
        self.promised.clear()
        self.lost.clear()

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        body = bytes(frame[:100])
        self.begun.append(body)
        if body.startswith(b"park"):
            parked = self.parked[body] = Deferred()
            return parked.finally_(lambda _: self.finish(body))
        if body.startswith(b"promise"):
            promise = self.promised[body] = Deferred()
            if body.endswith(b"kept"):
                promise.set_result(None)
            return promise.finally_(lambda _: [framed(body)])
        if body.startswith(b"stubborn"):
            return Deferred.from_coroutine(self.fail_when_cancelled(), self.tasks, name="stubborn")
        if body.startswith(b"close"):
            raise CloseConnection("as asked")
        if body.startswith(b"fault"):
            raise RuntimeError("a fault of ours")
        if body.startswith(b"large"):
            return [framed(body)[:4], body, memoryview(self.response)]
        return None if body.startswith(b"silent") else [framed(body)]

    def finish(self, body: bytes) -> ResponseBuffers:
        if body.startswith(b"park, close"):
            raise CloseConnection("as asked")
        if body.startswith(b"park, fault"):
            raise RuntimeError("a fault of ours")
        return None if body.startswith(b"park, silent") else [framed(body)]

    async def fail_when_cancelled(self) -> ResponseBuffers:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            raise RuntimeError("too late") from None
        return None

    def connection_lost(self, connection: ConnectionInfo) -> None:
        self.lost.append(connection)


class HeldThreads:
    """Threads that do their work when they are told to, or at once."""

    def __init__(self) -> None:
        self.are_held = False
        self._held: list[Callable[[], None]] = []

    @property
    def at_work(self) -> int:
        return len(self._held)

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def do() -> None:
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - it is the future's.
                done.set_exception(error)

        if self.are_held:
            self._held.append(do)
        else:
            do()
        return done

    def do_all(self) -> None:
        held, self._held = self._held, []
        for do in held:
            do()

    def close(self) -> None:
        """There are none."""


class Edge:
    """A server without listeners, whose connections are made by hand."""

    def __init__(
        self,
        limits: NetworkLimits,
        clock: VirtualClock | None = None,
        limit_of_ip: Callable[[str], float | None] = lambda _: None,
    ) -> None:
        self.service = Echo()
        self.clock = clock or VirtualClock()
        self.metrics = EdgeMetrics()
        self.log = PeerLog(logging.getLogger("peers"), self.clock)
        self.threads = HeldThreads()
        self.server = NetworkServer(
            self.service,
            limits,
            clock=self.clock,
            metrics=self.metrics,
            log=self.log,
            limit_of_ip=limit_of_ip,
            handshake_threads=self.threads,
        )

    def connect(self, ip: str = "127.0.0.1") -> MemoryTransport:
        self.connection = Connection(self.server, Listener("PLAINTEXT"))
        return MemoryTransport(self.connection, ip=ip)


def bodies(taken: bytes | bytearray) -> list[bytes]:
    """The frames that a peer has read."""
    found = []
    position = 0
    while position < len(taken):
        (size,) = struct.unpack_from(">i", taken, position)
        found.append(bytes(taken[position + 4 : position + 4 + size]))
        position += 4 + size
    return found
