"""How one client connection begins and ends: admitted or refused, and closed by whom, and why.

Promises: the host is told of the loss of each connection that it admitted, once; one that closes
sends what was written to it, within a bounded time; one that is lost is freed at once, since
nothing that stays refers to it.

Its requests and their answers are `connection`'s.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Protocol, cast

from kohort.broker.core.security.addresses import owner_of
from kohort.broker.core.security.session import ANONYMOUS, Session
from kohort.broker.network.activity import Activity
from kohort.broker.network.connection_state import LEGAL_NEXT, ConnectionState
from kohort.broker.network.departures import Departures
from kohort.broker.network.file_sending import Reads
from kohort.broker.network.frames import FrameError, FramePart
from kohort.broker.network.limits import NetworkLimits
from kohort.broker.network.listener import Listener
from kohort.broker.network.memory import Claimant, RequestMemory, UnsentBytes
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.output import Output
from kohort.broker.network.peer_log import PeerLog
from kohort.broker.network.peer_state import has_peer_left
from kohort.broker.network.service import (
    CloseConnection,
    ConnectionInfo,
    ResponseBuffers,
    Service,
)
from kohort.broker.network.timeouts import CloseReason, ConnectionTimeouts
from kohort.broker.network.turns import Turns
from kohort.broker.runtime.later import Later

logger = logging.getLogger(__name__)

_OPEN: Final = ConnectionState.OPEN
_STOPPING: Final = ConnectionState.STOPPING
_CLOSING: Final = ConnectionState.CLOSING
_LOST: Final = ConnectionState.LOST

_NO_TRANSPORT: Final = asyncio.Transport()
"""Transport of a connection that is not made yet, or is lost; none of its methods can be called."""


class Refusal(NamedTuple):
    """Why a connection is not admitted."""

    because_of: str
    """The config that forbids it."""
    is_held: bool = False
    """Whether it is closed later, by the host."""


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
    departures: Departures
    reads: Reads
    activity: Activity
    sends_files: bool
    """Whether sockets are written to as they are, so that the kernel may write to them as well."""

    def connection_made(self, connection: "ConnectionLife") -> Refusal | None:
        """Admit `connection`, or refuse it."""
        ...

    def connection_lost(self, connection: "ConnectionLife") -> None:
        """Called once for each that was admitted."""
        ...

    def let_in(self, connection: "ConnectionLife") -> None:
        """TLS and SASL are over; called again after each reauthentication."""
        ...


class ConnectionLife(asyncio.BufferedProtocol, ABC):
    """All of a connection but its requests; what the server knows of it."""

    __slots__ = (
        "_close_reason",
        "_host",
        "_is_reading",
        "_metrics",
        "_pending",
        "_service",
        "_state",
        "_timeouts",
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
        # What every request needs is one step away.
        self._metrics = host.metrics
        self._service = host.service
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self.memory = Claimant(host.memory, self._on_memory_granted, self._close_slow_upload)
        self._timeouts = ConnectionTimeouts()
        self._pending: Later[ResponseBuffers] | None = None
        """The one request that is executed and not answered."""
        self.output = Output(self, host)
        self._is_reading = True
        self._state = _OPEN
        self._close_reason = CloseReason.CLIENT
        self.ip = ""
        """IP address of the client; empty if it was not admitted."""
        self.info = ConnectionInfo(peer_host="")

    # What is left to `Connection`.

    @abstractmethod
    def let_in(self, session: Session, service: Service | None = None) -> None:
        """Serve requests of `session` from now on, by `service` or as all others."""

    @abstractmethod
    def on_taken(self) -> None:
        """Execute what waited until the client took its answers."""

    @abstractmethod
    def _on_memory_granted(self) -> None:
        """Receive more of the large frame that waited for memory."""

    @abstractmethod
    def _is_held_up(self) -> bool:
        """Whether the client waits for memory, or has been told to wait."""

    @abstractmethod
    def _part(self) -> FramePart | None:
        """Return the incomplete frame, if there is one."""

    @abstractmethod
    def _forget_requests(self) -> None:
        """Drop all that has arrived: the connection is lost."""

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods and not the base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if not peer:
            # It was gone before it was accepted.
            self._become(_CLOSING)
            transport.abort()
            return
        self.ip = str(peer[0])
        self.memory.owner = owner_of(self.ip)
        refusal = self._host.connection_made(self)
        if refusal is not None:
            self._be_refused(refusal)
            return
        self.info = ConnectionInfo(
            peer_host=f"/{self.ip}",
            session=Session(ANONYMOUS, self.ip, self.listener.name),
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
        self.ip = ""
        self._become(_CLOSING)
        if not refusal.is_held:
            self._transport.abort()

    def eof_received(self) -> bool:
        """Close soon: many clients may end in a turn. True keeps the transport open until then."""
        self._host.departures.add(self._transport)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature.
        self._become(_LOST)
        self.output.close()
        if self.ip:
            self._metrics.connection_closed(self._close_reason)
            self._host.connection_lost(self)
            self._service.connection_lost(self.info)
        if self._pending is not None:
            self._pending.cancel()
        self._forget_requests()
        # The budget, the transport and what lets clients in know us; without this only the
        # collector could part us.
        self.info.authentication = None
        self._service = self._host.service
        self.memory.close()
        self._transport = _NO_TRANSPORT

    # Called by TLS.

    def tls_failed(self, reason: str) -> None:
        """TLS has ended, and closes the connection when its last words are written."""
        if not self._state.is_closing:
            self._become(_CLOSING)
            self._close_reason = CloseReason.TLS
            self._host.log.note(
                CloseReason.TLS, "Closed the connection of %s: TLS: %s", self.ip, reason
            )

    # Called by the output; the last two by TLS and by the server as well.

    def on_files_sent(self) -> None:
        if self._state.is_closing:
            self._transport.close()

    def end_by(self, error: Exception) -> None:
        """The end of this connection, and of no other."""
        if isinstance(error, FrameError):
            self._metrics.request_rejected(CloseReason.BAD_FRAME)
            self._close(CloseReason.BAD_FRAME, error)
        elif isinstance(error, CloseConnection):
            if error.answer is not None and not self._state.is_closing:
                self.output.write(error.answer, sum(map(len, error.answer)))
            self._close(error.reason, error if error.is_told else None)
        else:
            logger.error("Internal error; the connection of %s is closed", self.ip, exc_info=error)
            self.abort_because(CloseReason.FAULT)

    def abort_because(self, reason: CloseReason) -> None:
        """Close now, and send nothing more than what was handed to the transport."""
        if self._state is _LOST:
            return
        if not self._state.is_closing:
            self._become(_CLOSING)
            self._close_reason = reason
            if reason.is_the_clients_fault:
                self._host.log.note_once(
                    reason, self.ip, "Closed the connection of %s: %s", self.ip, reason.text
                )
        self.output.write_out()
        self.output.give_up_files()
        self._transport.abort()

    # Called by the server.

    def check(self, now_ms: int) -> None:
        """Close the connection if the client has kept us waiting for too long."""
        if self._state is _LOST:
            return
        self.output.note_unsent()
        is_waiting_for_us = self._pending is not None or self._is_held_up()
        active_as = self.info.active_as
        if active_as is not None:
            self._host.activity.note(active_as, self.info.peer_host)
            if not is_waiting_for_us:
                self.info.active_as = None
        reason = self._timeouts.check(
            now_ms,
            self._host.limits,
            unsent_bytes=self.output.unsent_bytes(),
            # What we do not read, the client cannot be late with.
            part=None if is_waiting_for_us or not self._is_reading else self._part(),
            is_waiting_for_us=is_waiting_for_us,
            is_memory_short=self._host.memory.waiting_count > 0,
            is_closing=self._state.is_closing,
        )
        if reason is not None:
            self.abort_because(reason)
        elif not self._is_reading and has_peer_left(self._transport):
            self.abort_because(CloseReason.CLIENT)

    def stop(self) -> None:
        """Execute nothing more; close once the request under way is answered and sent."""
        if self._state is _OPEN:
            self._become(_STOPPING)
            if self._pending is None:
                self._close(CloseReason.SHUTDOWN)

    def abort(self) -> None:
        """Close now, whatever is under way."""
        self.abort_because(CloseReason.SHUTDOWN)

    @property
    def owner(self) -> str:
        """Owner of the client's address."""
        return self.memory.owner

    @property
    def is_refused(self) -> bool:
        """Whether it was not admitted."""
        return not self.ip

    def pause(self) -> None:
        """Read no more; it was refused, and is held. Not while it is being made: uvloop begins to
        read after that.
        """
        if self._state is not _LOST:
            self._transport.pause_reading()

    def drop(self) -> None:
        """Close it; it was refused, and held until now."""
        if self._state is not _LOST:
            self._transport.abort()

    def close_slow_reader(self) -> None:
        self.abort_because(CloseReason.SLOW_READER)

    # Within.

    def _become(self, state: ConnectionState) -> None:
        assert state in LEGAL_NEXT[self._state], (self._state, state)
        self._state = state

    def _close_slow_upload(self) -> None:
        self.abort_because(CloseReason.SLOW_UPLOAD)

    def _close(self, reason: CloseReason, error: Exception | None = None) -> None:
        """Close when all that was written is sent; `check` sees to it that this does not last."""
        if self._state.is_closing:
            return
        self._become(_CLOSING)
        self._close_reason = reason
        if error is not None:
            self._host.log.note(reason, "Closed the connection of %s: %s", self.ip, error)
        self.output.write_out()
        if not self.output.is_sending_files:
            self._transport.close()
