"""What records tell beside cause and times: silences, timeouts, new partitions, a second death."""

import pytest

from kohort.groups.events import TriggerKind
from kohort.groups.history.model import RebalanceOutcome
from kohort.groups.history.sentence import sentence
from kohort.groups.requests import LeaveEntry
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.chronicle import Chronicle, owning
from tests.support.groups.scenario import SECOND

SUBSCRIBED = owning()
"""With topics that the broker can read: t."""


def test_a_static_return_tells_how_long_the_old_process_was_silent() -> None:
    s = Chronicle()
    members = s.stable_static("one", "two")
    s.advance(2 * SECOND)
    s.heartbeat(members["two"], instance="two")
    s.advance(7 * SECOND)
    s.join(instance="two")

    (avoided,) = s.avoided_records
    assert avoided.trigger.silent_ms == 7 * SECOND
    assert "came back under a new member id, 7 s after it was last heard of" in sentence(avoided)


def test_a_static_return_amid_a_rebalance_tells_it_as_well() -> None:
    s = Chronicle()
    s.stable_static("one", "two")
    s.advance(4 * SECOND)
    s.join(instance="three")
    s.join(instance="two")

    (cause,) = s.running().further_causes
    assert (cause.kind, cause.silent_ms) == (TriggerKind.STATIC_REPLACED, 4 * SECOND)


def test_the_silence_of_a_process_that_waits_for_us_says_nothing() -> None:
    s = Chronicle()
    members = s.stable_static("one", "two")
    s.join(instance="three")
    s.join(members["two"], instance="two")
    s.advance(4 * SECOND)
    s.join(instance="two")

    (cause,) = s.running().further_causes
    assert (cause.kind, cause.silent_ms) == (TriggerKind.STATIC_REPLACED, None)


def test_each_member_that_joined_is_listed_with_its_timeouts() -> None:
    s = Chronicle()
    first, second = s.eager((0, 1), (2,))
    s.join(first, session_timeout_ms=20 * SECOND, rebalance_timeout_ms=90 * SECOND)

    joined, missing = (s.member(one, s.running()) for one in (first, second))
    assert (joined.session_timeout_ms, joined.rebalance_timeout_ms) == (20_000, 90_000)
    assert (missing.session_timeout_ms, missing.rebalance_timeout_ms) == (None, None)


def test_a_leader_that_saw_new_partitions_is_said_to_have_cause() -> None:
    s = Chronicle()
    leader, _ = s.cooperative((0, 1), (2,))
    s.advance(SECOND)
    s.grown = {"t": s.now.wall_ms, "other": s.now.wall_ms}
    s.advance(4 * SECOND)
    s.join(leader, protocols=SUBSCRIBED)

    trigger = s.running().trigger
    assert (trigger.grown_topics, trigger.grown_ms) == (("t",), 4 * SECOND)
    assert "joined again, 4 s after topic t was given more partitions" in sentence(s.running())


def lose_second(s: Chronicle) -> str:
    """The session of the second member expires."""
    first, second = s.eager((0, 1), (2,))
    s.advance(6 * SECOND)
    s.heartbeat(first)
    s.advance(4 * SECOND)
    return second


def test_a_process_that_uses_its_former_member_id_was_paused() -> None:
    s = Chronicle()
    second = lose_second(s)
    s.heartbeat(second)
    s.join_dynamic()
    (cause,) = s.running().further_causes
    assert cause.same_process is True
    assert cause.away_ms == 10 * SECOND
    # It is known by its return, and only once.
    s.join_dynamic()
    assert s.running().further_causes[-1].same_process is None


def test_a_process_that_joins_on_the_connection_of_its_former_member_was_paused() -> None:
    s = Chronicle()
    second = lose_second(s)
    s.join_dynamic(former_member_id=second)
    (cause,) = s.running().further_causes
    assert cause.same_process is True


def test_a_process_of_the_same_name_that_shows_no_sign_of_the_former_one_is_another() -> None:
    s = Chronicle()
    lose_second(s)
    s.join_dynamic()
    (cause,) = s.running().further_causes
    assert cause.same_process is False


def test_a_member_that_left_was_not_lost() -> None:
    s = Chronicle()
    _, second = s.eager((0, 1), (2,))
    s.leave(second)
    s.join_dynamic()
    (cause,) = s.running().further_causes
    assert cause.same_process is None


def test_partitions_that_came_before_the_last_assignment_are_no_cause() -> None:
    s = Chronicle()
    s.grown = {"t": s.now.wall_ms}
    leader, _ = s.cooperative((0, 1), (2,))
    s.join(leader, protocols=SUBSCRIBED)

    assert s.running().trigger.grown_topics == ()


def test_a_second_death_that_ended_the_wait_is_in_the_sentence() -> None:
    s = Chronicle()
    first, second, third = s.eager((0,), (1,), (2,))
    s.advance(6 * SECOND)
    s.heartbeat(first)
    s.leave(third)
    s.advance(SECOND)
    s.heartbeat(first)
    s.join(first)
    s.advance(3 * SECOND)
    s.assign({first: (0, 1, 2)})

    assert f"it waited 3 s for member {second}, which missed its session timeout of 10 s" in (
        sentence(s.last)
    )


def test_of_several_that_were_waited_for_the_one_that_died_is_named() -> None:
    s = Chronicle()
    first, second, third, fourth = s.eager((0,), (1,), (2,), ())
    s.advance(6 * SECOND)
    s.leave(fourth)
    for member in (first, third):
        s.heartbeat(member)
    s.join(first)
    s.advance(4 * SECOND - 1)
    s.heartbeat(first)
    s.ms += 1
    s.join(third)
    s.advance(0)
    s.assign({first: (0, 1), third: (2,)})

    assert f"for members {third}, {second}, of which {second} missed its session timeout" in (
        sentence(s.last)
    )


def test_an_enforced_rebalance_is_named_as_such_whatever_the_broker_saw() -> None:
    s = Chronicle()
    leader, follower = s.eager((0, 1), (2,))
    s.join(leader, text="rebalance enforced by user")

    assert f"because member {leader} (host 127.0.0.1) enforced a rebalance, saying" in (
        sentence(s.running())
    )
    s.join(follower, reason=JoinReason.ENFORCED)
    s.assign({leader: (0, 1), follower: (2,)})
    s.join(follower, reason=JoinReason.ENFORCED)
    assert f"because member {follower} (host 127.0.0.1) enforced a rebalance, stating" in (
        sentence(s.running())
    )


@pytest.mark.parametrize(("unfetched_s", "told_ms"), [(12, 12_000), (4, None), (60, None)])
def test_it_is_told_if_it_was_long_and_if_the_member_had_fetched_before(
    unfetched_s: int, told_ms: int | None
) -> None:
    s = Chronicle()
    leader, follower = s.eager((0, 1), (2,))
    for _ in range(4):
        s.advance(5 * SECOND)
        s.heartbeat(leader)
        s.heartbeat(follower)
    s.leave(LeaveEntry(follower, unfetched_ms=unfetched_s * SECOND))

    assert s.running().trigger.unfetched_ms == told_ms
    text = sentence(s.running())
    assert ("without a Fetch for 12 s" in text) == (told_ms is not None)
    assert ("max.poll.interval.ms" in text) == (told_ms is not None)


class Connection:
    is_open = True


@pytest.mark.parametrize(("after_s", "is_open", "told"), [(0, True, None), (2, True, True)])
def test_a_client_that_keeps_its_connection_after_it_left_does_not_poll(
    after_s: int, is_open: bool, told: bool | None
) -> None:
    s = Chronicle()
    _, follower = s.eager((0, 1), (2,))
    connection = Connection()
    s.leave(LeaveEntry(follower, connection=connection))
    s.advance(after_s * SECOND)

    assert s.running().trigger.still_connected is told
    assert ("max.poll.interval.ms" in sentence(s.running())) == bool(told)
    connection.is_open = False
    assert not s.running().trigger.still_connected


def test_the_record_of_a_quick_rebalance_waits_for_what_becomes_of_the_connection() -> None:
    s = Chronicle()
    leader, second, third = s.eager((0, 1), (2,), (3,))
    s.leave(LeaveEntry(third, connection=Connection()))
    s.join(leader)
    s.join(second)
    s.assign({leader: (0, 1), second: (2, 3)})
    assert not s.rebalances[1:]

    s.advance(SECOND)
    s.fold.close_if_complete(s.ms)
    s.note(None)
    assert s.last.trigger.still_connected


def test_the_record_does_not_wait_for_a_connection_that_is_closed_or_of_known_reason() -> None:
    s = Chronicle()
    (only,) = s.eager((0, 1))
    s.leave(LeaveEntry(only, reason="it is closed", connection=Connection()))
    assert s.last.outcome is RebalanceOutcome.EMPTY

    (only,) = s.eager((0, 1))
    closed = Connection()
    closed.is_open = False
    s.leave(LeaveEntry(only, connection=closed))
    assert s.last.outcome is RebalanceOutcome.EMPTY
    assert not s.last.trigger.still_connected


@pytest.mark.parametrize(
    ("is_open", "ending"),
    [
        (True, ", but stayed connected (not polling, stuck, paused or cut off)"),
        (False, "; its connection had closed"),
        (None, ""),
    ],
)
def test_a_connection_shows_whether_the_process_of_a_silent_member_has_ended(
    is_open: bool | None, ending: str
) -> None:
    s = Chronicle()
    leader, silent = s.eager((0, 1), (2,))
    connection = None if is_open is None else Connection()
    s.classic.heartbeat(silent, None, s.classic.data.generation, s.ms, connection)
    if connection is not None:
        connection.is_open = bool(is_open)
    for _ in range(10):
        s.heartbeat(leader)
        s.advance(SECOND)

    assert s.running().trigger.still_connected is is_open
    assert f"missed its session timeout of 10 s{ending}" in sentence(s.running())
