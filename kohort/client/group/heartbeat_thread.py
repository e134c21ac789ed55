"""The heartbeat thread: keeps the membership alive even while the consumer's event loop is blocked.

Nothing here waits for the loop: the thread has its own connection, finds the coordinator by itself,
and stores its findings until the loop processes them. So an application that blocks its event loop
keeps its membership, limited only by max.poll.interval.ms.

The thread and the loop share only a `HeartbeatRules`, behind one lock that is never held while
waiting for the network.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from kohort.client.clock import monotonic_ms
from kohort.client.core.errors import AuthenticationError, TlsError, TokenError
from kohort.client.core.group.consumer_heartbeat import ConsumerHeartbeatRules, Report
from kohort.client.core.group.heartbeat import (
    Action,
    Finding,
    HeartbeatRules,
    LookUpCoordinator,
    SendHeartbeat,
    SendLeave,
    Wait,
)
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.requests import (
    FoundCoordinator,
    coordinator_in,
    coordinator_request,
    leave_request,
    leave_type,
)
from kohort.client.core.group.statistics import Figures
from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.protocol.messages.find_coordinator import FindCoordinatorRequest
from kohort.protocol.messages.membership import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from kohort.client.config import ConsumerConfig

logger = logging.getLogger(__name__)

LEAVE_TIMEOUT_S: Final = 5.0

THREAD_EXIT_S: Final = 1.0
"""Time allowed from the thread's report that it has ended to its exit: usually microseconds, longer
on a busy machine."""


class HeartbeatThread:
    """The heartbeat thread of one consumer. The methods are called by the consumer; none of them
    blocks.

    The steps that use the network are coroutines, so that a subclass of the test kit can run them
    on an event loop; in the thread they block and never suspend.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        rules: HeartbeatRules,
        *,
        loop: asyncio.AbstractEventLoop,
        on_findings: Callable[[], None],
    ) -> None:
        """`on_findings` is called on the loop when `take_findings` has findings to return."""
        self._config = config.membership
        self._connection_config = config.connection
        # Limiting a response to half the session timeout leaves time for another attempt.
        answer_ms = max(1, min(config.request_timeout_ms, config.session_timeout_ms // 2))
        self._timeout_s = answer_ms / 1000
        self._rules = rules
        self._loop = loop
        self._on_findings = on_findings
        self._changed = threading.Condition()
        self._coordinator: Address | None = None
        self._brokers: Sequence[Address] = ()
        self._connection: BlockingConnection | BrokerConnection | None = None
        """The connection, open or being opened; a BrokerConnection only on a test's event loop."""
        self._suspects: dict[Address, None] = {}
        """Brokers that did not answer their last request; the latest to fail comes last."""
        self._is_stopping = False
        self._ended = asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"kohort heartbeat of {self._config.group_id}", daemon=True
        )

    def start(self) -> None:
        """Start the thread; it sleeps until there is a member to send heartbeats for."""
        self._thread.start()

    def begin(self, identity: Identity, coordinator: Address, brokers: Sequence[Address]) -> None:
        """Send heartbeats for this member. `brokers` are queried if the coordinator is lost."""
        with self._changed:
            self._rules.begin(identity, monotonic_ms())
            self._coordinator = coordinator
            self._brokers = tuple(brokers)
            self._wake()

    def coordinator_found(self, address: Address) -> None:
        """Set the coordinator that the loop has found, so that the thread need not look it up."""
        with self._changed:
            self._coordinator = address
            self._suspects.pop(address, None)
            if not self._rules.is_coordinator_known:
                self._rules.found_coordinator(ErrorCode.NONE, monotonic_ms())
            self._wake()

    def know_brokers(self, brokers: Sequence[Address]) -> None:
        """Update the brokers to query if the coordinator is lost."""
        with self._changed:
            self._brokers = tuple(brokers)
            for gone in self._suspects.keys() - set(brokers):
                del self._suspects[gone]

    def end(self) -> None:
        """Stop heartbeats: there is no member any more, or its JoinGroup is pending."""
        with self._changed:
            self._rules.end()
            self._wake()

    def polled(self) -> None:
        """Record that the application has polled."""
        with self._changed:
            self._rules.polled(monotonic_ms())

    def take_findings(self) -> list[Finding]:
        with self._changed:
            return self._rules.take_findings()

    def report(self, report: Report) -> None:
        """Set the state to report to the coordinator (consumer group protocol)."""
        rules = self._rules
        assert isinstance(rules, ConsumerHeartbeatRules)
        with self._changed:
            rules.report(report, monotonic_ms())
            self._wake()

    def confirm(self) -> int:
        """Send a heartbeat now; return its number, which `confirmed` reaches when it succeeds."""
        with self._changed:
            number = self._rules.confirm()
            self._wake()
        return number

    @property
    def confirmed(self) -> int:
        with self._changed:
            return self._rules.confirmed

    @property
    def expired(self) -> Identity | None:
        """The identity whose membership ended because polls were too far apart; None after `begin`.

        Read without the lock, because `Consumer.run` reads it in each event loop iteration.
        """
        return self._rules.expired

    @property
    def last_success_ms(self) -> int | None:
        """When a heartbeat last succeeded (time.monotonic, in milliseconds)."""
        with self._changed:
            return self._rules.last_success_ms

    @property
    def trouble(self) -> ErrorCode:
        """The error of the last heartbeat; NONE if it succeeded."""
        with self._changed:
            return self._rules.trouble

    def figures(self, now_ms: int) -> Figures:
        """The heartbeat statistics at `now_ms` (time.monotonic, in milliseconds)."""
        with self._changed:
            return self._rules.statistics.figures(now_ms)

    def stop(self) -> None:
        """Ask the thread to end; a request in progress is aborted."""
        with self._changed:
            self._is_stopping = True
            self._rules.end()
            connection = self._connection
            self._wake()
        if connection is not None:
            connection.close()

    async def wait_stopped(self, timeout_s: float) -> bool:
        """Wait for the thread to end. Returns whether it did within `timeout_s`."""
        if self._thread.ident is None:
            return True
        # The thread reports its end directly: the loop's executor may be full of the application's
        # work.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        if self._ended.is_set():
            # The thread has nothing left to do, but exits only when it is scheduled again.
            self._thread.join(THREAD_EXIT_S)
        return self._ended.is_set()

    def _wake(self) -> None:
        """Interrupt a wait of the thread; called with the lock held."""
        self._changed.notify()

    # Runs in the thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_stopping or self._is_forgotten():
                    break
                now_ms = monotonic_ms()
                action = self._rules.next_action(now_ms)
                if isinstance(action, Wait):
                    self._report_findings()
                    left_s = None
                    if action.until_ms is not None:
                        left_s = max(action.until_ms - now_ms, 1) / 1000
                    self._changed.wait(left_s)
                    continue
            _complete(self._act(action))
        self._disconnect()
        # If the loop is already closed, nothing is waiting.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set)

    def _is_forgotten(self) -> bool:
        """Whether the consumer can no longer be polled or closed because its loop has ended.
        Heartbeats would keep the partitions from other members until max.poll.interval.ms has
        passed.
        """
        if self._loop.is_closed() and self._rules.has_member:
            logger.warning(
                "group %s: the event loop of a consumer ended before it was closed; use"
                " `async with`, or call stop()",
                self._config.group_id,
            )
        return self._loop.is_closed()

    def _report_findings(self) -> None:
        if self._rules.has_findings and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._on_findings)
            except RuntimeError:
                logger.debug("the loop ended before the consumer was closed")

    async def _act(self, action: Action) -> None:
        try:
            match action:
                case SendHeartbeat(identity, ConsumerGroupHeartbeatRequest() as request):
                    await self._send_consumer_heartbeat(identity, request)
                case SendHeartbeat(identity):
                    code = await self._send_heartbeat(identity)
                    with self._changed:
                        self._rules.answered(identity, code, monotonic_ms())
                case LookUpCoordinator():
                    code = await self._find_coordinator()
                    with self._changed:
                        self._rules.found_coordinator(code, monotonic_ms())
                case SendLeave():
                    await self._send_leave(action)
                case Wait():
                    pass
        except (TokenError, TlsError) as error:
            # The broker rejected no credentials: a retry may get a token, or a new certificate.
            logger.warning("heartbeat of group %s: %s", self._config.group_id, error)
            self._give_up(action)
        except AuthenticationError as error:
            # Authentication succeeded before, so users or certificates have changed. Retrying could
            # lock out the user where failed logins are counted.
            logger.warning("heartbeat of group %s: %s", self._config.group_id, error)
            self._disconnect()
            with self._changed:
                self._rules.refused(error.code)
        except (DisconnectedError, UnsupportedVersionError) as error:
            logger.debug("heartbeat of group %s: %s", self._config.group_id, error)
            self._give_up(action)
        except Exception:
            # Unexpected. If the thread died here, the membership would be lost without notice.
            logger.exception("heartbeat of group %s", self._config.group_id)
            self._disconnect()
            with self._changed:
                self._rules.failed(monotonic_ms())

    def _give_up(self, action: Action) -> None:
        """Record that there was no response; `HeartbeatRules` schedules the retry."""
        self._disconnect()
        with self._changed:
            if isinstance(action, LookUpCoordinator):
                self._rules.found_coordinator(ErrorCode.NETWORK_EXCEPTION, monotonic_ms())
            else:
                self._rules.failed(monotonic_ms())

    async def _send_heartbeat(self, identity: Identity) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self._config.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        answer: HeartbeatResponse = await self._call_coordinator(
            HeartbeatRequest, lambda _: request, self._timeout_s
        )
        return ErrorCode(answer.error_code)

    async def _send_consumer_heartbeat(
        self, identity: Identity, request: ConsumerGroupHeartbeatRequest
    ) -> None:
        rules = self._rules
        assert isinstance(rules, ConsumerHeartbeatRules)
        response = await self._call_coordinator(
            ConsumerGroupHeartbeatRequest, lambda _: request, self._timeout_s
        )
        with self._changed:
            rules.heartbeat_answered(identity, response, monotonic_ms())

    async def _send_leave(self, leave: SendLeave) -> None:
        logger.warning(
            "group %s: no poll within max_poll_interval_ms; leaving the group, so that others can"
            " take over. Poll more often, process less at a time, or set max_poll_interval_ms"
            " higher",
            self._config.group_id,
        )

        def request(version: int) -> object:
            config = self._config
            return leave_request(config.group_id, config.group_instance_id, leave, version)

        await self._call_coordinator(leave_type(leave), request, LEAVE_TIMEOUT_S)

    async def _find_coordinator(self) -> ErrorCode:
        """Query the brokers one after another; the first response decides.

        Brokers that did not answer last time come last, because an unreachable one costs the
        timeout of a whole attempt.
        """
        self._disconnect()
        with self._changed:
            brokers = [broker for broker in self._brokers if broker not in self._suspects]
            brokers += [broker for broker in self._suspects if broker in self._brokers]
        failure = DisconnectedError("no broker is known")
        for address in brokers:
            try:
                code, _, host, port = await self._ask_for_coordinator(address)
            except DisconnectedError as error:
                failure = error
                self._suspect(address)
                continue
            with self._changed:
                self._suspects.pop(address, None)
                if code is ErrorCode.NONE:
                    self._coordinator = Address(host, port)
            return code
        raise failure

    def _suspect(self, address: Address) -> None:
        with self._changed:
            self._suspects.pop(address, None)
            self._suspects[address] = None
            if self._is_stopping:
                raise DisconnectedError("stopped")

    async def _ask_for_coordinator(self, address: Address) -> FoundCoordinator:
        try:
            connection = await self._connect(address)
            version = connection.versions.best(FindCoordinatorRequest)
            request = coordinator_request(self._config.group_id, version)
            answer = await self._call(connection, request, version, self._timeout_s)
        finally:
            self._disconnect()
        return coordinator_in(answer)

    async def _call_coordinator(
        self, kind: type, request_for: Callable[[int], object], timeout_s: float
    ) -> Any:  # noqa: ANN401 - the response that belongs to the request.
        with self._changed:
            address = self._coordinator
            connection = self._connection
        if address is None:
            raise DisconnectedError("no coordinator")
        try:
            if connection is None or str(connection.address) != str(address):
                self._disconnect()
                connection = await self._connect(address)
            version = connection.versions.best(kind)
            return await self._call(connection, request_for(version), version, timeout_s)
        except DisconnectedError:
            self._suspect(address)
            raise

    async def _connect(self, address: Address) -> BlockingConnection | BrokerConnection:
        """Store a new connection, so that `stop` can abort it, and open it."""
        connection = BlockingConnection(address, self._connection_config)
        with self._changed:
            if self._is_stopping:
                raise DisconnectedError("stopped")
            self._connection = connection
        connection.open(self._timeout_s)
        return connection

    async def _call(self, connection: Any, request: object, version: int, timeout_s: float) -> Any:  # noqa: ANN401
        return connection.call(request, timeout_s, version=version)

    def _disconnect(self) -> None:
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _complete(steps: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that blocks instead of suspending."""
    try:
        steps.send(None)
    except StopIteration:
        return
    raise RuntimeError("the heartbeat thread has no event loop to wait on")


heartbeats_are_sent_by: Final[ContextVar[type[HeartbeatThread]]] = ContextVar(
    "heartbeats_are_sent_by", default=HeartbeatThread
)
"""The class that sends heartbeats for consumers created in this context. Tests on virtual time
replace it, because a thread would wait in real time."""
