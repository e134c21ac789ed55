"""TLS between a transport and a connection: `TlsConnection` is the transport's protocol, and the
connection's transport.

The connection sees a transport that reads and writes plaintext; the transport sees a protocol that
reads ciphertext into a buffer shared by all TLS connections. Therefore all limits, timeouts and
metrics of a connection apply during the handshake as well, and connections without TLS pay nothing.

Guarantees: at most one read of ciphertext waits for decryption, and it counts as request memory;
nothing is encrypted while the transport's buffer is full; while a thread computes a step of the
handshake, nothing else uses the `TlsPump`.

`TlsState` does not show whether the connection reads plaintext, the transport's buffer is full, a
handshake step is queued, or plaintext is being passed on.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Final, Protocol, cast

from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.iteration import DisconnectQueue
from kohort.broker.network.memory import MemoryReservation
from kohort.broker.network.tls.handshakes import Handshakes, StepResult, run_step
from kohort.broker.network.tls.pump import RECORD_BYTES, WRITE_SLICE_BYTES, TlsError, TlsPump
from kohort.protocol.codec import Buffer


class TlsState(IntEnum):
    """The state of TLS; HANDSHAKING at first, even if the connection is not admitted. It passes
    through the states in this order, and may skip some.
    """

    HANDSHAKING = 0
    """Received data is kept for the next step of the handshake, up to a limit."""
    OPEN = 1
    """Received data is decrypted, written data is encrypted."""
    CLOSING = 2
    """The connection closes or is refused, or a side has sent close_notify. Received data is
    ignored, and nothing more can be written; data written before is still encrypted, as fast as the
    transport accepts it."""
    ENDED = 3
    """All written data is encrypted, or the client violated TLS, or the connection was aborted.
    Data is neither decrypted nor encrypted; the transport is closing."""
    LOST = 4
    """The transport has reported the loss of the connection."""

    def __init__(self, number: int) -> None:
        # Plain attributes, because they are read for every read and write.
        self.is_closing = number >= 2
        """Whether received data is ignored, and nothing can be written."""
        self.is_ended = number >= 3
        """Whether data is neither decrypted nor encrypted any more."""


_HANDSHAKING: Final = TlsState.HANDSHAKING
_OPEN: Final = TlsState.OPEN
_CLOSING: Final = TlsState.CLOSING
_ENDED: Final = TlsState.ENDED
_LOST: Final = TlsState.LOST

CIPHERTEXT_BUFFER_BYTES: Final = 256 * 1024

HANDSHAKE_BYTES_MAX: Final = 128 * 1024
"""Maximum bytes received in a handshake; a certificate chain has a few KiB."""


class TlsHost(Protocol):
    """The server's resources that all TLS connections share."""

    ciphertext_buffer: memoryview
    disconnects: DisconnectQueue

    @property
    def handshakes(self) -> Handshakes: ...


class TlsConnection(asyncio.BufferedProtocol):
    """The protocol of a TLS socket, and the transport of its `Connection`."""

    __slots__ = (
        "_connection",
        "_held",
        "_host",
        "_is_decrypting",
        "_is_in_thread",
        "_is_reading",
        "_is_step_queued",
        "_is_write_paused",
        "_memory",
        "_on_established",
        "_pump",
        "_received_bytes",
        "_state",
        "_transport",
        "_unencrypted",
        "_unencrypted_bytes",
    )

    def __init__(
        self,
        host: TlsHost,
        connection: Connection,
        context: ssl.SSLContext,
        on_established: Callable[[Connection, TlsPump], None],
    ) -> None:
        """`on_established` authenticates the client by its certificate, or raises TlsError."""
        self._host = host
        self._connection = connection
        self._pump = TlsPump(context)
        self._on_established = on_established
        self._transport: asyncio.Transport = asyncio.Transport()
        self._memory: MemoryReservation = connection.memory
        self._held: bytes = b""
        """Received ciphertext that cannot be decrypted yet."""
        self._received_bytes = 0
        self._unencrypted: deque[memoryview] = deque()
        """Written data that the transport cannot accept yet."""
        self._unencrypted_bytes = 0
        self._state = _HANDSHAKING
        self._is_reading = True
        """Whether the connection reads plaintext."""
        self._is_write_paused = False
        """Whether the transport's buffer is full."""
        self._is_step_queued = False
        """Whether a handshake step is queued, even if the connection is closing."""
        self._is_in_thread = False
        """Whether a thread computes a handshake step; nothing else may use `_pump` meanwhile."""
        self._is_decrypting = False
        """Whether `_decrypt` is running, possibly further up in the call stack."""

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(cast(asyncio.Transport, self))
        if self._connection.is_refused and not self._state.is_closing:
            # Ignore the data of a refused connection until its delayed close.
            self._become(_CLOSING)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature.
        if self._state is _HANDSHAKING:
            # A small buffer: requests that directly follow the client's last handshake message
            # count against HANDSHAKE_BYTES_MAX.
            return self._host.ciphertext_buffer[:RECORD_BYTES]
        return self._host.ciphertext_buffer

    def buffer_updated(self, nbytes: int) -> None:
        state = self._state
        if state.is_closing:
            return
        data = self._host.ciphertext_buffer[:nbytes]
        if state is _OPEN and not self._held and self._is_reading:
            self._decrypt(data)
            return
        # The transport reads although reading is paused, or the handshake is not complete.
        self._hold(self._held + data)
        if state is _HANDSHAKING:
            self._received_bytes += nbytes
            if self._received_bytes > HANDSHAKE_BYTES_MAX:
                self._fail("too many bytes in the handshake")
            else:
                self._queue_step()

    def eof_received(self) -> bool:
        """Queue the connection for closing. No close_notify is needed: frames have sizes."""
        self._host.disconnects.add(self._transport)
        return True

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._encrypt()
        if not self._is_write_paused and not self._state.is_ended:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._become(_LOST)
        if self._is_step_queued:
            self._host.handshakes.remove(self)
        self._hold(b"")
        self._unencrypted.clear()
        self._unencrypted_bytes = 0
        self._connection.connection_lost(exc)
        self._transport = asyncio.Transport()

    # The transport interface for the connection.

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._unencrypted_bytes

    def pause_reading(self) -> None:
        self._is_reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        if not self._is_step_queued and not self._is_in_thread:
            self._transport.resume_reading()
        if not self._is_decrypting:
            # Not immediately, because the connection may be processing a request; nor in the queue
            # of handshakes, which may be very long.
            asyncio.get_running_loop().call_soon(self._decrypt_held)

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._state.is_closing or self._transport.is_closing()

    def write(self, data: Buffer) -> None:
        """Encrypt and write data. Fast for one small response while no earlier data is queued."""
        must_queue = self._unencrypted or self._is_write_paused or self._state.is_closing
        if must_queue or not 0 < len(data) <= WRITE_SLICE_BYTES:
            self.writelines((data,))
            return
        try:
            self._pump.write(data)
        except TlsError as error:
            self._fail(str(error))
            return
        self._transport.write(self._pump.take_output())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt and write buffers; small ones are joined, to save TLS records."""
        if self._state.is_closing:
            return
        small: list[Buffer] = []
        small_bytes = 0
        for data in list_of_data:
            if small_bytes + len(data) <= WRITE_SLICE_BYTES:
                small.append(data)
                small_bytes += len(data)
                continue
            self._add(small, small_bytes)
            small, small_bytes = [data], len(data)
        self._add(small, small_bytes)
        self._encrypt()

    def close(self) -> None:
        """Close after everything written has been sent."""
        if not self._state.is_closing:
            self._become(_CLOSING)
        self._encrypt()

    def abort(self) -> None:
        if not self._state.is_ended:
            self._become(_ENDED)
        self._transport.abort()

    # Called by `Handshakes`.

    @property
    def address_block(self) -> str:
        return self._connection.address_block

    def start_step(self) -> Callable[[], StepResult] | None:
        """Return a function, to be run in a thread, that computes the next handshake step from all
        received data; None if the connection is closing.
        """
        self._is_step_queued = False
        if self._state.is_closing:
            return None
        self._is_in_thread = True
        return partial(run_step, self._pump, self._held)

    def finish_step(self, result: StepResult | BaseException) -> None:
        """Send the step's output and process data received meanwhile. Never raises, because other
        connections' handshakes are queued behind this one.
        """
        self._is_in_thread = False
        try:
            if isinstance(result, BaseException):
                raise result
            self._on_step_result(result)
        except TlsError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - closes only this connection.
            self._connection.fail(error)

    # Internals.

    def _become(self, state: TlsState) -> None:
        assert state > self._state, (self._state, state)
        self._state = state

    def _add(self, parts: list[Buffer], byte_count: int) -> None:
        if byte_count:
            self._unencrypted.append(memoryview(parts[0] if len(parts) == 1 else b"".join(parts)))
            self._unencrypted_bytes += byte_count

    def _encrypt(self) -> None:
        try:
            while self._unencrypted and not self._is_write_paused and not self._state.is_ended:
                first = self._unencrypted[0]
                part = first[:WRITE_SLICE_BYTES]
                self._pump.write(part)
                if len(part) == len(first):
                    self._unencrypted.popleft()
                else:
                    self._unencrypted[0] = first[len(part) :]
                self._unencrypted_bytes -= len(part)
                self._transport.write(self._pump.take_output())
        except TlsError as error:
            self._fail(str(error))
            return
        if self._state is _CLOSING and not self._unencrypted and not self._is_in_thread:
            self._become(_ENDED)
            self._pump.close_notify()
            self._send_output()
            self._transport.close()

    def _queue_step(self) -> None:
        """Queue a handshake step, and pause reading until it is computed."""
        if not self._is_step_queued and not self._is_in_thread:
            self._is_step_queued = True
            self._transport.pause_reading()
            self._host.handshakes.schedule(self)

    def _on_step_result(self, result: StepResult) -> None:
        if self._state.is_closing:
            # `close` was called while a thread used the pump; complete it now.
            self._encrypt()
            return
        self._hold(self._held[result.used_bytes :])
        if result.failure:
            raise TlsError(result.failure)
        if not self._pump.is_established:
            self._send_output()
            if self._held:
                # The transport has read once more after reading was paused.
                self._queue_step()
            else:
                self._resume_reading()
            return
        self._become(_OPEN)
        self._on_established(self._connection, self._pump)
        self._send_output()
        # Requests may have arrived together with the last handshake message.
        self._decrypt_held()
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._is_reading and not self._state.is_closing:
            self._transport.resume_reading()

    def _decrypt_held(self) -> None:
        if self._state.is_closing or not self._is_reading:
            return
        data = self._held
        self._hold(b"")
        self._decrypt(memoryview(data))

    def _decrypt(self, data: memoryview) -> None:
        """Decrypt data, and pass the plaintext to the connection until it pauses reading."""
        connection, pump, begin, end = self._connection, self._pump, 0, len(data)
        self._is_decrypting = True
        try:
            while self._is_reading and not self._state.is_ended:
                if not pump.is_dry:
                    count = pump.read_into(connection.get_buffer(-1))
                    if count:
                        connection.buffer_updated(count)
                elif pump.has_ended:
                    # The transport closes only after the peer has read its responses.
                    self.close()
                    return
                elif begin < end:
                    record = data[begin : begin + RECORD_BYTES]
                    begin += len(record)
                    pump.feed(record)
                else:
                    break
        except TlsError as error:
            self._fail(str(error))
            return
        finally:
            self._is_decrypting = False
        if begin < end:
            self._hold(bytes(data[begin:]))
        self._send_output()

    def _hold(self, data: bytes) -> None:
        change = len(data) - len(self._held)
        if change > 0:
            self._memory.add(change)
        elif change:
            self._memory.release(-change)
        self._held = data

    def _send_output(self) -> None:
        """Send TLS's own messages: handshake, tickets, alerts."""
        output = b"" if self._is_in_thread else self._pump.take_output()
        if output:
            self._transport.write(output)

    def _fail(self, reason: str) -> None:
        """Close this connection; if OpenSSL has produced an alert, send it first."""
        if self._state.is_ended:
            return
        self._become(_ENDED)
        self._connection.tls_failed(reason)
        self._send_output()
        self._transport.close()
