"""What one connection sends: small answers at the end of the turn, large ones at once; what lies in
files is sent by the kernel, from there.

Promises: bytes go out in the order in which they were given; `is_held` while the client does not
take them, so that nothing is executed for it; an error of any kind is its connection's end, and is
raised nowhere else.
"""

import asyncio
import logging
from typing import Final, Protocol

from kohort.broker.network.connection.files import FileSender, Reads, has_ranges
from kohort.broker.network.connection.limits import (
    SMALL_BYTES,
    WRITE_HIGH_WATER_BYTES,
    WRITE_LOW_WATER_BYTES,
)
from kohort.broker.network.iteration import Turns
from kohort.broker.network.memory import SlowReader, UnsentBytes
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.timeouts import CloseReason
from kohort.protocol.codec import Buffer

logger = logging.getLogger(__name__)

_NO_TRANSPORT: Final = asyncio.Transport()
"""Transport of an output that has none yet, or none any more; not to be called."""


class OutputHost(Protocol):
    """What the outputs of all connections share."""

    metrics: NetworkMetrics
    unsent: UnsentBytes
    turns: Turns
    reads: Reads


class Sending(SlowReader, Protocol):
    """The connection."""

    ip: str

    def on_taken(self) -> None:
        """The client has taken what held the connection back."""
        ...

    def on_files_sent(self) -> None:
        """The transport has got all of an answer that lay in files."""
        ...

    def end_by(self, error: Exception) -> None:
        """The output broke."""
        ...

    def abort_because(self, reason: CloseReason) -> None:
        """End without sending the rest."""
        ...


class Output:
    """See the module."""

    __slots__ = (
        "_connection",
        "_files",
        "_is_paused",
        "_metrics",
        "_reads",
        "_sender",
        "_transport",
        "_turns",
        "_unsent",
        "_unwritten",
        "is_held",
    )

    def __init__(self, connection: Sending, host: OutputHost) -> None:
        self.is_held = False
        """The client is behind, or is being sent what lies in files. Not to be set from outside."""
        self._connection = connection
        # What every answer needs is one step away.
        self._metrics = host.metrics
        self._turns = host.turns
        self._unsent = host.unsent
        self._reads = host.reads
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._unwritten: list[Buffer] = []
        """Small answers, which are written at the end of the turn."""
        self._files: FileSender | None = None
        """Sends what lies in files, once there was such an answer."""
        self._sender: FileSender | None = None
        """Has what is not handed to the transport yet, if a part of that lies in files."""
        self._is_paused = False

    def begin(self, transport: asyncio.Transport) -> None:
        """Send by this transport from now on."""
        self._transport = transport
        transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)

    def close(self) -> None:
        """The connection is gone. Not to be used any more."""
        self._unsent.remove(self._connection)
        self._unwritten.clear()
        self.give_up_files()
        self._transport = _NO_TRANSPORT
        # It knows us, too: only the collector could part us.
        del self._connection

    # For the connection.

    @property
    def is_sending_files(self) -> bool:
        """Whether the transport has not been given all of an answer yet."""
        return self._sender is not None

    def write(self, answer: list[Buffer], byte_count: int) -> None:
        """Send an answer, or several, of so many bytes."""
        self._metrics.sent_bytes += byte_count
        if self._sender is not None:
            self._sender.add(answer)
            return
        is_first = not self._unwritten
        self._unwritten += answer
        if byte_count > SMALL_BYTES:
            if has_ranges(answer):
                self._begin_files()
            else:
                self.write_out()
        elif is_first:
            self._turns.write_soon(self, byte_count)

    def note_unsent(self) -> None:
        """Tell the budget what waits in the transport: many may be behind by less than what stops
        one.
        """
        self._unsent.update(self._connection, self._transport.get_write_buffer_size())

    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        of_files = 0 if self._sender is None else self._sender.unsent_bytes
        return of_files + self._transport.get_write_buffer_size()

    def give_up_files(self) -> None:
        """Send no more of what lies in files."""
        self._sender = None
        self.is_held = self._is_paused
        if self._files is not None:
            self._files.close()
            self._files = None

    # For the transport.

    def pause(self) -> None:
        """The client is behind."""
        self._is_paused = self.is_held = True
        self._unsent.add(self._connection, self._transport.get_write_buffer_size())

    def resume(self) -> None:
        """The client has caught up."""
        self._is_paused = False
        self._unsent.remove(self._connection)
        self.send_on()

    # Called once in a turn.

    def write_out(self) -> None:
        """Hand small answers to the transport. Never raises."""
        unwritten = self._unwritten
        if not unwritten:
            return
        self._unwritten = []
        try:
            # Ranges are large, and what is large does not wait to be written here.
            if len(unwritten) == 1:
                self._transport.write(unwritten[0])
            else:
                self._transport.writelines(unwritten)
            if self._is_paused:
                # The answer to the one request that was under way when the client fell behind.
                self.note_unsent()
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self._connection.end_by(error)

    # Files.

    def send_on(self) -> None:
        """Called by the sender of files as well, when it has read what was not in memory."""
        self._send_some()
        if self._sender is None:
            self.is_held = self._is_paused
            self._connection.on_taken()

    def _begin_files(self) -> None:
        parts, self._unwritten = self._unwritten, []
        if self._files is None:
            self._files = FileSender(self._transport, self, self._reads)
        self._sender = self._files
        self.is_held = True
        self._sender.begin(parts)
        self._send_some()

    def _send_some(self) -> None:
        """Send what lies in files as far as the socket takes it."""
        sender, connection = self._sender, self._connection
        try:
            if sender is None or not sender.send():
                return
        except ConnectionError:
            connection.abort_because(CloseReason.CLIENT)
            return
        except OSError as error:
            # A part of an answer is sent, and nothing else may follow it.
            logger.error(  # noqa: TRY400 - what is wrong is the disk, not this code.
                "An answer to %s is broken off: %s", connection.ip, str(error)
            )
            connection.abort_because(CloseReason.FAULT)
            return
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            connection.end_by(error)
            return
        self._sender = None
        self.is_held = self._is_paused
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        connection.on_files_sent()
