"""Partitions that a leader holds back for their owners, and owners that never give them up."""

import pytest

from kohort.client.core.group.assignors.assignor import GroupMember
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.leading import Handover, held_back
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.driven_members import POLL_INTERVAL_MS, DrivenMember, live
from tests.support.groups.scenario import MINUTE, SECOND, Scenario
from tests.unit.client.core.group.settled_groups import owned, partitions, reasons

COUNT = 4


def member(name: str, *owned: TopicPartition) -> GroupMember:
    return GroupMember(name, frozenset({"t"}), owned=owned)


# What is held back.


def test_a_partition_that_has_an_owner_and_was_given_to_no_member_is_held_back() -> None:
    members = [member("a", *partitions(0, 1, 2)), member("b")]
    assignment = {"a": list(partitions(0)), "b": list(partitions(3))}
    assert held_back(members, assignment, {"t": 4}) == 2


def test_nothing_is_held_back_where_all_is_handed_out() -> None:
    members = [member("a", *partitions(0, 1, 2)), member("b")]
    assignment = {"a": list(partitions(0, 1)), "b": list(partitions(2))}
    assert held_back(members, assignment, {"t": 3}) == 0


def test_a_partition_that_an_assignor_leaves_out_and_no_member_has_is_not_held_back() -> None:
    assert held_back([member("a")], {"a": []}, {"t": 3}) == 0


def test_what_does_not_exist_any_more_is_not_held_back() -> None:
    gone = (*partitions(3, 4), *partitions(0, topic="u"))
    assert held_back([member("a", *gone)], {"a": []}, {"t": 3}) == 0


# How long.


def led(generation: int = 5, count: int = 2) -> Handover:
    handover = Handover(1_000)
    handover.joined(generation, is_leader=True)
    handover.assigned(count)
    handover.synced(100)
    return handover


def test_a_handover_is_overdue_once_when_its_time_is_over() -> None:
    handover = led()
    assert handover.due_ms == 1_100
    assert [handover.take_overdue(now_ms) for now_ms in (1_099, 1_100, 5_000)] == [0, 2, 0]
    assert handover.due_ms is None


def test_a_leader_that_holds_nothing_back_waits_for_nothing() -> None:
    handover = led(count=0)
    assert handover.due_ms is None
    assert handover.take_overdue(10_000) == 0


@pytest.mark.parametrize(("generation", "is_leader"), [(6, True), (6, False), (5, False)])
def test_a_new_round_or_leader_ends_the_wait(generation: int, is_leader: bool) -> None:
    handover = led()
    handover.joined(generation, is_leader=is_leader)
    assert handover.due_ms is None
    handover.synced(200)
    assert handover.take_overdue(10_000) == 0


def test_a_leader_that_comes_back_into_its_generation_goes_on_waiting() -> None:
    handover = led()
    handover.joined(5, is_leader=True)
    handover.synced(900)
    assert handover.due_ms == 1_100


# In a group.


def group_amid_handover() -> tuple[Scenario, list[DrivenMember]]:
    """A leader, an owner whose share says that it has to give up one partition, which it does not
    know yet, and the newcomer that is to get it.
    """
    scenario = Scenario(partition_counts={"t": COUNT})
    leader = DrivenMember(scenario, "t", instance_id="a")
    owner = DrivenMember(scenario, "t", instance_id="b")
    live(scenario, [leader], 10 * SECOND)
    live(scenario, [leader, owner], 20 * SECOND)
    newcomer = DrivenMember(scenario, "t")
    before = scenario.classic.data.generation
    for _ in range(100):
        for one in (newcomer, leader, owner):
            # All that an owner has to be told is in the answer to its SyncGroup.
            if one is not owner or scenario.classic.data.generation == before:
                one.run()
        if scenario.classic.data.generation == before + 1:
            break
        scenario.advance(100)
    owner.run()
    assert owner.membership.state is MemberState.COMPLETING_REBALANCE
    for one in (leader, newcomer):
        one.run()
        assert one.is_settled
    members = [leader, owner, newcomer]
    for one in members:
        one.joins.clear()
    assert leader.membership.is_leader
    return scenario, members


def test_a_leader_hands_out_what_an_owner_that_restarted_cannot_give_up() -> None:
    scenario, members = group_amid_handover()
    leader, _, newcomer = members
    members[1] = DrivenMember(scenario, "t", instance_id="b")
    before = scenario.classic.data.generation
    live(scenario, members, POLL_INTERVAL_MS - SECOND)
    assert scenario.classic.data.generation == before
    assert len(owned(members)) == COUNT - 1
    live(scenario, members, 10 * SECOND)
    assert owned(members) == list(partitions(*range(COUNT)))
    assert len(newcomer.owned) == 1
    assert reasons(leader) == [JoinReason.PARTITIONS_REVOKED]
    assert leader.joins[0].reason == "partitions that their owners did not give up in time: 1"
    assert scenario.classic.data.generation == before + 1
    live(scenario, members, 5 * MINUTE)
    assert scenario.classic.data.generation == before + 1


def test_a_leader_leaves_it_to_an_owner_that_takes_its_time() -> None:
    scenario, members = group_amid_handover()
    leader, owner, _ = members
    owner.is_polling = False
    before = scenario.classic.data.generation
    live(scenario, members, POLL_INTERVAL_MS - 5 * SECOND)
    assert scenario.classic.data.generation == before
    owner.is_polling = True
    live(scenario, members, 5 * MINUTE)
    assert owned(members) == list(partitions(*range(COUNT)))
    assert reasons(owner) == [JoinReason.PARTITIONS_REVOKED]
    assert reasons(leader) == [JoinReason.GROUP_REBALANCING]
    assert scenario.classic.data.generation == before + 1


def test_a_leader_has_nothing_to_do_when_another_round_came_before() -> None:
    scenario, members = group_amid_handover()
    members[1] = DrivenMember(scenario, "t", instance_id="b")
    live(scenario, members, 10 * SECOND)
    before = scenario.classic.data.generation
    members[2].membership.enforce_rebalance()
    live(scenario, members, 5 * MINUTE)
    assert owned(members) == list(partitions(*range(COUNT)))
    assert scenario.classic.data.generation == before + 1
