"""Watching a broker while it is attacked: how long others wait, and how much memory it takes.

How long others wait is told by what the broker's own thread computed between a question and its
answer: on a machine with something else to do the time by the clock says more about the machine.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

MIB = 1024 * 1024
STUCK_S = 60
"""Real time; what has not come by then does not come."""


def warmed_up(server: KohortServer) -> KohortServer:
    """The first requests import and generate what later ones find."""
    with RawClient(server.port) as client:
        for _ in range(100):
            client.is_answered()
    return server


def resident_bytes(server: KohortServer, name: str = "VmRSS") -> int:
    """Memory of the broker's process now, or at its peak (VmHWM)."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def busy_s(server: KohortServer) -> float:
    """Processor time of the thread that runs the broker's loop, so far."""
    # By the scheduler: what other files tell has hundredths of a second.
    told = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat").read_text()
    return int(told.split()[0]) / 1e9


def forget_peak(server: KohortServer) -> None:
    """Reset the peak to the present memory."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")


class Watch:
    """Another client, which asks something small all the time."""

    def __init__(self, server: KohortServer) -> None:
        self._server = server
        self._client = RawClient(server.port, timeout_s=STUCK_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.most_busy_s = 0.0
        """The most that the broker computed while one question waited: the rest of the turn of its
        loop in which the question came, and the turn that answered it."""
        self.answered_count = 0

    def _ask(self) -> None:
        while not self._stop.wait(0.005):
            before_s = busy_s(self._server)
            assert self._client.is_answered()
            self.most_busy_s = max(self.most_busy_s, busy_s(self._server) - before_s)
            self.answered_count += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(2 * STUCK_S)
        assert not self._thread.is_alive()
        self._client.close()


@contextmanager
def undisturbed(
    server: KohortServer, *, longest_s: float = 2.0, more_bytes_max: int = 16 * MIB
) -> Iterator[Watch]:
    """Check that requests are answered in time meanwhile, and that the memory is freed after."""
    before = resident_bytes(server)
    with Watch(server) as watch:
        yield watch
        wait_until(
            lambda: watch.answered_count >= 10,
            "answers to another client",
            timeout_s=STUCK_S,
            pause_s=0.01,
        )
    assert watch.most_busy_s < longest_s
    wait_until(
        lambda: resident_bytes(server) - before <= more_bytes_max,
        lambda: f"the memory to be freed: {before} bytes before, {resident_bytes(server)} now",
        timeout_s=STUCK_S,
    )
