"""The client's rules of membership against the coordinator's, with nothing in between."""

import re

import pytest

from kohort.client.core.errors import (
    IllegalStateError,
)
from kohort.client.core.group.actions import Join, Sync
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.requests import encode_share
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.join_reason import JoinReason
from tests.support import messages as m
from tests.support.groups.driven_members import DrivenMember, live
from tests.support.groups.scenario import SECOND, Scenario
from tests.unit.client.core.group.settled_groups import (
    COOPERATIVE,
    EAGER,
    forget,
    group_of,
    owned,
    partitions,
    reasons,
)


def test_the_first_join_is_told_to_come_again_with_an_id_and_says_restart_both_times() -> None:
    scenario = Scenario(partition_counts={"t": 2})
    member = DrivenMember(scenario, "t")
    live(scenario, [member], 5 * SECOND)
    assert reasons(member) == [JoinReason.RESTART] * 2
    assert [join.member_id != "" for join in member.joins] == [False, True]
    assert member.joins[0].reason == "started"
    assert member.calls == [("assigned", partitions(0, 1))]
    assert member.membership.state is MemberState.STABLE
    assert member.membership.is_leader


def test_a_static_member_that_starts_says_that_it_restarted() -> None:
    scenario = Scenario(partition_counts={"t": 2})
    member = DrivenMember(scenario, "t", instance_id="i")
    live(scenario, [member], 5 * SECOND)
    assert [join.reason for join in member.joins] == ["restarted"]


def test_an_announced_upgrade_is_the_reason_of_the_first_join() -> None:
    scenario = Scenario(partition_counts={"t": 2})
    member = DrivenMember(scenario, "t", first_reason=JoinReason.UPGRADE)
    live(scenario, [member], 5 * SECOND)
    assert set(reasons(member)) == {JoinReason.UPGRADE}


@pytest.mark.parametrize("strategy", [EAGER, ("roundrobin",), ("sticky",), COOPERATIVE])
def test_members_share_what_there_is(strategy: tuple[str, ...]) -> None:
    _, members = group_of(3, strategy=strategy)
    assert owned(members) == list(partitions(*range(6)))
    assert [len(member.owned) for member in members] == [2, 2, 2]


def test_eager_members_give_up_everything_and_are_given_everything_again() -> None:
    scenario, (first,) = group_of(1, strategy=EAGER)
    second = DrivenMember(scenario, "t", strategy=EAGER)
    live(scenario, [first, second], 10 * SECOND)
    assert first.calls == [
        ("revoked", partitions(*range(6))),
        ("assigned", tuple(sorted(first.owned))),
    ]
    assert reasons(first) == [JoinReason.GROUP_REBALANCING]


def test_cooperative_members_give_up_only_what_moves() -> None:
    scenario, (first,) = group_of(1)
    second = DrivenMember(scenario, "t")
    live(scenario, [first, second], 10 * SECOND)
    moved = tuple(sorted(second.owned))
    assert len(moved) == 3
    assert first.calls == [("revoked", moved), ("assigned", ()), ("assigned", ())]
    assert JoinReason.PARTITIONS_REVOKED in reasons(first)
    # The first round may be over before it has asked for what it got in it: nothing.
    assert second.calls in ([("assigned", ()), ("assigned", moved)], [("assigned", moved)])


def test_a_mix_of_eager_and_cooperative_assignors_is_eager() -> None:
    scenario, (first,) = group_of(1, strategy=("range", "cooperative-sticky"))
    second = DrivenMember(scenario, "t", strategy=("range", "cooperative-sticky"))
    live(scenario, [first, second], 10 * SECOND)
    assert first.calls[0] == ("revoked", partitions(*range(6)))


def test_a_forced_rebalance_makes_exactly_one_generation_for_leader_and_follower() -> None:
    scenario, members = group_of(3)
    for member in members:
        before = scenario.classic.data.generation
        member.membership.enforce_rebalance("the weather changed")
        assert scenario.classic.data.generation == before
        live(scenario, members, 10 * SECOND)
        assert scenario.classic.data.generation == before + 1
        assert reasons(member)[0] is JoinReason.ENFORCED
        assert member.joins[0].reason == "the weather changed"
        forget(*members)


def test_several_calls_before_a_poll_are_one_rebalance_and_the_last_reason() -> None:
    scenario, members = group_of(2)
    before = scenario.classic.data.generation
    for text in ("a", "b", "c"):
        members[1].membership.enforce_rebalance(text)
    live(scenario, members, 10 * SECOND)
    assert scenario.classic.data.generation == before + 1
    assert members[1].joins[0].reason == "c"


def test_a_forced_rebalance_without_a_reason_says_who_wanted_it() -> None:
    scenario, members = group_of(1)
    members[0].membership.enforce_rebalance("")
    live(scenario, members, 10 * SECOND)
    assert members[0].joins[0].reason == "the application asked for it"


def test_a_changed_state_of_the_assignor_is_told_as_such() -> None:
    scenario, members = group_of(2)
    members[1].membership.enforce_rebalance("standby is ready", state_changed=True)
    live(scenario, members, 10 * SECOND)
    assert reasons(members[1])[0] is JoinReason.ASSIGNOR_STATE_CHANGE


def test_forcing_while_a_rebalance_runs_adds_none() -> None:
    scenario, members = group_of(2)
    before = scenario.classic.data.generation
    members[0].membership.enforce_rebalance("first")
    members[0].run()
    assert members[0].membership.state is MemberState.PREPARING_REBALANCE
    members[0].membership.enforce_rebalance("second")
    live(scenario, members, 10 * SECOND)
    assert scenario.classic.data.generation == before + 1


def test_forcing_needs_a_group() -> None:
    _, members = group_of(1)
    members[0].subscription.unsubscribe()
    members[0].subscription.assign(partitions(1))
    with pytest.raises(IllegalStateError, match="subscribe"):
        members[0].membership.enforce_rebalance()


def test_another_subscription_is_told_to_the_group() -> None:
    scenario = Scenario(partition_counts={"t": 2, "u": 2})
    scenario, members = group_of(2, scenario)
    members[1].subscription.subscribe(["u"])
    live(scenario, members, 10 * SECOND)
    assert reasons(members[1])[0] is JoinReason.SUBSCRIPTION_CHANGE
    assert members[1].owned == frozenset(partitions(0, 1, topic="u"))
    assert members[0].owned == frozenset(partitions(0, 1))
    assert members[1].calls[0] == ("revoked", partitions(1))


def test_the_leader_rejoins_when_a_topic_grows_and_followers_do_not() -> None:
    scenario, members = group_of(2)
    scenario.partition_counts["t"] = 8
    for member in members:
        member.membership.metadata_updated({"t": 8})
    live(scenario, members, 10 * SECOND)
    leader, follower = sorted(members, key=lambda one: not one.membership.is_leader)
    assert reasons(leader)[0] is JoinReason.TOPIC_METADATA_CHANGE
    assert leader.joins[0].reason == "topic metadata changed: t, 6 -> 8"
    assert reasons(follower)[0] is JoinReason.GROUP_REBALANCING
    assert owned(members) == list(partitions(*range(8)))


def test_a_topic_that_appears_while_a_leader_waits_for_its_share_is_not_missed() -> None:
    membership = DrivenMember(Scenario(partition_counts={}), "t", strategy=EAGER).membership
    membership.coordinator_found()
    membership.prepared()
    join = membership.next_action(0)
    assert isinstance(join, Join)
    joined = m.JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="range", leader="m", member_id="m", members=[]
    )
    membership.join_answered(join.identity, joined, 0)
    membership.assigned({}, {"t": 0})
    sync = membership.next_action(0)
    assert isinstance(sync, Sync)
    membership.metadata_updated({"t": 2})
    synced = m.SyncGroupResponse(error_code=0, assignment=encode_share(()))
    membership.sync_answered(sync.identity, synced, 0)
    membership.applied()
    assert membership.wish == "TOPIC_METADATA_CHANGE: topic metadata changed: t, 0 -> 2"


def test_metadata_that_has_not_changed_changes_nothing() -> None:
    scenario, members = group_of(2)
    for member in members:
        member.membership.metadata_updated({"t": 6, "other": 3})
    live(scenario, members, 10 * SECOND)
    assert [member.joins for member in members] == [[], []]


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_a_static_member_that_comes_back_for_more_topics_gets_them(
    strategy: tuple[str, ...],
) -> None:
    """It has not left, so the group gives it what it had, in the generation that there was."""
    scenario, (member,) = group_of(1, Scenario(partition_counts={"t": 2}), strategy=strategy)
    scenario.partition_counts |= {"more": 1}
    static = DrivenMember(scenario, "t", strategy=strategy, instance_id="i")
    live(scenario, [member, static], 60 * SECOND)
    static.leave()
    static.subscription.subscribe(["t", "more"])
    forget(static)
    live(scenario, [member, static], 10 * SECOND)
    assert TopicPartition("more", 0) in static.owned
    assert reasons(static)[0] is JoinReason.RESTART
    assert JoinReason.SUBSCRIPTION_CHANGE in reasons(static)


def test_a_pattern_finds_topics_that_come_later() -> None:
    scenario = Scenario(partition_counts={"t-1": 1})
    member = DrivenMember(scenario, "t-1")
    member.subscription.unsubscribe()
    member.subscription.subscribe_pattern(re.compile(r"t-\d"))
    live(scenario, [member], 10 * SECOND)
    assert owned([member]) == list(partitions(0, topic="t-1"))
    scenario.partition_counts |= {"t-2": 1, "xt-3": 1}
    member.subscription.match(scenario.partition_counts)
    live(scenario, [member], 10 * SECOND)
    assert {one.topic for one in member.owned} == {"t-1", "t-2"}
    assert reasons(member)[-1] is JoinReason.SUBSCRIPTION_CHANGE


def test_when_a_member_leaves_the_others_take_over() -> None:
    scenario, members = group_of(3)
    members.pop().leave()
    live(scenario, members, 10 * SECOND)
    assert owned(members) == list(partitions(*range(6)))


def test_a_static_member_that_restarts_causes_no_rebalance() -> None:
    scenario = Scenario(partition_counts={"t": 6})
    members = [DrivenMember(scenario, "t", instance_id=f"i{number}") for number in range(3)]
    live(scenario, members, 30 * SECOND)
    before = scenario.classic.data.generation
    for place in range(3):
        had = members[place].owned
        members[place].leave()
        members[place] = DrivenMember(scenario, "t", instance_id=f"i{place}")
        live(scenario, members, 10 * SECOND)
        assert members[place].owned == had
    assert scenario.classic.data.generation == before
