"""Static membership (KIP-345, KIP-814): replacement, fencing, and who is not bothered by it."""

from dataclasses import replace

import pytest

from kohort.groups.config import GroupConfig
from kohort.groups.requests import JoinRequest, JoinResult, LeaveEntry
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import RANGE, SECOND, Scenario, subscription

FENCED = ErrorCode.FENCED_INSTANCE_ID
LONG = 1_000 * SECOND
BOTH = (*RANGE, ("roundrobin", subscription("t")))


def join_request(instance: str) -> JoinRequest:
    return JoinRequest("", instance, "c", "/127.0.0.1", LONG, 60 * SECOND, "consumer", RANGE)


class TestReplacementInAStableGroup:
    def test_other_topics_do_not_matter_unless_asked_for(self) -> None:
        other = (("range", subscription("u")),)
        s = Scenario()
        s.stable_static("a", "b")
        assert s.join(instance="b", protocols=other).answer.error is ErrorCode.NONE
        s = Scenario(GroupConfig(check_replaced_topics=True))
        s.stable_static("a", "b")
        assert s.join(instance="b", protocols=other).is_parked
        assert s.trigger().detail == "other topics than before"

    def test_its_place_among_those_that_have_not_synced_goes_to_the_new_id(self) -> None:
        s = Scenario()
        tickets = {name: s.join(instance=name, session_timeout_ms=LONG) for name in "ab"}
        s.advance(6 * SECOND)
        s.sync(tickets["a"].answer.member_id)
        answer = s.join(instance="b", session_timeout_ms=LONG).answer
        assert s.classic.waiting_for()[0] == (answer.member_id,)
        s.advance(60 * SECOND)
        assert s.classic.roster.holder_of("b") is None


class TestDurability:
    def test_if_it_cannot_be_stored_the_old_member_is_back(self) -> None:
        s = Scenario()
        members = s.stable_static("a", "b")
        s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        other = (("range", subscription("u")),)
        answer = s.join(instance="a", protocols=other, session_timeout_ms=77_000).answer
        assert answer == JoinResult(ErrorCode.NOT_COORDINATOR)
        assert s.heartbeat(members["a"], instance="a") is ErrorCode.NONE
        member = s.classic.roster.get(members["a"])
        assert member is not None
        assert (member.protocols, member.session_timeout_ms) == (RANGE, 10 * SECOND)
        assert s.classic.roster.leader_id == members["a"]
        assert s.sync(members["a"]).answer.assignment == f"of {members['a']}".encode()

    def test_many_that_return_in_one_turn_are_stored_by_one_record(self) -> None:
        s = Scenario()
        names = [f"i{index}" for index in range(20)]
        s.stable_static(*names)
        tickets = [s.ticket() for _ in names]
        written = len(s.appends)
        for name, ticket in zip(names, tickets, strict=True):
            s.classic.join(join_request(name), ticket, s.now)
        s.take_effects()
        assert len(s.appends) == written + 1
        assert len(s.appends[-1]) == 1
        stored = {member.instance_id: member.member_id for member in s.last_group_record().members}
        assert stored == {n: t.answer.member_id for n, t in zip(names, tickets, strict=True)}
        assert s.state == "Stable"

    def test_of_two_processes_in_one_turn_the_second_wins(self) -> None:
        s = Scenario()
        s.stable_static("a", "b")
        first, second = s.ticket(), s.ticket()
        s.classic.join(join_request("b"), first, s.now)
        s.classic.join(join_request("b"), second, s.now)
        s.take_effects()
        assert first.answer.error is FENCED
        holder = s.classic.roster.holder_of("b")
        assert holder is not None
        assert holder.member_id == second.answer.member_id

    def test_if_the_second_of_one_turn_rebalances_the_first_is_fenced_all_the_same(self) -> None:
        s = Scenario()
        s.stable_static("a", "b", "c", protocols=BOTH)
        first, second, other = s.ticket(), s.ticket(), s.ticket()
        offers_both = replace(join_request("b"), protocols=BOTH)
        s.classic.join(offers_both, first, s.now)
        s.classic.join(replace(offers_both, instance_id="c"), other, s.now)
        s.classic.join(replace(offers_both, protocols=BOTH[1:]), second, s.now)
        s.take_effects()
        assert first.answer.error is FENCED
        assert s.state == "PreparingRebalance"
        assert second.is_parked
        assert other.is_parked
        s.join(instance="a", protocols=BOTH)
        holder = s.classic.roster.holder_of("b")
        assert holder is not None
        assert holder.member_id == second.answer.member_id
        assert second.answer.generation == other.answer.generation == 2

    def test_removed_in_the_same_turn_it_is_told_so(self) -> None:
        s = Scenario()
        s.stable_static("a", "b")
        ticket, left = s.ticket(), s.ticket()
        s.classic.join(join_request("b"), ticket, s.now)
        s.classic.leave([LeaveEntry("", "b")], left, s.now)
        s.take_effects()
        assert ticket.answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID)
        assert left.answer.entries == (ErrorCode.NONE,)
        assert s.classic.roster.holder_of("b") is None


class TestPartitionCounts:
    """A leader that was away may have missed that its topics changed."""

    @pytest.mark.parametrize("who", ["a", "b"])
    def test_a_returning_leader_starts_a_rebalance_if_they_changed(self, who: str) -> None:
        s = Scenario(partition_counts={"t": 3})
        s.stable_static("a", "b")
        s.partition_counts["t"] = 4
        ticket = s.join(instance=who)
        assert ticket.is_parked == (who == "a")
        if who == "a":
            assert s.trigger().detail == "partition counts changed while the leader was away"

    def test_the_fingerprint_survives_a_restart_of_the_broker(self) -> None:
        s = Scenario(partition_counts={"t": 3})
        s.stable_static("a", "b")
        s.restart()
        assert s.join(instance="a").answer.error is ErrorCode.NONE
        s.restart()
        s.partition_counts["t"] = 4
        assert s.join(instance="a").is_parked

    def test_the_check_can_be_switched_off(self) -> None:
        s = Scenario(GroupConfig(check_partition_counts=False), partition_counts={"t": 3})
        s.stable_static("a", "b")
        s.partition_counts["t"] = 4
        assert s.join(instance="a").answer.error is ErrorCode.NONE

    def test_topics_that_cannot_be_read_are_not_checked(self) -> None:
        s = Scenario(partition_counts={"t": 3})
        s.stable_static("a", "b", protocol_type="connect")
        s.partition_counts["t"] = 4
        assert s.join(instance="a", protocol_type="connect").answer.error is ErrorCode.NONE
