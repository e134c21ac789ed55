"""Requests that Kafka leaves unanswered for good, and every other way a parked one can end.

That no ticket is answered twice is checked by the scenario in every test of this folder.
"""

from kohort.groups.requests import JoinResult, LeaveEntry, SyncResult
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import SECOND, Scenario


def test_a_join_that_a_second_one_supersedes() -> None:
    s = Scenario()
    first, _ = s.preparing(2)
    parked = s.join(first)
    again = s.join(first)
    assert parked.answer == JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, first)
    assert again.is_parked
    assert s.classic.roster.parked_joins == 1


def test_a_sync_that_a_second_one_supersedes() -> None:
    s = Scenario()
    leader, follower = s.completing(2)
    parked = s.sync(follower)
    again = s.sync(follower)
    assert parked.answer == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    s.sync(leader)
    assert again.answer.error is ErrorCode.NONE


def test_the_sync_of_a_member_that_is_removed() -> None:
    s = Scenario()
    _, follower = s.completing(2)
    parked = s.sync(follower)
    s.leave(follower)
    assert parked.answer == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)


def test_the_join_of_a_static_member_that_an_administrator_removes() -> None:
    s = Scenario()
    parked = s.join(instance="a")
    s.leave(LeaveEntry("", "a"))
    assert parked.answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_member_with_a_parked_sync_that_joins_again() -> None:
    s = Scenario()
    _, follower = s.completing(2)
    parked = s.sync(follower)
    s.join(follower, protocols=(("range", b"changed"),))
    assert parked.answer == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)


def test_no_one_waits_longer_than_the_timers_allow() -> None:
    s = Scenario()
    first, second, _ = s.stable(3)
    tickets = [s.join(first), s.join(requires_known_id=False), s.join(instance="a")]
    s.advance(60 * SECOND)
    tickets += [s.sync(second), s.sync(first)]
    s.advance(1_000 * SECOND)
    assert not any(ticket.is_parked for ticket in s.tickets)
    assert s.state == "Empty"
    assert not s.timers
    assert tickets
