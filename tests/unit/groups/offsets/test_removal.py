"""Deleted groups, deleted offsets, and offsets that expire."""

import pytest

from kohort.groups.events import GroupRemoved, OffsetsRemoved
from kohort.groups.records import GroupTombstone, OffsetRecord, OffsetTombstone, PendingOffset
from kohort.groups.requests import DeleteOffsetsResult, OffsetToCommit
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import MINUTE, SECOND, Scenario

NONE = ErrorCode.NONE
DAY = 24 * 60 * MINUTE
RETENTION = 7 * DAY


def a_consumer_group(*topics: str) -> tuple[Scenario, str]:
    """A stable group of one member that wants "t", with offsets for `topics`."""
    s = Scenario()
    (member_id,) = s.stable(1, session_timeout_ms=20 * DAY)
    offsets = [OffsetToCommit(topic, 0, 1) for topic in topics]
    s.commit(*offsets, member_id=member_id, generation=1)
    return s, member_id


class TestDeleteGroup:
    def test_the_group_is_dead_once_that_is_durable(self) -> None:
        s = Scenario()
        s.commit()
        s.hold_appends = True
        ticket = s.ticket()
        s.step(lambda: s.group.delete(ticket))
        assert ticket.is_parked
        assert (s.state, s.offset()) == ("Empty", 42)
        s.finish_append()
        assert ticket.answer is NONE
        assert s.state == "Dead"
        assert s.told(GroupRemoved)[-1].expired is False

    def test_if_it_cannot_be_stored_the_group_is_still_there(self) -> None:
        s = Scenario()
        s.commit()
        s.fail_appends = ErrorCode.REQUEST_TIMED_OUT
        assert s.delete() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (s.state, s.offset()) == ("Empty", 42)

    def test_it_wants_a_step_of_its_own(self) -> None:
        s = Scenario()
        s.hold_appends = True
        s.commit()
        with pytest.raises(AssertionError):
            s.group.delete(s.ticket())


class TestDeleteOffsets:
    def test_an_empty_group_forgets_any(self) -> None:
        s = Scenario()
        s.commit(OffsetToCommit("t", 0, 1), OffsetToCommit("u", 0, 1))
        assert s.delete_offsets(("t", 0)) == DeleteOffsetsResult(partitions=(NONE,))
        assert (s.offset("t"), s.offset("u")) == (None, 1)
        assert s.log[-1] == OffsetTombstone("g", "t", 0)
        assert s.told(OffsetsRemoved)[-1] == OffsetsRemoved(1, expired=False)

    def test_if_it_cannot_be_stored_they_are_still_there(self) -> None:
        s = Scenario()
        s.commit()
        s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        assert s.delete_offsets(("t", 0)) == DeleteOffsetsResult(ErrorCode.NOT_COORDINATOR)
        assert s.offset() == 42


class TestForgetTopics:
    @pytest.mark.parametrize("state", ["Empty", "Stable", "PreparingRebalance"])
    def test_positions_go_with_their_topic_in_every_state(self, state: str) -> None:
        s, member_id = a_consumer_group("t", "u")
        if state == "Empty":
            s.leave(member_id)
        elif state == "PreparingRebalance":
            s.join_dynamic()
        assert s.state == state
        s.step(lambda: s.group.forget_topics({"t": None}))
        assert (s.offset("t"), s.offset("u")) == (None, 1)
        assert s.log[-1] == OffsetTombstone("g", "t", 0)

    def test_positions_of_the_topic_that_has_the_name_now_stay(self) -> None:
        s = Scenario()
        s.commit()
        (record,) = s.log[-1:]
        assert isinstance(record, OffsetRecord)
        living_id, former_id = bytes(range(16)), bytes(range(1, 17))
        for partition, topic_id in enumerate((living_id, former_id)):
            committed = record.committed._replace(topic_id=topic_id)
            s.group.offsets.apply(record._replace(partition=partition, committed=committed))
            place = ("g", "t", 2 + partition)
            s.group.offsets.apply(PendingOffset(*place, committed, 7, 0))
        s.step(lambda: s.group.forget_topics({"t": living_id}))
        s.end_transaction()
        assert sorted(s.group.offsets.topics()["t"]) == [0, 2]


def age(s: Scenario, duration_ms: int) -> None:
    """Let time pass for the wall clock only; sessions are not what is tested here."""
    s.ms += duration_ms


class TestExpiry:
    def test_an_ordinary_group_counts_from_when_it_became_empty(self) -> None:
        s, member_id = a_consumer_group("t")
        age(s, 3 * DAY)
        s.leave(member_id)
        age(s, RETENTION - 1)
        s.sweep()
        assert s.offset() == 1
        age(s, 1)
        s.sweep()
        assert s.offset() is None
        assert s.told(OffsetsRemoved)[-1] == OffsetsRemoved(1, expired=True)

    def test_if_that_is_not_known_from_the_commit(self) -> None:
        s, member_id = a_consumer_group("t")
        s.leave(member_id)
        s.classic.data.state_timestamp_ms = -1
        age(s, RETENTION - 1)
        s.sweep()
        assert s.offset() == 1
        age(s, 1)
        s.sweep()
        assert s.offset() is None

    def test_a_stable_consumer_group_loses_only_what_no_one_subscribes_to(self) -> None:
        s, _ = a_consumer_group("t", "u")
        age(s, RETENTION - 1)
        s.sweep()
        assert (s.offset("t"), s.offset("u")) == (1, 1)
        age(s, 1)
        s.sweep()
        assert (s.offset("t"), s.offset("u")) == (1, None)

    def test_a_subscription_that_cannot_be_read_keeps_everything(self) -> None:
        s = Scenario()
        (member_id,) = s.stable(1, protocols=(("range", b"\xff"),), session_timeout_ms=20 * DAY)
        s.commit(member_id=member_id, generation=1)
        age(s, 2 * RETENTION)
        s.sweep()
        assert s.offset() == 42

    @pytest.mark.parametrize("kind", ["connect", "preparing"])
    def test_any_other_group_loses_nothing(self, kind: str) -> None:
        s = Scenario()
        protocol_type = "connect" if kind == "connect" else "consumer"
        (member_id,) = s.stable(1, protocol_type=protocol_type, session_timeout_ms=20 * DAY)
        s.commit(OffsetToCommit("u", 0, 1), member_id=member_id, generation=1)
        if kind == "preparing":
            s.join_dynamic(session_timeout_ms=20 * DAY)
            assert s.state == "PreparingRebalance"
        age(s, 2 * RETENTION)
        s.sweep()
        assert s.offset("u") == 1

    def test_an_expiry_of_its_own_counts_instead(self) -> None:
        s = Scenario()
        s.commit(OffsetToCommit("t", 0, 1), retention_time_ms=5 * SECOND)
        s.commit(OffsetToCommit("t", 1, 1), retention_time_ms=2 * RETENTION)
        age(s, 5 * SECOND - 1)
        s.sweep()
        assert s.offset("t", 0) == 1
        age(s, 1)
        s.sweep()
        assert s.offset("t", 0) is None
        age(s, RETENTION)
        s.sweep()
        assert s.offset("t", 1) == 1


class TestSweptGroups:
    def test_an_empty_group_without_offsets_goes_at_once(self) -> None:
        s = Scenario()
        s.leave(*s.stable(1))
        s.sweep()
        assert s.state == "Dead"
        assert s.log[-1] == GroupTombstone("g")
        assert s.told(GroupRemoved)[-1].expired is True

    def test_with_its_last_offset_it_goes_in_the_same_append(self) -> None:
        s = Scenario()
        s.commit()
        age(s, RETENTION)
        s.sweep()
        assert s.appends[-1] == (OffsetTombstone("g", "t", 0), GroupTombstone("g"))
        assert s.state == "Dead"

    def test_one_with_an_unused_id_stays_until_that_expires(self) -> None:
        s = Scenario()
        s.new_id()
        s.sweep()
        assert s.state == "Empty"
        s.advance(10 * SECOND)
        s.sweep()
        assert s.state == "Dead"

    def test_a_dead_group_is_left_alone(self) -> None:
        s = Scenario()
        s.leave(*s.stable(1))
        s.sweep()
        written = len(s.log)
        s.sweep()
        s.step(lambda: s.group.forget_topics({"t": None}))
        assert len(s.log) == written
