"""TLS between a transport and a connection: it is the protocol of the one and the transport of the
other.

The connection sees a transport that reads and writes plaintext; the transport sees a protocol that
reads ciphertext into a buffer shared by all such connections. So all limits, timeouts and counts of
a connection apply during the handshake as well, and a connection without TLS pays nothing.

Guarantees: at most one read of ciphertext waits to be decrypted, and it counts as request memory;
nothing is encrypted while the transport has too much to write; while a thread computes a step of
the handshake, nothing else uses the pump.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol, cast

from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.iteration import Departures
from kohort.broker.network.memory import MemoryReservation
from kohort.broker.network.tls.handshakes import Handshakes, Outcome, shake_hands
from kohort.broker.network.tls.pump import RECORD_BYTES, WRITE_SLICE_BYTES, TlsError, TlsPump
from kohort.broker.network.tls.state import LEGAL_NEXT, TlsState
from kohort.protocol.codec import Buffer

_HANDSHAKING: Final = TlsState.HANDSHAKING
_OPEN: Final = TlsState.OPEN
_CLOSING: Final = TlsState.CLOSING
_ENDED: Final = TlsState.ENDED
_LOST: Final = TlsState.LOST

CIPHERTEXT_BUFFER_BYTES: Final = 256 * 1024

HANDSHAKE_BYTES_MAX: Final = 128 * 1024
"""What a client may send before the handshake is complete; a certificate chain has a few KiB."""


class TlsHost(Protocol):
    """Resources shared by all TLS connections; provided by the server."""

    ciphertext_buffer: memoryview
    handshakes: Handshakes
    departures: Departures


class TlsConnection(asyncio.BufferedProtocol):
    """The protocol of a TLS socket, and the transport of the connection behind it."""

    __slots__ = (
        "_connection",
        "_held",
        "_host",
        "_is_at_work",
        "_is_handshake_due",
        "_is_pumping",
        "_is_reading",
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
        """`on_established` creates the connection's session, or raises TlsError."""
        self._host = host
        self._connection = connection
        self._pump = TlsPump(context)
        self._on_established = on_established
        self._transport: asyncio.Transport = asyncio.Transport()
        self._memory: MemoryReservation = connection.memory
        self._held: bytes = b""
        """Ciphertext that was received and cannot be decrypted yet."""
        self._received_bytes = 0
        """Bytes received before the handshake was complete."""
        self._unencrypted: deque[memoryview] = deque()
        self._unencrypted_bytes = 0
        self._state = _HANDSHAKING
        self._is_reading = True
        """Whether the connection wants plaintext."""
        self._is_write_paused = False
        """Whether the transport has too much to write."""
        self._is_handshake_due = False
        """Whether this is in the queue of handshakes, where it may be though it is closing."""
        self._is_at_work = False
        """Whether a thread computes a step of the handshake, and has the pump."""
        self._is_pumping = False
        """Whether plaintext is being passed on, so that the connection may be calling back."""

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(cast(asyncio.Transport, self))
        if self._connection.is_refused and not self._state.is_closing:
            # It is held, and closed later; its data is not even looked at.
            self._become(_CLOSING)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature.
        if self._state is _HANDSHAKING:
            # A client may send its requests right behind its last message.
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
        # The transport was told to pause but reads nevertheless, or the handshake is not complete.
        self._hold(self._held + data)
        if state is _HANDSHAKING:
            self._received_bytes += nbytes
            if self._received_bytes > HANDSHAKE_BYTES_MAX:
                self._fail("a handshake of too many bytes")
            else:
                self._shake_hands_soon()

    def eof_received(self) -> bool:
        """Close soon, as a connection without TLS; frames have explicit ends."""
        self._host.departures.add(self._transport)
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
        if self._is_handshake_due:
            self._host.handshakes.forget(self)
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
        if not self._is_handshake_due and not self._is_at_work:
            self._transport.resume_reading()
        if not self._is_pumping:
            # Not immediately: the connection is in the middle of something. Not after other
            # clients' handshakes either, of which there may be very many.
            asyncio.get_running_loop().call_soon(self._decrypt_held)

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._state.is_closing or self._transport.is_closing()

    def write(self, data: Buffer) -> None:
        """Encrypt and pass on; nearly every answer is small and nothing is in its way."""
        is_held = self._unencrypted or self._is_write_paused or self._state.is_closing
        if is_held or not 0 < len(data) <= WRITE_SLICE_BYTES:
            self.writelines((data,))
            return
        try:
            self._pump.write(data)
        except TlsError as error:
            self._fail(str(error))
            return
        self._transport.write(self._pump.take_output())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt each buffer in place; small ones are joined, since each record has a cost."""
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

    # Called by the queue of handshakes.

    @property
    def owner(self) -> str:
        """Owner of the client's address."""
        return self._connection.owner

    def begin_work(self) -> Callable[[], Outcome] | None:
        """Return the handshake's next step, with all received data, for a thread."""
        self._is_handshake_due = False
        if self._state.is_closing:
            return None
        self._is_at_work = True
        return partial(shake_hands, self._pump, self._held)

    def end_work(self, outcome: Outcome | BaseException) -> None:
        """Answer, and go on with what has come meanwhile. Never raises: others are queued."""
        self._is_at_work = False
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            self._go_on_after_work(outcome)
        except TlsError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - the end of this connection, and of no other.
            self._connection.end_by(error)

    # Internals.

    def _become(self, state: TlsState) -> None:
        assert state in LEGAL_NEXT[self._state], (self._state, state)
        self._state = state

    def _add(self, parts: list[Buffer], byte_count: int) -> None:
        if byte_count:
            self._unencrypted.append(memoryview(parts[0] if len(parts) == 1 else b"".join(parts)))
            self._unencrypted_bytes += byte_count

    def _encrypt(self) -> None:
        """Encrypt and pass on what was written, as far as the transport takes it."""
        try:
            while self._unencrypted and not self._is_write_paused and not self._state.is_ended:
                first = self._unencrypted[0]
                piece = first[:WRITE_SLICE_BYTES]
                self._pump.write(piece)
                if len(piece) == len(first):
                    self._unencrypted.popleft()
                else:
                    self._unencrypted[0] = first[len(piece) :]
                self._unencrypted_bytes -= len(piece)
                self._transport.write(self._pump.take_output())
        except TlsError as error:
            self._fail(str(error))
            return
        if self._state is _CLOSING and not self._unencrypted and not self._is_at_work:
            self._become(_ENDED)
            self._pump.say_goodbye()
            self._send_output()
            self._transport.close()

    def _shake_hands_soon(self) -> None:
        """Have a step done, and read no more until it is."""
        if not self._is_handshake_due and not self._is_at_work:
            self._is_handshake_due = True
            self._transport.pause_reading()
            self._host.handshakes.soon(self)

    def _go_on_after_work(self, outcome: Outcome) -> None:
        if self._state.is_closing:
            # It has waited for the pump.
            self._encrypt()
            return
        self._hold(self._held[outcome.used_bytes :])
        if outcome.failure:
            raise TlsError(outcome.failure)
        if not self._pump.is_established:
            self._send_output()
            if self._held:
                # The transport read once more when it was told to pause.
                self._shake_hands_soon()
            else:
                self._read_on()
            return
        self._become(_OPEN)
        self._on_established(self._connection, self._pump)
        self._send_output()
        # Data after the handshake may be in the pump already.
        self._decrypt_held()
        self._read_on()

    def _read_on(self) -> None:
        """Read again after a step of the handshake."""
        if self._is_reading and not self._state.is_closing:
            self._transport.resume_reading()

    def _decrypt_held(self) -> None:
        if self._state.is_closing or not self._is_reading:
            return
        data = self._held
        self._hold(b"")
        self._decrypt(memoryview(data))

    def _decrypt(self, data: memoryview) -> None:
        """Pass on plaintext until there is none, or the connection wants no more."""
        connection, pump, begin, end = self._connection, self._pump, 0, len(data)
        self._is_pumping = True
        try:
            while self._is_reading and not self._state.is_ended:
                if not pump.is_dry:
                    count = pump.read_into(connection.get_buffer(-1))
                    if count:
                        connection.buffer_updated(count)
                elif pump.has_ended:
                    # This may take some time, if the peer does not read its responses.
                    self.close()
                    return
                elif begin < end:
                    piece = data[begin : begin + RECORD_BYTES]
                    begin += len(piece)
                    pump.feed(piece)
                else:
                    break
        except TlsError as error:
            self._fail(str(error))
            return
        finally:
            self._is_pumping = False
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
        output = b"" if self._is_at_work else self._pump.take_output()
        if output:
            self._transport.write(output)

    def _fail(self, reason: str) -> None:
        """Close this connection, with an alert if there is one."""
        if self._state.is_ended:
            return
        self._become(_ENDED)
        self._connection.tls_failed(reason)
        self._send_output()
        self._transport.close()
