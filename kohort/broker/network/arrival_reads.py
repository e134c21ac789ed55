"""Sockets of clients that are not let in yet, read one by one and not all that the loop finds.

An event loop reads all sockets that have something in one turn: of a thousand clients that log in
together it reads hundreds before it comes to anybody else. So these are not read by the loop. A
second epoll tells which of them have something; few are noted in a turn, and each waits for its
turn among all that is done for such clients. Their transports write and close as any other, and
begin to read when their clients are let in.

Promises: one read for each turn; nothing is read of a connection that does not want it, or is lost.
Without epoll the transports read by themselves.
"""

import asyncio
import logging
import os
import select
import sys
from collections.abc import Hashable
from typing import Final, Protocol

from kohort.broker.network.turns import Turns

logger = logging.getLogger(__name__)

NOTED_PER_TURN: Final = 64
"""Sockets that are noted in a turn of the loop, at a microsecond each."""


class Reading(Protocol):
    """Control of whether a socket is read: a transport, or an `ArrivalReading`."""

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Read again."""
        ...


class ArrivalReads:
    """The sockets of all clients of one broker that are not let in yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self.turns = turns
        self._loop = loop
        self._readings: dict[Hashable, ArrivalReading] = {}
        self._by_descriptor: dict[int, ArrivalReading] = {}
        self._epoll: select.epoll | None = None

    def open(self) -> None:
        """Read sockets from now on; may be called again. Without it transports do."""
        if self._epoll is None and sys.platform == "linux":
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._note_some)

    def close(self) -> None:
        """Read nothing more; connections that are left are not to be used."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def add(
        self,
        connection: Hashable,
        owner: str,
        transport: asyncio.Transport,
        protocol: asyncio.BufferedProtocol,
    ) -> Reading:
        """Read the socket of a new connection in its turns, until it is let in or lost.

        Args:
            owner: owner of the address of the client.
            protocol: the protocol of the transport, which gets what is read.
        """
        socket = transport.get_extra_info("socket")
        if self._epoll is None or socket is None:
            return transport
        reading = ArrivalReading(self, owner, transport, protocol, socket.fileno())
        self._readings[connection] = reading
        # The loop begins to read once the connection is made.
        self._loop.call_soon(self._begin, reading)
        return reading

    def let_in(self, connection: Hashable) -> None:
        """Let the connection's transport read from now on; others are ignored."""
        reading = self._readings.pop(connection, None)
        if reading is not None:
            self._end(reading)
            reading.be_let_in()

    def remove(self, connection: Hashable) -> None:
        """Forget a connection that is lost; others are ignored."""
        reading = self._readings.pop(connection, None)
        if reading is not None:
            self._end(reading)
            reading.is_over = True

    def watch(self, reading: "ArrivalReading") -> None:
        """Note it once, when there is something to read."""
        if self._epoll is not None:
            self._epoll.modify(reading.descriptor, select.EPOLLIN | select.EPOLLONESHOT)

    def _begin(self, reading: "ArrivalReading") -> None:
        if reading.is_over or reading.transport.is_closing() or self._epoll is None:
            return
        reading.transport.pause_reading()
        self._by_descriptor[reading.descriptor] = reading
        self._epoll.register(reading.descriptor, select.EPOLLIN | select.EPOLLONESHOT)

    def _end(self, reading: "ArrivalReading") -> None:
        if self._by_descriptor.pop(reading.descriptor, None) is not None and self._epoll:
            self._epoll.unregister(reading.descriptor)
        if reading.is_due:
            self.turns.forget(reading)

    def _note_some(self) -> None:
        if self._epoll is not None:
            for descriptor, _ in self._epoll.poll(0, NOTED_PER_TURN):
                self._by_descriptor[descriptor].have_something()


class ArrivalReading:
    """Reads one socket; to its connection, what pauses and resumes the reads."""

    __slots__ = (
        "_has_something",
        "_is_paused",
        "_protocol",
        "_reads",
        "descriptor",
        "is_due",
        "is_over",
        "owner",
        "transport",
    )

    def __init__(
        self,
        reads: ArrivalReads,
        owner: str,
        transport: asyncio.Transport,
        protocol: asyncio.BufferedProtocol,
        descriptor: int,
    ) -> None:
        self.owner = owner
        self.transport = transport
        self.descriptor = descriptor
        self.is_over = False
        """Whether the client is let in, and its transport reads, or is lost."""
        self.is_due = False
        """Whether it waits for its turn."""
        self._reads = reads
        self._protocol = protocol
        self._is_paused = False
        self._has_something = False
        """Whether there is something to read, and the epoll does not tell so again."""

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        self._is_paused = True
        if self.is_over:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._is_paused = False
        if self.is_over:
            self.transport.resume_reading()
        elif self._has_something:
            self._read_soon()

    def have_something(self) -> None:
        """Read when it is this one's turn. Called for each time that it was watched."""
        self._has_something = True
        if not self._is_paused:
            self._read_soon()

    def be_let_in(self) -> None:
        """Leave it to the transport from now on."""
        self.is_over = True
        if not self._is_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def execute_due(self) -> None:
        """Read once, and be watched again. Must not raise: others wait behind it."""
        self.is_due = False
        if self._is_paused or self.transport.is_closing():
            return
        self._has_something = False
        try:
            self._read()
        except ConnectionError:
            self.transport.abort()
        except Exception:
            logger.exception("Internal error; a connection is closed")
            self.transport.abort()

    def _read(self) -> None:
        try:
            count = os.readv(self.descriptor, [self._protocol.get_buffer(-1)])
        except BlockingIOError:
            # What was there is gone, or was read before the transport paused.
            count = -1
        if not count:
            self._protocol.eof_received()
            return
        if count > 0:
            self._protocol.buffer_updated(count)
        if not self.is_over:
            self._reads.watch(self)

    def _read_soon(self) -> None:
        if not self.is_due:
            self.is_due = True
            self._reads.turns.authenticate_soon(self)
