"""An in-memory network that is slow, splits what is sent, loses connections and refuses them.

Bytes of one connection arrive in order; connections overtake each other. All chance comes from one
`Random`. A connection that is cut takes what was on its way with it, and either end learns of it in
its own time.

What arrives at the broker in the same millisecond arrives in one turn of its loop, or one by one,
each when the broker has done what it put off to its next turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from kohort.broker.network.connection.connection import Connection

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(frozen=True)
class Weather:
    """What the network is like. Times in milliseconds."""

    delay_ms_max: int = 3
    """One way, evenly from 0."""
    splits: float = 0.1
    """The part of writes that arrive in pieces."""
    stalls: float = 0.0
    """The part of pieces that something holds up, for up to `stall_ms_max`."""
    stall_ms_max: int = 0


class Peer(Protocol):
    def received(self, data: bytes) -> None: ...

    def disconnected(self) -> None:
        """The connection is gone, or could not be made; not told to a peer that hung up."""
        ...


class Port:
    """What takes the place of a bound socket, and of the server that listens on it."""

    def __init__(self, network: "Network", number: int) -> None:
        self.number = number
        self._network = network

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self.number)

    def dup(self) -> "Port":
        """What the loop gets to listen on, and closes when it stops."""
        return Port(self._network, self.number)

    def close(self) -> None:
        """Listen no more; open connections stay."""
        self._network.stop_listening(self)


class Network:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        observer: "World",
        *,
        one_by_one: bool = False,
    ) -> None:
        self.loop = loop
        self.observer = observer
        self._one_by_one = one_by_one
        self._at_the_door: deque[Callable[[], None]] = deque()
        """What has arrived at the broker; the first of it has been let in, in this turn."""
        self.weather = Weather()
        self.wires: dict[Wire, None] = {}
        self._random = random
        self._listening: tuple[Port, Callable[[], Connection]] | None = None

    def listen(self, port: Port, make: Callable[[], Connection]) -> None:
        self._listening = (port, make)

    def stop_listening(self, port: Port) -> None:
        if self._listening is not None and self._listening[0] is port:
            self._listening = None

    def connect(self, peer: Peer, ip: str) -> "Wire":
        """Refused, some time later, if nothing listens by then."""
        wire = Wire(self, peer, ip)
        self.wires[wire] = None
        return wire

    def accept(self) -> Connection | None:
        """A new protocol object of the broker; None if nothing listens."""
        return None if self._listening is None else self._listening[1]()

    def let_in(self, arrive: Callable[[], None]) -> None:
        """Something has arrived at the broker."""
        if not self._one_by_one:
            arrive()
            return
        self._at_the_door.append(arrive)
        if len(self._at_the_door) == 1:
            self._let_first_in()

    def _let_first_in(self) -> None:
        try:
            self._at_the_door[0]()
        finally:
            # It stands behind whatever the broker has just put off to its next turn.
            self.loop.call_soon(self._let_next_in)

    def _let_next_in(self) -> None:
        self._at_the_door.popleft()
        if self._at_the_door:
            self._let_first_in()

    def lose_broker(self) -> None:
        """Its process is gone."""
        self._listening = None
        for wire in list(self.wires):
            wire.die_with_broker()

    def delay_s(self) -> float:
        weather = self.weather
        delay_ms = self._random.randint(0, weather.delay_ms_max)
        if weather.stalls and self._random.random() < weather.stalls:
            delay_ms += self._random.randint(0, weather.stall_ms_max)
        return delay_ms / 1000

    def pieces(self, data: bytes) -> list[bytes]:
        """The pieces in which data arrive: often whole."""
        random = self._random
        if len(data) < 2 or random.random() >= self.weather.splits:
            return [data]
        cuts = sorted(random.randrange(1, len(data)) for _ in range(random.randint(1, 3)))
        edges = [0, *cuts, len(data)]
        return [data[a:b] for a, b in pairwise(edges) if a < b]


class _Way:
    """One direction of a connection: what was sent first arrives first, at whatever time."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._coming: deque[Callable[[], None]] = deque()
        self._last_s = 0.0

    def send(self, arrive: Callable[[], None]) -> None:
        loop = self._network.loop
        self._coming.append(arrive)
        self._last_s = max(loop.time() + self._network.delay_s(), self._last_s)
        # Timers of the same time may fire in any order: each takes what is first in line.
        loop.call_at(self._last_s, self._arrive)

    def _arrive(self) -> None:
        self._coming.popleft()()


class Wire(asyncio.Transport):
    """One connection; it is the broker's transport and the peer's handle at the same time."""

    def __init__(self, network: Network, peer: Peer, ip: str) -> None:
        super().__init__({"peername": (ip, 50_000), "sockname": ("127.0.0.1", 9_092)})
        self._network = network
        self._peer: Peer | None = peer
        """The peer; None once it does not want to hear from us any more."""
        self._protocol: Connection | None = None
        self._to_broker = _Way(network)
        self._to_peer = _Way(network)
        self._unread = bytearray()
        """At the broker's end, not read yet."""
        self._calls: deque[tuple[int, Any]] = deque()
        """Requests that the broker has not had the last byte of: how many are missing, and what."""
        self._unanswered: deque[Any] = deque()
        self._is_reading = True
        self._is_lost = False
        """For the broker."""
        self._is_cut = False
        """Nothing arrives any more, either way."""
        self._send_to_broker(self._accept)

    # The peer's end.

    def send(self, frame: bytes, call: object) -> None:
        """One request; `call` is for the observer."""
        self._calls.append((len(frame), call))
        for piece in self._network.pieces(frame):
            self._send_to_broker(lambda piece=piece: self._reach_broker(piece))  # type: ignore[misc]

    def hang_up(self) -> None:
        """The peer closes, or its process is gone: the broker gets what was sent, and the end."""
        self._peer = None
        self._send_to_broker(self._lose)

    def cut(self) -> None:
        """The network loses the connection and all that is on its way."""
        self._is_cut = True
        self._to_peer.send(self._notify_peer)
        self._send_to_broker(self._lose)

    def go_silent(self) -> None:
        """The peer's machine is gone: neither end ever hears of it."""
        self._peer = None
        self._is_cut = True

    def die_with_broker(self) -> None:
        """The broker's process is gone: nothing that it still does is heard of."""
        self._is_cut = True
        self._to_peer.send(self._notify_peer)
        self._lose()

    def _send_to_broker(self, arrive: Callable[[], None]) -> None:
        self._to_broker.send(lambda: self._network.let_in(arrive))

    # What arrives.

    def _accept(self) -> None:
        protocol = None if self._is_cut else self._network.accept()
        if protocol is not None:
            self._protocol = protocol
            protocol.connection_made(self)
            return
        # Refused; or the peer is gone already, and will not hear it.
        self._is_cut = True
        self._lose()
        self._to_peer.send(self._notify_peer)

    def _reach_broker(self, data: bytes) -> None:
        if not (self._is_cut or self._is_lost):
            self._unread += data
            self._read()

    def _read(self) -> None:
        while self._unread and self._is_reading and not (self._is_cut or self._is_lost):
            protocol = self._protocol
            assert protocol is not None
            room = memoryview(protocol.get_buffer(-1))
            count = min(len(room), len(self._unread))
            room[:count] = self._unread[:count]
            del self._unread[:count]
            self._count_delivered(count)
            protocol.buffer_updated(count)
            # No other connection has received bytes in this turn, so its part of it is next.
            protocol.run()
            protocol.output.write_out()
            self._network.observer.handled()

    def _count_delivered(self, count: int) -> None:
        while count:
            missing, call = self._calls.popleft()
            if missing > count:
                self._calls.appendleft((missing - count, call))
                return
            count -= missing
            self._unanswered.append(call)
            self._network.observer.delivered(call)

    def _reach_peer(self, data: bytes) -> None:
        if not self._is_cut and self._peer is not None:
            self._peer.received(data)

    def _notify_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.disconnected()

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._network.wires.pop(self, None)
        if self._protocol is not None:
            self._protocol.connection_lost(None)

    # The broker's end: asyncio's transport.

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._network.loop.call_soon(self._network.let_in, self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The network takes all there is."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        frame = bytes(data)
        assert self._unanswered, "an answer to nothing"
        call = self._unanswered.popleft()
        if self._is_lost:
            return
        self._network.observer.answered(call, frame)
        for piece in self._network.pieces(frame):
            self._to_peer.send(lambda piece=piece: self._reach_peer(piece))  # type: ignore[misc]

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Peers send one request at a time, so this is one answer."""
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._is_lost

    def close(self) -> None:
        """What was written still arrives, then the end."""
        self._to_peer.send(self._notify_peer)
        self._network.loop.call_soon(self._lose)

    def abort(self) -> None:
        self._is_cut = True
        self.close()
