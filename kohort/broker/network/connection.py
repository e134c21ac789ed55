"""One client connection: requests in, one at a time; responses out, in the order of the requests.

Promises: the next request is not started before the one before it is answered; what a client sends
ahead stays in its socket but for one read or one frame; a client that does not take its responses
gets no further request executed; an answer that is ready at once costs neither a task nor a future,
and the answers of one turn are one write. Whatever a peer sends, only its own connection ends.

Small requests and answers wait for those of other connections, within the turn; see `turns`.
"""

import asyncio
import logging
from typing import Final, Protocol, cast

from kohort.broker.core.security.session import ANONYMOUS, Session
from kohort.broker.network.file_sending import FileSender, Reads, has_ranges
from kohort.broker.network.frames import FrameError, FrameReader
from kohort.broker.network.last_fetches import LastFetches
from kohort.broker.network.limits import (
    REQUESTS_PER_TURN,
    SMALL_BYTES,
    WRITE_HIGH_WATER_BYTES,
    WRITE_LOW_WATER_BYTES,
    NetworkLimits,
)
from kohort.broker.network.listener import Listener
from kohort.broker.network.memory import Claimant, RequestMemory, UnsentBytes
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.peer_log import PeerLog
from kohort.broker.network.peer_state import has_peer_left
from kohort.broker.network.service import (
    Answer,
    CloseConnection,
    ConnectionInfo,
    Service,
)
from kohort.broker.network.timeouts import CloseReason, ConnectionTimeouts
from kohort.broker.network.turns import Turns
from kohort.broker.runtime.later import Later
from kohort.protocol.codec import Buffer

logger = logging.getLogger(__name__)

_NO_TRANSPORT: Final = asyncio.Transport()
"""Transport of a connection that is not made yet, or is lost; none of its methods can be called."""


class ConnectionHost(Protocol):
    """What all connections share; the server."""

    receive_buffer: memoryview
    limits: NetworkLimits
    service: Service
    metrics: NetworkMetrics
    log: PeerLog
    memory: RequestMemory
    unsent: UnsentBytes
    turns: Turns
    reads: Reads
    fetches: LastFetches
    sends_files: bool
    """Its sockets are written to as they are, so that the kernel may write to them as well."""

    def connection_made(self, connection: "Connection") -> str | None:
        """Admit `connection`, or say which config forbids it."""
        ...

    def connection_lost(self, connection: "Connection") -> None:
        """Called once for each that was admitted."""
        ...

    def let_in(self, connection: "Connection") -> None:
        """TLS and SASL are over; called again after each reauthentication."""
        ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket.

    asyncio's own transports look for the base class; uvloop's look for its methods.
    """

    __slots__ = (
        "_close_reason",
        "_frame_in_execution",
        "_host",
        "_is_closing",
        "_is_due",
        "_is_lost",
        "_is_reading",
        "_is_stopping",
        "_is_write_paused",
        "_metrics",
        "_mute",
        "_pending",
        "_reader",
        "_sender",
        "_service",
        "_timeouts",
        "_transport",
        "_turns",
        "_unwritten",
        "info",
        "ip",
        "listener",
        "memory",
    )

    def __init__(self, host: ConnectionHost, listener: Listener) -> None:
        self._host = host
        self.listener = listener
        # What every request needs is one step away.
        self._metrics = host.metrics
        self._service = host.service
        self._turns = host.turns
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self.memory = Claimant(host.memory, self._on_memory_granted, self._close_slow_upload)
        self._reader = FrameReader(
            host.receive_buffer,
            self.memory,
            listener.first_frame_max_bytes or host.limits.socket_request_max_bytes,
        )
        self._timeouts = ConnectionTimeouts()
        self._pending: Later[Answer] | None = None
        """The one request that is executed and not answered."""
        self._frame_in_execution: Buffer = b""
        self._unwritten: list[Buffer] = []
        """Small answers, which are written at the end of the turn."""
        self._sender: FileSender | None = None
        """Has what is not handed to the transport yet, if a part of that lies in files."""
        self._mute: asyncio.TimerHandle | None = None
        """Ends the time for which the client is held back."""
        self._is_due = False
        """Will requests that are here be executed in this turn or the next?"""
        self._is_reading = True
        self._is_write_paused = False
        self._is_stopping = False
        self._is_closing = False
        self._is_lost = False
        self._close_reason = CloseReason.CLIENT
        self.ip = ""
        """IP address of the client; empty if it was not admitted."""
        self.info = ConnectionInfo(peer_host="")

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods and not the base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if not peer:
            # It was gone before it was accepted.
            self._is_closing = True
            transport.abort()
            return
        self.ip = self.memory.address = str(peer[0])
        refused_by = self._host.connection_made(self)
        if refused_by is not None:
            self._metrics.connection_refused(refused_by)
            self._host.log.note(
                "refused", "Refused a connection from %s because of %s", self.ip, refused_by
            )
            self.ip = ""
            self._is_closing = True
            transport.abort()
            return
        self.info = ConnectionInfo(
            peer_host=f"/{self.ip}",
            session=Session(ANONYMOUS, self.ip, self.listener.name),
            sends_files=self._host.sends_files and self.listener.tls is None,
        )
        if self.listener.new_service is not None:
            self._service = self.listener.new_service(self)
        transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        self._metrics.connection_opened()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature.
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._timeouts.is_active = True
        self._metrics.bytes_received(nbytes)
        if nbytes > SMALL_BYTES:
            self._reader.received(nbytes)
            self._work()
        elif self._reader.received_small(nbytes):
            self._work_soon()
        else:
            self._work()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._host.unsent.add(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._host.unsent.remove(self)
        self.send_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as above.
        self._is_lost = self._is_closing = True
        self._host.unsent.remove(self)
        self._unwritten.clear()
        self._give_up_files()
        if self.ip:
            self._metrics.connection_closed(self._close_reason)
            self._host.connection_lost(self)
            self._service.connection_lost(self.info)
        if self._pending is not None:
            self._pending.cancel()
        if self._mute is not None:
            self._mute.cancel()
            self._mute = None
        self._reader.close()
        # The budget, the transport and what lets clients in know us; without this only the
        # collector could part us.
        self.info.authentication = None
        self._service = self._host.service
        self.memory.close()
        self._transport = _NO_TRANSPORT

    # Called by TLS, and by the service that lets clients in.

    def let_in(self, session: Session, service: Service | None = None) -> None:
        """Serve requests of `session` from now on, by `service` or as all others."""
        self.info.session = session
        self._service = service or self._host.service
        self._reader.frame_max_bytes = self._host.limits.socket_request_max_bytes
        self._host.let_in(self)

    def tls_failed(self, reason: str) -> None:
        """TLS has ended, and closes the connection when its last words are written."""
        if not self._is_closing:
            self._is_closing = True
            self._close_reason = CloseReason.TLS
            self._host.log.note(
                CloseReason.TLS, "Closed the connection of %s: TLS: %s", self.ip, reason
            )

    # Called once in a turn.

    def execute_due(self) -> None:
        self._is_due = False
        if self._is_closing:
            return
        frame = self._reader.take_sole() if self._may_execute() else None
        if frame is None:
            self._work()
        else:
            self._execute_sole(frame)

    def write_out(self) -> None:
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
            if self._is_write_paused:
                # The answer to the one request that was under way when the client fell behind.
                self._host.unsent.note(self, self._transport.get_write_buffer_size())
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self._end_by(error)

    # Called by the sender of files, when it has read what was not in memory.

    def send_on(self) -> None:
        self._send_some()
        if self._sender is None:
            self._work_soon()

    # Called by the server.

    def check(self, now_ms: int) -> None:
        """Close the connection if the client has kept us waiting for too long."""
        if self._is_lost:
            return
        # Many may be behind by less than what stops one.
        self._host.unsent.note(self, self._transport.get_write_buffer_size())
        is_waiting_for_us = (
            self._pending is not None or self._mute is not None or self._reader.is_starved
        )
        fetches_as = self.info.fetches_as
        if fetches_as is not None:
            self._host.fetches.note(fetches_as, self.info.peer_host)
            if not is_waiting_for_us:
                self.info.fetches_as = None
        reason = self._timeouts.check(
            now_ms,
            self._host.limits,
            unsent_bytes=self._unsent_bytes(),
            # What we do not read, the client cannot be late with.
            part=None if is_waiting_for_us or not self._is_reading else self._reader.part,
            is_waiting_for_us=is_waiting_for_us,
            is_memory_short=self._host.memory.waiting_count > 0,
            is_closing=self._is_closing,
        )
        if reason is not None:
            self._abort(reason)
        elif not self._is_reading and has_peer_left(self._transport):
            self._abort(CloseReason.CLIENT)

    def stop(self) -> None:
        """Execute nothing more; close once the request under way is answered and sent."""
        self._is_stopping = True
        if self._pending is None:
            self._close(CloseReason.SHUTDOWN)

    def abort(self) -> None:
        """Close now, whatever is under way."""
        self._abort(CloseReason.SHUTDOWN)

    def close_slow_reader(self) -> None:
        self._abort(CloseReason.SLOW_READER)

    def close_arrival(self, reason: CloseReason) -> None:
        """Close it, because it is not let in yet."""
        self._abort(reason)

    # Within.

    def _may_execute(self) -> bool:
        return not (
            self._pending is not None
            or self._is_write_paused
            or self._is_closing
            or self._is_stopping
            or self._sender is not None
            or self._mute is not None
        )

    def _work(self) -> None:
        """Execute the requests that are here until one must wait or the turn is over."""
        try:
            if self._may_execute():
                self._execute()
            self._reader.keep_rest()
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self._end_by(error)
        if self._reader.is_empty and self._is_reading:
            return
        if self._reader.has_frame and self._may_execute():
            self._work_soon()
        self._regulate_reading()

    def _execute_sole(self, frame: bytes) -> None:
        """Nearly every request: `_work` for one that came alone and whole."""
        try:
            answer = self._service.serve(self.info, frame)
            if isinstance(answer, list):
                self._write(answer, _byte_count(answer))
            elif answer is not None:
                self._wait_for(answer, frame)
            if self.info.throttle_ms:
                self._hold_back()
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self._end_by(error)
        if not self._is_reading:
            self._regulate_reading()

    def _execute(self) -> None:
        """Called when `_may_execute`; leaves off when that has changed."""
        responses: list[Buffer] = []
        response_bytes = 0
        serve = self._service.serve
        try:
            for _ in range(REQUESTS_PER_TURN):
                frame = self._reader.next_frame()
                if frame is None:
                    return
                answer = serve(self.info, frame)
                if isinstance(answer, Later):
                    if responses:
                        # Before the other's, which may be there as soon as it is waited for.
                        self._write(responses, response_bytes)
                        responses = []
                    self._wait_for(answer, frame)
                    return
                if frame.__class__ is bytearray:
                    self.memory.give_back(len(frame))
                if answer is not None:
                    responses += answer
                    response_bytes += _byte_count(answer)
                if self.info.throttle_ms:
                    self._hold_back()
                    return
                if response_bytes > WRITE_HIGH_WATER_BYTES:
                    self._write(responses, response_bytes)
                    responses, response_bytes = [], 0
                    if not self._may_execute():
                        return
        finally:
            if responses:
                self._write(responses, response_bytes)

    def _wait_for(self, pending: Later[Answer], frame: Buffer) -> None:
        if frame.__class__ is not bytearray:
            self.memory.take(len(frame))
        self._pending = pending
        self._frame_in_execution = frame
        self._metrics.request_waits()
        pending.on_done(self._on_answered)

    def _on_answered(self, later: Later[Answer]) -> None:
        self._pending = None
        frame, self._frame_in_execution = self._frame_in_execution, b""
        self._metrics.request_waited()
        if self._is_lost:
            return
        self.memory.give_back(len(frame))
        try:
            answer = later.result()
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self._end_by(error)
            return
        if answer is not None and not self._is_closing:
            self._write(answer, _byte_count(answer))
        if self.info.throttle_ms:
            self._hold_back()
        if self._is_stopping:
            self._close(CloseReason.SHUTDOWN)
        elif not (self._is_reading and self._reader.is_empty):
            # Not at once: the code that gives an answer is in the middle of something.
            self._work_soon()

    def _write(self, responses: list[Buffer], byte_count: int) -> None:
        self._metrics.bytes_sent(byte_count)
        if self._sender is not None:
            self._sender.add(responses)
            return
        is_first = not self._unwritten
        self._unwritten += responses
        if byte_count > SMALL_BYTES:
            if has_ranges(responses):
                self._send_files()
            else:
                self.write_out()
        elif is_first:
            self._turns.write_soon(self, byte_count)

    def _send_files(self) -> None:
        parts, self._unwritten = self._unwritten, []
        self._sender = FileSender(self._transport, self, self._host.reads)
        self._sender.add(parts)
        self._send_some()

    def _send_some(self) -> None:
        """Send what lies in files as far as the socket takes it."""
        sender = self._sender
        try:
            if sender is None or not sender.send():
                return
        except ConnectionError:
            self._abort(CloseReason.CLIENT)
            return
        except OSError as error:
            # A part of an answer is sent, and nothing else may follow it.
            logger.error("An answer to %s is broken off: %s", self.ip, str(error))  # noqa: TRY400
            self._abort(CloseReason.FAULT)
            return
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self._end_by(error)
            return
        self._sender = None
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        if self._is_closing:
            self._transport.close()

    def _give_up_files(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _unsent_bytes(self) -> int:
        of_files = 0 if self._sender is None else self._sender.unsent_bytes
        return of_files + self._transport.get_write_buffer_size()

    def _work_soon(self) -> None:
        if not self._is_due and not self._is_closing:
            self._is_due = True
            self._turns.execute_soon(self)

    def _on_memory_granted(self) -> None:
        if self._is_closing:
            return
        try:
            self._reader.grow()
        except Exception as error:  # noqa: BLE001 - or the code that gave back would end for it.
            self._end_by(error)
        self._regulate_reading()

    def _close_slow_upload(self) -> None:
        self._abort(CloseReason.SLOW_UPLOAD)

    def _regulate_reading(self) -> None:
        """Read unless a whole frame is waiting: what the client sends ahead can stay with it.

        Reading goes on while a request is parked, because that is how we learn that the client is
        gone.
        """
        should_read = not (
            self._reader.has_frame or self._reader.is_starved or self._mute is not None
        )
        if should_read == self._is_reading or self._is_closing:
            return
        self._is_reading = should_read
        if should_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _hold_back(self) -> None:
        """Neither read nor execute anything for the time that the last answer tells."""
        throttle_ms, self.info.throttle_ms = self.info.throttle_ms, 0
        if not self._is_closing:
            self._mute = self._turns.call_later(throttle_ms, self._go_on)
            self._regulate_reading()

    def _go_on(self) -> None:
        self._mute = None
        self._regulate_reading()
        self._work_soon()

    def _end_by(self, error: Exception) -> None:
        """The end of this connection, and of no other."""
        if isinstance(error, FrameError):
            self._metrics.request_rejected(CloseReason.BAD_FRAME)
            self._close(CloseReason.BAD_FRAME, error)
        elif isinstance(error, CloseConnection):
            if error.answer is not None and not self._is_closing:
                self._write(error.answer, _byte_count(error.answer))
            self._close(error.reason, error if error.is_told else None)
        else:
            logger.error("A fault of ours ends the connection of %s", self.ip, exc_info=error)
            self._abort(CloseReason.FAULT)

    def _close(self, reason: CloseReason, error: Exception | None = None) -> None:
        """Close when all that was written is sent; `check` sees to it that this does not last."""
        if self._is_closing:
            return
        self._is_closing = True
        self._close_reason = reason
        if error is not None:
            self._host.log.note(reason, "Closed the connection of %s: %s", self.ip, error)
        self.write_out()
        if self._sender is None:
            self._transport.close()

    def _abort(self, reason: CloseReason) -> None:
        if self._is_lost:
            return
        if not self._is_closing:
            self._close_reason = reason
            if reason.is_the_clients_fault:
                self._host.log.note_once(
                    reason, self.ip, "Closed the connection of %s: %s", self.ip, reason.text
                )
        self._is_closing = True
        self.write_out()
        self._give_up_files()
        self._transport.abort()


def _byte_count(buffers: list[Buffer]) -> int:
    return sum(map(len, buffers))
