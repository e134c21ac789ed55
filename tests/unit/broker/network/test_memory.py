import random

import pytest

from kohort.broker.network.memory import UNASKED_ROOM_BYTES, Claimant, RequestMemory, UnsentBytes

MB = 1_000_000


class Connection:
    """Asks for memory for a frame that is not complete, and notes when it is granted."""

    def __init__(self, memory: RequestMemory, address: str = "10.0.0.1") -> None:
        self.granted_count = 0
        self.claim = Claimant(memory, self.on_granted)
        self.claim.owner = address
        self.claim.left_bytes = 1

    def on_granted(self) -> None:
        self.granted_count += 1


class Reader:
    """A slow reader; notes that it was closed."""

    is_closed = False

    def close_slow_reader(self) -> None:
        self.is_closed = True


def test_claims_are_granted_at_once_while_there_is_room() -> None:
    memory = RequestMemory(1_000)
    one, two = Connection(memory), Connection(memory)
    assert one.claim.ask(600)
    assert two.claim.ask(400)
    assert memory.used_bytes == 1_000


def test_one_connection_at_a_time_may_exceed_the_budget_so_that_something_always_moves() -> None:
    memory = RequestMemory(10 * MB)
    one, two, three = (Connection(memory) for _ in range(3))
    assert one.claim.ask(7 * MB)
    assert two.claim.ask(5 * MB)
    assert two.claim.ask(5 * MB)
    assert not three.claim.ask(5 * MB)
    assert memory.waiting_count == 1
    two.claim.give_back(10 * MB)
    assert three.granted_count == 1, "the right to exceed passes on"
    assert memory.used_bytes == 12 * MB


def test_the_right_to_exceed_passes_on_when_a_frame_is_complete_and_within_the_budget() -> None:
    """It may be parked for minutes."""
    memory = RequestMemory(10 * MB)
    parked, next_one, third = (Connection(memory) for _ in range(3))
    assert parked.claim.ask(9 * MB)
    parked.claim.left_bytes = 0
    assert next_one.claim.ask(9 * MB)
    assert memory.overdrawn is next_one.claim
    next_one.claim.left_bytes = 0
    assert not third.claim.ask(3 * MB), "no more than one frame beyond it"


def test_large_requests_keep_half_of_the_budget_whatever_small_ones_take() -> None:
    memory = RequestMemory(10 * MB)
    for _ in range(1_000):
        Connection(memory).claim.take(UNASKED_ROOM_BYTES)
    one, two = Connection(memory), Connection(memory)
    assert one.claim.ask(MB)
    assert two.claim.ask(MB)
    assert memory.overdrawn is None
    assert memory.budget_bytes == 5 * MB


def test_the_most_that_was_granted_is_told_once() -> None:
    memory = RequestMemory(1_000)
    one, two = Connection(memory), Connection(memory)
    one.claim.ask(900)
    two.claim.ask(50)
    two.claim.give_back(50)
    one.claim.give_back(500)
    assert memory.take_most_bytes() == 950
    assert memory.take_most_bytes() == 400, "what is still there"
    one.claim.close()
    memory.take_most_bytes()
    assert memory.take_most_bytes() == 0


def test_those_beyond_their_shares_are_served_in_the_order_they_came() -> None:
    memory = RequestMemory(10 * MB)
    holder, overdrawn, first, second = (Connection(memory) for _ in range(4))
    assert holder.claim.ask(7 * MB)
    assert overdrawn.claim.ask(6 * MB)
    assert not first.claim.ask(4 * MB)
    assert not second.claim.ask(2 * MB), "however little: else large ones would wait for ever"
    holder.claim.give_back(4 * MB)
    assert (first.granted_count, second.granted_count) == (1, 0)
    overdrawn.claim.give_back(6 * MB)
    assert (first.granted_count, second.granted_count) == (1, 1)
    assert memory.used_bytes == 9 * MB


def test_a_claim_within_its_share_waits_for_none_that_is_beyond_its_own() -> None:
    memory = RequestMemory(100 * MB)
    large = [Connection(memory) for _ in range(8)]
    asked = [one.claim.ask(40 * MB) for one in large]
    assert asked == [True, True] + 6 * [False]
    small = [Connection(memory) for _ in range(10)]
    assert all(one.claim.ask(2 * MB) for one in small)
    assert memory.waiting_count == 6


@pytest.mark.parametrize("attackers", [4, 100, 400])
def test_neither_connections_nor_addresses_alone_shrink_a_share(attackers: int) -> None:
    one_address = RequestMemory(256 * MB)
    many_addresses = RequestMemory(256 * MB)
    for number in range(attackers):
        Connection(one_address, "10.0.0.9").claim.ask(100 * MB)
        Connection(many_addresses, f"10.0.1.{number}").claim.ask(100 * MB)
    alone = Connection(one_address)
    assert alone.claim.ask(200_000)
    assert one_address.share_bytes(alone.claim) == 64 * MB
    ours = [Connection(many_addresses) for _ in range(20)]
    assert all(one.claim.ask(200_000) for one in ours)
    assert many_addresses.share_bytes(ours[0].claim) == 256 * MB // (2 * (attackers + 20))


def test_when_a_claim_within_its_share_finds_no_room_another_holds_more_than_its_own() -> None:
    """At random, with many addresses; the rule that `shortage` relies on."""
    rng = random.Random(5)
    refused = 0
    for _ in range(300):
        memory = RequestMemory(100 * MB)
        addresses = rng.randrange(1, 12)
        some = [Connection(memory, str(rng.randrange(addresses))) for _ in range(60)]
        for one in rng.choices(some, k=150):
            if memory.is_waiting(one.claim):
                continue
            byte_count = rng.randrange(1, rng.choice((MB, 10 * MB, 60 * MB)))
            if one.claim.ask(byte_count) or not memory.is_within_share(one.claim, byte_count):
                continue
            refused += 1
            assert any(not memory.is_within_share(other, 0) for other in memory.uploads()), (
                "or its room could not be made"
            )
    assert refused > 100


def test_who_has_no_large_request_any_more_has_no_part_in_the_shares() -> None:
    memory = RequestMemory(100 * MB)
    one, two = Connection(memory), Connection(memory, "10.0.0.2")
    one.claim.take(UNASKED_ROOM_BYTES)
    assert one.claim.ask(MB)
    assert two.claim.ask(MB)
    assert memory.large_bytes == 2 * MB + UNASKED_ROOM_BYTES
    one.claim.give_back(MB)
    assert memory.large_bytes == MB
    assert list(memory.uploads()) == [two.claim]
    two.claim.close()
    one.claim.close()
    assert (memory.large_bytes, memory.used_bytes) == (0, 0)


def test_a_connection_that_is_lost_gives_everything_back_and_waits_no_more() -> None:
    memory = RequestMemory(10 * MB)
    holder, overdrawn, waiting, next_one = (Connection(memory) for _ in range(4))
    holder.claim.ask(7 * MB)
    overdrawn.claim.ask(5 * MB)
    waiting.claim.ask(4 * MB)
    next_one.claim.ask(4 * MB)
    waiting.claim.close()
    overdrawn.claim.close()
    assert (waiting.granted_count, next_one.granted_count) == (0, 1)
    holder.claim.close()
    next_one.claim.close()
    assert (memory.used_bytes, memory.large_bytes, memory.waiting_count) == (0, 0, 0)


def test_the_budget_is_exceeded_by_one_frame_at_most_whatever_happens() -> None:
    """Random frames that come in in pieces; every one of them must get through."""
    rng = random.Random(4)
    limit, frame_max = 1_000_000, 600_000
    memory = RequestMemory(limit)
    connections = [Connection(memory) for _ in range(30)]
    missing = [rng.randrange(1, frame_max) for _ in connections]
    asked = [0] * len(connections)
    frames_done = 0
    for _ in range(50_000):
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
            if connection.claim.ask(piece):
                missing[number] -= piece
            else:
                asked[number] = piece
        else:
            connection.claim.give_back(connection.claim.held_bytes)
            missing[number] = rng.randrange(1, frame_max)
            frames_done += 1
        assert memory.used_bytes <= limit + frame_max
        assert memory.used_bytes == sum(one.claim.held_bytes for one in connections)
        assert memory.large_bytes == sum(one.held_bytes for one in memory.uploads())
    assert frames_done > 100, "all move on, one after the other"


def test_a_negative_limit_is_none() -> None:
    memory = RequestMemory(-1)
    assert all(Connection(memory).claim.ask(1 << 40) for _ in range(10))


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


def test_who_is_behind_keeps_its_place_while_it_takes_nothing() -> None:
    unsent = UnsentBytes(1_000)
    first, second, third = Reader(), Reader(), Reader()
    for reader in (first, second):
        unsent.note(reader, 300)
    unsent.note(first, 200)
    unsent.note(second, 400)
    assert unsent.total_bytes == 600
    unsent.note(third, 500)
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, True, False)
    assert unsent.total_bytes == 700
    unsent.note(first, 0)
    unsent.note(second, 0)
    assert unsent.total_bytes == 500
