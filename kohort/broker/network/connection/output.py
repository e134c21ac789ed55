"""The responses of one connection: small ones are written at the end of the event loop iteration,
large ones immediately; file ranges are sent by the kernel.

Guarantees: bytes are sent in the order in which they were written; `is_blocked` is set while the
client does not read them, so that none of its requests are executed; an error closes only this
connection, and is never raised.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kohort.broker.network.connection.files import FileSender, has_ranges
from kohort.broker.network.connection.limits import (
    SMALL_BYTES,
    WRITE_HIGH_WATER_BYTES,
    WRITE_LOW_WATER_BYTES,
)
from kohort.broker.network.timeouts import CloseReason
from kohort.protocol.codec import Buffer

if TYPE_CHECKING:
    from kohort.broker.network.connection.connection import Connection
    from kohort.broker.network.connection.host import ConnectionHost

logger = logging.getLogger(__name__)

_NO_TRANSPORT: Final = asyncio.Transport()
"""Transport before `begin` and after `close`; its methods must not be called."""


class Output:
    __slots__ = (
        "_connection",
        "_files",
        "_is_paused",
        "_metrics",
        "_reads",
        "_scheduler",
        "_sender",
        "_transport",
        "_unsent",
        "_unwritten",
        "is_blocked",
    )

    def __init__(self, connection: Connection, host: ConnectionHost) -> None:
        self.is_blocked = False
        """Whether the client is slow, or file ranges are being sent to it; set only here."""
        self._connection = connection
        # Attributes of the host that every response uses; copied to save a lookup.
        self._metrics = host.metrics
        self._scheduler = host.scheduler
        self._unsent = host.unsent
        self._reads = host.reads
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._unwritten: list[Buffer] = []
        """Small responses, to be written at the end of the iteration."""
        self._files: FileSender | None = None
        """Sends file ranges; created for the first response that has some."""
        self._sender: FileSender | None = None
        """`_files` while it has data that the transport has not accepted; None otherwise."""
        self._is_paused = False
        """Whether the transport's buffer is full."""

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)

    def close(self) -> None:
        """Release everything, because the connection is lost."""
        self._unsent.remove(self._connection)
        self._unwritten.clear()
        self.drop_files()
        self._transport = _NO_TRANSPORT
        # Breaks the reference cycle of connection and output, so that they are freed without the
        # cyclic garbage collector.
        del self._connection

    # Called by the connection.

    @property
    def is_sending_files(self) -> bool:
        """Whether the transport has not accepted all of a response with file ranges."""
        return self._sender is not None

    def write(self, buffers: list[Buffer], byte_count: int) -> None:
        """Send one or several responses, `byte_count` bytes in total."""
        self._metrics.sent_bytes += byte_count
        if self._sender is not None:
            self._sender.add(buffers)
            return
        is_first = not self._unwritten
        self._unwritten += buffers
        if byte_count > SMALL_BYTES:
            if has_ranges(buffers):
                self._begin_files()
            else:
                self.write_out()
        elif is_first:
            self._scheduler.schedule_write(self, byte_count)

    def update_unsent(self) -> int:
        """Record how full the transport's buffer is, even if it is below its high-water mark.
        Return the number of bytes not yet passed to the kernel, including file ranges.
        """
        unsent_bytes = self._transport.get_write_buffer_size()
        self._unsent.update(self._connection, unsent_bytes)
        if self._sender is not None:
            unsent_bytes += self._sender.unsent_bytes
        return unsent_bytes

    def drop_files(self) -> None:
        """Stop sending file ranges."""
        self._sender = None
        self.is_blocked = self._is_paused
        if self._files is not None:
            self._files.close()
            self._files = None

    # Called by the transport.

    def pause(self) -> None:
        """Called when the transport's buffer is full."""
        self._is_paused = self.is_blocked = True
        self._unsent.add(self._connection, self._transport.get_write_buffer_size())

    def resume(self) -> None:
        """Called when the transport's buffer has drained."""
        self._is_paused = False
        self._unsent.remove(self._connection)
        self.send_on()

    # Called by the scheduler.

    def write_out(self) -> None:
        """Pass small responses to the transport. Never raises."""
        unwritten = self._unwritten
        if not unwritten:
            return
        self._unwritten = []
        try:
            # No file ranges: responses with file ranges are large, so `write` sends them at once.
            if len(unwritten) == 1:
                self._transport.write(unwritten[0])
            else:
                self._transport.writelines(unwritten)
            if self._is_paused:
                # Possible for the response to a request that was parked before the client was slow.
                self.update_unsent()
        except Exception as error:  # noqa: BLE001 - closes only this connection.
            self._connection.fail(error)

    # Files.

    def send_on(self) -> None:
        """Continue sending after a file read or a full buffer."""
        self._send_some()
        if self._sender is None:
            self.is_blocked = self._is_paused
            self._connection.schedule()

    def _begin_files(self) -> None:
        parts, self._unwritten = self._unwritten, []
        if self._files is None:
            self._files = FileSender(self._transport, self, self._reads)
        self._sender = self._files
        self.is_blocked = True
        self._sender.begin(parts)
        self._send_some()

    def _send_some(self) -> None:
        """Send file ranges while the socket accepts them."""
        sender, connection = self._sender, self._connection
        try:
            if sender is None or not sender.send():
                return
        except ConnectionError:
            connection.abort(CloseReason.CLIENT)
            return
        except OSError as error:
            # The response was sent only in part, so no other response may follow.
            logger.error(  # noqa: TRY400 - the cause is the disk, not this code.
                "Closed the connection of %s: cannot read the rest of a response: %s",
                connection.ip,
                str(error),
            )
            connection.abort(CloseReason.FAULT)
            return
        except Exception as error:  # noqa: BLE001 - closes only this connection.
            connection.fail(error)
            return
        self._sender = None
        self.is_blocked = self._is_paused
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        connection.on_files_sent()
