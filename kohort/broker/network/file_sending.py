"""Answers that lie partly in files, which the kernel sends from there.

Bytes of a range never pass through our memory: not on the way, and not while a slow client lets
them wait. What comes before and behind them is kept in order. Nothing here waits for a disk: what
has left the page cache meanwhile is read by another thread, piece by piece.

The transport is what tells that the socket takes more. Its loop allows no second watcher of the
same descriptor, so it is given a small piece when the socket is full, and says when that is gone.
"""

import asyncio
import errno
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from kohort.broker.network.service import FileRange, Part
from kohort.protocol.codec import Buffer

PIECE_BYTES: Final = 4096
"""Given to the transport when the socket is full. Small, since it is all that a slow reader costs;
the socket reports room only when a third of its buffer is free."""

PIECE_READ_BYTES: Final = 256 * 1024
"""Read by another thread at once."""

STAYS_CACHED_S: Final = 0.1
"""For so long what was in memory is taken to be there still: it was used just now."""

READS_AT_ONCE: Final = 2
"""By all connections together."""

_IN_MEMORY: Final = (bytes, bytearray, memoryview)
_CANNOT_SEND: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What file systems say that have no way from a file to a socket."""


class Reads:
    """Pieces of files that other threads read for slow connections, first come first served."""

    __slots__ = ("_loop", "_under_way", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way = 0
        self._waiting: deque[tuple[FileSender, FileRange]] = deque()

    def ask(self, sender: "FileSender", part: FileRange) -> None:
        """Have another thread read off a piece of `part`; `sender.on_read` is called here."""
        self._waiting.append((sender, part))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._under_way < READS_AT_ONCE:
            sender, part = self._waiting.popleft()
            if sender.is_closed:
                continue
            self._under_way += 1
            reading = self._loop.run_in_executor(None, part.take, PIECE_READ_BYTES)
            reading.add_done_callback(partial(self._on_read, sender))

    def _on_read(self, sender: "FileSender", read: asyncio.Future[bytes]) -> None:
        self._under_way -= 1
        self._begin()
        sender.on_read(read)


class Sending(Protocol):
    """A connection."""

    def send_on(self) -> None:
        """The sender can go on. Must not raise."""
        ...


def has_ranges(parts: Sequence[Part]) -> bool:
    """Whether there is something to send that is not in memory."""
    return not all(isinstance(part, _IN_MEMORY) for part in parts)


class FileSender:
    """What one connection has to send, from the first range on until all is handed over."""

    __slots__ = (
        "_cached_until_s", "_connection", "_failure", "_found_until_s", "_is_reading",
        "_must_read", "_parts", "_reads", "_socket_number", "_transport", "is_closed",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport, connection: Sending, reads: Reads) -> None:
        self._transport = transport
        self._connection = connection
        self._reads = reads
        self._socket_number: int = transport.get_extra_info("socket").fileno()
        self._parts: deque[Part] = deque()
        self._found_until_s = time.monotonic() + STAYS_CACHED_S
        """Until then, everything counts as in memory: it was when it was found."""
        self._cached_until_s = self._found_until_s
        """The same of the first range."""
        self._is_reading = False
        self._must_read = False
        self._failure = ""
        """What became of a read; not the exception, which would keep the range and us alive."""
        self.is_closed = False

    @property
    def unsent_bytes(self) -> int:
        """What the transport has not been given yet."""
        return sum(map(len, self._parts))

    def add(self, parts: Iterable[Part]) -> None:
        """Send these behind all others."""
        self._parts.extend(parts)

    def send(self) -> bool:
        """Hand over what the socket takes now; whether that was all.

        If not, `Sending.send_on` or `resume_writing` of the transport's protocol is called when it
        can go on. Raises OSError: of the socket (ConnectionError), or of a file; either way a part
        of an answer may be sent, and the connection must end.
        """
        if self._failure:
            raise OSError(self._failure)
        transport, parts = self._transport, self._parts
        while parts and not self._is_reading:
            # A transport that is closing may have given its descriptor's number away.
            if self.is_closed or transport.is_closing():
                return False
            if transport.get_write_buffer_size():
                transport.set_write_buffer_limits(0, 0)
                break
            part = parts[0]
            if isinstance(part, _IN_MEMORY):
                self._send_buffers()
            else:
                self._send_range(part)
        return not parts and not self.is_closed

    def close(self) -> None:
        """The connection is gone; give up the files."""
        self.is_closed = True
        self._parts.clear()

    def on_read(self, read: asyncio.Future[bytes]) -> None:
        """Hand over what `Reads` has read, and go on."""
        self._is_reading = False
        error = None if read.cancelled() else read.exception()
        if self.is_closed or read.cancelled():
            return
        if error is not None:
            self._failure = str(error) or repr(error)
        else:
            self._drop_if_sent()
            self._transport.write(read.result())
        self._connection.send_on()

    # Within.

    def _send_buffers(self) -> None:
        parts = self._parts
        buffers: list[Buffer] = []
        while parts and isinstance(part := parts[0], _IN_MEMORY):
            buffers.append(part)
            parts.popleft()
        if not parts:
            self._transport.writelines(buffers)
            return
        data = b"".join(buffers)
        sent = _send_with_more_to_come(self._socket_number, data)
        if sent < len(data):
            self._transport.write(data[sent:])

    def _send_range(self, part: FileRange) -> None:
        if self._must_read or not self._is_cached(part):
            self._read_aside(part)
            return
        try:
            part.send_to(self._socket_number)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in _CANNOT_SEND:
                raise
            self._must_read = True
            return
        if self._drop_if_sent():
            return
        piece = part.take_cached(PIECE_BYTES)
        if piece:
            self._drop_if_sent()
            # Last: it may end the connection.
            self._transport.write(piece)
        else:
            self._read_aside(part)

    def _drop_if_sent(self) -> bool:
        """Whether nothing was left of the first part."""
        if self._parts[0]:
            return False
        self._parts.popleft()
        self._cached_until_s = self._found_until_s
        return True

    def _is_cached(self, part: FileRange) -> bool:
        now_s = time.monotonic()
        if now_s >= self._cached_until_s:
            if not part.is_cached():
                return False
            self._cached_until_s = now_s + STAYS_CACHED_S
        return True

    def _read_aside(self, part: FileRange) -> None:
        self._is_reading = True
        self._reads.ask(self, part)


def _send_with_more_to_come(socket_number: int, data: bytes) -> int:
    """Send what the socket takes, and let the kernel wait for what follows to fill the packet."""
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=socket_number)
    try:
        return one.send(data, socket.MSG_MORE | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0
    finally:
        one.detach()
