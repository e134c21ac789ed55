"""Each state of TLS on a connection, and what becomes of it by all that can happen to one."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import pytest

from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.tls.connection import HANDSHAKE_BYTES_MAX, TlsState
from kohort.broker.network.tls.pump import RECORD_BYTES
from tests.support.brokers.certificates import Authority
from tests.support.network.wire import framed
from tests.support.waiting import turns
from tests.unit.broker.network.edge import Edge
from tests.unit.broker.network.tls_edge import Peer, server_context

HANDSHAKING, OPEN, CLOSING, ENDED, LOST = TlsState

ANSWER_BYTES: Final = 4_000_000
"""More than the transport takes at once of a client that does not read."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def context(authority: Authority) -> ssl.SSLContext:
    return server_context(authority.issue("broker", "DNS:localhost"))


class Case:
    """A client whose handshake has not begun."""

    def __init__(
        self,
        authority: Authority,
        context: ssl.SSLContext,
        limit_of_ip: Callable[[str], float | None] = lambda _: None,
    ) -> None:
        self.edge = Edge(NetworkLimits(), limit_of_ip=limit_of_ip)
        self.peer = Peer(self.edge, authority, context)

    @property
    def state(self) -> TlsState:
        return self.peer.tls._state

    async def be(self, state: TlsState) -> None:
        """Bring it into this state, by what brings others there."""
        if state is not HANDSHAKING:
            await self.peer.do_handshake()
        if state is CLOSING:
            self.do_not_read()
            self.peer.tls.close()
        elif state is ENDED:
            self.peer.tls.close()
        elif state is LOST:
            self.peer.transport.lose()
            await asyncio.sleep(0)
        assert self.state is state

    def do_not_read(self) -> None:
        self.peer.transport.takes_all = False
        self.peer.tls.write(bytes(ANSWER_BYTES))

    def read(self) -> None:
        self.peer.transport.takes_all = True
        self.peer.transport.take(0)

    def close_notify(self) -> None:
        if self.peer.client.is_established:
            with pytest.raises(ssl.SSLWantReadError):
                self.peer.client.tls.unwrap()
            self.peer.transport.send(self.peer.client._out.read())

    def abort(self) -> None:
        if self.state is not LOST:  # Which the connection behind it knows.
            self.peer.tls.abort()


@pytest.fixture
async def case(authority: Authority, context: ssl.SSLContext) -> Case:
    return Case(authority, context)


EVENTS: Final[dict[str, Callable[[Case], None]]] = {
    "the connection closes": lambda case: case.peer.tls.close(),
    "the connection is aborted": Case.abort,
    "the client violates TLS": lambda case: case.peer.transport.send(
        bytes(HANDSHAKE_BYTES_MAX + 1)
    ),
    "the client says goodbye": Case.close_notify,
    "the client reads": Case.read,
    "the client goes": lambda case: case.peer.transport.lose(),
}

TABLE: Final = {
    HANDSHAKING: [ENDED, ENDED, ENDED, HANDSHAKING, HANDSHAKING, LOST],
    OPEN: [ENDED, ENDED, ENDED, ENDED, OPEN, LOST],
    CLOSING: [CLOSING, ENDED, CLOSING, CLOSING, ENDED, LOST],
    ENDED: [ENDED, ENDED, ENDED, ENDED, ENDED, LOST],
    LOST: [LOST, LOST, LOST, LOST, LOST, LOST],
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", TlsState)
async def test_what_happens_in_each_state_leads_where_the_table_says(
    case: Case, state: TlsState, event: str
) -> None:
    await case.be(state)
    EVENTS[event](case)
    expected = TABLE[state][list(EVENTS).index(event)]
    for _ in range(3):
        if case.state is expected:
            break
        # The transport tells that it is lost, or a step of the handshake has to fail first.
        await asyncio.sleep(0)
    assert case.state is expected


async def test_it_is_open_when_the_handshake_is_complete_and_not_before(case: Case) -> None:
    hello = case.peer.client.take(b"")
    case.peer.transport.send(hello)
    await turns()
    assert case.state is HANDSHAKING
    await case.peer.exchange(case.peer.answer())
    assert case.state is OPEN


@pytest.mark.parametrize("state", [CLOSING, ENDED])
async def test_what_arrives_or_is_written_when_it_is_closing_is_dropped(
    case: Case, state: TlsState
) -> None:
    await case.be(state)
    sent_bytes = case.peer.tls.get_write_buffer_size()
    case.peer.transport.send(case.peer.client.send(framed(b"late")))
    case.peer.tls.write(b"late")
    assert case.peer.tls.get_write_buffer_size() == sent_bytes
    assert case.edge.server.memory.used_bytes == 0
    await asyncio.sleep(0)
    assert case.edge.service.begun == []


async def test_what_was_not_decrypted_yet_is_not_when_it_is_closing(case: Case) -> None:
    await case.be(OPEN)
    tls = case.peer.tls
    tls.pause_reading()
    data = case.peer.client.send(framed(b"one"))
    # It reads all the same, as transports may once more.
    tls.get_buffer(-1)[: len(data)] = data
    tls.buffer_updated(len(data))
    tls.resume_reading()
    case.do_not_read()
    tls.close()
    assert case.state is CLOSING
    await turns()
    assert case.edge.metrics.received_bytes == 0


async def test_a_handshake_is_not_completed_when_it_is_closing(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.peer.transport.send(case.peer.client.take(b""))
    await turns()
    case.peer.transport.send(case.peer.answer())
    case.peer.tls.close()
    await turns()
    assert case.state is LOST
    assert not caplog.records


async def test_a_refused_client_that_is_held_is_not_looked_at(
    authority: Authority, context: ssl.SSLContext
) -> None:
    case = Case(authority, context, limit_of_ip=lambda _: 0.0)
    assert case.state is CLOSING
    case.peer.transport.send(case.peer.client.take(b""))
    await turns()
    assert case.peer.transport.taken == b""
    await case.edge.server.close(0)
    await turns()
    assert case.state is LOST


def test_a_state_is_closing_or_ended() -> None:
    assert [state.is_closing for state in TlsState] == [False, False, True, True, True]
    assert [state.is_ended for state in TlsState] == [False, False, False, True, True]


@pytest.fixture
async def at_work(case: Case) -> Case:
    """A client whose hello a thread is working at."""
    case.edge.threads.are_held = True
    case.peer.transport.send(case.peer.client.take(b""))
    assert case.edge.threads.at_work == 1
    return case


@pytest.mark.parametrize("event", EVENTS)
async def test_the_pump_is_left_alone_while_a_thread_has_it(at_work: Case, event: str) -> None:
    pump = at_work.peer.tls._pump
    at_work.peer.tls._pump = None  # type: ignore[assignment]  # To use it is a fault.
    EVENTS[event](at_work)
    await turns()
    waits = at_work.state is CLOSING
    assert waits == (event == "the connection closes")
    at_work.peer.tls._pump = pump
    at_work.edge.threads.are_held = False
    at_work.edge.threads.do_all()
    await turns()
    goes_on = event in {"the client says goodbye", "the client reads"}
    assert (at_work.state is HANDSHAKING) == goes_on
    assert at_work.peer.transport.is_lost != goes_on
    assert at_work.edge.server.memory.used_bytes == 0


async def test_what_comes_while_a_thread_is_at_work_is_for_the_next_step(case: Case) -> None:
    threads, hello = case.edge.threads, case.peer.client.take(b"")
    threads.are_held = True
    case.peer.transport.send(hello[:100])
    case.peer.transport.send(hello[100:150])
    case.peer.transport.send(hello[150:])
    assert threads.at_work == 1
    threads.do_all()
    await turns()
    assert not case.peer.transport.taken
    assert threads.at_work == 1
    threads.are_held = False
    threads.do_all()
    await turns()
    await case.peer.exchange(case.peer.answer())
    assert case.state is OPEN


async def test_a_broker_that_has_closed_begins_no_step(at_work: Case) -> None:
    threads = at_work.edge.threads
    others = [
        Peer(at_work.edge, at_work.peer.authority, at_work.peer.side.context) for _ in range(9)
    ]
    for one in others:
        one.transport.send(one.client.take(b""))
    at_work.edge.server.abort()
    threads.do_all()
    await turns()
    assert threads.at_work == 0
    assert all(one.transport.is_lost for one in others)


async def test_a_request_right_behind_the_handshake_may_be_large(case: Case) -> None:
    large = bytes(3 * HANDSHAKE_BYTES_MAX)
    case.peer.transport.send(case.peer.client.take(b""))
    await turns()
    last = case.peer.answer()
    case.edge.threads.are_held = True
    case.peer.transport.send(last + case.peer.client.send(framed(b"large" + large)))
    await turns()
    # What the thread does not need stays where it is.
    assert case.edge.server.memory.used_bytes <= RECORD_BYTES
    case.edge.threads.are_held = False
    case.edge.threads.do_all()
    await turns(100)
    assert case.state is OPEN
    assert case.edge.service.begun == [b"large" + large[:95]]
