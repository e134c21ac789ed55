import random

import pytest

from kohort.broker.network.memory import (
    UNCHECKED_BYTES,
    MemoryReservation,
    RequestMemoryBudget,
    UnsentBytes,
)

MB = 1_000_000


class Connection:
    """Asks for memory for a frame that is not complete, and notes when it is granted."""

    def __init__(self, memory: RequestMemoryBudget, address: str = "10.0.0.1") -> None:
        self.granted_count = 0
        self.claim = MemoryReservation(memory, self.on_granted)
        self.claim.address_block = address
        self.claim.left_bytes = 1

    def on_granted(self) -> None:
        self.granted_count += 1


class Reader:
    """A slow reader; notes that it was closed."""

    is_closed = False

    def close_slow_reader(self) -> None:
        self.is_closed = True


def test_one_connection_at_a_time_may_exceed_the_budget_so_that_something_always_moves() -> None:
    memory = RequestMemoryBudget(10 * MB)
    one, two, three = (Connection(memory) for _ in range(3))
    assert one.claim.reserve(7 * MB)
    assert two.claim.reserve(5 * MB)
    assert two.claim.reserve(5 * MB)
    assert not three.claim.reserve(5 * MB)
    assert len(memory.waiting) == 1
    two.claim.release(10 * MB)
    assert three.granted_count == 1, "the right to exceed passes on"
    assert memory.used_bytes == 12 * MB


def test_large_requests_keep_half_of_the_budget_whatever_small_ones_take() -> None:
    memory = RequestMemoryBudget(10 * MB)
    for _ in range(1_000):
        Connection(memory).claim.add(UNCHECKED_BYTES)
    one, two = Connection(memory), Connection(memory)
    assert one.claim.reserve(MB)
    assert two.claim.reserve(MB)
    assert memory.overdrawn is None
    assert memory.budget_bytes == 5 * MB


def test_the_most_that_was_granted_is_told_once() -> None:
    memory = RequestMemoryBudget(1_000)
    one, two = Connection(memory), Connection(memory)
    one.claim.reserve(900)
    two.claim.reserve(50)
    two.claim.release(50)
    one.claim.release(500)
    assert memory.take_peak_bytes() == 950
    assert memory.take_peak_bytes() == 400, "what is still there"
    one.claim.close()
    memory.take_peak_bytes()
    assert memory.take_peak_bytes() == 0


def test_reservations_that_fit_pass_those_that_do_not() -> None:
    memory = RequestMemoryBudget(10 * MB)
    holder, overdrawn, first, second = (Connection(memory) for _ in range(4))
    assert holder.claim.reserve(7 * MB)
    assert overdrawn.claim.reserve(6 * MB)
    assert not first.claim.reserve(4 * MB)
    assert not second.claim.reserve(2 * MB)
    holder.claim.release(2 * MB)
    assert (first.granted_count, second.granted_count) == (0, 1)
    overdrawn.claim.release(6 * MB)
    assert (first.granted_count, second.granted_count) == (1, 1), "by exceeding the budget"
    assert memory.overdrawn is first.claim


def test_a_block_beyond_its_limit_leaves_a_quarter_to_others() -> None:
    memory = RequestMemoryBudget(100 * MB)
    many = [Connection(memory) for _ in range(8)]
    granted = [one.claim.reserve(40 * MB) for one in many]
    assert granted == [True, True] + 6 * [False], "the second exceeds the budget"
    others = [Connection(memory, "10.0.0.2") for _ in range(10)]
    assert all(one.claim.reserve(2 * MB) for one in others)
    assert len(memory.waiting) == 6


@pytest.mark.parametrize("attackers", [4, 100, 400])
def test_neither_connections_nor_addresses_alone_shrink_a_limit(attackers: int) -> None:
    one_block = RequestMemoryBudget(256 * MB)
    many_blocks = RequestMemoryBudget(256 * MB)
    for number in range(attackers):
        Connection(one_block, "10.0.0.9").claim.reserve(100 * MB)
        Connection(many_blocks, f"10.0.1.{number}").claim.reserve(100 * MB)
    alone = Connection(one_block)
    assert alone.claim.reserve(200_000)
    assert one_block.block_limit_bytes == 64 * MB
    ours = [Connection(many_blocks) for _ in range(20)]
    assert all(one.claim.reserve(200_000) for one in ours)
    assert many_blocks.request_limit_bytes == 256 * MB // (2 * (attackers + 20))


def test_an_upload_within_its_limit_lacks_memory_only_if_another_is_beyond_its_own() -> None:
    """At random, with many addresses; the rule that `SlowUploadPolicy` relies on."""
    rng = random.Random(5)
    refused = 0
    for _ in range(150):
        memory = RequestMemoryBudget(100 * MB)
        blocks = rng.randrange(1, 12)
        some = [Connection(memory, str(rng.randrange(blocks))) for _ in range(60)]
        for one in rng.choices(some, k=150):
            if one.claim in memory.waiting:
                continue
            byte_count = rng.randrange(1, rng.choice((MB, 10 * MB, 60 * MB)))
            if one.claim.reserve(byte_count) or not memory.is_within_limit(one.claim, byte_count):
                continue
            refused += 1
            assert any(not memory.is_within_limit(other) for other in memory.uploads), (
                "or there is no upload to close for it"
            )
    assert refused > 50


def test_a_request_that_has_become_small_is_no_upload_any_more() -> None:
    memory = RequestMemoryBudget(100 * MB)
    one, two = Connection(memory), Connection(memory, "10.0.0.2")
    one.claim.add(UNCHECKED_BYTES)
    assert one.claim.reserve(MB)
    assert two.claim.reserve(MB)
    assert memory.large_bytes == 2 * MB + UNCHECKED_BYTES
    one.claim.release(MB)
    assert memory.large_bytes == MB
    assert list(memory.uploads) == [two.claim]
    assert memory.block_limit_bytes == memory.budget_bytes // 2
    two.claim.close()
    one.claim.close()
    assert (memory.large_bytes, memory.used_bytes) == (0, 0)


def test_the_budget_is_exceeded_by_one_frame_at_most_whatever_happens() -> None:
    """Random frames that come in in pieces; every one of them must get through."""
    rng = random.Random(4)
    limit, frame_max = 1_000_000, 600_000
    memory = RequestMemoryBudget(limit)
    connections = [Connection(memory) for _ in range(30)]
    missing = [rng.randrange(1, frame_max) for _ in connections]
    asked = [0] * len(connections)
    frames_done = 0
    for _ in range(20_000):
        number = rng.randrange(len(connections))
        connection = connections[number]
        if asked[number]:
            if not connection.granted_count:
                continue
            connection.granted_count = 0
            missing[number] -= asked[number]
            asked[number] = 0
        elif missing[number]:
            piece = rng.randrange(1, missing[number] + 1)
            connection.claim.left_bytes = missing[number] - piece
            if connection.claim.reserve(piece):
                missing[number] -= piece
            else:
                asked[number] = piece
        else:
            connection.claim.release(connection.claim.held_bytes)
            missing[number] = rng.randrange(1, frame_max)
            frames_done += 1
        assert memory.used_bytes <= limit + frame_max
        assert memory.used_bytes == sum(one.claim.held_bytes for one in connections)
        assert memory.large_bytes == sum(one.held_bytes for one in memory.uploads)
    assert frames_done > 40, "all move on, one after the other"


def test_a_negative_limit_is_none() -> None:
    memory = RequestMemoryBudget(-1)
    assert all(Connection(memory).claim.reserve(1 << 40) for _ in range(10))


def test_the_slowest_readers_are_closed_when_all_together_hold_too_much() -> None:
    unsent = UnsentBytes(1_000)
    first, second, third = Reader(), Reader(), Reader()
    unsent.add(first, 400)
    unsent.add(second, 400)
    unsent.remove(first)
    unsent.add(first, 400)
    unsent.add(third, 400)
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, True, False)
    assert unsent.total_bytes == 800


def test_one_response_above_the_limit_closes_its_own_reader_last() -> None:
    unsent = UnsentBytes(1_000)
    other, greedy = Reader(), Reader()
    unsent.add(other, 10)
    unsent.add(greedy, 5_000)
    assert other.is_closed
    assert greedy.is_closed
    assert unsent.total_bytes == 0
    unsent.remove(greedy)
    assert unsent.total_bytes == 0
