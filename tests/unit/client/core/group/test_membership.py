"""The client's rules of membership against the coordinator's, with nothing in between."""

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
    partitions,
    reasons,
)


def test_a_mix_of_eager_and_cooperative_assignors_is_eager() -> None:
    scenario, (first,) = group_of(1, strategy=("range", "cooperative-sticky"))
    second = DrivenMember(scenario, "t", strategy=("range", "cooperative-sticky"))
    live(scenario, [first, second], 10 * SECOND)
    assert first.calls[0] == ("revoked", partitions(*range(6)))


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
