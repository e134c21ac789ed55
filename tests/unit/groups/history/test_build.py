"""What a record says of its members: who waited for whom, who stood still, what moved."""

from dataclasses import replace

import pytest

from kohort.groups.config import GroupConfig
from kohort.groups.history import names
from kohort.groups.history.evidence import evidence
from kohort.groups.history.model import MemberFate, RebalanceOutcome, WaitedFor
from kohort.groups.history.sentence import sentence
from kohort.groups.requests import LeaveEntry
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.chronicle import Chronicle, owning, share
from tests.support.groups.scenario import MINUTE, SECOND


def test_the_software_of_a_static_member_is_that_of_its_present_process() -> None:
    s = Chronicle()
    ids = s.stable_static("one", "two", client_software="unknown unknown")
    assert {member.client_software_name for member in s.last.members} == {"unknown"}
    second = s.join(instance="two", client_software="apache-kafka-java 4.4.0").answer.member_id
    s.leave(LeaveEntry(ids["one"], "one"))
    s.join(second, instance="two", client_software="apache-kafka-java 4.4.0")
    s.assign({second: (0, 1)})
    member = s.member(second)
    assert member.client_software_name == "apache-kafka-java"
    assert member.client_software_version == "4.4.0"


def test_software_is_unknown_after_a_restart_until_the_member_joins() -> None:
    s = Chronicle()
    leader, follower = s.eager((0,), (1,))
    s.restart()
    s.join(leader, client_software="librdkafka 2.17.0")
    s.leave(follower)
    assert s.member(follower, s.running()).client_software_name is None
    s.assign({leader: (0, 1)})
    assert s.member(leader).client_software_version == "2.17.0"


class TestWaiting:
    def test_the_last_to_join_is_waited_for_since_the_one_before_it(self) -> None:
        s = Chronicle()
        first, second, third = s.eager((0,), (1,), (2,))
        s.leave(third)
        s.advance(500)
        s.join(first)
        s.advance(2_900)
        s.join(second)
        s.assign({first: (0, 2), second: (1,)})
        assert s.last.waited_for == WaitedFor(phase="join", member_ids=(second,), ms=2_900)

    def test_all_that_come_in_the_last_moment_are_named(self) -> None:
        s = Chronicle()
        first, second, third, fourth = s.eager((0,), (1,), (2,), ())
        s.leave(fourth)
        s.join(first)
        s.advance(900)
        s.join(second)
        s.join(third)
        assert s.running().waited_for == WaitedFor(phase="join", member_ids=(second, third), ms=900)

    def test_a_member_that_never_comes_is_who_was_waited_for(self) -> None:
        s = Chronicle()
        first, silent, leaver = s.eager((0,), (1,), (2,))
        s.leave(leaver)
        s.advance(SECOND)
        s.join(first)
        for _ in range(60):
            s.heartbeat(silent)
            s.advance(SECOND)
        record = s.running()
        assert record.timeline.join_phase_end == "timeout"
        assert record.waited_for == WaitedFor(
            phase="join", member_ids=(silent,), ms=MINUTE - SECOND, were_told=True
        )
        assert s.member(silent, record).fate is MemberFate.REBALANCE_TIMEOUT

    def test_an_id_that_no_one_used_is_waited_for_too(self) -> None:
        s = Chronicle()
        first, leaver = s.eager((0,), (1,))
        unused = s.new_id()
        s.leave(leaver)
        s.join(first)
        s.advance(10 * SECOND)
        assert s.running().waited_for == WaitedFor(
            phase="join", pending_ids=(unused,), ms=10 * SECOND
        )

    def test_a_leader_that_takes_longer_than_the_joins_is_waited_for(self) -> None:
        s = Chronicle()
        first, second, third = s.eager((0,), (1,), (2,))
        s.leave(third)
        s.join(first)
        s.advance(200)
        s.join(second)
        s.sync(second)
        s.advance(700)
        s.assign({first: (0, 2), second: (1,)})
        assert s.last.waited_for == WaitedFor(phase="sync", member_ids=(first,), ms=700)
        assert s.last.timeline.join_phase_ms == 200
        assert s.last.timeline.leader_synced_ms == 900

    def test_a_slow_disk_is_waited_for(self) -> None:
        s = Chronicle()
        (only,) = s.eager((0,))
        s.join(only)
        s.hold_appends = True
        s.sync(only, assignments={only: share(0)})
        s.advance(300)
        s.finish_append()
        assert s.last.waited_for == WaitedFor(phase="store", ms=300)
        assert (s.last.timeline.leader_synced_ms, s.last.timeline.durable_ms) == (0, 300)

    def test_static_members_that_are_all_away_stall_it(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two", session_timeout_ms=30 * MINUTE)
        s.leave(LeaveEntry(members["two"], "two"))
        s.advance(2 * MINUTE)
        assert s.running().timeline.stalled_ms == (MINUTE, 2 * MINUTE)


class TestTimelines:
    def test_every_moment_of_an_eager_member(self) -> None:
        s = Chronicle()
        first, second, leaver = s.eager((0,), (1,), (2,))
        s.leave(leaver)
        s.advance(100)
        s.heartbeat(second)
        s.advance(100)
        s.heartbeat(second)
        s.join(second, reason=JoinReason.GROUP_REBALANCING)
        s.advance(300)
        s.join(first)
        s.advance(50)
        s.sync(second)
        s.advance(50)
        s.assign({first: (0, 2), second: (1,)})
        found = s.member(second)
        assert (found.role, found.fate, found.mode) == ("follower", MemberFate.KEPT, "eager")
        assert (found.told_ms, found.join_received_ms, found.join_answered_ms) == (100, 200, 500)
        assert (found.sync_received_ms, found.sync_answered_ms) == (550, 600)
        assert (found.reason, found.reason_source) == ("GROUP_REBALANCING", "tag")
        assert (found.stopped_ms, found.stopped_open) == (400, False)
        assert s.member(first).role == "leader"
        stopped = s.last.stopped
        assert (stopped.member_count, stopped.longest_ms, stopped.total_ms) == (2, 400, 500)

    def test_members_that_fetch_late_hold_up_the_record_and_not_the_group(self) -> None:
        s = Chronicle()
        first, late = s.completing(2)
        s.assign({first: (0,), late: (1,)}, late=(late,))
        assert s.records == []
        s.advance(2 * SECOND)
        s.sync(late)
        assert s.member(late).sync_answered_ms == 8 * SECOND
        assert s.member(first).sync_answered_ms == 6 * SECOND
        assert s.last.timeline.finished_ms == 6 * SECOND

    def test_one_that_never_fetches_is_open(self) -> None:
        s = Chronicle()
        first, late = s.completing(2)
        s.assign({first: (0,), late: (1,)}, late=(late,))
        s.advance(4 * SECOND)
        s.settle_record()
        found = s.member(late)
        assert (found.stopped_open, found.stopped_ms) == (True, 10 * SECOND)
        assert found.sync_answered_ms is None
        assert s.last.stopped.open_count == 1

    def test_who_waits_while_it_is_replaced_is_fenced(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two", "three")
        s.leave(LeaveEntry(members["three"], "three"))
        s.join(members["two"], instance="two")
        s.join(instance="two")
        record = s.running()
        fenced = s.member(members["two"], record)
        assert fenced.fate is MemberFate.FENCED
        successor = s.member(fenced.replaced_by or "", record)
        assert successor.fate is MemberFate.KEPT


class TestPartitions:
    def test_what_one_gives_up_and_another_gains_has_moved(self) -> None:
        s = Chronicle()
        first, second, leaver = s.eager((0, 1), (2, 3), (4,))
        s.leave(leaver)
        s.join(first)
        s.join(second)
        s.assign({first: (0, 2, 4), second: (3,)})
        counts = s.last.partitions
        assert counts.known
        assert (counts.kept, counts.moved, counts.gained, counts.given_up) == (2, 2, 2, 3)
        assert s.member(first).partitions.gained == ("t-2", "t-4")
        assert s.member(first).partitions.given_up == ("t-1",)
        assert s.member(leaver).partitions.given_up_count == 1

    def test_a_static_member_under_a_new_id_keeps_what_it_had(self) -> None:
        s = Chronicle()
        members = s.stable_static("one", "two")
        s.join(members["one"], instance="one")
        s.join(members["two"], instance="two")
        s.assign({members["one"]: (0,), members["two"]: (1, 2)})
        # Quietly first, and again as a part of a rebalance.
        quiet = s.join(instance="two").answer.member_id
        s.join(members["one"], instance="one")
        s.join(instance="two")
        new_id = next(m.member_id for m in s.classic.roster if m.instance_id == "two")
        assert new_id not in {quiet, members["two"]}
        s.assign({members["one"]: (0,), new_id: (1, 2)})
        counts = s.last.partitions
        assert (counts.kept, counts.moved, counts.gained, counts.given_up) == (3, 0, 0, 0)

    @pytest.mark.parametrize(
        "hostile",
        [
            b"\0",
            b"of me",
            b"\0\1\x7f\xff\xff\xff",
            b"\0\1\0\0\0\1\0\1t\x7f\xff\xff\xff",
            b"\0\1" + b"\xff" * 40,
            b"\0\0\0\0\0\1" + b"\0\1t\0\0\0\1\0\0\0",
            b"x" * (names.ASSIGNMENT_BYTES_MAX + 1),
        ],
    )
    def test_an_assignment_that_cannot_be_read_makes_them_unknown(self, hostile: bytes) -> None:
        s = Chronicle()
        (only,) = s.eager((0,))
        s.join(only)
        s.sync(only, assignments={only: hostile})
        assert s.last.outcome is RebalanceOutcome.STABLE
        assert not s.last.partitions.known
        assert not s.member(only).partitions.known
        assert s.last.partitions.kept == 0

    @pytest.mark.parametrize(
        "hostile",
        [
            b"",
            b"\0",
            b"\0\1\xff",
            b"\0\1" + b"\x7f" * 64,
            b"\0\3\0\0\0\0\xff\xff",
            b"\0\1" * 200_000,
        ],
    )
    def test_hostile_subscriptions_are_read_as_eager(self, hostile: bytes) -> None:
        s = Chronicle()
        (only,) = s.completing(1, protocols=(("range", hostile),))
        s.assign({only: (0,)})
        assert s.member(only).mode == "eager"
        assert s.last.partitions.gained == 1

    def test_other_types_of_groups_hide_what_they_share(self) -> None:
        s = Chronicle()
        (only,) = s.completing(1, protocol_type="connect")
        s.sync(only, assignments={only: share(0)})
        assert s.last.protocol_type == "connect"
        assert not s.last.partitions.known
        assert s.member(only).stopped_ms == 3 * SECOND


class TestCooperative:
    def test_what_is_kept_never_stops_and_what_moves_stops_until_the_second_round(self) -> None:
        s = Chronicle()
        (first,) = s.cooperative((0, 1, 2, 3))
        newcomer = s.new_id(protocols=owning())
        s.join(newcomer, protocols=owning())
        s.advance(200)
        s.join(first, protocols=owning(0, 1, 2, 3))
        s.assign({first: (0, 1), newcomer: ()})
        taking = s.last
        assert (taking.partitions.kept, taking.partitions.given_up) == (2, 2)
        assert (taking.partitions.moved, taking.partitions.gained) == (0, 0)
        giver = s.member(first)
        assert (giver.mode, giver.stopped_ms, giver.stopped_open) == ("cooperative", 0, True)
        s.advance(700)
        s.join(first, protocols=owning(0, 1), text="need to revoke partitions and re-join")
        s.advance(100)
        s.join(newcomer, protocols=owning())
        s.assign({first: (0, 1), newcomer: (2, 3)})
        giving = s.last
        assert giving.follows == taking.sequence
        assert giving.trigger.reason == "PARTITIONS_REVOKED"
        assert (giving.partitions.moved, giving.partitions.gained) == (2, 2)
        gainer = s.member(newcomer)
        assert (gainer.stopped_ms, gainer.stopped_open) == (800, False)
        assert s.member(first).stopped_ms == 0
        assert s.taken == {}

    def test_one_that_joined_reads_on_while_others_are_waited_for(self) -> None:
        s = Chronicle()
        first, second, third = s.cooperative((0, 1), (2,), (3,))
        s.leave(third)
        s.join(first, protocols=owning(0, 1))
        s.advance(900)
        running = s.running()
        member = s.member(first, running)
        assert (member.mode, member.stopped_ms, running.stopped.member_count) == (
            "cooperative",
            0,
            0,
        )
        assert running.waited_for.member_ids == (second,)

    def test_what_a_member_was_not_told_to_give_up_stops_when_it_is_told(self) -> None:
        s = Chronicle()
        first, second = s.cooperative((0, 1, 2), (3, 4, 5))
        newcomer = s.new_id(protocols=owning())
        s.join(newcomer, protocols=owning())
        s.join(first, protocols=owning(0, 1, 2))
        s.join(second, protocols=owning(3, 4, 5))
        s.assign({first: (0, 1), second: (3, 4), newcomer: ()}, late=(second,))
        # Another rebalance begins before it has synced, and it still owns what it had.
        s.advance(50)
        s.join(first, protocols=owning(0, 1))
        s.advance(900)
        s.join(newcomer, protocols=owning())
        s.join(second, protocols=owning(3, 4, 5))
        s.assign({first: (0, 1), second: (3, 4), newcomer: (2,)})
        assert s.member(newcomer).stopped_ms == 950

        s.advance(2_500)
        s.join(second, protocols=owning(3, 4))
        s.join(first, protocols=owning(0, 1))
        s.join(newcomer, protocols=owning(2))
        s.assign({first: (0, 1), second: (3, 4), newcomer: (2, 5)})
        assert s.member(newcomer).stopped_ms == 2_500
        assert s.taken == {}

    def test_partitions_of_a_member_that_left_stop_when_it_went(self) -> None:
        s = Chronicle()
        first, second = s.cooperative((0, 1), (2,))
        s.leave(second)
        s.advance(600)
        s.join(first, protocols=owning(0, 1))
        s.assign({first: (0, 1, 2)})
        assert (s.member(first).stopped_ms, s.last.partitions.moved) == (600, 1)
        assert s.last.stopped.longest_ms == 600
        text = "got partitions that had no owner for 600 ms"
        assert f"1 member {text}" in sentence(s.last)
        assert sum(text in line for line in evidence(s.last)) == 1

    def test_one_that_lost_all_it_had_stopped_like_an_eager_one(self) -> None:
        s = Chronicle()
        first, loser = s.cooperative((0, 1), (2,))
        s.join(loser, protocols=owning(), reason=JoinReason.MEMBERSHIP_LOST)
        s.join(loser, protocols=owning(), reason=JoinReason.ENFORCED)
        s.advance(400)
        s.join(first, protocols=owning(0, 1))
        s.assign({first: (0, 1), loser: (2,)})
        assert (s.member(loser).mode, s.member(loser).stopped_ms) == ("eager", 400)
        assert "1 member stopped for 400 ms" in sentence(s.last)


class TestBounds:
    def test_a_large_group_is_cut_to_the_members_that_explain_most(self) -> None:
        s = Chronicle()
        members = s.eager(*[(index,) for index in range(30)])
        leader, *others = members
        slow, gone = others[20], others[25]
        s.leave(gone)
        s.join(slow)
        s.advance(50)
        for member_id in others:
            if member_id not in {slow, gone}:
                s.join(member_id)
        s.advance(500)
        s.join(leader)
        whole, cut = s.running(), s.running(members_listed=4)
        assert (whole.members_dropped, len(whole.members)) == (0, 30)
        assert (cut.members_dropped, len(cut.members)) == (26, 4)
        assert {leader, slow, gone} <= {member.member_id for member in cut.members}
        assert replace(cut, members=(), members_dropped=0) == replace(whole, members=())

    def test_further_causes_are_counted_beyond_those_that_are_listed(self) -> None:
        s = Chronicle()
        s.eager((0,))
        for _ in range(names.CAUSES_LISTED + 5):
            s.join_dynamic()
        record = s.running()
        assert len(record.further_causes) == names.CAUSES_LISTED
        assert record.further_causes_dropped == 4

    def test_long_ids_and_texts_are_cut(self) -> None:
        s = Chronicle()
        member_id = s.new_id(client_id="c" * 30_000)
        s.join(member_id, client_id="c" * 30_000, text="because " * 1_000)
        found = s.running()
        assert len(found.trigger.member_id or "") <= names.ID_CHARS
        assert (found.trigger.member_id or "").endswith(member_id[-10:])
        assert len(found.trigger.client_id or "") <= names.ID_CHARS
        assert len(found.trigger.reason_text or "") <= names.TEXT_CHARS

    def test_lists_of_ids_are_cut(self) -> None:
        s = Chronicle()
        members = s.completing(names.IDS_LISTED + 20)
        s.advance(61 * SECOND)
        triggers = [record.trigger for record in s.rebalances] + [
            cause for record in s.rebalances for cause in record.further_causes
        ]
        if s.fold.open is not None:
            triggers.append(s.running().trigger)
        longest = max(triggers, key=lambda trigger: trigger.removed_count)
        assert len(longest.removed) <= names.IDS_LISTED
        assert len(members) == names.IDS_LISTED + 20

    def test_partitions_are_counted_beyond_those_that_are_listed(self) -> None:
        s = Chronicle()
        s.eager(tuple(range(200)))
        (only,) = s.last.members
        assert only.partitions.gained_count == s.last.partitions.gained == 200
        assert len(only.partitions.gained) == names.PARTITIONS_LISTED
        assert only.partitions.gained[0] == "t-0"

    def test_members_that_come_and_go_do_not_pile_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kohort.groups.history.facts.GONE_KEPT", 5)
        s = Chronicle()
        s.preparing(2)
        for _ in range(12):
            member_id, _ = s.join_dynamic()
            s.leave(member_id)
        assert s.fold.open is not None
        assert len(s.fold.open.gone) == 5
        assert len(s.fold.open.joins) <= 6
        record = s.running()
        assert record.members_dropped == 8

    def test_strangers_do_not_pile_up(self) -> None:
        s = Chronicle(GroupConfig(max_size=2))
        s.preparing(1)
        s.join_dynamic()
        s.join(next(iter(s.classic.roster)).member_id)
        for number in range(300):
            s.join(f"stranger-{number}")
        assert s.fold.open is not None
        assert len(s.fold.open.gone) <= names.STRANGERS_KEPT
