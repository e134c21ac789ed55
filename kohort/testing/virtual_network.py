"""An in-memory network for one loop on virtual time: bytes arrive in order, after a short delay.

The delays come from one `Random`, so a seed reproduces a run. Local ports below PRIVILEGED belong
to the network; for all other addresses the loop uses real sockets.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

DELAY_MS_MAX: Final = 2
"""Maximum delay in one direction; delays are uniformly distributed from 0."""

HIGH_WATER_BYTES: Final = 64 * 1024
LOW_WATER_BYTES: Final = 16 * 1024

Factory = Callable[[], asyncio.BaseProtocol]


class VirtualPort:
    """Replaces a bound socket and its duplicates."""

    def __init__(self, network: VirtualNetwork, host: str, number: int) -> None:
        self.host = host
        self.number = number
        self.factory: Factory | None = None
        """The server's protocol factory; None while the port does not listen."""
        self._network = network

    def getsockname(self) -> tuple[str, int]:
        return (self.host, self.number)

    def dup(self) -> VirtualPort:
        """Return the port itself: a `VirtualServer` stops listening without closing its port."""
        return self

    def close(self) -> None:
        """Stop listening and release the port; open connections stay."""
        self.factory = None
        self._network.unbind(self)


class VirtualServer:
    """Stands in for asyncio's server object of a listening port."""

    def __init__(self, port: VirtualPort, factory: Factory) -> None:
        self._port = port
        port.factory = factory

    def close(self) -> None:
        """Stop listening; the port stays bound, and open connections are kept."""
        self._port.factory = None


class VirtualNetwork:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._ports: dict[int, VirtualPort] = {}
        self._client_ports = itertools.count(50_000)

    def bind(self, host: str, number: int) -> VirtualPort:
        """Bind a port. Raises OSError if it is already bound."""
        if number in self._ports:
            raise OSError(f"port {number} of the virtual network is in use")
        port = self._ports[number] = VirtualPort(self, host, number)
        return port

    def unbind(self, port: VirtualPort) -> None:
        if self._ports.get(port.number) is port:
            del self._ports[port.number]

    def is_here(self, host: object, number: object) -> bool:
        """Whether the address belongs to this network, bound or not."""
        return isinstance(number, int) and number < PRIVILEGED and host in LOCAL

    async def connect(
        self, factory: Factory, number: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a port, and return the client's end. Raises ConnectionRefusedError."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.delay_s())
        port = self._ports.get(number)
        if port is None or port.factory is None:
            raise ConnectionRefusedError(
                f"connection refused: port {number} of the virtual network"
            )
        address, local = ("127.0.0.1", next(self._client_ports)), port.getsockname()
        ours = VirtualTransport(self, loop, peername=local, sockname=address)
        theirs = VirtualTransport(self, loop, peername=address, sockname=local)
        ours.peer, theirs.peer = theirs, ours
        protocol = factory()
        theirs.begin(port.factory())
        ours.begin(protocol)
        return ours, protocol

    def delay_s(self) -> float:
        return self._random.randint(0, DELAY_MS_MAX) / 1_000


LOCAL: Final = frozenset({"127.0.0.1", "localhost"})
PRIVILEGED: Final = 1_024
"""Ports below this are always virtual: no test starts a real listener on them."""


class VirtualTransport(asyncio.Transport):
    """One end of a connection. `peer` is the other."""

    peer: VirtualTransport

    def __init__(
        self,
        network: VirtualNetwork,
        loop: asyncio.AbstractEventLoop,
        *,
        peername: tuple[str, int],
        sockname: tuple[str, int],
    ) -> None:
        super().__init__({"peername": peername, "sockname": sockname})
        self._network = network
        self._loop = loop
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self._arriving: deque[Callable[[], None]] = deque()
        """Data on its way to this end, in order."""
        self._last_s = 0.0
        self._unread = bytearray()
        self._unsent_bytes = 0
        """Written bytes that the peer has not read yet."""
        self._high, self._low = HIGH_WATER_BYTES, LOW_WATER_BYTES
        self._is_reading = True
        self._is_ended = False
        """Whether the peer has sent EOF."""
        self._is_write_paused = False
        self._is_closing = False
        self._is_lost = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    # Between the ends.

    def arrive_later(self, arrive: Callable[[], None]) -> None:
        """Call `arrive`, which delivers the peer's data, after a delay; calls keep their order."""
        self._arriving.append(arrive)
        self._last_s = max(self._loop.time() + self._network.delay_s(), self._last_s)
        # asyncio may run timers of the same time in any order, so each takes the first entry.
        self._loop.call_at(self._last_s, self._take_first)

    def _take_first(self) -> None:
        self._arriving.popleft()()

    def receive(self, data: bytes) -> None:
        if self._is_lost:
            return
        self._unread += data
        self._read()

    def receive_end(self) -> None:
        self._is_ended = True
        self._read()

    def receive_reset(self) -> None:
        self._lose(ConnectionResetError("connection reset by peer"))

    def _read(self) -> None:
        while self._unread and self._is_reading and not self._is_closing:
            count = self._hand_over()
            self.peer.was_read(count)
        if self._is_ended and not self._unread and self._is_reading and not self._is_closing:
            self._is_ended = False
            keeps_open = self._protocol.eof_received()  # type: ignore[attr-defined]  # All have it.
            if not keeps_open:
                self.close()

    def _hand_over(self) -> int:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            room = memoryview(protocol.get_buffer(-1))
            count = min(len(room), len(self._unread))
            room[:count] = self._unread[:count]
            del self._unread[:count]
            protocol.buffer_updated(count)
            return count
        data = bytes(self._unread)
        self._unread.clear()
        protocol.data_received(data)  # type: ignore[attr-defined]  # asyncio.Protocol, by its name.
        return len(data)

    def was_read(self, byte_count: int) -> None:
        """Called by the peer when it has read `byte_count` bytes that this end sent."""
        self._unsent_bytes -= byte_count
        if self._is_write_paused and self._unsent_bytes <= self._low and not self._is_lost:
            self._is_write_paused = False
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._unread.clear()
        self._protocol.connection_lost(error)

    # asyncio's transport interface.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing or not len(data):
            return
        content = bytes(data)
        self._unsent_bytes += len(content)
        self.peer.arrive_later(lambda: self.peer.receive(content))
        if self._unsent_bytes > self._high and not self._is_write_paused:
            self._is_write_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.peer.arrive_later(self.peer.receive_end)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close the connection; the peer still receives the written data, then EOF."""
        if not self._is_closing:
            self._is_closing = True
            self.write_eof()
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self.peer.arrive_later(self.peer.receive_reset)
            self._loop.call_soon(self._lose, None)
