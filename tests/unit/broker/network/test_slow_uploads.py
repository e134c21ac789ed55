"""Uploads in virtual time: clients that send at given paces, and too little memory for them."""

from collections.abc import Callable

import pytest

from kohort.broker.network.connection.frames import FrameReader
from kohort.broker.network.memory import (
    POLICY_INTERVAL_MS,
    RESERVATION_WAIT_MS,
    MemoryReservation,
    RequestMemoryBudget,
    SlowUploadPolicy,
)

MIB = 1024 * 1024
LIMIT = 256 * MIB
FRAME_MAX = 100 * MIB

Pace = Callable[[int], int]
"""How many bytes a client has sent so many ms after it began."""


def burst_then_drip(now_ms: int) -> int:
    """13 MB, and then 1.1 MB every three and a half seconds."""
    return 13_000_000 + 1_100_000 * (now_ms // 3_500)


def steady(bytes_per_ms: int) -> Pace:
    return lambda now_ms: bytes_per_ms * now_ms


class Client:
    """Sends frames of one size, one after the other; again from the begin when it is ended."""

    def __init__(self, edge: "Uploads", address: str, size: int, pace: Pace) -> None:
        self.edge = edge
        self.address = address
        self.size = size
        self.pace = pace
        self.times_ms: list[int] = []
        """What each frame took that got through."""
        self.ended_count = 0
        self.first_ms = edge.now_ms
        self.connect()

    def connect(self) -> None:
        self.reservation = MemoryReservation(self.edge.memory, self.on_granted, self.on_evicted)
        self.reservation.address_block = self.address
        self.reader = FrameReader(self.edge.buffer, self.reservation, FRAME_MAX)
        self.begin()

    def begin(self) -> None:
        self.began_ms = self.edge.now_ms
        self.sent_bytes = 0

    def on_granted(self) -> None:
        self.reader.grow()

    def on_evicted(self) -> None:
        self.ended_count += 1
        self.reader.close()
        self.reservation.close()
        self.connect()

    def step(self) -> None:
        """Send what the pace allows and the broker reads."""
        allowed = min(self.size + 4, self.pace(self.edge.now_ms - self.began_ms) + 4)
        while self.sent_bytes < allowed and not self.reader.is_waiting_for_memory:
            room = self.reader.buffer()
            count = min(len(room), allowed - self.sent_bytes)
            if self.sent_bytes == 0:
                room[:4] = self.size.to_bytes(4, "big")
            self.sent_bytes += count
            self.reader.received(count)
            frame = self.reader.next_frame()
            self.reader.keep_rest()
            if frame is None:
                continue
            if isinstance(frame, bytearray):
                self.reservation.release(len(frame))
            self.times_ms.append(self.edge.now_ms - self.first_ms)
            self.first_ms = self.edge.now_ms
            self.begin()
            return

    @property
    def waits_ms(self) -> int:
        """For how long the frame at hand has been tried."""
        return self.edge.now_ms - self.first_ms


class Uploads:
    """A budget and its clients; time goes on by ten milliseconds at a time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.memory = RequestMemoryBudget(LIMIT)
        self.policy = SlowUploadPolicy(self.memory)
        self.buffer = memoryview(bytearray(256 * 1024))
        self.clients: list[Client] = []
        self.most_bytes = 0

    def add(self, count: int, address: str, size: int, pace: Pace) -> list[Client]:
        """In an address each `{}` is the number of the client."""
        added = [Client(self, address.format(number), size, pace) for number in range(count)]
        self.clients += added
        return added

    def run(self, time_ms: int) -> None:
        for _ in range(0, time_ms, 10):
            for client in self.clients:
                client.step()
            self.most_bytes = max(self.most_bytes, self.memory.used_bytes)
            if self.now_ms % POLICY_INTERVAL_MS == 0:
                for victim in self.policy.run(self.now_ms):
                    victim.evict()
            self.now_ms += 10


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.1.{}"])
@pytest.mark.parametrize(
    ("count", "size", "pace"),
    [
        (6, FRAME_MAX, burst_then_drip),
        (100, FRAME_MAX, burst_then_drip),
        (100, FRAME_MAX, steady(400)),
        (100, 3_000_000, lambda now_ms: 2_900_000 + now_ms),
        (300, 65_537, lambda now_ms: 65_000),
    ],
)
def test_requests_of_200_kb_take_less_than_a_second_beside_uploads_that_hold_on(
    count: int, size: int, pace: Pace, address: str
) -> None:
    edge = Uploads()
    edge.add(count, address, size, pace)
    edge.run(1_000)
    others = edge.add(5, "10.0.0.1", 200_000, steady(20_000))
    edge.run(3_000)
    for other in others:
        assert max([*other.times_ms, other.waits_ms]) < 1_000
        assert other.ended_count == 0
        assert len(other.times_ms) > 50
    # One frame beyond the budget, and what is read before the first time that room is asked for.
    assert edge.most_bytes <= LIMIT + FRAME_MAX + (count + 5) * 256 * 1024


def test_a_block_within_its_limit_gets_the_memory_of_the_slowest_upload_beyond_its_own() -> None:
    edge = Uploads()
    slow, fast, overdrawn = edge.add(3, "10.0.0.{}", 80 * MIB, steady(50_000))
    slow.pace = lambda now_ms: 40_000_000 + now_ms
    edge.run(800)
    assert edge.memory.overdrawn is overdrawn.reservation
    many = edge.add(20, "10.0.1.{}", 5 * MIB, lambda now_ms: 4 * MIB + now_ms)
    edge.run(POLICY_INTERVAL_MS + RESERVATION_WAIT_MS + POLICY_INTERVAL_MS + 100)
    assert slow.ended_count == 1
    assert (fast.ended_count, overdrawn.ended_count) == (0, 0)
    assert sum(one.ended_count for one in many) == 0
    assert all(one.reader.part is not None and not one.reader.is_waiting_for_memory for one in many)


def test_slow_uploads_are_left_alone_while_there_is_room() -> None:
    edge = Uploads()
    slow = edge.add(50, "10.0.0.1", 3_000_000, steady(100))
    edge.run(5_000)
    assert len(edge.memory.waiting) == 0
    assert sum(one.ended_count for one in slow) == 0


def test_an_honest_upload_over_a_slow_link_outlives_attackers_that_are_slower_for_their_size() -> (
    None
):
    edge = Uploads()
    edge.add(20, "10.0.0.2", FRAME_MAX, burst_then_drip)
    honest = edge.add(3, "10.0.0.1", 2_000_000, steady(500))
    edge.run(9_000)
    assert [one.ended_count for one in honest] == [0, 0, 0]
    assert all(len(one.times_ms) >= 2 for one in honest)


@pytest.mark.parametrize("address", ["10.0.0.2", "10.0.1.{}"])
def test_a_small_upload_that_pauses_beside_slow_large_ones_is_not_closed(address: str) -> None:
    edge = Uploads()
    edge.add(50, address, FRAME_MAX, burst_then_drip)
    paused = edge.add(3, "10.0.0.2", 200_000, lambda now_ms: 100_000 if now_ms < 2_000 else 200_000)
    edge.run(10_000)
    assert [one.ended_count for one in paused] == [0, 0, 0]
    assert all(one.times_ms for one in paused)


def test_the_one_that_exceeds_the_budget_ends_when_it_is_slow_and_others_wait() -> None:
    edge = Uploads()
    edge.add(30, "10.0.0.1", FRAME_MAX, burst_then_drip)
    edge.run(500)
    overdrawn = edge.memory.overdrawn
    assert overdrawn is not None
    edge.run(2_000)
    assert edge.memory.overdrawn is not overdrawn


def test_nothing_is_kept_when_no_one_waits_any_more() -> None:
    edge = Uploads()
    edge.add(30, "10.0.0.1", FRAME_MAX, burst_then_drip)
    edge.run(300)
    assert len(edge.memory.waiting) > 0
    for client in edge.clients:
        client.reservation.close()
    assert edge.policy.run(edge.now_ms) == []
    assert not edge.policy.is_active
    assert not edge.policy._rates
