"""Facts that only the history asks for."""

from kohort.groups.config import GroupConfig
from kohort.groups.events import (
    GroupRestored,
    JoinPhaseEnded,
    RebalanceStarted,
    TriggerKind,
    UnusedIdDropped,
)
from tests.support.groups.scenario import MINUTE, SECOND, Scenario


def test_an_expired_session_tells_how_long_it_was() -> None:
    s = Scenario()
    leader, silent = s.stable(2)
    for _ in range(4):
        s.advance(4 * SECOND)
        s.heartbeat(leader)
    assert s.trigger().kind is TriggerKind.SESSION_EXPIRED
    assert s.trigger().removed == (silent,)
    assert s.trigger().timeout_ms == 10 * SECOND


def test_members_that_did_not_sync_exceeded_the_rebalance_timeout() -> None:
    s = Scenario()
    members = s.completing(2, rebalance_timeout_ms=7 * SECOND)
    for _ in range(3):
        s.advance(3 * SECOND)
        for member in members:
            s.heartbeat(member)
    kinds = [(event.trigger.kind, event.trigger.timeout_ms) for event in s.told(RebalanceStarted)]
    assert (TriggerKind.SYNC_EXPIRED, 7 * SECOND) in kinds


def test_an_id_that_no_one_used_is_told_before_the_join_phase_that_waited_for_it_ends() -> None:
    s = Scenario()
    leader, _ = s.stable(2)
    unused = s.new_id()
    s.join(leader)
    s.events.clear()
    s.join(next(m.member_id for m in s.classic.roster if m.member_id != leader))
    assert s.told(JoinPhaseEnded) == []
    s.advance(10 * SECOND)
    kinds = [type(event) for event in s.events]
    assert s.told(UnusedIdDropped) == [UnusedIdDropped(unused)]
    assert kinds.index(UnusedIdDropped) < kinds.index(JoinPhaseEnded)


def test_ids_that_are_given_back_or_pushed_out_are_told_as_well() -> None:
    s = Scenario(GroupConfig(pending_ids_max=2))
    first, second, _ = s.new_id(), s.new_id(), s.new_id()
    s.leave(second)
    assert s.told(UnusedIdDropped) == [UnusedIdDropped(first), UnusedIdDropped(second)]


def test_a_restored_group_says_what_its_members_hold() -> None:
    s = Scenario()
    leader, follower = s.stable(2)
    s.restart()
    (restored,) = s.told(GroupRestored)
    assert (restored.generation, restored.protocol_type, restored.leader) == (1, "consumer", leader)
    assert restored.assignments == {
        member: f"of {member}".encode() for member in (leader, follower)
    }


def test_restoring_comes_before_the_rebalance_that_it_causes() -> None:
    s = Scenario()
    s.stable(3)
    s.config = GroupConfig(max_size=2)
    s.events.clear()
    s.restart()
    assert [type(event) for event in s.events[:2]] == [GroupRestored, RebalanceStarted]


def test_the_end_of_the_join_phase_names_the_type_of_protocol() -> None:
    s = Scenario()
    s.completing(1)
    assert [event.protocol_type for event in s.told(JoinPhaseEnded)] == ["consumer"]
    s.advance(2 * MINUTE)
