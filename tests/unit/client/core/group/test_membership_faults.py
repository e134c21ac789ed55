"""Members that are blocked, cut off, fenced, or answered with errors."""

import pytest

from kohort.client.core.errors import (
    AuthorizationError,
    ConfigError,
    FencedInstanceError,
    InconsistentProtocolError,
)
from kohort.client.core.group.actions import FindCoordinator, Idle, Join, MemberAction, Sync
from kohort.client.core.group.base_membership import MemberState
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.driven_members import DrivenMember, live
from tests.support.groups.scenario import MINUTE, SECOND, Scenario
from tests.unit.client.core.group.settled_groups import (
    COOPERATIVE,
    EAGER,
    group_of,
    owned,
    partitions,
    reasons,
)


def test_a_member_that_does_not_poll_leaves_and_finds_its_partitions_lost() -> None:
    scenario, members = group_of(2)
    had = tuple(sorted(members[1].owned))
    members[1].is_polling = False
    live(scenario, members, 2 * MINUTE)
    assert owned(members[:1]) == list(partitions(*range(6)))
    members[1].is_polling = True
    live(scenario, members, 10 * SECOND)
    assert members[1].calls[0] == ("lost", had)
    assert reasons(members[1])[0] is JoinReason.MEMBERSHIP_LOST
    assert owned(members) == list(partitions(*range(6)))


def test_a_blocked_application_keeps_its_membership_by_the_heartbeat_thread_alone() -> None:
    """Ten times the session, but within the poll interval."""
    scenario, members = group_of(2)
    before = scenario.classic.data.generation
    members[1].is_polling = False
    live(scenario, members, 50 * SECOND)
    members[1].is_polling = True
    live(scenario, members, 10 * SECOND)
    assert scenario.classic.data.generation == before
    assert members[1].calls == []


def test_a_member_that_was_cut_off_for_longer_than_its_session_has_lost_its_partitions() -> None:
    scenario, members = group_of(2)
    had = tuple(sorted(members[1].owned))
    members[1].is_cut_off = True
    live(scenario, members, 30 * SECOND)
    assert owned(members[:1]) == list(partitions(*range(6)))
    members[1].is_cut_off = False
    live(scenario, members, 10 * SECOND)
    assert members[1].calls[0] == ("lost", had)
    assert JoinReason.MEMBERSHIP_LOST in reasons(members[1])
    assert owned(members) == list(partitions(*range(6)))


def test_a_short_cut_costs_nothing() -> None:
    scenario, members = group_of(2)
    before = scenario.classic.data.generation
    members[1].is_cut_off = True
    live(scenario, members, 5 * SECOND)
    members[1].is_cut_off = False
    live(scenario, members, 30 * SECOND)
    assert scenario.classic.data.generation == before
    assert members[1].calls == []


def test_a_second_process_with_the_same_instance_id_fences_the_first() -> None:
    scenario, members = group_of(1, instance_id="i")
    second = DrivenMember(scenario, "t", instance_id="i")
    live(scenario, [second], 4 * SECOND)
    for _ in range(2):
        with pytest.raises(FencedInstanceError, match="group_instance_id"):
            live(scenario, members, 4 * SECOND)
    # A new subscription is intended.
    members[0].membership.clear_errors()
    live(scenario, members, 4 * SECOND)
    assert members[0].is_settled
    with pytest.raises(FencedInstanceError):
        live(scenario, [second], 4 * SECOND)


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
@pytest.mark.parametrize("asked", [Join, Sync])
def test_odd_answers_to_a_join_or_a_sync_are_tried_again(
    strategy: tuple[str, ...], asked: type[MemberAction]
) -> None:
    scenario, members = group_of(2, strategy=strategy)
    odd = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode(9_999), ErrorCode.NOT_ENOUGH_REPLICAS]
    members[0].membership.enforce_rebalance()
    if asked is Sync:
        members[0].run()
        assert members[0].membership.state is MemberState.PREPARING_REBALANCE
    members[0].odd_answers.extend(odd)
    live(scenario, members, 20 * SECOND)
    assert not members[0].odd_answers
    assert all(member.is_settled for member in members)
    assert owned(members) == list(partitions(*range(6)))


def test_an_odd_answer_to_a_heartbeat_costs_nothing() -> None:
    scenario, members = group_of(2)
    before = scenario.classic.data.generation
    members[0].odd_answers.extend([ErrorCode.UNKNOWN_SERVER_ERROR] * 3)
    live(scenario, members, 20 * SECOND)
    assert not members[0].odd_answers
    assert (scenario.classic.data.generation, members[0].calls) == (before, [])


def test_a_member_whose_generation_is_gone_joins_again_under_its_id() -> None:
    scenario, members = group_of(2)
    had, member_id = tuple(sorted(members[0].owned)), members[0].membership.identity.member_id
    members[0].odd_answers.append(ErrorCode.ILLEGAL_GENERATION)
    live(scenario, members, 20 * SECOND)
    assert members[0].calls[0] == ("lost", had)
    assert reasons(members[0])[0] is JoinReason.MEMBERSHIP_LOST
    assert members[0].membership.identity.member_id == member_id
    assert owned(members) == list(partitions(*range(6)))


def test_a_join_that_is_refused_is_told_and_tried_by_the_next_poll() -> None:
    """An ACL that comes a minute late."""
    scenario = Scenario(partition_counts={"t": 6})
    member = DrivenMember(scenario, "t")
    member.odd_answers.extend([ErrorCode.GROUP_AUTHORIZATION_FAILED] * 3)
    told = 0
    for _ in range(100):
        try:
            live(scenario, [member], SECOND // 10)
        except AuthorizationError:
            told += 1
            member.membership.round_failed(scenario.ms)
            assert member.membership.state is MemberState.UNJOINED
    assert told == 3
    assert member.is_settled
    assert owned([member]) == list(partitions(*range(6)))


def test_a_member_whose_heartbeat_is_refused_is_told_and_stays_one() -> None:
    scenario, members = group_of(2)
    before = scenario.classic.data.generation
    members[0].odd_answers.extend([ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2)
    told = 0
    for _ in range(100):
        try:
            live(scenario, members, SECOND // 5)
        except AuthorizationError:
            told += 1
    assert told == 2
    assert (scenario.classic.data.generation, members[0].calls) == (before, [])


def test_two_assignors_that_are_not_shared_are_an_error_that_says_so() -> None:
    scenario, _ = group_of(1, strategy=EAGER)
    other = DrivenMember(scenario, "t", strategy=("roundrobin",))
    with pytest.raises(InconsistentProtocolError, match="partition_assignment_strategy"):
        live(scenario, [other], 10 * SECOND)


def test_assignors_without_a_common_mode_cannot_be_configured() -> None:
    with pytest.raises(ConfigError):
        DrivenMember(Scenario(), "t", strategy=())


def test_a_broker_that_restarts_costs_nothing() -> None:
    scenario, members = group_of(3)
    before = scenario.classic.data.generation
    scenario.restart()
    live(scenario, members, MINUTE)
    assert scenario.classic.data.generation == before
    assert all(member.calls == [] for member in members)


def test_a_step_that_ended_with_an_error_is_tried_again_after_longer_and_longer_pauses() -> None:
    """A password that is wrong by now is not tried a hundred times a second."""
    member = DrivenMember(Scenario(partition_counts={"t": 2}), "t")
    membership = member.membership
    now, waits = 0, []
    for _ in range(4):
        assert isinstance(membership.next_action(now), FindCoordinator)
        membership.round_failed(now)
        action = membership.next_action(now)
        assert isinstance(action, Idle)
        assert action.until_ms is not None
        waits.append(action.until_ms - now)
        now = action.until_ms
    assert 0 < waits[0] < waits[1] < waits[2] < waits[3]
