"""Each state of a connection, and what becomes of it by all that can happen to one."""

import struct
from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest
import pytest_asyncio

from kohort.broker.network.connection.end import ConnectionState
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.timeouts import CloseReason
from kohort.testing.virtual_clock import VirtualClock
from tests.support.network.memory_transport import MemoryTransport
from tests.support.network.wire import framed
from tests.support.waiting import turns
from tests.unit.broker.network.edge import Edge, bodies

OPEN, STOPPING, CLOSING, REFUSED, LOST = ConnectionState

PARKED: Final = b"park 1"

TOO_FREQUENT: Final = "10.0.0.9"
"""Address whose connections are refused, and held."""


class Case:
    """A connection whose one request waits for its answer."""

    def __init__(self, edge: Edge, peer: MemoryTransport) -> None:
        self.edge = edge
        self.peer = peer
        self.connection = edge.connection

    @property
    def state(self) -> ConnectionState:
        return self.connection._end.state

    def be(self, state: ConnectionState) -> None:
        """Bring it into this state, by what brings others there."""
        if state is STOPPING:
            self.connection.stop()
        elif state is CLOSING:
            self.connection.tls_failed("in a test")
        elif state is REFUSED:
            self.peer = self.edge.connect(TOO_FREQUENT)
            self.connection = self.edge.connection
        elif state is LOST:
            self.connection.connection_lost(None)
        assert self.state is state

    def answer(self) -> None:
        if self.state is not LOST:  # Or its answer is cancelled.
            self.edge.service.parked[PARKED].set_result(None)

    def send_badly(self) -> None:
        if self.state is not LOST:
            self.peer.send(struct.pack(">i", -1))

    def lose(self) -> None:
        if self.state is not LOST:
            self.connection.connection_lost(None)


@pytest_asyncio.fixture
async def case() -> AsyncIterator[Case]:
    edge = Edge(NetworkLimits(), VirtualClock(), lambda ip: 0.0 if ip == TOO_FREQUENT else None)
    peer = edge.connect()
    peer.send(framed(PARKED))
    await turns()
    yield Case(edge, peer)
    await turns()
    await edge.server.close(100)


EVENTS: Final[dict[str, Callable[[Case], None]]] = {
    "the broker stops": lambda case: case.connection.stop(),
    "the broker is killed": lambda case: case.connection.abort(CloseReason.SHUTDOWN),
    "tls fails": lambda case: case.connection.tls_failed("again"),
    "a fault of ours": lambda case: case.connection.fail(RuntimeError("a fault of ours")),
    "the request is answered": Case.answer,
    "bytes that are no frame": Case.send_badly,
    "the client goes": Case.lose,
}

TABLE: Final = {
    OPEN: [STOPPING, CLOSING, CLOSING, CLOSING, OPEN, CLOSING, LOST],
    STOPPING: [STOPPING, CLOSING, CLOSING, CLOSING, CLOSING, CLOSING, LOST],
    CLOSING: [CLOSING, CLOSING, CLOSING, CLOSING, CLOSING, CLOSING, LOST],
    REFUSED: [REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, LOST],
    LOST: [LOST, LOST, LOST, LOST, LOST, LOST, LOST],
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", ConnectionState)
async def test_what_happens_in_each_state_leads_where_the_table_says(
    case: Case, state: ConnectionState, event: str
) -> None:
    case.be(state)
    EVENTS[event](case)
    expected = TABLE[state][list(EVENTS).index(event)]
    assert case.state is expected


@pytest.mark.parametrize("state", [OPEN, STOPPING, CLOSING])
async def test_the_request_under_way_is_answered_unless_the_connection_closes(
    case: Case, state: ConnectionState
) -> None:
    case.peer.send(framed(b"next"))
    case.be(state)
    case.answer()
    await turns()
    expected = {OPEN: [PARKED, b"next"], STOPPING: [PARKED], CLOSING: []}
    assert bodies(case.peer.taken) == expected[state]
    assert case.state is (OPEN if state is OPEN else LOST if state is STOPPING else CLOSING)


async def test_the_loss_of_a_refused_connection_is_told_to_none(case: Case) -> None:
    case.be(REFUSED)
    assert case.connection.is_refused
    assert case.connection.ip == TOO_FREQUENT
    case.connection.connection_lost(None)
    assert case.edge.server.connection_count == 1
    assert case.edge.metrics.closed == {}
    assert case.edge.service.lost == []


@pytest.mark.parametrize("reason", ["shutdown", "fault"])
async def test_the_first_reason_for_an_end_is_the_one_that_is_counted(
    case: Case, reason: str
) -> None:
    case.be(OPEN)
    EVENTS["the broker is killed" if reason == "shutdown" else "a fault of ours"](case)
    for event in ("tls fails", "a fault of ours", "the broker is killed", "the broker stops"):
        EVENTS[event](case)
    await turns()
    assert case.edge.metrics.closed == {reason: 1}


def test_a_state_is_closing() -> None:
    closing = [state for state in ConnectionState if state.is_closing]
    assert closing == [CLOSING, REFUSED, LOST]
