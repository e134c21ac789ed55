"""Session timers: what prolongs a session, what does not, and what its end does."""

from collections.abc import Callable

import pytest

from kohort.groups.classic.member import Member
from kohort.groups.events import CauseAdded, RebalanceStarted
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import SECOND, Scenario

SESSION = 10 * SECOND


def member(s: Scenario, member_id: str) -> Member:
    found = s.classic.roster.get(member_id)
    assert found is not None
    return found


def session_left_ms(s: Scenario, member_id: str) -> int:
    return member(s, member_id).session_deadline_ms - s.ms


@pytest.mark.parametrize(
    ("act", "prolongs"),
    [
        (lambda s, member_id: s.heartbeat(member_id), True),
        (lambda s, member_id: s.heartbeat(member_id, 99), False),
        (lambda s, member_id: s.heartbeat(member_id, instance="nobody's"), False),
        (lambda s, member_id: s.commit(member_id=member_id, generation=1), True),
        (lambda s, member_id: s.commit(member_id=member_id, generation=1, producer_id=7), False),
        (lambda s, member_id: s.sync(member_id), False),
        (lambda s, member_id: s.join(member_id), False),
    ],
    ids=["heartbeat", "generation", "instance", "commit", "in a transaction", "sync", "join"],
)
def test_requests_that_prolong_the_session_of_a_stable_groups_member(
    act: Callable[[Scenario, str], object], *, prolongs: bool
) -> None:
    s = Scenario()
    _, follower = s.stable(2)
    s.ms += SECOND
    act(s, follower)
    assert session_left_ms(s, follower) == SESSION - (0 if prolongs else SECOND)


class TestWhatProlongs:
    def test_the_answer_of_a_parked_sync_does(self) -> None:
        s = Scenario()
        leader, follower = s.completing(2)
        s.sync(follower)
        s.ms += 5 * SECOND
        s.sync(leader)
        assert session_left_ms(s, follower) == SESSION
        assert session_left_ms(s, leader) == SESSION

    def test_the_end_of_the_join_phase_does(self) -> None:
        s = Scenario()
        first, second = s.preparing(2)
        s.join(first)
        s.ms += SECOND
        s.join(second)
        assert session_left_ms(s, first) == session_left_ms(s, second) == SESSION

    def test_a_replacement_does_with_its_own_timeout(self) -> None:
        s = Scenario()
        s.stable_static("a")
        s.ms += SECOND
        answer = s.join(instance="a", session_timeout_ms=99 * SECOND).answer
        assert session_left_ms(s, answer.member_id) == 99 * SECOND


class TestTheEnd:
    def test_members_that_die_together_make_one_rebalance(self) -> None:
        s = Scenario()
        leader, *others = s.stable(50)
        s.ms += SECOND
        s.heartbeat(leader)
        fired = s.timers_fired
        s.events.clear()
        s.advance(9 * SECOND)
        (start,) = s.told(RebalanceStarted)
        causes = [start.trigger, *(event.trigger for event in s.told(CauseAdded))]
        assert [cause.removed for cause in causes] == [(member_id,) for member_id in others]
        assert s.timers_fired - fired == 50
        assert [one.member_id for one in s.classic.roster] == [leader]


class TestParkedMembers:
    def test_a_member_whose_join_is_parked_does_not_expire(self) -> None:
        s = Scenario()
        first, second = s.preparing(2, session_timeout_ms=SESSION)
        ticket = s.join(first)
        for _ in range(5):
            s.heartbeat(second)
            s.advance(9 * SECOND)
        assert ticket.is_parked
        assert first in s.classic.roster

    def test_a_member_whose_sync_is_parked_does_not_expire(self) -> None:
        s = Scenario()
        leader, follower = s.completing(2)
        parked = s.sync(follower)
        for _ in range(5):
            s.heartbeat(leader)
            s.advance(9 * SECOND)
        assert parked.is_parked
        assert follower in s.classic.roster


class TestLaziness:
    def test_a_heartbeat_of_a_stable_group_asks_the_shell_for_nothing(self) -> None:
        s = Scenario()
        _, follower = s.stable(2)
        s.ms += SECOND
        assert s.classic.heartbeat(follower, None, 1, s.ms) is ErrorCode.NONE
        assert not s.group.has_effects

    def test_a_timer_that_comes_too_early_looks_again_at_the_end_of_the_session(self) -> None:
        s = Scenario()
        leader, follower = s.stable(2)
        s.advance(8 * SECOND)
        s.heartbeat(leader)
        s.heartbeat(follower)
        fired = s.timers_fired
        s.advance(8 * SECOND)
        assert s.timers_fired - fired == 2
        assert s.state == "Stable"
        s.advance(2 * SECOND)
        assert s.state == "Empty"

    def test_a_session_that_becomes_shorter_moves_its_timer(self) -> None:
        s = Scenario()
        member_id, _ = s.join_dynamic()
        assert s.timers[next(key for key in s.timers if key.kind == "session")] == s.ms + 300_000
        s.advance(3 * SECOND)
        assert s.state == "CompletingRebalance"
        key = next(key for key in s.timers if key.kind == "session")
        assert s.timers[key] == s.ms + SESSION
        assert key.member_id == member_id

    def test_an_expiry_that_was_overtaken_does_nothing(self) -> None:
        s = Scenario()
        leader, follower = s.stable(2)
        keys = [key for key in s.timers if key.kind == "session"]
        s.advance(SESSION - 1)
        s.heartbeat(leader)
        s.heartbeat(follower)
        s.ms += 1
        for key in keys:
            del s.timers[key]
        s.step(lambda: s.group.on_deadlines(keys, s.now))
        assert s.state == "Stable"
        assert set(s.timers) >= set(keys)

    def test_an_expiry_of_a_member_that_left_does_nothing(self) -> None:
        s = Scenario()
        leader, follower = s.stable(2)
        keys = [key for key in s.timers if key.member_id == follower]
        s.leave(follower)
        s.ms += 1_000 * SECOND
        events = len(s.events)
        s.step(lambda: s.group.on_deadlines(keys, s.now))
        assert len(s.events) == events
        assert leader in s.classic.roster

    def test_an_expired_join_timer_that_was_cancelled_does_nothing(self) -> None:
        s = Scenario()
        first, second = s.preparing(2)
        keys = [key for key in s.timers if key.kind == "join"]
        s.join(first)
        s.join(second)
        assert s.state == "CompletingRebalance"
        s.step(lambda: s.group.on_deadlines(keys, s.now))
        assert (s.state, s.classic.data.generation) == ("CompletingRebalance", 2)
