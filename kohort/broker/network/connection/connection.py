"""One client connection: requests in, one at a time; responses out, in the order of the requests.

Guarantees:

- The next request is executed after the response to the previous one.
- Pipelined requests stay in the kernel's socket buffer, except the data of one read or one frame.
- While a client does not read its responses, no further request of it is executed.
- A response that is available immediately needs neither a task nor a future, and the responses of
  one iteration are one write.
- Whatever a peer sends, only its own connection is closed.
- The host is notified once of the loss of every admitted connection, which is then freed without
  the cyclic garbage collector.

Ways to end a connection, from the gentlest: `stop` when the broker shuts down, after the current
response; `_close` after all written responses have been sent; `fail` because of an exception, which
is logged, and answered if possible; `abort` at once, as when the client exceeds a time limit;
`drop` for a connection that was never admitted.
"""

import asyncio
import logging
from functools import partial
from typing import Final, cast

from kohort.broker.core.security.addresses import address_block_of, host_text
from kohort.broker.core.security.session import ANONYMOUS, Session
from kohort.broker.network.connection.end import ConnectionEnd, ConnectionState
from kohort.broker.network.connection.frames import FrameError, FrameReader
from kohort.broker.network.connection.host import ConnectionHost, Refusal
from kohort.broker.network.connection.limits import (
    REQUESTS_PER_ITERATION,
    SMALL_BYTES,
    WRITE_HIGH_WATER_BYTES,
    Throttle,
    is_closed_by_peer,
)
from kohort.broker.network.connection.output import Output
from kohort.broker.network.memory import MemoryReservation
from kohort.broker.network.service import (
    CloseConnection,
    ConnectionInfo,
    Listener,
    ResponseBuffers,
    Service,
)
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.runtime.deferred import Deferred
from kohort.protocol.codec import Buffer

logger = logging.getLogger(__name__)

_OPEN: Final = ConnectionState.OPEN
_LOST: Final = ConnectionState.LOST

_NO_TRANSPORT: Final = asyncio.Transport()
"""Transport before the connection is made and after it is lost; its methods must not be called."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket; a BufferedProtocol, so that asyncio reads directly into
    the buffer from `get_buffer`.
    """

    __slots__ = (
        "_end",
        "_frame_bytes",
        "_host",
        "_is_reading",
        "_is_scheduled",
        "_is_unauthenticated",
        "_metrics",
        "_pending",
        "_reader",
        "_scheduler",
        "_service",
        "_throttle",
        "_transport",
        "info",
        "ip",
        "listener",
        "memory",
        "output",
    )

    def __init__(self, host: ConnectionHost, listener: Listener) -> None:
        self._host = host
        self.listener = listener
        # Attributes of the host that every request uses; copied to save a lookup.
        self._metrics = host.metrics
        self._service = host.service
        self._scheduler = host.scheduler
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._end = ConnectionEnd()
        self.memory = MemoryReservation(
            host.memory, self._on_memory_granted, partial(self.abort, CloseReason.SLOW_UPLOAD)
        )
        frame_max_bytes = listener.first_frame_max_bytes
        if frame_max_bytes is None:
            frame_max_bytes = host.limits.socket_request_max_bytes
        self._reader = FrameReader(host.receive_buffer, self.memory, frame_max_bytes)
        self._pending: Deferred[ResponseBuffers] | None = None
        self._frame_bytes = 0
        """Size of the frame of the parked request."""
        self._throttle = Throttle()
        self._is_scheduled = False
        self._is_unauthenticated = listener.new_service is not None
        """Whether SASL is required and not complete."""
        self._is_reading = True
        self.output = Output(self, host)
        self.ip = ""
        self.info = ConnectionInfo(peer_host="")

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Cast, because uvloop's transports do not inherit from asyncio.Transport.
        self._transport = transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if not peer:
            # The client disconnected before it was accepted.
            self._end.refuse()
            transport.abort()
            return
        self.ip = str(peer[0])
        self.memory.address_block = address_block_of(self.ip)
        refusal = self._host.connection_made(self)
        if refusal is not None:
            self._refuse(refusal)
            return
        host = host_text(self.ip)
        self.info = ConnectionInfo(
            peer_host=f"/{host}",
            session=Session(ANONYMOUS, host, self.listener.name),
            sends_files=self._host.sends_files and self.listener.tls is None,
        )
        if self.listener.new_service is not None:
            self._service = self.listener.new_service(self)
        self.output.begin(transport)
        self._metrics.connection_opened()

    def _refuse(self, refusal: Refusal) -> None:
        self._metrics.connection_refused(refusal.config)
        self._host.log.note(
            "refused", "Refused a connection from %s because of %s", self.ip, refusal.config
        )
        self._end.refuse()
        if not refusal.is_delayed:
            self._transport.abort()

    def eof_received(self) -> bool:
        """Let `DisconnectQueue` close the transport; True keeps it open until then."""
        self._host.disconnects.add(self._transport)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature.
        was_admitted = self._end.lose()
        self.output.close()
        if was_admitted:
            self._metrics.connection_closed(self._end.reason)
            self.info.is_open = False
            self._host.connection_lost(self)
            self._service.connection_lost(self.info)
        if self._pending is not None:
            self._pending.cancel()
        self._throttle.cancel()
        if self._is_unauthenticated and self._is_scheduled:
            self._scheduler.remove_unauthenticated(self)
        self._reader.close()
        # Break reference cycles with the authenticator, the memory budget and the transport, so
        # that this is freed without the cyclic garbage collector.
        self.info.authentication = None
        self._service = self._host.service
        self.memory.close()
        self._transport = _NO_TRANSPORT

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature.
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        end = self._end
        if end.state.is_closing:
            return
        end.is_active = True
        self._metrics.received_bytes += nbytes
        if nbytes > SMALL_BYTES:
            if self._reader.received(nbytes):
                self._process_now()
        elif self._reader.received_small(nbytes):
            self.schedule()
        else:
            self._process_now()

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()

    # Called by TLS and by the authenticator.

    def tls_failed(self, reason: str) -> None:
        """Start closing because of a TLS error; TLS sends its alert, then closes the transport."""
        if self._end.begin(CloseReason.TLS):
            self._host.log.note(
                CloseReason.TLS, "Closed the connection of %s: TLS: %s", self.ip, reason
            )

    def on_authenticated(self, session: Session, service: Service | None = None) -> None:
        self.info.session = session
        self._service = service or self._host.service
        self._is_unauthenticated = False
        self._reader.frame_max_bytes = self._host.limits.socket_request_max_bytes
        self._host.on_authenticated(self)

    # Called by the scheduler.

    def run(self) -> None:
        self._is_scheduled = False
        if self._end.state.is_closing:
            return
        frame = self._reader.take_single() if self._may_execute() else None
        if frame is None:
            self._process()
        else:
            self._execute_single(frame)

    # Called by the output, TLS and the server.

    def on_files_sent(self) -> None:
        if self._end.state.is_closing:
            self._transport.close()

    def fail(self, error: Exception) -> None:
        if isinstance(error, FrameError):
            self._metrics.request_rejected(CloseReason.BAD_FRAME)
            # During authentication, a bad frame counts as a failed attempt, like a wrong token.
            authentication = self.info.authentication if self._is_unauthenticated else None
            delay_ms = 0 if authentication is None else authentication.failure_delay_ms()
            self._close(CloseReason.BAD_FRAME, error, delay_ms)
        elif isinstance(error, CloseConnection):
            if error.answer is not None and not self._end.state.is_closing:
                self.output.write(error.answer, sum(map(len, error.answer)))
            self._close(error.reason, error if error.should_log else None)
        else:
            logger.error("Internal error; the connection of %s is closed", self.ip, exc_info=error)
            self.abort(CloseReason.FAULT)

    def abort(self, reason: CloseReason) -> None:
        """Close now, and send only what the kernel accepts immediately."""
        if self._end.state is _LOST:
            return
        if self._end.begin(reason) and reason.is_the_clients_fault:
            self._host.log.note_once(
                reason, self.ip, "Closed the connection of %s: %s", self.ip, reason.text
            )
        self.output.write_out()
        self.output.drop_files()
        self._transport.abort()

    # Called by the server.

    def check(self, now_ms: int) -> None:
        """Close the connection if the client has exceeded a time limit."""
        if self._end.state is _LOST:
            return
        unsent_bytes = self.output.update_unsent()
        is_waiting_for_us = (
            self._pending is not None
            or self._throttle.is_active
            or self._reader.is_waiting_for_memory
        )
        active_as = self.info.active_as
        if active_as is not None:
            self._host.activity.record(active_as, self.info.peer_host)
            if not is_waiting_for_us:
                self.info.active_as = None
        reason = self._end.check(
            now_ms,
            self._host.limits,
            unsent_bytes=unsent_bytes,
            # While we do not read, the client is not to blame for an incomplete frame.
            part=None if is_waiting_for_us or not self._is_reading else self._reader.part,
            is_waiting_for_us=is_waiting_for_us,
        )
        if reason is not None:
            self.abort(reason)
        elif not self._is_reading and is_closed_by_peer(self._transport):
            self.abort(CloseReason.CLIENT)

    def stop(self) -> None:
        """Execute no more requests; close after the response to the current one."""
        if self._end.stop() and self._pending is None:
            self._close(CloseReason.SHUTDOWN)

    @property
    def address_block(self) -> str:
        return self.memory.address_block

    @property
    def client(self) -> tuple[str, str]:
        """Principal and address block, which identify the client across its connections."""
        return self.info.session.principal.name, self.memory.address_block

    @property
    def is_refused(self) -> bool:
        return self._end.state is ConnectionState.REFUSED

    def pause(self) -> None:
        """Stop reading a refused connection that is closed later. Not to be called from
        `connection_made`: uvloop starts reading after that.
        """
        if self._end.state is not _LOST:
            self._transport.pause_reading()

    def drop(self) -> None:
        if self._end.state is not _LOST:
            self._transport.abort()

    def close_slow_reader(self) -> None:
        self.abort(CloseReason.SLOW_READER)

    # Requests.

    def _may_execute(self) -> bool:
        return (
            self._end.state is _OPEN
            and self._pending is None
            and not self.output.is_blocked
            and not self._throttle.is_active
        )

    def _process(self, *, may_execute: bool = True) -> None:
        """Execute received requests until one is parked or the iteration's limit is reached."""
        try:
            if may_execute and self._may_execute():
                self._execute()
            self._reader.keep_rest()
        except Exception as error:  # noqa: BLE001 - closes only this connection.
            self.fail(error)
        if self._reader.is_empty and self._is_reading:
            return
        if self._reader.has_frame and self._may_execute():
            self.schedule()
        self._regulate_reading()

    def _execute_single(self, frame: bytes) -> None:
        """Like `_process`, for the common case of one complete frame and no other data."""
        try:
            response = self._service.serve(self.info, frame)
            if isinstance(response, list):
                self.output.write(response, sum(map(len, response)))
            elif response is not None:
                self._park(response, frame)
            if self.info.throttle_ms:
                self._start_throttle()
        except Exception as error:  # noqa: BLE001 - closes only this connection.
            self.fail(error)
        if not self._is_reading:
            self._regulate_reading()

    def _execute(self) -> None:
        responses: list[Buffer] = []
        response_bytes = 0
        serve = self._service.serve
        try:
            for _ in range(REQUESTS_PER_ITERATION):
                frame = self._reader.next_frame()
                if frame is None:
                    return
                response = serve(self.info, frame)
                if isinstance(response, Deferred):
                    if responses:
                        # These responses are for earlier requests, so they are written before
                        # `_park` writes the response to this request, if it is available already.
                        self.output.write(responses, response_bytes)
                        responses = []
                    self._park(response, frame)
                    return
                if frame.__class__ is bytearray:
                    self.memory.release(len(frame))
                if response is not None:
                    responses += response
                    response_bytes += sum(map(len, response))
                if self.info.throttle_ms:
                    self._start_throttle()
                    return
                if response_bytes > WRITE_HIGH_WATER_BYTES:
                    self.output.write(responses, response_bytes)
                    responses, response_bytes = [], 0
                    if not self._may_execute():
                        return
        finally:
            if responses:
                self.output.write(responses, response_bytes)

    def _park(self, pending: Deferred[ResponseBuffers], frame: Buffer) -> None:
        if frame.__class__ is not bytearray:
            self.memory.add(len(frame))
        self._pending = pending
        self._frame_bytes = len(frame)
        self._metrics.waiting_count += 1
        pending.add_done_callback(self._on_response)

    def _on_response(self, pending: Deferred[ResponseBuffers]) -> None:
        self._pending = None
        self._metrics.waiting_count -= 1
        error = pending.error
        if isinstance(error, Exception):
            # The error is not raised here: its traceback would keep the objects of these frames
            # alive until the cyclic garbage collector runs.
            if self._end.state is not _LOST:
                self.memory.release(self._frame_bytes)
                self.fail(error)
            error.__traceback__ = None
            return
        if self._end.state is _LOST:
            return
        self.memory.release(self._frame_bytes)
        response = pending.result()
        if response is not None and not self._end.state.is_closing:
            self.output.write(response, sum(map(len, response)))
        if self.info.throttle_ms:
            self._start_throttle()
        if self._end.state is ConnectionState.STOPPING:
            self._close(CloseReason.SHUTDOWN)
        elif not (self._is_reading and self._reader.is_empty):
            # Not immediately: the code that completed the response is still running.
            self.schedule()

    def schedule(self) -> None:
        """Let the scheduler call `run`. Also called when the client has read its responses."""
        if not self._is_scheduled and not self._end.state.is_closing:
            self._is_scheduled = True
            if self._is_unauthenticated:
                self._scheduler.schedule_unauthenticated(self)
            else:
                self._scheduler.schedule(self)

    def _process_now(self) -> None:
        self._scheduler.run_after_writes()
        self._process(may_execute=self._scheduler.has_time())

    def _on_memory_granted(self) -> None:
        if self._end.state.is_closing:
            return
        try:
            self._reader.grow()
        except Exception as error:  # noqa: BLE001 - the caller may be another connection.
            self.fail(error)
        self._regulate_reading()

    def _regulate_reading(self) -> None:
        """Read unless a complete frame is waiting, so that pipelined requests stay in the socket.

        Reading continues while a request is parked: that is how a disconnect is noticed.
        """
        should_read = not (
            self._reader.has_frame or self._reader.is_waiting_for_memory or self._throttle.is_active
        )
        if should_read == self._is_reading or self._end.state.is_closing:
            return
        self._is_reading = should_read
        if should_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _start_throttle(self) -> None:
        """Mute the connection for the throttle time of the last response."""
        throttle_ms, self.info.throttle_ms = self.info.throttle_ms, 0
        if not self._end.state.is_closing:
            self._throttle.start(self._scheduler, throttle_ms, self._on_throttle_end)
            self._regulate_reading()

    def _on_throttle_end(self) -> None:
        self._regulate_reading()
        self.schedule()

    # Closing.

    def _close(
        self, reason: CloseReason, error: Exception | None = None, delay_ms: int = 0
    ) -> None:
        """Close when all responses are sent and `delay_ms` is over; `check` limits the time."""
        if not self._end.begin(reason):
            return
        if error is not None:
            self._host.log.note(reason, "Closed the connection of %s: %s", self.ip, error)
        self.output.write_out()
        if delay_ms:
            self._throttle.start(self._scheduler, delay_ms, self._transport.close)
            if self._is_reading:
                self._is_reading = False
                self._transport.pause_reading()
        elif not self.output.is_sending_files:
            self._transport.close()
