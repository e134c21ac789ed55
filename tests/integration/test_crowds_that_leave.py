"""How long others wait while a crowd ends its connections, all in one turn of the loop."""

import os
import signal
import socket
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.brokers.kohort_server import KohortServer
from tests.support.measures.watch import busy_s, warmed_up
from tests.support.network.wire import RawClient

CROWD: Final = 1_000
QUESTIONS: Final = 20
"""More than are answered until all of the crowd is closed."""
ROUNDS: Final = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KohortServer]:
    with KohortServer(tmp_path) as server:
        yield warmed_up(server)


def most_computed(server: KohortServer) -> float:
    """The most that the broker computes while one question waits beside the end of a crowd, as a
    share of what it computes until the whole crowd is closed.
    """
    with RawClient(server.port) as other:
        with ExitStack() as crowd:
            for _ in range(CROWD):
                crowd.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            # Only now has it accepted all of them.
            with RawClient(server.port) as last:
                assert last.is_answered()
            os.kill(server.pid, signal.SIGSTOP)
        began_s, most_s = busy_s(server), 0.0
        os.kill(server.pid, signal.SIGCONT)
        for _ in range(QUESTIONS):
            before_s = busy_s(server)
            assert other.is_answered()
            most_s = max(most_s, busy_s(server) - before_s)
        return most_s / (busy_s(server) - began_s)


def test_a_crowd_that_ends_at_once_is_not_closed_at_once(server: KohortServer) -> None:
    most = [most_computed(server) for _ in range(ROUNDS)]
    print("most computed while a question waited:", *(f"{share:.0%}" for share in most))
    assert statistics.median(most) < 0.7
