"""From PreparingRebalance to answered joins: begin, collect, complete, and who is told what."""

import pytest

from kohort.groups.events import JoinPhaseEnded, JoinPhaseStalled
from tests.support.groups.scenario import SECOND, Scenario, Ticket


def rejoin(s: Scenario, members: list[str]) -> list[Ticket]:
    return [s.join(member_id) for member_id in members]


def test_an_immediately_answered_join_does_not_prolong_the_session() -> None:
    s = Scenario()
    _, follower = s.stable(2)
    member = s.classic.roster.get(follower)
    assert member is not None
    deadline_ms = member.session_deadline_ms
    s.ms += SECOND
    assert s.join(follower).answer.generation == 1
    assert member.session_deadline_ms == deadline_ms


class TestBegin:
    def test_from_completing_the_sync_timer_ends(self) -> None:
        s = Scenario()
        _, follower = s.completing(2)
        assert s.classic.data.pending_sync
        s.leave(follower)
        assert not s.classic.data.pending_sync
        assert not any(key.kind == "sync" for key in s.timers)

    def test_the_join_timer_is_the_longest_rebalance_timeout_at_that_moment(self) -> None:
        s = Scenario()
        first, _ = s.join_dynamic(rebalance_timeout_ms=20 * SECOND)
        second, _ = s.join_dynamic(rebalance_timeout_ms=90 * SECOND)
        s.advance(6 * SECOND)
        s.settle([first, second])
        s.join(first, rebalance_timeout_ms=20 * SECOND)
        assert s.classic.waiting_for() == ((second,), s.ms + 90 * SECOND)

    def test_a_later_larger_timeout_does_not_re_arm_it(self) -> None:
        s = Scenario()
        members = s.preparing(2)
        _, deadline_ms = s.classic.waiting_for()
        s.join(members[0], rebalance_timeout_ms=1_000 * SECOND)
        s.join(requires_known_id=False, rebalance_timeout_ms=2_000 * SECOND)
        assert s.classic.waiting_for()[1] == deadline_ms


class TestAllJoined:
    def test_an_unused_id_delays_it_no_longer_than_the_rebalance_timeout(self) -> None:
        s = Scenario()
        (member_id,) = s.stable(1, rebalance_timeout_ms=5 * SECOND)
        unused = s.new_id(session_timeout_ms=1_000 * SECOND)
        ticket = s.join(member_id, rebalance_timeout_ms=5 * SECOND)
        s.advance(5 * SECOND)
        assert ticket.answer.generation == 2
        assert unused in s.classic.roster.pending


class TestCompletion:
    def test_static_members_stay_and_are_part_of_the_generation(self) -> None:
        s = Scenario()
        members = s.stable_static("a", "b", session_timeout_ms=1_000 * SECOND)
        ticket = s.join(members["a"], instance="a", session_timeout_ms=1_000 * SECOND)
        s.advance(60 * SECOND)
        answer = ticket.answer
        assert {member.member_id for member in answer.members} == set(members.values())
        assert s.told(JoinPhaseEnded)[-1].absent == (members["b"],)

    def test_a_leader_that_did_not_join_is_followed_by_the_first_that_did(self) -> None:
        s = Scenario()
        leader, second, third = s.preparing(3, session_timeout_ms=1_000 * SECOND)
        tickets = rejoin(s, [third, second])
        s.advance(60 * SECOND)
        assert {ticket.answer.leader for ticket in tickets} == {second}
        assert leader not in s.classic.roster

    def test_if_only_absent_static_members_remain_it_waits_once_more(self) -> None:
        s = Scenario()
        members = s.stable_static("a", "b", session_timeout_ms=1_000 * SECOND)
        dynamic, _ = s.join_dynamic(session_timeout_ms=1_000 * SECOND)
        s.leave(dynamic)
        s.advance(60 * SECOND)
        assert s.state == "PreparingRebalance"
        assert s.classic.data.generation == 1
        assert s.told(JoinPhaseStalled)[-1].waiting_for == tuple(members.values())
        assert s.classic.waiting_for()[1] == s.ms + 60 * SECOND
        ticket = s.join(members["b"], instance="b")
        s.advance(60 * SECOND)
        assert ticket.answer.leader == members["b"]

    def test_everybody_has_a_session_from_here_on_also_those_that_were_absent(self) -> None:
        s = Scenario()
        members = s.stable_static("a", "b", session_timeout_ms=70 * SECOND)
        s.join(members["a"], instance="a", session_timeout_ms=70 * SECOND)
        s.advance(60 * SECOND)
        deadlines = {member.session_deadline_ms for member in s.classic.roster}
        assert deadlines == {s.ms + 70 * SECOND}
        assert not any(member.is_new for member in s.classic.roster)

    def test_the_session_of_a_member_that_is_waited_for_runs_on(self) -> None:
        s = Scenario()
        alive, dead, leaver = s.stable(3)
        s.advance(2 * SECOND)
        s.heartbeat(alive)
        s.leave(leaver)
        s.join(alive)
        waiting = s.classic.describe_waiting()
        assert waiting is not None
        assert waiting.members == (s.classic.roster[dead].ref,)
        assert waiting.session_ends_ms == (s.ms + 8 * SECOND,)
        assert waiting.until_ms == s.ms + 60 * SECOND
        s.advance(8 * SECOND - 1)
        assert dead in s.classic.roster
        s.advance(1)
        assert dead not in s.classic.roster
        assert s.state == "CompletingRebalance"

    def test_everybody_has_yet_to_sync(self) -> None:
        s = Scenario()
        members = s.completing(3)
        assert s.classic.waiting_for() == (tuple(members), s.ms + 60 * SECOND)


class TestProtocolSelection:
    @pytest.mark.parametrize(
        ("lists", "chosen"),
        [
            (["a b", "a b"], "a"),
            (["a b", "b a", "b a"], "b"),
            (["a b", "b"], "b"),
            # A tie goes to what stands first in the leader's list.
            (["a b", "b a"], "a"),
            (["b a", "a b"], "b"),
            # c has most first places, but not all members offer it.
            (["a b", "c a b", "c b a"], "a"),
            (["a b c", "b a", "a b"], "a"),
        ],
    )
    def test_each_member_votes_for_the_first_name_that_all_offer(
        self, lists: list[str], chosen: str
    ) -> None:
        s = Scenario()
        tickets = [
            s.join_dynamic(protocols=tuple((name, b"") for name in names.split()))[1]
            for names in lists
        ]
        s.advance(6 * SECOND)
        assert {ticket.answer.protocol_name for ticket in tickets} == {chosen}
