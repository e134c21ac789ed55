import random

from broker.network.memory import Claimant, RequestMemory, UnsentBytes


class Connection:
    """Asks for memory, and notes when it is granted."""

    def __init__(self, memory: RequestMemory) -> None:
        self.granted_count = 0
        self.claim = Claimant(memory, self.on_granted)

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
    memory = RequestMemory(1_000)
    one, two, three = (Connection(memory) for _ in range(3))
    one.claim.take(1_000)
    assert two.claim.ask(500)
    assert two.claim.ask(500)
    assert not three.claim.ask(500)
    assert memory.waiting_count == 1
    two.claim.give_back(1_000)
    assert three.granted_count == 1, "the right to exceed passes on"
    assert memory.used_bytes == 1_500


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


def test_those_who_wait_are_served_in_the_order_they_came() -> None:
    memory = RequestMemory(1_000)
    holder, overdrawn, first, second, third = (Connection(memory) for _ in range(5))
    holder.claim.take(1_000)
    overdrawn.claim.ask(100)
    assert not first.claim.ask(400)
    assert not second.claim.ask(400)
    assert not third.claim.ask(1), "however little: else large ones would wait for ever"
    holder.claim.give_back(500)
    assert (first.granted_count, second.granted_count, third.granted_count) == (1, 0, 0)
    holder.claim.give_back(500)
    assert (second.granted_count, third.granted_count) == (1, 1)
    assert memory.used_bytes == 100 + 400 + 400 + 1


def test_a_connection_that_is_lost_gives_everything_back_and_waits_no_more() -> None:
    memory = RequestMemory(1_000)
    holder, overdrawn, waiting, next_one = (Connection(memory) for _ in range(4))
    holder.claim.take(1_000)
    overdrawn.claim.ask(500)
    waiting.claim.ask(100)
    next_one.claim.ask(100)
    waiting.claim.close()
    overdrawn.claim.close()
    assert (waiting.granted_count, next_one.granted_count) == (0, 1)
    holder.claim.close()
    next_one.claim.close()
    assert (memory.used_bytes, memory.waiting_count) == (0, 0)


def test_the_budget_is_exceeded_by_one_frame_at_most_whatever_happens() -> None:
    """Random frames that come in in pieces; every one of them must get through."""
    rng = random.Random(4)
    limit, frame_max = 10_000, 6_000
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
