"""Random lives of the members of one group, from fixed seeds."""

import random
from typing import Any

import pytest

from tests.support.groups.driven_members import DrivenMember, live
from tests.support.groups.scenario import MINUTE, Scenario
from tests.unit.client.core.group.settled_groups import COOPERATIVE, EAGER, owned, partitions

SEEDS = [0, 1, 360, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))]


@pytest.mark.parametrize("strategy", [EAGER, ("sticky",), COOPERATIVE])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_no_two_members_read_the_same_and_the_group_settles(
    seed: int, strategy: tuple[str, ...]
) -> None:
    """Random lives of up to six members; some are static. Repeat a failure by its seed."""
    chance = random.Random(seed)
    scenario = Scenario(partition_counts={"t": 7, "u": 3})
    members: list[DrivenMember] = []
    instances = iter(range(1000))
    for _ in range(60):
        _change(chance, scenario, members, strategy, instances)
        for _ in range(chance.choice([1, 10, 50])):
            for member in chance.sample(members, len(members)):
                member.run()
                _check_owners(scenario, members)
            scenario.advance(100)
    for member in members:
        member.is_cut_off = False
        member.is_polling = True
    live(scenario, members, 3 * MINUTE)
    assert all(member.is_settled for member in members)
    _check_owners(scenario, members)
    wanted = {topic for member in members for topic in member.subscription.topics}
    counts = {topic: scenario.partition_counts[topic] for topic in wanted}
    assert owned(members) == [
        one for topic in sorted(counts) for one in partitions(*range(counts[topic]), topic=topic)
    ]


def _change(
    chance: random.Random,
    scenario: Scenario,
    members: list[DrivenMember],
    strategy: tuple[str, ...],
    instances: Any,  # noqa: ANN401
) -> None:
    if len(members) < 2 or (len(members) < 6 and chance.random() < 0.3):
        instance = f"i{next(instances)}" if chance.random() < 0.3 else None
        members.append(DrivenMember(scenario, "t", strategy=strategy, instance_id=instance))
        return
    member = chance.choice(members)
    match chance.randrange(8):
        case 0:
            member.leave()
            members.remove(member)
        case 1:
            members.remove(member)  # A crash: the group is not notified.
        case 2:
            member.is_cut_off = not member.is_cut_off
        case 3:
            member.is_polling = not member.is_polling
        case 4:
            member.membership.enforce_rebalance("chance", state_changed=chance.random() < 0.5)
        case 5:
            member.subscription.subscribe(chance.choice([["t"], ["u"], ["t", "u"]]))
        case 6:
            scenario.partition_counts["t"] += 1
            for one in members:
                one.membership.metadata_updated(dict(scenario.partition_counts))
        case _:
            pass


def _check_owners(scenario: Scenario, members: list[DrivenMember]) -> None:
    """Check members of the present generation, as the coordinator sees it."""
    group = scenario.classic
    current = [
        member
        for member in members
        if member.membership.identity.generation == group.data.generation
        and any(member.membership.identity.member_id == one.member_id for one in group.roster)
    ]
    held = [partition for member in current for partition in member.owned]
    assert len(held) == len(set(held))
