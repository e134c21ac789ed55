"""One client connection: requests in, one at a time; responses out, in the order of the requests.

Promises: the next request is not started before the one before it is answered; what a client sends
ahead stays in its socket but for one read or one frame; a client that does not take its responses
gets no further request executed; an answer that is ready at once costs neither a task nor a future,
and the answers of one turn are one write. Whatever a peer sends, only its own connection ends.

Small requests and answers wait for those of other connections, within the turn; see `turns`. What
is sent is `output`'s, and how a connection begins and ends `connection_life`'s.
"""

from typing import Final

from kohort.broker.core.security.session import Session
from kohort.broker.network.connection_life import ConnectionHost, ConnectionLife
from kohort.broker.network.connection_state import ConnectionState
from kohort.broker.network.frames import FramePart, FrameReader
from kohort.broker.network.limits import REQUESTS_PER_TURN, SMALL_BYTES, WRITE_HIGH_WATER_BYTES
from kohort.broker.network.listener import Listener
from kohort.broker.network.service import ResponseBuffers, Service
from kohort.broker.network.throttle import Throttle
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.runtime.later import Later
from kohort.protocol.codec import Buffer

_OPEN: Final = ConnectionState.OPEN
_STOPPING: Final = ConnectionState.STOPPING
_LOST: Final = ConnectionState.LOST


class Connection(ConnectionLife):
    """The protocol object of one accepted socket.

    asyncio's own transports look for the base class; uvloop's look for its methods.
    """

    __slots__ = (
        "_frame_in_execution",
        "_is_arriving",
        "_is_due",
        "_reader",
        "_throttle",
        "_turns",
    )

    def __init__(self, host: ConnectionHost, listener: Listener) -> None:
        super().__init__(host, listener)
        self._turns = host.turns
        self._reader = FrameReader(
            host.receive_buffer,
            self.memory,
            listener.first_frame_max_bytes or host.limits.socket_request_max_bytes,
        )
        self._frame_in_execution: Buffer = b""
        self._throttle = Throttle()
        self._is_due = False
        """Whether requests that have arrived are executed in this turn or the next."""
        self._is_arriving = listener.new_service is not None
        """Whether its client is not authenticated yet."""

    # Called by the transport.

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature.
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._state.is_closing:
            return
        self._timeouts.is_active = True
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

    def let_in(self, session: Session, service: Service | None = None) -> None:
        self.info.session = session
        self._service = service or self._host.service
        self._is_arriving = False
        self._reader.frame_max_bytes = self._host.limits.socket_request_max_bytes
        self._host.let_in(self)

    # Called once in a turn.

    def execute_due(self) -> None:
        self._is_due = False
        if self._state.is_closing:
            return
        frame = self._reader.take_sole() if self._may_execute() else None
        if frame is None:
            self._work()
        else:
            self._execute_sole(frame)

    # Called by the output.

    def on_taken(self) -> None:
        self._work_soon()

    # Within.

    def _is_held_up(self) -> bool:
        return self._throttle.is_holding or self._reader.is_starved

    def _part(self) -> FramePart | None:
        return self._reader.part

    def _forget_requests(self) -> None:
        self._throttle.cancel()
        if self._is_arriving and self._is_due:
            self._turns.forget(self)
        self._reader.close()

    def _may_execute(self) -> bool:
        return (
            self._state is _OPEN
            and self._pending is None
            and not self.output.is_held
            and not self._throttle.is_holding
        )

    def _work(self) -> None:
        """Execute the requests that are here until one must wait or the turn is over."""
        try:
            if self._may_execute():
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
                    self.memory.give_back(len(frame))
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
            self.memory.take(len(frame))
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
            if self._state is not _LOST:
                self.memory.give_back(len(frame))
                self.end_by(error)
            error.__traceback__ = None
            return
        if self._state is _LOST:
            return
        self.memory.give_back(len(frame))
        answer = later.result()
        if answer is not None and not self._state.is_closing:
            self.output.write(answer, _byte_count(answer))
        if self.info.throttle_ms:
            self._hold_back()
        if self._state is _STOPPING:
            self._close(CloseReason.SHUTDOWN)
        elif not (self._is_reading and self._reader.is_empty):
            # Not at once: the code that gives an answer is in the middle of something.
            self._work_soon()

    def _work_soon(self) -> None:
        if not self._is_due and not self._state.is_closing:
            self._is_due = True
            if self._is_arriving:
                self._turns.authenticate_soon(self)
            else:
                self._turns.execute_soon(self)

    def _work_now(self) -> None:
        """Work in the middle of a turn."""
        self._turns.catch_up()
        self._work()

    def _on_memory_granted(self) -> None:
        if self._state.is_closing:
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
        if should_read == self._is_reading or self._state.is_closing:
            return
        self._is_reading = should_read
        if should_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _hold_back(self) -> None:
        """Neither read nor execute anything for the time that the last answer tells."""
        throttle_ms, self.info.throttle_ms = self.info.throttle_ms, 0
        if not self._state.is_closing:
            self._throttle.hold(self._turns, throttle_ms, self._go_on)
            self._regulate_reading()

    def _go_on(self) -> None:
        self._regulate_reading()
        self._work_soon()


def _byte_count(buffers: list[Buffer]) -> int:
    return sum(map(len, buffers))
