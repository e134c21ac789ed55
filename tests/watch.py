"""Watching a broker while it is attacked: how long others wait, and how much memory it takes."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.kohort_server import KohortServer
from tests.wire import RawClient

MIB = 1024 * 1024


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


def forget_peak(server: KohortServer) -> None:
    """Have the peak begin anew with the memory of now."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")


class Watch:
    """Another client, which asks something small all the time."""

    def __init__(self, server: KohortServer) -> None:
        self._client = RawClient(server.port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.slowest_s = 0.0
        self.answered_count = 0

    def _ask(self) -> None:
        while not self._stop.wait(0.005):
            began_s = time.monotonic()
            assert self._client.is_answered()
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
            self.answered_count += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._client.close()


@contextmanager
def undisturbed(
    server: KohortServer, *, longest_s: float = 2.0, more_bytes_max: int = 16 * MIB
) -> Iterator[Watch]:
    """Whoever asks meanwhile is answered in time, and afterwards the memory is back."""
    before = resident_bytes(server)
    with Watch(server) as watch:
        yield watch
        while watch.answered_count < 10:
            time.sleep(0.01)
    assert watch.slowest_s < longest_s
    deadline_s = time.monotonic() + 10
    while resident_bytes(server) - before > more_bytes_max:
        assert time.monotonic() < deadline_s, (before, resident_bytes(server))
        time.sleep(0.1)
