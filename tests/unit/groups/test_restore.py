"""What is written, and what a group is after a restart."""

import pytest

from kohort.groups.group import client_error
from kohort.groups.requests import JoinResult, SyncResult
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import RANGE, SECOND, Scenario, subscription


@pytest.mark.parametrize(
    ("of_the_log", "for_the_client"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_clients_are_told_of_a_failed_append_what_they_can_act_upon(
    of_the_log: ErrorCode, for_the_client: ErrorCode
) -> None:
    assert client_error(of_the_log) is for_the_client
    s = Scenario()
    s.new_id()
    s.fail_appends = of_the_log
    assert s.commit_error() is for_the_client


class TestWritten:
    def test_nothing_is_written_while_a_rebalance_is_under_way(self) -> None:
        s = Scenario()
        members = s.preparing(2)
        written = len(s.log)
        for member_id in members:
            s.join(member_id)
        assert s.state == "CompletingRebalance"
        assert len(s.log) == written

    def test_a_group_that_could_not_be_stored_empty_is_stored_with_the_next_join(self) -> None:
        s = Scenario()
        s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        s.new_id()
        s.fail_appends = None
        assert not s.log
        s.new_id()
        assert len(s.log) == 1


class TestRestored:
    def test_a_member_with_one_protocol_that_joins_again_is_no_follower_of_change(self) -> None:
        s = Scenario()
        _, follower = s.stable(2)
        s.restart()
        assert s.join(follower).answer.generation == 1
        assert s.state == "Stable"

    def test_a_member_that_lists_several_protocols_causes_a_rebalance(self) -> None:
        s = Scenario()
        both = (*RANGE, ("sticky", b""))
        _, follower = s.stable(2, protocols=both)
        s.restart()
        assert s.join(follower, protocols=both).is_parked
        assert s.state == "PreparingRebalance"

    def test_a_static_restart_does_not(self) -> None:
        s = Scenario()
        both = (*RANGE, ("sticky", b""))
        s.stable_static("a", "b", protocols=both)
        s.restart()
        assert s.join(instance="b", protocols=both).answer.generation == 1

    def test_a_group_that_had_never_synced_comes_back_empty_in_generation_zero(self) -> None:
        s = Scenario()
        s.completing(2)
        s.restart()
        assert (s.state, s.classic.data.generation) == ("Empty", 0)

    def test_a_missing_rebalance_timeout_is_the_session_timeout(self) -> None:
        s = Scenario()
        s.stable(1)
        record = s.last_group_record()
        old = record.members[0]._replace(rebalance_timeout_ms=-1)
        s.log.append(record._replace(members=(old,)))
        s.restart()
        assert s.classic.roster.rebalance_timeout_ms() == 10_000

    def test_a_stored_leader_that_is_no_member_is_replaced_by_the_first(self) -> None:
        s = Scenario()
        first, _ = s.stable(2)
        s.log.append(s.last_group_record()._replace(leader_id="gone"))
        s.restart()
        assert s.classic.roster.leader_id == first

    @pytest.mark.parametrize("topics_change", ["before", "after", "never"])
    def test_topics_that_changed_are_told_from_subscriptions_that_did(
        self, topics_change: str
    ) -> None:
        """A follower returned with fewer topics, and the group is restored with those: when its
        leader returns, what counts is whether partitions were added since the assignment.
        """
        s = Scenario()
        wide = (("range", subscription("t", "other")),)
        leader = s.join(instance="leader")
        follower = s.join(instance="follower", protocols=wide)
        s.advance(6 * SECOND)
        s.settle([leader.answer.member_id, follower.answer.member_id])
        s.partition_counts["t"] += topics_change == "before"
        s.join(instance="follower")
        s.partition_counts["t"] += topics_change == "after"
        s.restart()
        assert s.join(instance="leader").is_parked == (topics_change != "never")


class TestUnload:
    def test_parked_requests_are_sent_away_and_the_group_is_dead(self) -> None:
        s = Scenario()
        first, second = s.completing(2)
        parked_sync = s.sync(second)
        s.step(lambda: s.group.unload(ErrorCode.NOT_COORDINATOR, s.now))
        assert parked_sync.answer == SyncResult(ErrorCode.NOT_COORDINATOR)
        assert s.state == "Dead"
        s = Scenario()
        first, _ = s.preparing(2)
        parked_join = s.join(first)
        s.step(lambda: s.group.unload(ErrorCode.NOT_COORDINATOR, s.now))
        assert parked_join.answer == JoinResult(ErrorCode.NOT_COORDINATOR, first)

    def test_requests_of_a_dead_group_are_refused(self) -> None:
        s = Scenario()
        (member_id,) = s.stable(1)
        s.step(lambda: s.group.unload(ErrorCode.NOT_COORDINATOR, s.now))
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert s.join().answer.error is refused
        assert s.join(member_id).answer.error is refused
        assert s.sync(member_id).answer.error is refused
        assert s.heartbeat(member_id) is refused
        assert s.leave(member_id).error is refused
        assert s.commit_error(member_id=member_id, generation=1) is refused
        assert s.delete_offsets(("t", 0)).error is ErrorCode.GROUP_ID_NOT_FOUND
        assert s.delete() is ErrorCode.GROUP_ID_NOT_FOUND


class TestLateAppends:
    def test_a_commit_is_answered_and_counts_all_the_same_if_it_becomes_durable(self) -> None:
        s = Scenario()
        s.new_id()
        s.hold_appends = True
        ticket = s.commit()
        s.step(s.group.on_append_late)
        assert ticket.answer.errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        assert s.offset() is None
        s.finish_append()
        assert s.offset() == 42

    def test_members_that_wait_for_an_assignment_go_on_waiting(self) -> None:
        s = Scenario()
        leader, _ = s.completing(2)
        s.hold_appends = True
        ticket = s.sync(leader)
        s.step(s.group.on_append_late)
        assert ticket.is_parked
        s.finish_append()
        assert ticket.answer.error is ErrorCode.NONE

    def test_a_replacement_is_answered_and_stands_if_it_becomes_durable(self) -> None:
        s = Scenario()
        members = s.stable_static("a", "b")
        s.hold_appends = True
        ticket = s.join(instance="b")
        s.step(s.group.on_append_late)
        assert ticket.answer == JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        s.finish_append()
        assert s.heartbeat(members["b"], instance="b") is ErrorCode.FENCED_INSTANCE_ID
