"""Owners that wait in a fair queue: their turns, and their share of a full one."""

import random
from collections import Counter

import pytest

from kohort.broker.core.security.fair_queue import FairQueue

MOST = 8


def filled(*items: str, most: int = MOST) -> FairQueue[str, str]:
    """Items like ``a1``, whose first letter is their owner."""
    queue: FairQueue[str, str] = FairQueue(most)
    for item in items:
        assert queue.add(item[0], item) is None
    return queue


def taken(queue: FairQueue[str, str]) -> list[str]:
    return [queue.take() for _ in range(queue.count)]


def test_owners_take_turns_and_keep_their_own_order() -> None:
    assert taken(filled("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_nothing_is_taken_where_nothing_waits() -> None:
    with pytest.raises(IndexError):
        filled().take()


def test_the_longest_queue_gives_up_its_newest_item_for_a_newcomer() -> None:
    queue = filled("a1", "a2", "a3", "a4", most=4)
    assert queue.add("b", "b1") == "a4"
    assert queue.add("b", "b2") == "a3"
    assert taken(queue) == ["a1", "b1", "a2", "b2"]


def test_who_has_most_is_refused_what_is_beyond() -> None:
    queue = filled("a1", "a2", "a3", "b1", most=4)
    assert queue.add("a", "a4") == "a4"
    assert queue.count == 4


def test_a_newcomer_is_refused_where_each_has_one() -> None:
    queue = filled("a1", "b1", "c1", most=3)
    assert queue.add("d", "d1") == "d1"
    assert queue.add("a", "a2") == "a2"
    assert taken(queue) == ["a1", "b1", "c1"]


def test_what_is_removed_leaves_its_place_and_takes_no_turn() -> None:
    queue = filled("a1", "a2", "b1", "c1", most=4)
    queue.remove("b", "b1")
    queue.remove("b", "b1")
    queue.remove("d", "d1")
    assert queue.add("c", "c2") is None
    assert taken(queue) == ["a1", "c1", "a2", "c2"]


def test_no_owner_has_less_than_a_share_for_what_others_add() -> None:
    chance = random.Random(1)
    queue: FairQueue[str, int] = FairQueue(MOST)
    waiting: dict[int, str] = {}
    for number in range(20_000):
        owner = chance.choice("aaaaaaaabbbcd")
        before = Counter(waiting.values())
        pick = chance.random()
        if pick < 0.6:
            waiting[number] = owner
            given_up = queue.add(owner, number)
            if given_up is not None:
                assert sum(before.values()) == MOST
                loser = waiting.pop(given_up)
                # The owner that loses something had a share, and has no less than the others.
                had = before[loser] + (loser == owner)
                assert had > MOST // 4
                assert had >= max(before.values())
        elif pick < 0.8 and waiting:
            oldest: dict[str, int] = {}
            for one in sorted(waiting):
                oldest.setdefault(waiting[one], one)
            assert queue.take() in oldest.values()
            waiting = {one: whose for one, whose in waiting.items() if _is_in(queue, whose, one)}
        elif waiting:
            gone = chance.choice(sorted(waiting))
            queue.remove(waiting.pop(gone), gone)
        assert queue.count == len(waiting) <= MOST


def _is_in(queue: FairQueue[str, int], owner: str, item: int) -> bool:
    return item in queue._waiting.get(owner, {})
