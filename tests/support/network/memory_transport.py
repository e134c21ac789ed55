"""A transport without a socket, for driving a connection's protocol object directly.

It behaves exactly like asyncio's socket transport: it reads into the protocol's buffer only while
reading is not paused, buffers bytes that the peer has not read, pauses the protocol above the
high-water mark, and reports the loss of the connection in a later event loop iteration.

Like libuv, it also requests buffers that it does not fill: always after a read that filled its
buffer, and sometimes at random.
"""

import asyncio
import random
from collections.abc import Iterable


class MemoryTransport(asyncio.Transport):
    """The broker's end of a connection; the test is the peer."""

    def __init__(self, protocol: asyncio.BufferedProtocol, *, ip: str = "127.0.0.1") -> None:
        super().__init__({"peername": (ip, 50_000), "sockname": ("127.0.0.1", 9_092)})
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._to_read = bytearray()
        self._unsent = bytearray()
        self._low, self._high = 0, 65_536
        self._is_reading = True
        self._is_protocol_paused = False
        self._is_ended = False
        """Whether the peer has sent EOF."""
        self._is_closing = False
        self._whims = random.Random(4)
        self.takes_all = True
        """False for a peer that does not read: responses stay unsent until `take`."""
        self.taken = bytearray()
        """Bytes that the peer has read."""
        self.write_count = 0
        self.is_lost = False
        protocol.connection_made(self)

    # The peer.

    def send(self, data: bytes) -> None:
        """Send bytes from the peer; while reading is paused they stay in the socket."""
        self._to_read += data
        if self._is_reading and self._whims.random() < 0.5:
            self._find_nothing()
        self._read()

    def end(self) -> None:
        """Send the end, which is read after all data, and again if reading is resumed."""
        self._is_ended = True
        self._read()

    @property
    def unread_bytes(self) -> int:
        return len(self._to_read)

    def take(self, byte_count: int) -> None:
        self.taken += self._unsent[:byte_count]
        del self._unsent[:byte_count]
        self._after_sending()

    def lose(self) -> None:
        self._close_soon()

    # The transport's interface.

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        assert self._is_reading
        self._is_reading = False

    def resume_reading(self) -> None:
        assert not self._is_reading
        self._is_reading = True
        self._loop.call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is not None
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write_count += 1
        for data in list_of_data:
            if not self._is_closing:
                self._unsent += data
        self._after_sending()
        if len(self._unsent) > self._high and not self._is_protocol_paused:
            self._is_protocol_paused = True
            self._protocol.pause_writing()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._after_sending()

    def abort(self) -> None:
        self._unsent.clear()
        self._close_soon()

    # Internals.

    def _read(self) -> None:
        while self._to_read and self._is_reading and not self._is_closing:
            room = memoryview(self._protocol.get_buffer(-1))
            assert len(room) > 0
            byte_count = min(len(room), len(self._to_read))
            is_full = byte_count == len(room)
            room[:byte_count] = self._to_read[:byte_count]
            del self._to_read[:byte_count]
            room.release()
            self._protocol.buffer_updated(byte_count)
            if self.is_reading() and (is_full or self._whims.random() < 0.5):
                self._find_nothing()
        is_end_read = self._is_ended and not self._to_read and self._is_reading
        if is_end_read and not self._is_closing and not self._protocol.eof_received():
            self.close()

    def _find_nothing(self) -> None:
        """Simulate a read that would block: the buffer is requested before that is known."""
        if not self._is_closing:
            memoryview(self._protocol.get_buffer(-1)).release()

    def _after_sending(self) -> None:
        if self.takes_all:
            self.taken += self._unsent
            self._unsent.clear()
        if self._is_protocol_paused and len(self._unsent) <= self._low:
            self._is_protocol_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._close_soon()

    def _close_soon(self) -> None:
        self._is_closing = True
        if not self.is_lost:
            self.is_lost = True
            self._loop.call_soon(self._protocol.connection_lost, None)
