"""The assignor `simple` gives partitions and members as many as that of Apache Kafka 4.4.0 does.
Which ones depends on Kafka's hash tables.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest

from kohort.groups.share.assignor import assign
from kohort.groups.steps import at_once
from kohort.groups.topics import Partition

CASES = json.loads(
    gzip.decompress(
        (Path(__file__).parent / "cases/kafka_4_4_simple_assignor.json.gz").read_bytes()
    )
)
"""Groups that change over several steps, each with Kafka's target."""

Target = dict[str, frozenset[Partition]]


def flat(share: dict[str, list[int]]) -> frozenset[Partition]:
    return frozenset(
        (bytes.fromhex(t), number) for t, numbers in share.items() for number in numbers
    )


def problems(
    subscriptions: dict[str, frozenset[bytes]], assignable: dict[bytes, list[int]]
) -> Iterator[tuple[list[str], frozenset[Partition]]]:
    """Yield the members and partitions that are distributed together."""
    topics = sorted(frozenset().union(*subscriptions.values()))
    together = [topics] if len({*subscriptions.values()}) == 1 else [[topic] for topic in topics]
    for chosen in together:
        members = sorted(m for m, subscribed in subscriptions.items() if {*chosen} <= subscribed)
        partitions = frozenset((t, number) for t in chosen for number in assignable.get(t, ()))
        if members and partitions:
            yield members, partitions


def test_members_get_as_many_partitions_as_from_kafka() -> None:
    shorts = count = 0
    for case in CASES:
        members = {m["id"]: frozenset(map(bytes.fromhex, m["topics"])) for m in case["members"]}
        assignable = {
            bytes.fromhex(topic): [
                number
                for number in range(partition_count)
                if number not in case["unassignable"].get(topic, ())
            ]
            for topic, partition_count in case["topics"].items()
        }
        current = {member["id"]: flat(member["assignment"]) for member in case["members"]}
        target = at_once(assign(members, assignable, current))
        assert target.keys() == members.keys()
        assert at_once(assign(members, assignable, target)) == target
        for takers, partitions in problems(members, assignable):
            n, k = len(takers), len(partitions)
            sharing = ceil(n / k)
            shares = Counter(p for member in takers for p in target[member] if p in partitions)
            assert all(max(1, sharing - 1) <= shares[p] <= sharing for p in partitions)
            step = Fraction(sharing * k, n)
            for i, member in enumerate(takers):
                wanted = ceil(step * (i + 1)) - ceil(step * i)
                size = len(target[member] & partitions)
                assert max(1, wanted - 1) <= size <= wanted
                shorts += size < wanted
                count += 1
    # In Kafka 1.3 % have one less.
    assert shorts < count / 100


A, B = b"a" * 16, b"b" * 16


@pytest.mark.parametrize(
    ("member_count", "partition_count", "sizes"),
    [
        (1, 3, [3]),
        (2, 3, [2, 1]),
        (3, 2, [2, 1, 1]),
        (5, 3, [2, 1, 1, 1, 1]),
        (200, 1, [1] * 200),
        (2, 0, [0, 0]),
    ],
)
def test_the_number_of_partitions_of_each_member(
    member_count: int, partition_count: int, sizes: list[int]
) -> None:
    members = {f"m{number:03}": frozenset([A]) for number in range(member_count)}
    target = at_once(assign(members, {A: range(partition_count)}, {}))
    assert [len(target[member]) for member in members] == sizes


def test_members_keep_what_they_have_if_one_leaves() -> None:
    before = at_once(assign({m: frozenset([A]) for m in "abc"}, {A: range(9)}, {}))
    after = at_once(assign({m: frozenset([A]) for m in "ac"}, {A: range(9)}, before))
    assert all(before[member] <= after[member] for member in "ac")


def test_a_partition_that_may_not_be_assigned_any_more_is_given_up() -> None:
    subscriptions = {"a": frozenset([A, B]), "b": frozenset([A])}
    before = at_once(assign(subscriptions, {A: range(2), B: range(2)}, {}))
    after = at_once(assign(subscriptions, {A: range(1), B: ()}, before))
    assert after == {"a": frozenset([(A, 0)]), "b": frozenset([(A, 0)])}
