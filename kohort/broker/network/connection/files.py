"""Sends the file ranges of responses with sendfile(2).

Ranges in the page cache never pass through this process's memory, not even while a slow client
delays them. Ranges that have left it are read in pieces by another thread, so nothing here waits
for a disk. The order of ranges and other bytes is kept.

A sender uses a second descriptor of the socket: the event loop allows one watcher per descriptor,
and the transport may close its own. Pieces that were read are written by the transport; nothing is
sent past the transport while its buffer has data.
"""

import asyncio
import errno
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from kohort.broker.network.service import FileRange, Part
from kohort.protocol.codec import Buffer

PIECE_READ_BYTES: Final = 256 * 1024
"""Size of the pieces read by another thread."""

STAYS_CACHED_S: Final = 0.1
"""How long data that was in the page cache is assumed to stay there."""

READS_AT_ONCE: Final = 2
"""Maximum concurrent reads, over all connections."""

_IN_MEMORY: Final = (bytes, bytearray, memoryview)
_MORE: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_MORE", 0)
_CANNOT_SEND: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""Errors of file systems that do not support sendfile."""


class FileReads:
    """Reads pieces of files in other threads for slow connections, first come first served."""

    __slots__ = ("_under_way", "_waiting", "loop", "senders_left")

    def __init__(self, loop: asyncio.AbstractEventLoop, senders_max: int) -> None:
        """At most `senders_max` connections get a second descriptor; for other connections, file
        ranges are read into memory.
        """
        self.loop = loop
        self.senders_left = senders_max
        self._under_way = 0
        self._waiting: deque[tuple[FileSender, FileRange]] = deque()

    def enqueue(self, sender: "FileSender", part: FileRange) -> None:
        """Have another thread read a piece of `part`; the event loop calls `sender.on_read`."""
        self._waiting.append((sender, part))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._under_way < READS_AT_ONCE:
            sender, part = self._waiting.popleft()
            if sender.is_closed:
                continue
            self._under_way += 1
            reading = self.loop.run_in_executor(None, part.take, PIECE_READ_BYTES)
            reading.add_done_callback(partial(self._on_read, sender))

    def _on_read(self, sender: "FileSender", read: asyncio.Future[bytes]) -> None:
        self._under_way -= 1
        self._begin()
        sender.on_read(read)


class SenderOutput(Protocol):
    def send_on(self) -> None:
        """Called when the `FileSender` can continue. Must not raise."""
        ...


def has_ranges(parts: Sequence[Part]) -> bool:
    return not all(isinstance(part, _IN_MEMORY) for part in parts)


class FileSender:
    """Sends the pending output of one connection, from the first file range on; reused for later
    responses.
    """

    __slots__ = (
        "_cached_until_s", "_failure", "_found_until_s", "_is_reading", "_is_watching",
        "_must_read", "_number", "_output", "_parts", "_reads", "_socket", "_transport",
        "is_closed",
    )  # fmt: skip

    def __init__(
        self, transport: asyncio.Transport, output: SenderOutput, reads: FileReads
    ) -> None:
        self._transport = transport
        self._output = output
        self._reads = reads
        self._socket: socket.socket | None = None
        """A socket object for the duplicate descriptor; None if this connection got none."""
        self._number = -1
        """The duplicate of the connection's descriptor; -1 without one."""
        self._parts: deque[Part] = deque()
        self._found_until_s = 0.0
        """Until this time, ranges are sent without a check that they are in the page cache."""
        self._cached_until_s = 0.0
        """Until this time, the first pending range is sent without a check: `_found_until_s`, or
        `STAYS_CACHED_S` after the last check of this range."""
        self._is_reading = False
        """Whether another thread is reading a piece of a file."""
        self._is_watching = False
        """Whether the event loop watches for the socket to become writable."""
        self._failure = ""
        """The error of a failed read; as text, because the exception would keep the range and this
        object alive."""
        self.is_closed = False
        if reads.senders_left > 0:
            with suppress(OSError):
                self._number = os.dup(transport.get_extra_info("socket").fileno())
                self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, self._number)
                reads.senders_left -= 1
        self._must_read = self._socket is None
        """Whether files have to be read instead of being sent by the kernel."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the transport has not accepted."""
        return sum(map(len, self._parts))

    def begin(self, parts: Iterable[Part]) -> None:
        """Send these parts, whose ranges are in the page cache."""
        self._parts.extend(parts)
        self._found_until_s = self._cached_until_s = time.monotonic() + STAYS_CACHED_S

    def add(self, parts: Iterable[Part]) -> None:
        """Send these parts after all parts that were added before."""
        self._parts.extend(parts)

    def send(self) -> bool:
        """Send as much as the socket accepts now; return whether everything is sent.

        If not, `SenderOutput.send_on` or `resume_writing` of the transport's protocol is called
        when it can continue. Raises OSError of the socket (ConnectionError) or of a file; a part of
        a response may have been sent, so the connection must be closed.
        """
        if self._failure:
            raise OSError(self._failure)
        transport, parts = self._transport, self._parts
        is_full = False
        while parts and not (is_full or self._is_reading or transport.is_closing()):
            if transport.get_write_buffer_size():
                transport.set_write_buffer_limits(0, 0)
                break
            part = parts[0]
            if isinstance(part, _IN_MEMORY):
                self._send_buffers()
            else:
                is_full = self._send_range(part)
        if is_full != self._is_watching and not self.is_closed:
            self._watch(is_full)
        return not parts and not self.is_closed

    def close(self) -> None:
        """Release the files because the connection has closed."""
        if self.is_closed:
            return
        if self._is_watching:
            self._watch(False)
        self.is_closed = True
        self._parts.clear()
        if self._socket is not None:
            self._socket.close()
            self._reads.senders_left += 1

    def on_read(self, read: asyncio.Future[bytes]) -> None:
        """Write a piece that `FileReads` has read, and continue."""
        self._is_reading = False
        error = None if read.cancelled() else read.exception()
        if self.is_closed or read.cancelled():
            return
        if error is not None:
            self._failure = str(error) or repr(error)
        else:
            self._drop_if_sent()
            self._transport.write(read.result())
        self._output.send_on()

    # Internals.

    def _send_buffers(self) -> None:
        parts = self._parts
        buffers: list[Buffer] = []
        while parts and isinstance(part := parts[0], _IN_MEMORY):
            buffers.append(part)
            parts.popleft()
        if self._socket is None:
            self._transport.writelines(buffers)
            return
        data = b"".join(buffers)
        try:
            # With MSG_MORE, the kernel waits for the file range to fill the packet.
            sent = self._socket.send(data, _MORE if parts else socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            # Must be the last statement: `write` may close the connection.
            self._transport.write(data[sent:])

    def _send_range(self, part: FileRange) -> bool:
        if self._must_read or not self._is_cached(part):
            self._read_in_thread(part)
            return False
        try:
            part.send_to(self._number)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _CANNOT_SEND:
                raise
            self._must_read = True
            return False
        return not self._drop_if_sent()

    def _watch(self, is_wanted: bool) -> None:  # noqa: FBT001 - on or off.
        self._is_watching = is_wanted
        if is_wanted:
            self._reads.loop.add_writer(self._number, self._output.send_on)
        else:
            self._reads.loop.remove_writer(self._number)

    def _drop_if_sent(self) -> bool:
        """Drop the first part if it is completely sent, and return True; otherwise return False."""
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

    def _read_in_thread(self, part: FileRange) -> None:
        self._is_reading = True
        self._reads.enqueue(self, part)
