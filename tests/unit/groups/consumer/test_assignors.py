"""The assignors give what those of Apache Kafka 4.4.0 gave for the same inputs: groups whose
members come and go, and whose topics come and grow.
"""

import gzip
import json
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
