"""Whose counters are its own, and that none ever goes back."""

import random
from collections import Counter

from kohort.broker.metrics.group_counts import OTHER, SHOWN_AFTER_REMOVAL_MS, CountsByGroup
from tests.support.measures.memory import traced_memory


def count(table: CountsByGroup, *group_ids: str) -> None:
    for group_id in group_ids:
        table.of(group_id).count("rebalances", ("member_left", "classic"))


def shown(table: CountsByGroup, now_ms: int = 0) -> dict[str, int]:
    return {name: sum(counts.rebalances.values()) for name, counts in table.shown(now_ms)}


def test_who_comes_beyond_the_limit_is_counted_with_the_rest() -> None:
    table = CountsByGroup(2)
    count(table, "a", "b", "c", "d", "a")
    assert shown(table) == {"a": 2, "b": 1, OTHER: 2}


def test_a_limit_of_none_counts_everybody_with_the_rest() -> None:
    table = CountsByGroup(0)
    count(table, "a", "b")
    assert shown(table) == {OTHER: 2}


def test_the_rest_keeps_what_it_has_when_one_of_it_gets_counters_of_its_own() -> None:
    table = CountsByGroup(1)
    count(table, "a", "b", "b")
    table.remove("a", 0)
    count(table, "b")
    assert shown(table) == {"b": 1, OTHER: 2}


def test_a_group_that_comes_back_goes_on_where_it_was() -> None:
    table = CountsByGroup(2)
    count(table, "a", "a")
    table.remove("a", 0)
    count(table, "a")
    assert shown(table, 2 * SHOWN_AFTER_REMOVAL_MS) == {"a": 3, OTHER: 0}


def test_a_removed_group_is_shown_for_a_while_and_remembered_longer() -> None:
    table = CountsByGroup(2)
    count(table, "a")
    table.remove("a", 1000)
    assert shown(table, 1000 + SHOWN_AFTER_REMOVAL_MS - 1) == {"a": 1, OTHER: 0}
    assert shown(table, 1000 + SHOWN_AFTER_REMOVAL_MS) == {OTHER: 0}
    count(table, "a")
    assert shown(table, 1000 + SHOWN_AFTER_REMOVAL_MS) == {"a": 2, OTHER: 0}


def test_a_new_group_takes_the_place_of_the_one_that_was_removed_first() -> None:
    table = CountsByGroup(2)
    count(table, "a", "b")
    table.remove("b", 1)
    table.remove("a", 2)
    count(table, "c")
    assert shown(table, 3) == {"c": 1, "a": 1, OTHER: 0}


def test_what_is_learnt_of_a_removed_group_does_not_bring_it_back() -> None:
    table = CountsByGroup(1)
    count(table, "a")
    table.remove("a", 0)
    table.of_past("a").stopped_ms += 5
    table.of_past("never seen").stopped_ms += 7
    assert not table.has_own("a")
    assert {name: counts.stopped_ms for name, counts in table.shown(0)} == {"a": 5, OTHER: 7}


def test_a_group_that_took_the_name_of_the_rest_is_part_of_it() -> None:
    table = CountsByGroup(5)
    count(table, OTHER, "a")
    table.remove(OTHER, 0)
    assert table.shown(0)[-1] == (OTHER, table.rest)
    assert shown(table) == {"a": 1, OTHER: 1}


def test_memory_stays_bounded_and_the_rest_never_goes_back_as_groups_come_and_go() -> None:
    chance = random.Random(7)
    table = CountsByGroup(10)
    there: set[str] = set()
    everything: Counter[str] = Counter()
    last_of_rest = 0
    last: dict[str, int] = {}
    for step in range(5_000):
        group_id = f"group {chance.randrange(40)}"
        if chance.random() < 0.3:
            table.remove(group_id, step)
            there.discard(group_id)
        else:
            count(table, group_id)
            everything[group_id] += 1
            there.add(group_id)
        assert len(table) <= 10
        now = shown(table, step)
        assert now[OTHER] >= last_of_rest
        last_of_rest = now.pop(OTHER)
        for name in now.keys() & last.keys():
            assert now[name] >= last[name]
        for name, value in now.items():
            assert value <= everything[name]
        last = now


def test_counts_are_those_of_three_counters() -> None:
    chance = random.Random(5)
    table = CountsByGroup(100)
    expected = {
        f"g{number}": (Counter[str](), Counter[str](), Counter[str]()) for number in range(9)
    }
    for step in range(3_000):
        group_id = f"g{chance.randrange(9)}"
        counts = table.of(group_id)
        which = chance.randrange(3)
        label = f"label {chance.randrange(4)}"
        if which:
            counts.count(("avoided", "removed")[which - 1], label)
        else:
            counts.count("rebalances", (label, "classic"))
        counts.stopped_ms += 1_000
        expected[group_id][which][label] += 1
        if step % 500 == 499:
            table.remove("g3", 7)
    shown_now = dict(table.shown(7))
    del shown_now[OTHER]
    assert {
        name: (
            {cause: count for (cause, _), count in counts.rebalances.items()},
            counts.avoided,
            counts.removed,
        )
        for name, counts in shown_now.items()
    } == expected
    assert shown_now["g3"].removed_at_ms == 7
    assert sum(counts.stopped_ms for counts in shown_now.values()) == 3_000 * 1_000


def test_a_group_that_has_come_and_gone_takes_little() -> None:
    """Three counters would take more than twice as much."""
    ids = [f"group-{number}" for number in range(500)]
    with traced_memory() as taken:
        table = CountsByGroup(1_000)
        for group_id in ids:
            count(table, group_id)
            for _ in range(500):
                table.of(group_id).count("removed", "session_expired")
            table.remove(group_id, 1_000_000)
        assert taken() < 750 * len(ids)
