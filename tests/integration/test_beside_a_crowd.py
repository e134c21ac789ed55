"""How long others wait beside a crowd that begins TLS and does not go on.

By the clock, unlike in `tests.support.measures.watch`: what is compared is what one client sees, on
the same machine, minutes apart at most. The crowd, which would have machines of its own, has the
lowest weight, and broker and client the highest. The machine may have other work, which only ever
makes waits longer, so each figure is the least of several rounds that alternate.
"""

import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.integration.test_abandoned_handshakes import Guarded, Silent
from tests.support.measures.clocked import clocked
from tests.support.measures.watch import undisturbed, warmed_up
from tests.support.measures.weights import HIGHEST, LOWEST, weigh
from tests.support.network.flood import client_hello, flood

pytestmark = pytest.mark.long

SILENT: Final = 2_000
ROUNDS_MAX: Final = 8
PART_S: Final = 2.0

SINK = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
print(listener.getsockname()[1], flush=True)
kept = []
while True:
    kept.append(listener.accept()[0])
    kept[-1].setblocking(False)
    if len(kept) > 400:
        kept.pop(0).close()
"""
"""A server that does nothing for a crowd but take it."""


class Roomy(Guarded):
    """It lets all of the crowd be, for as long as the measuring takes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.overrides |= {
            "kohort.authentication.timeout.ms": "60000",
            "kohort.unauthenticated.connections.max": str(SILENT + 100),
        }

    def command(self) -> list[str]:
        # A session of its own has a weight of its own.
        return ["setsid", *super().command()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roomy]:
    with Roomy(tmp_path_factory.mktemp("roomy")) as server:
        weigh(server.pid, HIGHEST)
        warmed_up(server)
        yield server


def p99_ms_of(server: Guarded, duration_s: float = PART_S) -> float:
    with clocked(server.port) as waits_s:
        time.sleep(duration_s)
    return p99_ms(waits_s)


def p99_ms(waits_s: Sequence[float]) -> float:
    return 1_000 * sorted(waits_s)[len(waits_s) * 99 // 100]


def test_nobody_waits_longer_beside_two_thousand_who_are_silent(server: Roomy) -> None:
    said = (b"", client_hello()[:200], client_hello())
    before_ms, arriving_ms, during_ms = math.inf, math.inf, math.inf
    for _ in range(ROUNDS_MAX):
        before_ms = min(before_ms, p99_ms_of(server))
        with Silent() as silent:
            with clocked(server.port) as waits_s:
                for number in range(SILENT):
                    silent.open(server.ports["SSL"], said[number % 3])
            arriving_ms = min(arriving_ms, p99_ms(waits_s))
            # Until all their handshakes have been begun.
            time.sleep(PART_S)
            during_ms = min(during_ms, p99_ms_of(server))
            assert silent.lasted_s == []
        if during_ms < 2 * before_ms:
            break
    print(
        f"p99 before {before_ms:.2f} ms, while {SILENT} arrive {arriving_ms:.2f} ms,"
        f" beside them {during_ms:.2f} ms"
    )
    assert during_ms < 2 * before_ms


@contextmanager
def sink() -> Iterator[int]:
    """The port of a server that takes a crowd."""
    with subprocess.Popen(
        [sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize("rate", [100, 1_000])
def test_what_others_wait_beside_handshakes_that_are_abandoned(server: Roomy, rate: int) -> None:
    """Compared with what they wait while the same crowd is at another server, which makes the
    machine as busy.
    """
    of_sink_ms, of_broker_ms, came = math.inf, math.inf, 0
    quiet_ms = min(p99_ms_of(server) for _ in range(2))
    with sink() as elsewhere, undisturbed(server, longest_s=0.1):
        for _ in range(ROUNDS_MAX):
            for port in (elsewhere, server.ports["SSL"]):
                with flood("hellos", port, rate=rate, niceness=LOWEST) as counts:
                    time.sleep(1)
                    waited_ms = p99_ms_of(server, 4)
                if port == elsewhere:
                    of_sink_ms = min(of_sink_ms, waited_ms)
                else:
                    of_broker_ms = min(of_broker_ms, waited_ms)
                    came += int(counts[0])
            if came >= 10 * rate and of_broker_ms < 2 * of_sink_ms:
                break
    print(
        f"{came} hellos at {rate}/s: p99 {of_broker_ms:.2f} ms, {of_sink_ms:.2f} ms while they go"
        f" elsewhere, {quiet_ms:.2f} ms without them"
    )
    assert of_broker_ms < 2 * of_sink_ms
