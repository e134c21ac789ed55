"""LeaveGroup: single and in batches, by id and by instance."""

from kohort.groups.events import TriggerKind, UnusedIdDropped
from kohort.groups.requests import LeaveEntry
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import Scenario

NONE = ErrorCode.NONE


class TestEntries:
    def test_an_unused_id_is_given_back(self) -> None:
        s = Scenario()
        unused = s.new_id()
        assert s.leave(unused).entries == (NONE,)
        assert not s.timers
        assert s.told(UnusedIdDropped) == [UnusedIdDropped(unused)]

    def test_an_admin_client_says_so_in_its_reason(self) -> None:
        s = Scenario()
        _, follower = s.stable(2)
        s.leave(LeaveEntry(follower, None, "member was removed by an admin: too slow"))
        assert s.trigger().kind is TriggerKind.REMOVED_BY_ADMIN


class TestRemoval:
    def test_its_timers_end(self) -> None:
        s = Scenario()
        _, follower = s.stable(2)
        s.leave(follower)
        assert not any(key.member_id == follower for key in s.timers)


class TestTheStepAfter:
    def test_while_preparing_a_batch_may_complete_the_phase(self) -> None:
        s = Scenario()
        first, second, third = s.preparing(3)
        ticket = s.join(first)
        s.leave(second, third)
        assert ticket.answer.generation == 2
        assert [m.member_id for m in ticket.answer.members] == [first]

    def test_when_all_leave_the_group_is_empty_and_stored_without_members(self) -> None:
        s = Scenario()
        s.leave(*s.stable(3))
        record = s.last_group_record()
        assert (record.generation, record.members, record.protocol_name) == (2, (), None)
        assert record.protocol_type == "consumer"
        assert s.state == "Empty"
