"""SyncGroup and the sync phase."""

import pytest

from kohort.groups.events import RebalanceEnd, RebalanceEnded, SyncReceived, TriggerKind
from kohort.groups.requests import LeaveEntry, SyncRequest, SyncResult
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import SECOND, Scenario


def assigned(share: bytes) -> SyncResult:
    return SyncResult(ErrorCode.NONE, "consumer", "range", share)


class TestCompleting:
    def test_one_completed_rebalance_is_counted(self) -> None:
        s = Scenario()
        members = s.stable(2)
        (ended,) = s.told(RebalanceEnded)
        assert (ended.outcome, ended.generation) == (RebalanceEnd.STABLE, 1)
        assert ended.assignments == {m: f"of {m}".encode() for m in members}

    def test_syncs_are_told_to_the_history_once_each(self) -> None:
        s = Scenario()
        leader, second, third = s.completing(3)
        s.sync(second)
        s.sync(leader)
        s.sync(third)
        s.sync(third)
        received = [(event.member_id, event.is_leader) for event in s.told(SyncReceived)]
        assert received == [(second, False), (leader, True), (third, False)]

    def test_when_all_have_synced_the_sync_timer_ends(self) -> None:
        s = Scenario()
        leader, second = s.completing(2)
        s.sync(leader)
        assert any(key.kind == "sync" for key in s.timers)
        s.sync(second)
        assert not any(key.kind == "sync" for key in s.timers)
        assert s.classic.waiting_for() == ((), None)


class TestDurability:
    def test_no_member_is_answered_before_the_assignment_is_durable(self) -> None:
        s = Scenario()
        leader, second = s.completing(2)
        parked = s.sync(second)
        s.hold_appends = True
        ticket = s.sync(leader, assignments={leader: b"1", second: b"2"})
        assert s.state == "CompletingRebalance"
        assert ticket.is_parked
        assert parked.is_parked
        assert s.group.describe_members()[0].assignment == b""
        s.finish_append()
        assert s.state == "Stable"
        assert parked.answer == assigned(b"2")

    def test_the_generation_after_a_failure_is_a_new_one(self) -> None:
        s = Scenario()
        leader, second = s.completing(2)
        s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        s.sync(leader)
        s.fail_appends = None
        tickets = [s.join(leader), s.join(second)]
        assert [ticket.answer.generation for ticket in tickets] == [2, 2]
        s.settle([leader, second])

    @pytest.mark.parametrize("outcome", ["durable", "failed"])
    def test_an_assignment_no_one_waits_for_any_more_changes_nothing(self, outcome: str) -> None:
        s = Scenario()
        leader, second = s.completing(2)
        ticket, left = s.ticket(), s.ticket()
        # Both in one turn, before the append is even begun.
        request = SyncRequest(leader, None, 1, assignments={leader: b"1"})
        s.classic.sync(request, ticket, s.now)
        s.classic.leave([LeaveEntry(second)], left, s.now)
        if outcome == "failed":
            s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        s.take_effects()
        assert ticket.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert s.state == "PreparingRebalance"
        member = s.classic.roster.get(leader)
        assert member is not None
        assert member.assignment == b""
        assert s.trigger().kind is TriggerKind.MEMBER_LEFT

    def test_a_leader_that_syncs_twice_in_one_turn_writes_once(self) -> None:
        s = Scenario()
        leader, _ = s.completing(2)
        first, second = s.ticket(), s.ticket()
        s.classic.sync(SyncRequest(leader, None, 1, assignments={leader: b"1"}), first, s.now)
        s.classic.sync(SyncRequest(leader, None, 1, assignments={leader: b"2"}), second, s.now)
        s.take_effects()
        assert len(s.appends[-1]) == 1
        assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert second.answer == assigned(b"1")


class TestDeadline:
    def test_a_leader_that_does_not_sync_is_removed_and_who_waits_is_told(self) -> None:
        s = Scenario()
        leader, second = s.completing(2, session_timeout_ms=1_000 * SECOND)
        parked = s.sync(second)
        s.advance(60 * SECOND)
        assert parked.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert leader not in s.classic.roster
        assert s.classic.roster.leader_id == second
        assert s.trigger().was_leader

    def test_if_no_member_is_left_the_group_is_empty(self) -> None:
        s = Scenario()
        s.completing(2, session_timeout_ms=1_000 * SECOND)
        s.advance(60 * SECOND)
        assert (s.state, s.classic.data.generation) == ("Empty", 2)

    def test_it_does_nothing_to_a_later_generation(self) -> None:
        s = Scenario()
        leader, second = s.completing(2, session_timeout_ms=1_000 * SECOND)
        s.advance(59 * SECOND)
        s.join(leader, protocols=(("range", b"other"),), session_timeout_ms=1_000 * SECOND)
        s.join(second, session_timeout_ms=1_000 * SECOND)
        assert s.classic.data.generation == 2
        s.advance(2 * SECOND)
        assert s.state == "CompletingRebalance"
        assert len(s.classic.roster) == 2
