"""Uploads that hold the memory for requests and drip, over real sockets. Their rules are tested on
virtual time, in tests/unit/broker/network/test_slow_uploads.py.
"""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient, framed, header

MB = 1_000_000
ZEROS = bytes(MB)
ANSWER_S_MAX = 20.0
"""0.6 s are promised, of a machine that has nothing else to do. The uploads take half a minute."""


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[KohortServer]:
    overrides = {"queued.max.request.bytes": str(16 * MB)}
    with KohortServer(tmp_path, overrides=overrides) as server:
        yield server


class Dripping:
    """A frame of which much comes at once, and then enough of it to look alive."""

    def __init__(
        self, port: int, source: str, *, frame: int, at_once: int, step: int, every_s: float
    ) -> None:
        self.port, self.source = port, source
        self.frame, self.at_once, self.step, self.every_s = frame, at_once, step, every_s
        self.evictions = 0
        self.open()

    def open(self) -> None:
        self.client = RawClient(self.port, source=self.source)
        self.client.socket.setblocking(False)
        self.began_s = time.monotonic()
        self.sent = 0

    def drip(self) -> None:
        """Send what is due; come back where the broker has closed the connection."""
        steps = int((time.monotonic() - self.began_s) / self.every_s)
        due = min(self.at_once + steps * self.step, self.frame)
        try:
            if not self.sent:
                self.sent = self.client.socket.send(struct.pack(">i", self.frame))
            while self.sent < due:
                self.sent += self.client.socket.send(ZEROS[: due - self.sent])
        except BlockingIOError:
            return
        except OSError:
            self.evictions += 1
            self.client.close()
            self.open()


def longest_wait_beside(
    attackers: list[Dripping], port: int, *, is_done: Callable[[int], bool]
) -> float:
    """The longest that a client of 200 kB requests waits for an answer, in seconds, once the
    attackers have had three seconds to take what they get.
    """
    begin = header(18, 0)
    request = framed(begin + bytes(200_000 - len(begin)))
    began_s = time.monotonic()
    while time.monotonic() < began_s + 3:
        for attacker in attackers:
            attacker.drip()
        time.sleep(0.02)
    longest_s, number = 0.0, 0
    with RawClient(port, timeout_s=ANSWER_S_MAX) as honest:
        while not is_done(number):
            number += 1
            # In two parts, so that room for it has to be asked for.
            honest.send(request[:100_000])
            time.sleep(0.02)
            for attacker in attackers:
                attacker.drip()
            sent_s = time.monotonic()
            honest.send(request[100_000:])
            assert honest.receive()
            longest_s = max(longest_s, time.monotonic() - sent_s)
    for attacker in attackers:
        attacker.client.close()
    return longest_s


def test_requests_of_200_kb_are_answered_beside_uploads_that_hold_all_memory(
    small_server: KohortServer,
) -> None:
    port = small_server.port
    attackers = [
        Dripping(port, f"127.0.0.{2 + n}", frame=20 * MB, at_once=3 * MB, step=MB // 2, every_s=1)
        for n in range(6)
    ]
    longest_wait_beside(attackers, port, is_done=lambda number: number == 10)


@pytest.mark.long
@pytest.mark.parametrize("addresses", [250, 1], ids=["many addresses", "the client's own address"])
def test_a_hundred_uploads_do_not_hold_other_requests_until_their_next_part(
    tmp_path: Path, addresses: int
) -> None:
    """Each sends 13 MB of a frame of 100 MB and 1.1 MB every 3.5 s, and reconnects when closed."""
    with KohortServer(tmp_path) as server:
        attackers = [
            Dripping(
                server.port,
                f"127.0.0.{1 + n % addresses}",
                frame=100 * MB,
                at_once=13 * MB,
                step=1_100_000,
                every_s=3.5,
            )
            for n in range(100)
        ]
        end_s = time.monotonic() + 30
        longest_s = longest_wait_beside(
            attackers, server.port, is_done=lambda _: time.monotonic() > end_s
        )
        print(f"longest wait {longest_s:.3f} s, {sum(a.evictions for a in attackers)} evictions")
        # Otherwise they had nothing to hold back.
        assert sum(attacker.evictions for attacker in attackers) > 0
    assert longest_s < 3.5
