"""A flood of wrong passwords over real sockets: a right one from elsewhere is let in beside it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort.admin.users import hashed
from kohort.broker.security.passwords import THREADS, WAITING_MAX
from kohort.cli.stopped_broker import stopped_broker
from kohort.client.net.sasl import Plain
from kohort.protocol.scram import ITERATIONS_MAX
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.network.flood import attempt
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

FLOOD_FROM = "127.0.0.2"
BEYOND = 100
"""Passwords of the flood that find no room."""


class Door(NamedTuple):
    """A broker's port that takes passwords."""

    broker: BrokerThread
    port: int

    def waiting(self) -> int:
        """Passwords that wait to be checked."""
        return self.broker.call(lambda: self.broker.broker.listeners.passwords.waiting_count)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    port = free_port()
    with stopped_broker(str(tmp_path / "data")) as place:
        # Some hundred milliseconds each: the flood is still there when it has all been sent, on
        # any machine. No request may ask for so much.
        slow = hashed("secret", ["SCRAM-SHA-512"], 20 * ITERATIONS_MAX)
        place.set_password("alice", slow)
    overrides = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "0",
    }
    with BrokerThread(tmp_path / "data", overrides=overrides) as broker:
        yield Door(broker, port)


def log_in(port: int) -> int:
    with RawClient(port) as client:
        client.call(m.SaslHandshakeRequest(mechanism="PLAIN"), 1, m.SaslHandshakeResponse)
        request = m.SaslAuthenticateRequest(auth_bytes=Plain("alice", "secret").first())
        return client.call(request, 2, m.SaslAuthenticateResponse).error_code


def test_a_right_password_does_not_wait_behind_a_flood_of_wrong_ones(door: Door) -> None:
    said = attempt("PLAIN", b"\0alice\0wrong")
    with ExitStack() as stack:
        for _ in range(WAITING_MAX + THREADS + BEYOND):
            one = stack.enter_context(RawClient(door.port, source=FLOOD_FROM))
            one.send(said)
        wait_until(lambda: door.waiting() >= WAITING_MAX - THREADS, "the flood fills the queue")
        assert log_in(door.port) == 0
        assert door.waiting() > WAITING_MAX // 2
    wait_until(lambda: door.waiting() == 0, "the flood is forgotten")
