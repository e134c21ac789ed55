"""Traces made by hand, replayed as consumer groups."""

from dataclasses import replace

import pytest

from kohort.insight.advisor.consumer_replay import ConsumerReplay
from kohort.insight.advisor.outcome import ReplayOutcome
from kohort.insight.advisor.setting import CONSUMER_DEFAULTS, Setting
from kohort.insight.advisor.trace import Delays, End, Pause, Rejoin, Run, Slot, Trace
from kohort.protocol.join_reason import JoinReason
from tests.unit.insight.advisor.test_replay import MINUTE, SECOND, others, slot, trace

DYNAMIC = replace(CONSUMER_DEFAULTS, static=False)
STATIC = replace(DYNAMIC, static=True)


def play(given: Trace, setting: Setting, seed: int = 0) -> ReplayOutcome:
    return ConsumerReplay(given, setting, seed=seed).run()


def test_nothing_stands_still_while_others_restart_but_what_they_left() -> None:
    restarted = slot(0, Run(0, 5 * MINUTE, End.LEFT), Run(5 * MINUTE + 8 * SECOND))
    outcome = play(trace(restarted, *others(3)), DYNAMIC)
    alone = play(trace(slot(0), *others(3)), DYNAMIC)

    assert outcome.rebalances == alone.rebalances + 2
    # Each of the three waits for its next heartbeat, and so does the one that is back.
    assert 0 < outcome.stopped_ms - alone.stopped_ms <= 4 * (5 * SECOND + 200)


def test_a_static_member_that_returns_within_its_session_causes_no_rebalance() -> None:
    runs = (Run(0, 5 * MINUTE, End.LEFT), Run(5 * MINUTE + 30 * SECOND))
    alone = play(trace(slot(0), *others(3)), STATIC)
    outcome = play(trace(slot(0, *runs), *others(3)), STATIC)
    assert outcome.rebalances == alone.rebalances
    assert (outcome.deaths, outcome.unnoticed_ms) == (1, 30 * SECOND)
    assert outcome.unread_longest_ms >= 30 * SECOND

    late = (runs[0], Run(6 * MINUTE))
    assert play(trace(slot(0, *late), *others(3)), STATIC).rebalances == alone.rebalances + 2


@pytest.mark.parametrize("says_reasons", [False, True])
def test_a_static_member_that_crashed_waits_for_its_session_unless_it_states_a_restart(
    says_reasons: bool,
) -> None:
    runs = (Run(0, 5 * MINUTE, End.SILENT), Run(5 * MINUTE + 8 * SECOND))
    setting = replace(STATIC, states_reasons=says_reasons)
    alone = play(trace(slot(0), *others(3)), setting)
    outcome = play(trace(slot(0, *runs), *others(3)), setting)
    assert outcome.rebalances == alone.rebalances + (0 if says_reasons else 2)


def test_a_crash_is_noticed_when_the_session_is_over() -> None:
    outcome = play(trace(slot(0, Run(0, 5 * MINUTE, End.SILENT)), *others(3)), DYNAMIC)
    assert outcome.deaths == 1
    assert 45_000 - 5_200 <= outcome.unnoticed_ms <= 45_000
    assert outcome.unread_longest_ms >= outcome.unnoticed_ms


def test_a_pause_longer_than_the_session_is_a_crash_and_a_shorter_one_is_not() -> None:
    def paused(duration_ms: int) -> Trace:
        pause = Pause(5 * MINUTE, 5 * MINUTE + duration_ms)
        return trace(slot(0, pauses=(pause,)), *others(3))

    assert play(paused(90 * SECOND), DYNAMIC).rebalances == (
        play(paused(30 * SECOND), DYNAMIC).rebalances + 2
    )


def test_the_time_to_give_up_is_waited_for_only_by_who_gets_the_partitions() -> None:
    def scaled_out(slow_ms: int) -> Trace:
        slots = [slot(number, join_ms=slow_ms) for number in range(3)]
        return trace(*slots, slot(3, Run(5 * MINUTE)))

    quick, slow = (play(scaled_out(ms), DYNAMIC) for ms in (50, 20_000))
    # It takes that time until the group is stable: as it starts, and as it is scaled out.
    assert 35_000 < slow.convergence_ms - quick.convergence_ms < 45_000
    # Nobody reads them while they are given up, but that they stop is nobody's wait for them.
    assert slow.rebalances == quick.rebalances
    assert slow.stopped_ms < quick.stopped_ms + 5 * SECOND
    assert slow.unread_ms > quick.unread_ms + 15 * SECOND


def test_a_member_slower_than_its_rebalance_timeout_is_removed_and_joins_again() -> None:
    def scaled_out(slow_ms: int) -> Trace:
        return trace(slot(0, join_ms=slow_ms), *others(2), slot(3, Run(5 * MINUTE)))

    setting = replace(DYNAMIC, rebalance_timeout_ms=60_000)
    quick, slow = (play(scaled_out(ms), setting).rebalances for ms in (50_000, 70_000))
    assert slow > quick


@pytest.mark.parametrize(
    ("rejoin", "states_reasons", "rebalances"),
    [
        (Rejoin(5 * MINUTE, None, JoinReason.TOPIC_METADATA_CHANGE), False, 1),
        (Rejoin(5 * MINUTE, 0, JoinReason.TOPIC_METADATA_CHANGE), False, 0),
        (Rejoin(5 * MINUTE, 0, JoinReason.UNKNOWN, changes_protocols=True), False, 1),
        (Rejoin(5 * MINUTE, 0, JoinReason.ENFORCED), False, 0),
        (Rejoin(5 * MINUTE, 0, JoinReason.ENFORCED), True, 1),
    ],
)
def test_what_members_do_of_their_own_accord(
    rejoin: Rejoin, states_reasons: bool, rebalances: int
) -> None:
    setting = replace(DYNAMIC, states_reasons=states_reasons)
    alone = play(trace(*others(3)), setting)
    outcome = play(trace(*others(3), rejoins=(rejoin,)), setting)
    assert outcome.rebalances == alone.rebalances + rebalances
    assert outcome.stopped_ms == alone.stopped_ms


def test_shorter_heartbeat_intervals_shorten_the_wait() -> None:
    given = trace(*others(3), slot(9, Run(5 * MINUTE)))
    quick = replace(DYNAMIC, heartbeat_interval_ms=500)
    assert play(given, quick).stopped_ms < play(given, DYNAMIC).stopped_ms / 2


def test_members_that_come_within_the_assignment_interval_are_assigned_together() -> None:
    given = trace(*others(6))  # 200 ms apart.
    counts = [
        play(given, replace(DYNAMIC, assignment_interval_ms=ms)).rebalances for ms in (0, 5_000)
    ]
    assert counts == [6, 2]


@pytest.mark.parametrize("quick_ms", [50, 8_000])
def test_all_partitions_have_a_reader_in_the_end_whatever_happens(quick_ms: int) -> None:
    """Also if members get another assignment before the application has polled."""
    slots: list[Slot] = []
    ends = (End.LEFT, End.SILENT, End.REMOVED)
    for number in range(6):
        starts = [(number * 37 + i * 211) * SECOND for i in range(8)]
        runs = [
            Run(at, at + (90 + 17 * number + 5 * i) * SECOND, ends[(number + i) % 3])
            for i, at in enumerate(starts)
        ]
        slots.append(replace(slot(number, *runs, Run(40 * MINUTE)), join=Delays((0,), (8_000,))))
    given = replace(trace(*slots), quick_join_ms=quick_ms)
    for setting in (DYNAMIC, STATIC, replace(STATIC, states_reasons=True)):
        replay = ConsumerReplay(given, setting)
        outcome = replay.run()
        assert outcome.rebalances > 20 if setting == DYNAMIC else outcome.rebalances > 5
        owned = [number for member in replay.alive.values() for number in member.owned]
        assert sorted(owned) == list(range(12))
        assert replay.members.data.state == "Stable"
