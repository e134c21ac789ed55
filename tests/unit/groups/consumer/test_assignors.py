"""The assignors give what those of Apache Kafka 4.4.0 gave for the same inputs: groups whose
members come and go, and whose topics come and grow.
"""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kohort.groups.consumer.assignors import ASSIGNORS, AssignorMember
from kohort.groups.steps import FEW, at_once

CASES = json.loads(
    gzip.decompress((Path(__file__).parent / "cases/kafka_4_4_assignors.json.gz").read_bytes())
)
"""Kafka's order of members and topics is that of a hash map; `members` and `topic_order` have
it."""

Assignment = dict[str, dict[bytes, list[int]]]


def assign(name: str, members: list[AssignorMember], topics: dict[bytes, int]) -> Assignment:
    homogeneous = len({frozenset(member.topics) for member in members}) <= 1
    return at_once(ASSIGNORS[name](members, topics, homogeneous=homogeneous))


def run(case: dict[str, Any]) -> Assignment:
    members = [
        AssignorMember(
            member["id"],
            member["instance"],
            frozenset(map(bytes.fromhex, member["topics"])),
            {bytes.fromhex(topic): share for topic, share in member["assignment"].items()},
        )
        for member in case["members"]
    ]
    topics = {bytes.fromhex(topic): case["topics"][topic] for topic in case["topic_order"]}
    homogeneous = case["subscription_type"] == "homogeneous"
    return at_once(ASSIGNORS[case["assignor"]](members, topics, homogeneous=homogeneous))


@pytest.mark.parametrize("life", sorted({case["life"] for case in CASES}))
def test_a_group_is_assigned_as_by_kafka_at_each_step_of_its_life(life: int) -> None:
    for case in CASES:
        if case["life"] == life:
            assigned = {
                member: {topic.hex(): sorted(share) for topic, share in shares.items() if share}
                for member, shares in run(case).items()
            }
            expected = {
                member: {topic: sorted(share) for topic, share in shares.items() if share}
                for member, shares in case["expected"].items()
            }
            assert assigned == expected, (case["assignor"], case["step"])


@pytest.mark.parametrize("seed", range(30))
def test_members_with_one_subscription_lose_nothing_that_evenness_does_not_take(seed: int) -> None:
    chance = random.Random(seed)
    topics = {bytes([number]) * 16: chance.randint(0, 9) for number in range(chance.randint(1, 4))}
    members: list[AssignorMember] = []
    for _ in range(12):
        names = chance.sample("abcdefghijkl", chance.randint(1, 12))
        before = {member.member_id: member.assigned for member in members}
        members = [
            AssignorMember(name, None, frozenset(topics), before.get(name, {}))
            for name in sorted(names)
        ]
        after = assign("uniform", members, topics)
        partitions = [(t, p) for shares in after.values() for t, ps in shares.items() for p in ps]
        assert len(set(partitions)) == len(partitions) == sum(topics.values())
        counts = [sum(map(len, after[name].values())) for name in names]
        assert max(counts) - min(counts) <= 1
        least, extra = divmod(sum(topics.values()), len(members))
        held = [sum(map(len, member.assigned.values())) for member in members]
        with_more = min(extra, sum(count > least for count in held))
        assert kept(members, after) == sum(min(count, least) for count in held) + with_more
        members = [member._replace(assigned=after[member.member_id]) for member in members]
        topic = chance.choice(sorted(topics))
        topics[topic] += chance.randint(0, 2)


def kept(members: list[AssignorMember], after: Assignment) -> int:
    return sum(
        len(set(share) & set(after[member.member_id].get(topic, ())))
        for member in members
        for topic, share in member.assigned.items()
    )


@pytest.mark.parametrize("name", ["uniform", "range"])
@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_a_large_group_is_assigned_in_many_steps(name: str, is_homogeneous: bool) -> None:
    topics = {bytes([number]) * 16: 500 for number in range(20)}
    first, *others = topics
    members = [
        AssignorMember(
            f"{number:05d}",
            None,
            frozenset(topics) if is_homogeneous or number % 2 else frozenset(others),
            {},
        )
        for number in range(2_000)
    ]
    steps = ASSIGNORS[name](members, topics, homogeneous=is_homogeneous)
    assert sum(1 for _ in steps) > len(members) // 50
    assert first in topics


def test_moving_many_partitions_of_one_topic_takes_many_steps() -> None:
    large, small = b"l" * 16, b"s" * 16
    topics = {large: 5_000, small: 1}
    names = [f"{number:03d}" for number in range(500)]
    before: Assignment = {names[0]: {large: list(range(5_000))}}
    steps_of_moves = 0
    for is_even in (False, True):
        members = [
            AssignorMember(
                name,
                None,
                frozenset(topics) if name == "001" else frozenset({large}),
                before.get(name, {}),
            )
            for name in names
        ]
        steps = sum(1 for _ in ASSIGNORS["uniform"](members, topics, homogeneous=False))
        steps_of_moves += -steps if is_even else steps
        before = assign("uniform", members, topics)
    assert steps_of_moves >= 4_900 // FEW
