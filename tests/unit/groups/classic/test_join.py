"""JoinGroup: checks in their order, identity, size, compatibility."""

from dataclasses import replace

from kohort.groups.config import GroupConfig
from kohort.groups.events import (
    CauseAdded,
    MemberRemoved,
    RemovalReason,
    TriggerKind,
    UnusedIdDropped,
)
from kohort.groups.records import GroupRecord
from kohort.groups.requests import JoinRequest, JoinResult
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import MINUTE, RANGE, SECOND, Scenario

FULL = JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)


def a_request(session_timeout_ms: int) -> JoinRequest:
    return JoinRequest("", None, "c", "/h", session_timeout_ms, 1, "consumer", RANGE)


class TestIdentity:
    def test_an_unused_id_expires_with_the_session_timeout_of_its_request(self) -> None:
        s = Scenario()
        member_id = s.new_id(session_timeout_ms=20 * SECOND)
        s.advance(20 * SECOND - 1)
        assert member_id in s.classic.roster.pending
        s.advance(1)
        assert not s.classic.roster.pending
        assert s.join(member_id).answer.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_id_that_is_used_has_no_pending_deadline(self) -> None:
        s = Scenario()
        s.join_dynamic()
        assert {key.kind for key in s.timers} == {"join", "session"}

    def test_the_oldest_unused_id_makes_room_for_a_new_one(self) -> None:
        s = Scenario(GroupConfig(pending_ids_max=2))
        first, second, third = s.new_id(), s.new_id(), s.new_id()
        assert list(s.classic.roster.pending) == [second, third]
        assert s.told(UnusedIdDropped) == [UnusedIdDropped(first)]
        assert s.join(first).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


class TestNewMembers:
    def test_a_new_member_may_stay_parked_for_five_minutes_not_for_its_session(self) -> None:
        s = Scenario()
        member_id, ticket = s.join_dynamic(rebalance_timeout_ms=60 * MINUTE)
        member = s.classic.roster.get(member_id)
        assert member is not None
        assert member.session_deadline_ms == s.ms + 5 * MINUTE
        assert ticket.is_parked

    def test_a_new_member_expires_even_while_it_is_parked(self) -> None:
        s = Scenario()
        old = s.stable(1, session_timeout_ms=30 * MINUTE, rebalance_timeout_ms=60 * MINUTE)
        _, ticket = s.join_dynamic(rebalance_timeout_ms=60 * MINUTE)
        s.advance(5 * MINUTE)
        assert ticket.answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID)
        assert [member.member_id for member in s.classic.roster] == old
        assert s.told(MemberRemoved)[-1].fate is RemovalReason.NEW_MEMBER_EXPIRED

    def test_a_group_made_by_a_join_is_stored_empty(self) -> None:
        s = Scenario()
        s.new_id()
        (record,) = s.log
        assert isinstance(record, GroupRecord)
        assert (record.generation, record.members, record.protocol_type) == (0, (), None)

    def test_a_restored_group_is_not_stored_again(self) -> None:
        s = Scenario()
        s.new_id()
        s.restart()
        s.new_id()
        assert len(s.log) == 1


class TestSize:
    def test_a_parked_member_may_join_again(self) -> None:
        s = Scenario(GroupConfig(max_size=2))
        first, second = s.stable(2)
        parked = s.join(first)
        s.join(instance="new")
        again = s.join(first)
        assert parked.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert again.is_parked
        assert s.join(second).answer == FULL

    def test_the_last_members_to_rejoin_are_thrown_out_of_a_group_that_is_too_large(self) -> None:
        s = Scenario()
        first, second, third = s.stable(3)
        s.config = GroupConfig(max_size=2)
        s.restart()
        assert s.state == "PreparingRebalance"
        assert s.trigger().kind is TriggerKind.OVER_CAPACITY
        tickets = [s.join(first), s.join(second)]
        assert s.join(third).answer == FULL
        # No member is missing any more, so the refusal completes the phase.
        assert [ticket.answer.generation for ticket in tickets] == [2, 2]
        assert third not in s.classic.roster
        assert s.told(CauseAdded)[-1].trigger.kind is TriggerKind.SIZE_REFUSED
        assert s.told(MemberRemoved)[-1].fate is RemovalReason.SIZE_REFUSED

    def test_a_refused_id_is_not_waited_for(self) -> None:
        s = Scenario(GroupConfig(max_size=1))
        member_id = s.stable(1)[0]
        s.classic.data.config = GroupConfig(max_size=2)
        unused = s.new_id()
        s.classic.data.config = GroupConfig(max_size=1)
        assert s.join(unused).answer == FULL
        assert not s.classic.roster.pending
        assert s.join(member_id).answer.error is ErrorCode.NONE


class TestMetadataBytes:
    LARGE = (("range", bytes(600)),)

    def test_a_group_that_holds_too_much_is_full(self) -> None:
        s = Scenario(GroupConfig(metadata_bytes_max=1_000))
        s.stable(1, protocols=self.LARGE)
        assert s.join(protocols=self.LARGE).answer == FULL
        assert s.join(protocols=RANGE).answer.error is ErrorCode.MEMBER_ID_REQUIRED
        assert s.state == "Stable"

    def test_a_members_own_earlier_metadata_does_not_count(self) -> None:
        s = Scenario(GroupConfig(metadata_bytes_max=1_000))
        s.stable_static("a", protocols=self.LARGE)
        assert s.join(instance="a", protocols=self.LARGE).answer.error is ErrorCode.NONE

    def test_a_member_that_wants_too_much_is_out_and_the_others_rebalance(self) -> None:
        s = Scenario(GroupConfig(metadata_bytes_max=1_000))
        first, second = s.stable(2)
        assert s.join(second, protocols=(("range", bytes(1_000)),)).answer == FULL
        assert [member.member_id for member in s.classic.roster] == [first]
        assert s.trigger().kind is TriggerKind.SIZE_REFUSED

    def test_long_names_count_too(self) -> None:
        s = Scenario(GroupConfig(metadata_bytes_max=1_000))
        assert s.join(protocols=(("r" * 1_001, b""),)).answer == FULL
        assert s.join(instance="i" * 1_001).answer == FULL

    def test_so_does_what_many_protocols_take_by_themselves(self) -> None:
        s = Scenario(GroupConfig(metadata_bytes_max=10_000))
        s.stable(1, protocols=tuple((name, b"") for name in "abcdefgh"))
        assert s.join(protocols=tuple((f"p{number}", b"") for number in range(100))).answer == FULL
        assert s.join(instance="\u4e00" * 2_501).answer == FULL

    def test_what_a_member_held_is_free_when_it_goes(self) -> None:
        s = Scenario(GroupConfig(metadata_bytes_max=1_000))
        s.leave(*s.stable(1, protocols=self.LARGE))
        assert s.classic.roster.metadata_bytes == 0
        assert s.join(protocols=self.LARGE).answer.error is ErrorCode.MEMBER_ID_REQUIRED


class TestLongNames:
    """A text in a record, or on the wire, has at most 32,767 bytes."""

    def test_a_member_id_begins_with_as_much_of_a_name_as_leaves_it_short(self) -> None:
        for name in ("i" * 255, "i" * 32_767, "ü" * 16_383, "😀" * 8_191):
            s = Scenario()
            join = s.join(instance=name)
            s.advance(3_000)
            member_id = join.answer.member_id
            assert name.startswith(member_id.rpartition("-")[0])
            assert 252 <= len(member_id.rpartition("-")[0].encode()) <= 255

    def test_one_that_is_handed_out_is_short_as_well(self) -> None:
        s = Scenario()
        request = replace(a_request(6_000), client_id="c" * 32_767)
        ticket = s.ticket()
        s.step(lambda: s.classic.join(request, ticket, s.now))
        assert ticket.answer.error is ErrorCode.MEMBER_ID_REQUIRED
        assert len(ticket.answer.member_id) < 300
        (pending,) = s.classic.roster.pending.values()
        assert not any(len(str(value)) > 400 for value in pending)
