"""A real Kafka and a Kohort that are asked the same and have to answer the same."""

import select
import time
from collections.abc import Callable, Collection
from functools import partial
from socket import socket
from typing import Final, NamedTuple, Self

import pytest

from kohort.protocol.message import RESPONSES, Struct, schema_of
from tests.interop.same_answers.compare import Correspondence, Mismatch, mismatches
from tests.interop.same_answers.deliberate import CLOSED, SILENT, Difference
from tests.interop.same_answers.differences import ALWAYS
from tests.interop.same_answers.each import Value, each, for_broker
from tests.interop.same_answers.normal import Facts, normalised
from tests.support import messages as m
from tests.support.brokers.server_process import ServerProcess
from tests.support.network.wire import RawClient, framed, request_body, response_in

TWIN_SETTINGS: Final = {
    # Groups settle at once, silent members are soon missed, and groups are soon full.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.size": "4",
    # As in classic groups: a group may keep members that a busy machine leaves silent.
    "group.consumer.max.session.timeout.ms": "1800000",
    # After 5 s, which a write may take on a busy machine, it would be answered with an error.
    "offsets.commit.timeout.ms": "60000",
    # A controller that does not hear of its broker for 9 s takes the partitions from it, and the
    # coordinators answer NOT_COORDINATOR.
    "broker.session.timeout.ms": "600000",
    # A real Kafka takes a second for fifty partitions.
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # Share groups assign at once, are soon full, and may have short locks and sessions.
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": "4",
    "group.share.max.share.sessions": "64",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
    # Heartbeat intervals of share groups are Kafka's.
    "kohort.group.consumer.heartbeats.per.second": "0",
    # Snapshots are soon written.
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    # What is overdue is soon ended.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # Each broker checks retention at times of its own; many tests write old timestamps.
    "log.retention.ms": "-1",
}
"""On top of the defaults of both."""

SESSION_STARTED_MS: Final = time.time_ns() // 1_000_000

_EVENTUALLY_S: Final = 60
_SHOWN_MAX: Final = 12


Connect = Callable[[ServerProcess, float], RawClient]
"""Makes a connection to a broker that waits so many seconds for an answer."""

Report = Callable[[str, str], None]
"""Told of every answer that differs: its name, and how."""


class Twins(NamedTuple):
    """Both brokers, as a session starts them."""

    kafka: ServerProcess
    kohort: ServerProcess


def wait_ready(server: ServerProcess) -> None:
    """A Kafka fetches the producer ids that it gives out after it says that it is there."""
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with RawClient(server.port) as client:
        while client.call(request, 0, m.InitProducerIdResponse).error_code:
            time.sleep(0.05)


class Answers(NamedTuple):
    """What both said: a response, or CLOSED or SILENT."""

    kafka: Value
    kohort: Value

    def each(self, read: Callable[[Value], object]) -> Value:
        """A value that each broker chose, to be used in the next request."""
        return each(read(self.kafka), read(self.kohort))


class Side:
    """One broker as one test sees it."""

    def __init__(self, name: str, server: ServerProcess) -> None:
        self.name = name
        self.server = server
        self.port = server.port
        with RawClient(self.port) as client:
            answer = client.call(m.MetadataRequest(topics=[]), 4, m.MetadataResponse)
        ports = frozenset(getattr(server, "ports", {"": self.port}).values())
        self.facts = Facts(ports, answer.cluster_id or "", SESSION_STARTED_MS, {})

    def plain(self, answer: Value, version: int, about: Collection[str]) -> Value:
        if not isinstance(answer, Struct):
            return answer
        return normalised(answer, version, self.facts, about)


class Pending:
    """Requests that were sent, for which the answers are awaited later."""

    def __init__(self, line: "Line", request: object, version: int) -> None:
        self.line = line
        self.request = request
        self.version = version
        self.then: Callable[[Answers], None] | None = None
        """Told of the answers, once they have been compared if they are."""

    def answers(
        self,
        *,
        differs: Difference | None = None,
        about: Collection[str] = (),
        may_close: bool = False,
    ) -> Answers:
        """Wait for both answers and compare them; see Line.ask."""
        answers = self.line.receive(self.request, self.version)
        self.line.pair.compare(
            self.request, self.version, answers, differs, about, may_close=may_close
        )
        if self.then is not None:
            self.then(answers)
        return answers

    def uncompared(self) -> Answers:
        """Wait for both answers, whatever they say."""
        answers = self.line.receive(self.request, self.version)
        if self.then is not None:
            self.then(answers)
        return answers

    def unanswered(self) -> None:
        """Nothing comes, as a producer wants it with acks=0."""
        self.line.awaited -= 1

    def is_parked(self, *, for_s: float = 0.1) -> bool:
        """Whether both keep their answer back for that long. Fails if only one does.

        An answer of one broker gives the other some seconds to answer as well.
        """
        sockets = self.line.sockets()
        answered = select.select(sockets, [], [], for_s)[0]
        if not answered:
            # Time alone says little on a busy machine.
            self.line.pair.see_them_awake()
            answered = select.select(sockets, [], [], 0)[0]
        deadline = time.monotonic() + _EVENTUALLY_S
        while answered and len(answered) < len(sockets) and time.monotonic() < deadline:
            time.sleep(0.01)
            answered = select.select(sockets, [], [], 0)[0]
        if answered and len(answered) < len(sockets):
            silent = [
                side.name
                for side, socket in zip(self.line.pair.sides, sockets, strict=True)
                if socket not in answered
            ]
            self.line.pair.fail(self.request, self.version, f"  only {silent[0]} does not answer")
        return not answered


class Line:
    """One connection to each broker, reopened where a broker has closed it."""

    def __init__(self, pair: "Pair", *, timeout_s: float, client_id: str, connect: Connect) -> None:
        self.pair = pair
        self.awaited = 0
        """Requests whose answers have not been asked for yet."""
        self.timeout_s = timeout_s
        self._client_id = client_id.encode()
        self._connect = connect
        self._clients: dict[str, RawClient] = {}

    def send(
        self, request: object, version: int, *, edit: Callable[[bytes], bytes] = bytes
    ) -> Pending:
        """Send to both without waiting; `edit` may change the bytes."""
        for side in self.pair.sides:
            own = for_broker(request, side.name)
            body = request_body(own, version, client_id=self._client_id)
            self._client(side).send(framed(edit(body)))
        self.awaited += 1
        return Pending(self, request, version)

    def sockets(self) -> list[socket]:
        """Kafka's and ours."""
        return [self._client(side).socket for side in self.pair.sides]

    def ask(
        self,
        request: object,
        version: int,
        *,
        differs: Difference | None = None,
        about: Collection[str] = (),
        may_close: bool = False,
    ) -> Answers:
        """Send to both, wait for both and compare.

        Args:
            differs: the answers must be different in this way.
            about: names of topics or groups, where an answer tells of all: others are left out.
            may_close: both may do without an answer, which otherwise is a mistake of the test's.
        """
        pending = self.send(request, version)
        return pending.answers(differs=differs, about=about, may_close=may_close)

    def ask_alone(self, side: "Side", request: object, version: int) -> Value:
        """The answer of one of both; nothing is compared."""
        body = request_body(for_broker(request, side.name), version, client_id=self._client_id)
        self._client(side).send(framed(body))
        key = schema_of(type(request)).key
        assert key is not None
        return self._receive(side, RESPONSES[key], version)

    def receive(self, request: object, version: int) -> Answers:
        """The next answers, not compared."""
        key = schema_of(type(request)).key
        assert key is not None
        self.awaited -= 1
        return Answers(*(self._receive(side, RESPONSES[key], version) for side in self.pair.sides))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self.awaited = 0

    def _client(self, side: Side) -> RawClient:
        if side.name not in self._clients:
            self._clients[side.name] = self._connect(side.server, self.timeout_s)
        return self._clients[side.name]

    def _receive(self, side: Side, response: type, version: int) -> Value:
        client = self._client(side)
        try:
            return response_in(client.receive(), response, version)
        except (ConnectionError, TimeoutError) as error:
            client.close()
            del self._clients[side.name]
            return SILENT if isinstance(error, TimeoutError) else CLOSED


class Pair:
    """Both brokers during one test. Every request that is asked here is compared.

    Answers that differ fail the test, but only at its end or when it cannot go on: all of them are
    shown.
    """

    compared = 0
    """Requests, over all tests."""

    def __init__(self, twins: Twins, report: Report) -> None:
        self.kafka = Side("kafka", twins.kafka)
        self.kohort = Side("kohort", twins.kohort)
        self.sides = (self.kafka, self.kohort)
        self.are_both_kafka = type(twins.kafka) is type(twins.kohort)
        self.kafkas = self.sides if self.are_both_kafka else (self.kafka,)
        """Sides that do some things later than they say."""
        self.report = report
        """Fails the test, which goes on as far as it can."""
        self._ids = Correspondence()
        self._lines: list[Line] = []
        self.line = self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections; each is opened again by the next request."""
        for line in self._lines:
            line.close()

    @property
    def is_waiting(self) -> bool:
        """Whether a request's answers have not been asked for yet."""
        return any(line.awaited for line in self._lines)

    def open(
        self,
        *,
        timeout_s: float = 20,
        client_id: str = "test",
        source: str = "",
        connect: Connect | None = None,
    ) -> Line:
        """One more connection to each, from the address `source` where it matters; or as
        `connect` makes them.
        """
        connect = connect or partial(_connected, source=source)
        line = Line(self, timeout_s=timeout_s, client_id=client_id, connect=connect)
        self._lines.append(line)
        return line

    def ask(
        self,
        request: object,
        version: int,
        *,
        differs: Difference | None = None,
        about: Collection[str] = (),
        may_close: bool = False,
    ) -> Answers:
        """Ask as Line.ask does, on a line that is there already."""
        return self.line.ask(request, version, differs=differs, about=about, may_close=may_close)

    def peek(self, request: object, version: int) -> Answers:
        """Both answers, not compared."""
        return self.line.send(request, version).uncompared()

    def settle(self) -> None:
        """Time for what was sent on other connections to arrive."""
        time.sleep(0.05)
        self.see_them_awake()

    def see_them_awake(self) -> None:
        """Wait until both have answered something that came later than all that was sent."""
        for side in self.sides:
            with RawClient(side.port) as client:
                assert client.is_answered()

    def ask_until_equal(
        self, request: object, version: int, *, about: Collection[str] = ()
    ) -> Answers:
        """Ask while the answers differ: Kafka's controller answers before its broker knows."""
        deadline = time.monotonic() + _EVENTUALLY_S
        while True:
            answers = self.peek(request, version)
            found = self._found(answers, version, self._ids.copy(), about)
            if not found or time.monotonic() > deadline:
                self.compare(request, version, answers, about=about)
                return answers
            time.sleep(0.02)

    def compare(
        self,
        request: object,
        version: int,
        answers: Answers,
        differs: Difference | None = None,
        about: Collection[str] = (),
        *,
        may_close: bool = False,
    ) -> None:
        """Fail unless the answers are equal, or differ as they should."""
        Pair.compared += 1
        if not may_close and not any(isinstance(answer, Struct) for answer in answers):
            self.fail(request, version, f"  neither answers: {answers.kafka}, {answers.kohort}")
        found = self._found(answers, version, self._ids, about)
        wrong = [one for one in found if differs is None or not differs.allows(*one)]
        if wrong:
            self.fail(request, version, f"{_told(wrong)}\n  Kafka's answer: {answers.kafka!r}")
        elif self.must_differ(differs) and not found:
            assert differs is not None
            self.fail(request, version, f"  no difference, though {differs.because}")

    def must_differ(self, differs: Difference | None) -> bool:
        """Whether a missing difference is a mistake."""
        return differs is not None and not differs.by_chance and not self.are_both_kafka

    def _found(
        self, answers: Answers, version: int, ids: Correspondence, about: Collection[str]
    ) -> list[Mismatch]:
        kafka, kohort = (
            side.plain(answer, version, about)
            for side, answer in zip(self.sides, answers, strict=True)
        )
        return [
            one
            for one in mismatches(kafka, kohort, ids)
            if not any(difference.allows(*one) for difference in ALWAYS)
        ]

    def fail(self, request: object, version: int, text: str) -> None:
        """The test fails, and goes on as far as it can."""
        self.report(f"{type(request).__name__} v{version}", f"{request!r} in v{version}\n{text}")


def opened(twins: Twins, subtests: pytest.Subtests) -> Pair:
    """Both brokers during one test, which goes on when one of them answers otherwise."""

    def report(name: str, text: str) -> None:
        with subtests.test(name):
            pytest.fail(text, pytrace=False)

    return Pair(twins, report)


def _connected(server: ServerProcess, timeout_s: float, *, source: str) -> RawClient:
    return RawClient(server.port, timeout_s=timeout_s, source=source)


def _told(wrong: list[Mismatch]) -> str:
    lines = [
        f"  {path or 'the answer'}: Kafka {kafka!r}, Kohort {kohort!r}"
        for path, kafka, kohort in wrong[:_SHOWN_MAX]
    ]
    if len(wrong) > _SHOWN_MAX:
        lines.append(f"  and {len(wrong) - _SHOWN_MAX} more")
    return "\n".join(lines)
