"""One client connection: requests in, one at a time; responses out, in the order of the requests.

Promises: the next request is not started before the one before it is answered; what a client sends
ahead stays in its socket but for one read or one frame; a client that does not take its responses
gets no further request executed; an answer that is ready at once costs neither a task nor a future,
and the answers of one turn are one write. Whatever a peer sends, only its own connection ends. The
host is told of the loss of each connection that it admitted, once; one that is lost is freed at
once, since nothing that stays refers to it.

Small requests and answers wait for those of other connections, within the turn; see `turns`. What
is sent is `output`'s; when, why and how a connection ends is told by `connection_end`.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, cast

from kohort.broker.core.security.addresses import host_text, owner_of
from kohort.broker.core.security.session import ANONYMOUS, Session
from kohort.broker.network.connection.end import ConnectionEnd, ConnectionState
from kohort.broker.network.connection.files import Reads
from kohort.broker.network.connection.frames import FrameError, FrameReader
from kohort.broker.network.connection.limits import (
    REQUESTS_PER_TURN,
    SMALL_BYTES,
    WRITE_HIGH_WATER_BYTES,
    Activity,
    NetworkLimits,
    Throttle,
    has_peer_left,
)
from kohort.broker.network.connection.output import Output
from kohort.broker.network.iteration import Departures, Turns
from kohort.broker.network.memory import (
    MemoryReservation,
    RequestMemoryBudget,
    UnsentBytes,
)
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.service import (
    CloseConnection,
    ConnectionInfo,
    NewConnection,
    ResponseBuffers,
    Service,
    TlsPeer,
)
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.codec import Buffer

logger = logging.getLogger(__name__)

_OPEN: Final = ConnectionState.OPEN
_STOPPING: Final = ConnectionState.STOPPING
_LOST: Final = ConnectionState.LOST

_NO_TRANSPORT: Final = asyncio.Transport()
"""Transport of a connection that is not made yet, or is lost; none of its methods can be called."""


class TlsSide(Protocol):
    """The TLS configuration of one listener."""

    context: ssl.SSLContext
    """The context for new connections; replaced as a whole when certificates are renewed."""

    def established(self, connection: NewConnection, peer: TlsPeer) -> None:
        """Create the session from the client's certificate. Raises TlsError to refuse it."""
        ...


@dataclass(slots=True, eq=False)
class Listener:
    """The configuration shared by a listener's connections."""

    name: str
    """The listener's name in `listeners`, in upper case."""
    tls: TlsSide | None = None
    new_service: Callable[[NewConnection], Service] | None = None
    """Creates the service of a connection until it is authenticated; None: no authentication."""
    first_frame_max_bytes: int | None = None
    """Largest frame before authentication; None: the normal limit."""

    @property
    def lets_in_later(self) -> bool:
        """Whether clients must complete TLS or authenticate before requests are served."""
        return self.tls is not None or self.new_service is not None


class Refusal(NamedTuple):
    """Why a connection is not admitted."""

    because_of: str
    """The config that forbids it."""
    is_held: bool = False
    """Whether it is closed later, by the host."""


class ConnectionHost(Protocol):
    """The server, to its connections."""

    receive_buffer: memoryview
    limits: NetworkLimits
    service: Service
    metrics: NetworkMetrics
    log: PeerLog
    memory: RequestMemoryBudget
    unsent: UnsentBytes
    turns: Turns
    departures: Departures
    reads: Reads
    activity: Activity
    sends_files: bool
    """Whether sockets are written to as they are, so that the kernel may write to them as well."""

    def connection_made(self, connection: "Connection") -> Refusal | None:
        """Admit `connection`, or refuse it."""
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

    One class, since its methods use the same few things: nearly each asks for the state, and most
    for the request under way, the output or the transport. Parts that own something are elsewhere:
    the input, the output, the end, the throttle.
    """

    __slots__ = (
        "_end",
        "_frame_in_execution",
        "_host",
        "_is_arriving",
        "_is_due",
        "_is_reading",
        "_metrics",
        "_pending",
        "_reader",
        "_service",
        "_throttle",
        "_transport",
        "_turns",
        "info",
        "ip",
        "listener",
        "memory",
        "output",
    )

    def __init__(self, host: ConnectionHost, listener: Listener) -> None:
        self._host = host
        self.listener = listener
        # What every request needs is one step away.
        self._metrics = host.metrics
        self._service = host.service
        self._turns = host.turns
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._end = ConnectionEnd()
        self.memory = MemoryReservation(
            host.memory, self._on_memory_granted, self._close_slow_upload
        )
        frame_max_bytes = listener.first_frame_max_bytes
        if frame_max_bytes is None:
            frame_max_bytes = host.limits.socket_request_max_bytes
        self._reader = FrameReader(host.receive_buffer, self.memory, frame_max_bytes)
        self._pending: Later[ResponseBuffers] | None = None
        """The one request that is executed and not answered."""
        self._frame_in_execution: Buffer = b""
        self._throttle = Throttle()
        self._is_due = False
        """Whether requests that have arrived are executed in this turn or the next."""
        self._is_arriving = listener.new_service is not None
        """Whether its client is not authenticated yet."""
        self._is_reading = True
        self.output = Output(self, host)
        self.ip = ""
        """IP address of the client; empty if it was gone before it was accepted."""
        self.info = ConnectionInfo(peer_host="")

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods and not the base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if not peer:
            # It was gone before it was accepted.
            self._end.refuse()
            transport.abort()
            return
        self.ip = str(peer[0])
        self.memory.address_block = owner_of(self.ip)
        refusal = self._host.connection_made(self)
        if refusal is not None:
            self._be_refused(refusal)
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

    def _be_refused(self, refusal: Refusal) -> None:
        self._metrics.connection_refused(refusal.because_of)
        self._host.log.note(
            "refused", "Refused a connection from %s because of %s", self.ip, refusal.because_of
        )
        self._end.refuse()
        if not refusal.is_held:
            self._transport.abort()

    def eof_received(self) -> bool:
        """Close soon: many clients may end in a turn. True keeps the transport open until then."""
        self._host.departures.add(self._transport)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature.
        was_admitted = self._end.lose()
        self.output.close()
        if was_admitted:
            self._metrics.connection_closed(self._end.reason)
            self._host.connection_lost(self)
            self._service.connection_lost(self.info)
        if self._pending is not None:
            self._pending.cancel()
        self._throttle.cancel()
        if self._is_arriving and self._is_due:
            self._turns.forget(self)
        self._reader.close()
        # The budget, the transport and what lets clients in know us; without this only the
        # collector could part us.
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
                self._work_now()
        elif self._reader.received_small(nbytes):
            self._work_soon()
        else:
            self._work_now()

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()

    # Called by TLS, and by the service that lets clients in.

    def tls_failed(self, reason: str) -> None:
        """TLS has ended, and closes the connection when its last words are written."""
        if self._end.begin(CloseReason.TLS):
            self._host.log.note(
                CloseReason.TLS, "Closed the connection of %s: TLS: %s", self.ip, reason
            )

    def let_in(self, session: Session, service: Service | None = None) -> None:
        self.info.session = session
        self._service = service or self._host.service
        self._is_arriving = False
        self._reader.frame_max_bytes = self._host.limits.socket_request_max_bytes
        self._host.let_in(self)

    # Called once in a turn.

    def execute_due(self) -> None:
        self._is_due = False
        if self._end.state.is_closing:
            return
        frame = self._reader.take_sole() if self._may_execute() else None
        if frame is None:
            self._work()
        else:
            self._execute_sole(frame)

    # Called by the output; the last two by TLS and by the server as well.

    def on_taken(self) -> None:
        """Execute what waited until the client took its answers."""
        self._work_soon()

    def on_files_sent(self) -> None:
        if self._end.state.is_closing:
            self._transport.close()

    def end_by(self, error: Exception) -> None:
        """The end of this connection, and of no other."""
        if isinstance(error, FrameError):
            self._metrics.request_rejected(CloseReason.BAD_FRAME)
            # Before it is over, authentication fails by this as by any wrong token.
            authentication = self.info.authentication if self._is_arriving else None
            delay_ms = 0 if authentication is None else authentication.refusal_delay_ms()
            self._close(CloseReason.BAD_FRAME, error, delay_ms)
        elif isinstance(error, CloseConnection):
            if error.answer is not None and not self._end.state.is_closing:
                self.output.write(error.answer, sum(map(len, error.answer)))
            self._close(error.reason, error if error.is_told else None)
        else:
            logger.error("Internal error; the connection of %s is closed", self.ip, exc_info=error)
            self.abort_because(CloseReason.FAULT)

    def abort_because(self, reason: CloseReason) -> None:
        """Close now, and send nothing more than what was handed to the transport."""
        if self._end.state is _LOST:
            return
        if self._end.begin(reason) and reason.is_the_clients_fault:
            self._host.log.note_once(
                reason, self.ip, "Closed the connection of %s: %s", self.ip, reason.text
            )
        self.output.write_out()
        self.output.give_up_files()
        self._transport.abort()

    # Called by the server.

    def check(self, now_ms: int) -> None:
        """Close the connection if the client has kept us waiting for too long."""
        if self._end.state is _LOST:
            return
        self.output.note_unsent()
        is_waiting_for_us = (
            self._pending is not None or self._throttle.is_holding or self._reader.is_starved
        )
        active_as = self.info.active_as
        if active_as is not None:
            self._host.activity.note(active_as, self.info.peer_host)
            if not is_waiting_for_us:
                self.info.active_as = None
        reason = self._end.check(
            now_ms,
            self._host.limits,
            unsent_bytes=self.output.unsent_bytes(),
            # What we do not read, the client cannot be late with.
            part=None if is_waiting_for_us or not self._is_reading else self._reader.part,
            is_waiting_for_us=is_waiting_for_us,
        )
        if reason is not None:
            self.abort_because(reason)
        elif not self._is_reading and has_peer_left(self._transport):
            self.abort_because(CloseReason.CLIENT)

    def stop(self) -> None:
        """Execute nothing more; close once the request under way is answered and sent."""
        if self._end.stop() and self._pending is None:
            self._close(CloseReason.SHUTDOWN)

    def abort(self) -> None:
        """Close now, whatever is under way."""
        self.abort_because(CloseReason.SHUTDOWN)

    @property
    def owner(self) -> str:
        """Owner of the client's address."""
        return self.memory.address_block

    @property
    def client(self) -> tuple[str, str]:
        """The client, whichever of its connections this is: its name, and who owns its address."""
        return self.info.session.principal.name, self.memory.address_block

    @property
    def is_refused(self) -> bool:
        """Whether it was not admitted."""
        return self._end.state is ConnectionState.REFUSED

    def pause(self) -> None:
        """Read no more; it was refused, and is held. Not while it is being made: uvloop begins to
        read after that.
        """
        if self._end.state is not _LOST:
            self._transport.pause_reading()

    def drop(self) -> None:
        """Close it; it was refused, and held until now."""
        if self._end.state is not _LOST:
            self._transport.abort()

    def close_slow_reader(self) -> None:
        self.abort_because(CloseReason.SLOW_READER)

    # Requests.

    def _may_execute(self) -> bool:
        return (
            self._end.state is _OPEN
            and self._pending is None
            and not self.output.is_held
            and not self._throttle.is_holding
        )

    def _work(self, *, at_once: bool = True) -> None:
        """Execute the requests that are here until one must wait or the turn is over."""
        try:
            if at_once and self._may_execute():
                self._execute()
            self._reader.keep_rest()
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self.end_by(error)
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
                self.output.write(answer, _byte_count(answer))
            elif answer is not None:
                self._wait_for(answer, frame)
            if self.info.throttle_ms:
                self._hold_back()
        except Exception as error:  # noqa: BLE001 - every one of them is dealt with.
            self.end_by(error)
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
                        self.output.write(responses, response_bytes)
                        responses = []
                    self._wait_for(answer, frame)
                    return
                if frame.__class__ is bytearray:
                    self.memory.release(len(frame))
                if answer is not None:
                    responses += answer
                    response_bytes += _byte_count(answer)
                if self.info.throttle_ms:
                    self._hold_back()
                    return
                if response_bytes > WRITE_HIGH_WATER_BYTES:
                    self.output.write(responses, response_bytes)
                    responses, response_bytes = [], 0
                    if not self._may_execute():
                        return
        finally:
            if responses:
                self.output.write(responses, response_bytes)

    def _wait_for(self, pending: Later[ResponseBuffers], frame: Buffer) -> None:
        if frame.__class__ is not bytearray:
            self.memory.add(len(frame))
        self._pending = pending
        self._frame_in_execution = frame
        self._metrics.waiting_count += 1
        pending.on_done(self._on_answered)

    def _on_answered(self, later: Later[ResponseBuffers]) -> None:
        self._pending = None
        frame, self._frame_in_execution = self._frame_in_execution, b""
        self._metrics.waiting_count -= 1
        error = later.error
        if isinstance(error, Exception):
            # It is not raised, and its traceback forgotten: frames that have what has it would
            # stay until the collector comes, with all that a connection has.
            if self._end.state is not _LOST:
                self.memory.release(len(frame))
                self.end_by(error)
            error.__traceback__ = None
            return
        if self._end.state is _LOST:
            return
        self.memory.release(len(frame))
        answer = later.result()
        if answer is not None and not self._end.state.is_closing:
            self.output.write(answer, _byte_count(answer))
        if self.info.throttle_ms:
            self._hold_back()
        if self._end.state is _STOPPING:
            self._close(CloseReason.SHUTDOWN)
        elif not (self._is_reading and self._reader.is_empty):
            # Not at once: the code that gives an answer is in the middle of something.
            self._work_soon()

    def _work_soon(self) -> None:
        if not self._is_due and not self._end.state.is_closing:
            self._is_due = True
            if self._is_arriving:
                self._turns.authenticate_soon(self)
            else:
                self._turns.execute_soon(self)

    def _work_now(self) -> None:
        """Work in the middle of a turn."""
        self._turns.catch_up()
        self._work(at_once=self._turns.has_time())

    def _on_memory_granted(self) -> None:
        if self._end.state.is_closing:
            return
        try:
            self._reader.grow()
        except Exception as error:  # noqa: BLE001 - or the code that gave back would end for it.
            self.end_by(error)
        self._regulate_reading()

    def _regulate_reading(self) -> None:
        """Read unless a whole frame is waiting: what the client sends ahead can stay with it.

        Reading goes on while a request is parked, because that is how we learn that the client is
        gone.
        """
        should_read = not (
            self._reader.has_frame or self._reader.is_starved or self._throttle.is_holding
        )
        if should_read == self._is_reading or self._end.state.is_closing:
            return
        self._is_reading = should_read
        if should_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _hold_back(self) -> None:
        """Neither read nor execute anything for the time that the last answer tells."""
        throttle_ms, self.info.throttle_ms = self.info.throttle_ms, 0
        if not self._end.state.is_closing:
            self._throttle.hold(self._turns, throttle_ms, self._go_on)
            self._regulate_reading()

    def _go_on(self) -> None:
        self._regulate_reading()
        self._work_soon()

    # The end.

    def _close_slow_upload(self) -> None:
        self.abort_because(CloseReason.SLOW_UPLOAD)

    def _close(
        self, reason: CloseReason, error: Exception | None = None, delay_ms: int = 0
    ) -> None:
        """Close when all that was written is sent, and not before `delay_ms` are over; `check` sees
        to it that this does not last.
        """
        if not self._end.begin(reason):
            return
        if error is not None:
            self._host.log.note(reason, "Closed the connection of %s: %s", self.ip, error)
        self.output.write_out()
        if delay_ms:
            self._throttle.hold(self._turns, delay_ms, self._transport.close)
            if self._is_reading:
                self._is_reading = False
                self._transport.pause_reading()
        elif not self.output.is_sending_files:
            self._transport.close()


def _byte_count(buffers: list[Buffer]) -> int:
    return sum(map(len, buffers))
