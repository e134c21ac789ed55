"""Which rebalances there are, why each began, and how it ended."""

from kohort.groups.config import GroupConfig
from kohort.groups.events import TriggerKind
from kohort.groups.history.model import (
    LeaderChange,
    MemberFate,
    RebalanceOutcome,
    RebalanceRecord,
)
from kohort.groups.history.sentence import sentence
from kohort.groups.requests import LeaveEntry
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.chronicle import Chronicle
from tests.support.groups.scenario import MINUTE, SECOND, WALL_START_MS, subscription

OTHER = (("range", subscription("other")),)
BOTH = (("range", subscription("t")), ("sticky", subscription("t")))


def expire(s: Chronicle, *alive: str) -> None:
    """Time in which only these send heartbeats, until somebody else's session of 10 s has ended."""
    for _ in range(4):
        s.advance(3 * SECOND)
        for member_id in alive:
            s.heartbeat(member_id)


class TestCauses:
    """Every kind of trigger."""

    def test_a_new_dynamic_member(self) -> None:
        s = Chronicle()
        s.eager((0, 1, 2))
        member_id, _ = s.join_dynamic()
        trigger = s.running().trigger
        assert (trigger.kind, trigger.member_id) == (TriggerKind.MEMBER_ADDED, member_id)
        assert (trigger.client_id, trigger.host) == ("c", "/127.0.0.1")
        assert trigger.at_ms == WALL_START_MS + s.ms
        assert trigger.new_protocols == ("range",)

    def test_a_new_static_member(self) -> None:
        s = Chronicle()
        s.stable_static("one")
        s.join(instance="two")
        trigger = s.running().trigger
        assert (trigger.kind, trigger.instance_id) == (TriggerKind.STATIC_ADDED, "two")

    def test_a_static_member_that_comes_back_with_other_assignors(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two", protocols=BOTH)
        s.join(instance="two", protocols=BOTH[1:])
        record = s.running()
        assert record.trigger.kind is TriggerKind.STATIC_REPLACED
        assert record.trigger.old_protocols == ("range", "sticky")
        assert record.trigger.new_protocols == ("sticky",)
        replaced = s.member(members["two"], record)
        assert (replaced.fate, replaced.replaced_by) == (
            MemberFate.REPLACED,
            record.trigger.member_id,
        )

    def test_a_restored_member_that_offers_more_assignors_than_are_stored(self) -> None:
        def rejoined(place: int, reason: JoinReason) -> RebalanceRecord:
            s = Chronicle()
            members = list(s.stable_static("one", "two", protocols=BOTH).values())
            s.restart()
            s.join(members[place], protocols=BOTH, reason=reason)
            return s.running()

        told = "joined again with the same subscription, stating TOPIC_METADATA_CHANGE"
        for place in (0, 1):
            record = rejoined(place, JoinReason.TOPIC_METADATA_CHANGE)
            assert record.trigger.kind is TriggerKind.PROTOCOLS_CHANGED
            assert (record.trigger.old_protocols, record.trigger.new_protocols) == ((), ())
            assert told in sentence(record)

    def test_a_member_that_wants_something_else(self) -> None:
        s = Chronicle()
        _, follower = s.eager((0, 1), (2,))
        s.join(follower, protocols=OTHER)
        trigger = s.running().trigger
        assert (trigger.kind, trigger.row) == (TriggerKind.PROTOCOLS_CHANGED, 9)

    def test_a_leader_that_joins_again(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        s.join(leader)
        trigger = s.running().trigger
        assert (trigger.kind, trigger.was_leader) == (TriggerKind.LEADER_REJOINED, True)

    def test_a_member_that_states_a_reason_that_forces(self) -> None:
        s = Chronicle()
        _, follower = s.eager((0, 1), (2,))
        s.join(follower, reason=JoinReason.ENFORCED, text="because")
        trigger = s.running().trigger
        assert trigger.kind is TriggerKind.FORCED_BY_REASON
        assert (trigger.reason, trigger.reason_source) == ("ENFORCED", "tag")
        assert (trigger.reason_number, trigger.reason_text) == (6, "because")

    def test_a_reason_that_a_text_suggests_is_marked_as_a_guess(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        s.join(leader, text="cached metadata has changed from x to y")
        trigger = s.running().trigger
        assert (trigger.reason, trigger.reason_source) == ("TOPIC_METADATA_CHANGE", "text")
        assert trigger.reason_number is None

    def test_a_number_that_means_nothing_is_kept(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        s.join(leader, reason=99)
        trigger = s.running().trigger
        assert (trigger.reason, trigger.reason_source, trigger.reason_number) == (None, "tag", 99)

    def test_a_member_that_leaves(self) -> None:
        s = Chronicle()
        _, follower = s.eager((0, 1), (2,))
        s.leave(LeaveEntry(follower, reason="the consumer is being closed"))
        record = s.running()
        assert record.trigger.kind is TriggerKind.MEMBER_LEFT
        assert record.trigger.reason_text == "the consumer is being closed"
        assert (record.members_before, record.members_after) == (2, 1)
        left = s.member(follower, record)
        assert (left.fate, left.fate_ms) == (MemberFate.LEFT, 0)
        assert left.reason_text == "the consumer is being closed"

    def test_a_member_that_an_administrator_removes(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two")
        s.leave(LeaveEntry("", "two"))
        record = s.running()
        assert record.trigger.kind is TriggerKind.REMOVED_BY_ADMIN
        assert s.member(members["two"], record).fate is MemberFate.REMOVED_BY_ADMIN

    def test_a_session_that_ends(self) -> None:
        s = Chronicle()
        leader, silent = s.eager((0, 1), (2,))
        expire(s, leader)
        record = s.running()
        assert record.trigger.kind is TriggerKind.SESSION_EXPIRED
        assert record.trigger.session_timeout_ms == 10 * SECOND
        assert (record.trigger.removed, record.trigger.removed_count) == ((silent,), 1)
        assert s.member(silent, record).fate is MemberFate.SESSION_EXPIRED

    def test_a_new_member_whose_session_ends_is_a_further_cause(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        newcomer, _ = s.join_dynamic()
        s.heartbeat(newcomer)
        expire(s, leader)
        record = s.running()
        kinds = [cause.kind for cause in record.further_causes]
        assert TriggerKind.NEW_MEMBER_EXPIRED in kinds
        assert s.member(newcomer, record).fate is MemberFate.NEW_MEMBER_EXPIRED

    def test_members_that_do_not_fetch_their_assignment(self) -> None:
        s = Chronicle()
        leader, silent = s.completing(2, rebalance_timeout_ms=8 * SECOND)
        s.sync(leader, assignments={})
        for _ in range(3):
            s.advance(3 * SECOND)
            s.heartbeat(leader)
            s.heartbeat(silent)
        record = s.running()
        assert record.trigger.kind is TriggerKind.SYNC_EXPIRED
        assert record.trigger.rebalance_timeout_ms == 8 * SECOND
        assert s.member(silent, record).fate is MemberFate.SYNC_EXPIRED

    def test_an_assignment_that_cannot_be_stored(self) -> None:
        s = Chronicle()
        leader, _ = s.completing(2)
        s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        s.sync(leader, assignments={})
        failed, following = s.last, s.running()
        assert failed.outcome is RebalanceOutcome.STORE_FAILED
        assert failed.error == "NOT_COORDINATOR"
        assert following.trigger.kind is TriggerKind.STORE_FAILED
        assert (failed.superseded_by, following.follows) == (2, 1)

    def test_a_group_that_is_loaded_with_too_many_members(self) -> None:
        s = Chronicle()
        s.stable(3)
        s.config = GroupConfig(max_size=2)
        s.restart()
        assert s.running().trigger.kind is TriggerKind.OVER_CAPACITY


class TestAvoided:
    def test_a_leader_that_has_only_restarted(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        s.join(leader, reason=JoinReason.RESTART)
        (record,) = s.avoided_records
        assert record.trigger.kind is TriggerKind.LEADER_REJOINED
        assert (record.trigger.row, record.trigger.reason) == (13, "RESTART")
        assert (record.sequence, record.generation) == (2, 1)

    def test_a_follower_that_asks_for_what_only_the_leader_may(self) -> None:
        s = Chronicle()
        _, follower = s.eager((0, 1), (2,))
        s.join(follower, reason=JoinReason.TOPIC_METADATA_CHANGE)
        assert [record.trigger.row for record in s.avoided_records] == [12]

    def test_a_static_member_that_comes_back(self) -> None:
        s = Chronicle()
        s.stable_static("one", "two")
        s.join(instance="two")
        (record,) = s.avoided_records
        assert record.trigger.kind is TriggerKind.STATIC_REPLACED

    def test_a_follower_that_joins_again_and_says_why(self) -> None:
        s = Chronicle()
        _, follower = s.eager((0, 1), (2,))
        s.join(follower, reason=JoinReason.RESTART)
        (record,) = s.avoided_records
        assert record.trigger.kind is TriggerKind.FOLLOWER_REJOINED

    def test_one_that_comes_while_members_still_fetch_waits_for_their_record(self) -> None:
        s = Chronicle()
        leader, late = s.completing(2)
        s.assign({leader: (0,), late: (1,)}, late=(late,))
        s.join(leader, reason=JoinReason.RESTART)
        assert s.records == []
        s.sync(late)
        assert [record.sequence for record in s.records] == [1, 2]
        assert s.avoided_records == s.records[1:]


class TestOutcomes:
    def test_the_first_rebalance_of_a_group_waits_for_its_delay(self) -> None:
        s = Chronicle()
        first, second = s.eager((0, 1), (2,))
        record = s.last
        assert record.outcome is RebalanceOutcome.STABLE
        assert (record.initial, record.previous_state) == (True, "Empty")
        assert (record.previous_generation, record.generation) == (0, 1)
        assert record.timeline.extensions_ms == (3 * SECOND,)
        assert record.timeline.join_phase_ms == 6 * SECOND
        assert record.timeline.join_phase_end == "initial_delay"
        assert (record.waited_for.phase, record.waited_for.ms) == ("initial_delay", 6 * SECOND)
        assert [cause.member_id for cause in record.further_causes] == [second]
        assert (record.leader, record.leader_change) == (first, LeaderChange.FIRST)
        assert (record.members_before, record.members_after) == (0, 2)
        assert {member.fate for member in record.members} == {MemberFate.NEW}

    def test_a_group_that_everybody_leaves(self) -> None:
        s = Chronicle()
        (only,) = s.eager((0, 1, 2))
        s.leave(only)
        record = s.last
        assert record.outcome is RebalanceOutcome.EMPTY
        assert (record.previous_generation, record.generation) == (1, 2)
        assert (record.leader, record.leader_changed) == (None, False)
        assert (record.members_before, record.members_after) == (1, 0)
        assert (record.partitions.known, record.partitions.given_up) == (True, 3)
        s.eager((0, 1, 2))
        assert s.last.leader_change is LeaderChange.FIRST

    def test_one_that_another_takes_over_while_the_assignment_is_awaited(self) -> None:
        s = Chronicle()
        leader, follower = s.completing(2)
        s.advance(2 * SECOND)
        s.leave(follower)
        superseded, following = s.last, s.running()
        assert superseded.outcome is RebalanceOutcome.SUPERSEDED
        assert superseded.generation == 1
        assert superseded.timeline.finished_ms == 8 * SECOND
        assert (superseded.superseded_by, following.follows) == (2, 1)
        assert s.member(follower, superseded).fate is MemberFate.LEFT
        assert (superseded.waited_for.phase, superseded.waited_for.ms) == ("initial_delay", 6_000)
        assert following.previous_state == "CompletingRebalance"
        assert s.member(leader, superseded).stopped_open

    def test_a_member_that_left_is_in_only_one_record(self) -> None:
        s = Chronicle()
        leader, follower, gone = s.eager((0,), (1,), (2,))
        for shares in ((0, 2), (1,)), ((0,), (1, 2)):
            if s.member(gone).fate is not MemberFate.LEFT:
                s.leave(gone)
            else:
                s.join(leader)
            s.collect([lambda: s.join(leader), lambda: s.join(follower)])
            s.assign({leader: shares[0], follower: shares[1]})
        first, second, third = s.rebalances
        listed = [[member.member_id for member in one.members] for one in (first, second, third)]
        assert listed == [[leader, follower, gone], [leader, follower, gone], [leader, follower]]

    def test_a_rebalance_that_is_cut_short_by_the_end_of_the_broker(self) -> None:
        s = Chronicle()
        s.preparing(2)
        s.fold.stop()
        s.note(None)
        assert s.last.outcome is RebalanceOutcome.UNFINISHED
        assert (s.last.generation, s.last.timeline.finished_ms) == (None, None)


class TestLeaders:
    def test_a_leader_that_left_is_followed_by_another(self) -> None:
        s = Chronicle()
        leader, follower = s.eager((0, 1), (2,))
        s.leave(leader)
        s.join(follower)
        s.assign({follower: (0, 1, 2)})
        assert (s.last.leader, s.last.leader_change) == (follower, LeaderChange.LEFT)
        assert s.last.trigger.was_leader

    def test_a_leader_that_came_back_under_a_new_id(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two")
        s.join(instance="one", reason=JoinReason.UPGRADE)
        s.join(members["two"], instance="two")
        new_id = s.classic.roster.leader_id
        assert new_id is not None
        assert s.running().leader_change is LeaderChange.REPLACED
        assert s.running().leader == new_id

    def test_a_static_leader_whose_new_id_could_not_be_stored_leads_on(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two")
        s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        s.join(instance="one")
        s.fail_appends = None
        s.join(members["two"], instance="two", protocols=BOTH)
        s.join(members["one"], instance="one")
        s.settle(list(members.values()))
        assert (s.last.leader, s.last.leader_changed) == (members["one"], False)

    def test_a_static_leader_that_has_not_joined_in_time(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two", session_timeout_ms=30 * MINUTE)
        s.join(members["two"], instance="two", protocols=OTHER, session_timeout_ms=30 * MINUTE)
        s.advance(MINUTE)
        record = s.running()
        assert (record.leader, record.leader_change) == (members["two"], LeaderChange.ABSENT)
        assert record.timeline.join_phase_end == "timeout"
        assert record.waited_for.member_ids == (members["one"],)
        assert record.waited_for.ms == MINUTE


class TestTransactions:
    """What producers of transactions have to do with it."""

    def test_positions_that_open_transactions_hold_when_it_begins_are_counted(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        s.commit(producer_id=7)
        s.commit(producer_id=8)
        s.end_transaction(8)
        s.join(leader)
        assert s.running().pending_transactions == 1

    def test_commits_that_speak_of_a_former_member_are_told_by_the_next_record(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        s.settle_record()
        assert s.commit_error(producer_id=7, member_id="gone", generation=1) is (
            ErrorCode.UNKNOWN_MEMBER_ID
        )
        s.join(leader)
        assert s.running().fenced_commits == 1
        # One that comes while the group rebalances is told with it.
        s.commit(producer_id=7, member_id="gone", generation=1)
        assert s.running().fenced_commits == 2

    def test_a_plain_commit_that_is_refused_is_not_a_producers(self) -> None:
        s = Chronicle()
        leader, _ = s.eager((0, 1), (2,))
        s.settle_record()
        s.commit(member_id="gone", generation=1)
        s.join(leader)
        assert s.running().fenced_commits == 0
