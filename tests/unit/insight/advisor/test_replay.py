"""Traces made by hand, and what each setting makes of them."""

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from kohort.insight.advisor.classic_replay import ClassicReplay
from kohort.insight.advisor.heartbeat_times import LOOK_LEAST_MS, LOOK_MS, HeartbeatTimer, look_ms
from kohort.insight.advisor.member import SimulatedMember
from kohort.insight.advisor.outcome import ReplayOutcome
from kohort.insight.advisor.prediction import predict
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Delays, End, Pause, Rejoin, Run, Slot, Trace
from kohort.protocol.join_reason import JoinReason

SECOND = 1_000
MINUTE = 60 * SECOND
DYNAMIC = Setting(static=False, session_timeout_ms=10 * SECOND)
STATIC = replace(DYNAMIC, static=True)
QUICK_BEATS = replace(DYNAMIC, heartbeat_interval_ms=300, initial_rebalance_delay_ms=0)


def slot(number: int, *runs: Run, join_ms: int = 50, pauses: tuple[Pause, ...] = ()) -> Slot:
    return Slot(
        name=f"p{number}",
        client_id=f"p{number}",
        host=f"/10.0.0.{number}",
        instance_id=None,
        runs=runs or (Run(number * 200),),
        pauses=pauses,
        join=Delays((0,), (join_ms,)),
    )


def trace(*slots: Slot, rejoins: tuple[Rejoin, ...] = (), partitions: int = 12) -> Trace:
    return Trace(
        group="g",
        slots=slots,
        rejoins=rejoins,
        begin_ms=0,
        end_ms=30 * MINUTE,
        recorded=DYNAMIC,
        partition_count=partitions,
    )


def play(given: Trace, setting: Setting, seed: int = 0) -> ReplayOutcome:
    return ClassicReplay(given, setting, seed=seed).run()


def stopped_ms(given: Trace, setting: Setting) -> float:
    """In the mean of many replays, since it depends on where heartbeats fall."""
    return fmean(play(given, setting, seed).stopped_ms for seed in range(30))


def others(count: int) -> list[Slot]:
    return [slot(number) for number in range(1, count + 1)]


def test_members_that_come_during_the_initial_delay_are_in_one_rebalance() -> None:
    assert play(trace(*others(4)), DYNAMIC).rebalances == 1


def test_without_an_initial_delay_they_are_not() -> None:
    setting = replace(DYNAMIC, initial_rebalance_delay_ms=0)
    assert play(trace(*others(4)), setting).rebalances > 1


def test_a_restart_costs_a_dynamic_member_two_rebalances_and_a_static_one_none() -> None:
    restarted = slot(0, Run(0, 5 * MINUTE, End.LEFT), Run(5 * MINUTE + 8 * SECOND))
    given = trace(restarted, *others(3))

    assert play(given, DYNAMIC).rebalances == 1 + 2
    quiet = play(given, STATIC)
    assert quiet.rebalances == 1
    assert quiet.stopped_ms == 0
    assert quiet.deaths == 1
    assert quiet.unnoticed_ms == 8 * SECOND


def test_a_static_member_that_is_away_for_too_long_is_given_up() -> None:
    restarted = slot(0, Run(0, 5 * MINUTE, End.LEFT), Run(5 * MINUTE + 30 * SECOND))
    assert play(trace(restarted, *others(3)), STATIC).rebalances == 1 + 2


@pytest.mark.parametrize("session_ms", [6_000, 45_000, 120_000])
def test_a_crash_is_noticed_when_the_session_is_over(session_ms: int) -> None:
    crashed = slot(0, Run(0, 5 * MINUTE, End.SILENT))
    setting = replace(DYNAMIC, session_timeout_ms=session_ms)

    outcome = play(trace(crashed, *others(3)), setting)

    assert outcome.rebalances == 2
    assert outcome.deaths == 1
    assert session_ms - 3_200 <= outcome.unnoticed_ms <= session_ms
    # Its partitions had no owner for at least as long.
    assert outcome.unread_longest_ms >= outcome.unnoticed_ms


def test_a_pause_that_the_session_outlasts_is_not_noticed() -> None:
    paused = slot(0, pauses=(Pause(5 * MINUTE, 5 * MINUTE + 20 * SECOND),))
    given = trace(paused, *others(2))

    assert play(given, replace(DYNAMIC, session_timeout_ms=45 * SECOND)).rebalances == 1
    # Given up, and back as a new member.
    assert play(given, DYNAMIC).rebalances == 1 + 2


def test_everybody_waits_for_a_slow_member() -> None:
    leaver = slot(0, Run(0, 5 * MINUTE, End.LEFT))
    quick = play(trace(leaver, *others(4)), DYNAMIC)
    slow = play(trace(leaver, *others(3), slot(4, join_ms=20_000)), DYNAMIC)

    assert quick.stopped_longest_ms < 4_000
    assert 15_000 <= slow.stopped_longest_ms <= 23_200
    assert slow.stopped_by_slot[4] < 1_000, "it is not itself that it waits for"


def test_a_member_slower_than_the_rebalance_timeout_is_thrown_out_and_comes_back() -> None:
    leaver = slot(0, Run(0, 5 * MINUTE, End.LEFT))
    given = trace(leaver, *others(3), slot(4, join_ms=90_000))

    assert play(given, DYNAMIC).rebalances == 2
    assert play(given, replace(DYNAMIC, rebalance_timeout_ms=60_000)).rebalances == 3


def test_cooperative_members_go_on_reading_and_rebalance_once_more_to_hand_over() -> None:
    given = trace(*others(2), slot(3, join_ms=20_000), slot(4, Run(5 * MINUTE)))
    eager = play(given, DYNAMIC)
    cooperative = play(given, replace(DYNAMIC, cooperative=True))

    assert eager.rebalances == 2
    # Each time somebody comes, those who give something up join again.
    assert cooperative.rebalances == 3
    assert cooperative.unread_ms < eager.unread_ms


def test_topics_that_change_cost_one_rebalance_whichever_member_leads() -> None:
    change = Rejoin(10 * MINUTE, None, JoinReason.TOPIC_METADATA_CHANGE)
    for setting in (DYNAMIC, STATIC, replace(DYNAMIC, states_reasons=True)):
        assert play(trace(*others(3), rejoins=(change,)), setting).rebalances == 2


def test_a_restarted_leader_keeps_its_share_if_it_may_say_so() -> None:
    first_leads = Rejoin(10 * MINUTE, 0, JoinReason.RESTART)
    given = trace(*others(3), rejoins=(first_leads,))

    assert play(given, DYNAMIC).rebalances == 2
    assert play(given, replace(DYNAMIC, states_reasons=True)).rebalances == 1


def test_a_followers_wish_for_a_rebalance_is_heard_if_it_is_stated() -> None:
    follower = Rejoin(10 * MINUTE, 2, JoinReason.ENFORCED)
    given = trace(*others(3), rejoins=(follower,))

    assert play(given, DYNAMIC).rebalances == 1
    assert play(given, replace(DYNAMIC, states_reasons=True)).rebalances == 2


def test_a_member_removed_by_an_administrator_goes_at_once_even_if_static() -> None:
    removed = slot(0, Run(0, 5 * MINUTE, End.REMOVED))
    outcome = play(trace(removed, *others(2)), replace(STATIC, session_timeout_ms=300_000))
    assert outcome.rebalances == 2
    assert outcome.unnoticed_ms == 0


def test_the_same_seed_gives_the_same_outcome_and_another_seed_other_heartbeats() -> None:
    runs = (Run(0, 5 * MINUTE, End.SILENT), Run(6 * MINUTE))
    given = trace(slot(0, *runs), *others(4))
    first = play(given, DYNAMIC, seed=7)

    assert play(given, DYNAMIC, seed=7) == first
    assert play(given, DYNAMIC, seed=8) != first


def test_a_group_that_is_calm_for_a_year_takes_no_longer_than_one_that_is_calm_for_a_minute() -> (
    None
):
    year_ms = 365 * 24 * 60 * MINUTE
    late = trace(slot(0, Run(0, year_ms, End.LEFT)), *others(3))
    replay = ClassicReplay(late, DYNAMIC)
    assert replay.run().rebalances == 2
    assert replay.event_count < 200


def test_a_delay_is_that_of_the_moment_or_one_of_those_that_are_nearest() -> None:
    delays = Delays.from_samples([(minute * MINUTE, minute) for minute in range(20)])
    chance = Random(1)

    def seen(at_ms: int) -> set[int]:
        return {delays.near(at_ms, 0, chance) for _ in range(200)}

    assert seen(10 * MINUTE + 9 * SECOND) == {10}
    assert seen(10 * MINUTE + 11 * SECOND) == {8, 9, 10, 11, 12}
    assert seen(-MINUTE) == {0, 1, 2, 3, 4}
    assert seen(60 * MINUTE) == {15, 16, 17, 18, 19}
    assert Delays((0,), (7,)).near(MINUTE, 50, chance) == 7
    assert Delays().near(MINUTE, 50, chance) == 50


def test_replays_differ_where_a_member_took_now_this_long_and_now_that_long() -> None:
    uneven = Delays.from_samples(
        [(minute * MINUTE, 100 + minute % 2 * 4_000) for minute in range(8)]
    )
    given = trace(
        replace(slot(0), join=uneven),
        *others(2),
        slot(9, Run(5 * MINUTE + 30 * SECOND), join_ms=10),
    )
    stops = [play(given, DYNAMIC, seed=seed).stopped_ms for seed in range(8)]
    assert max(stops) - min(stops) > 3_000
    assert predict(given, DYNAMIC).stopped_spread_ms > 3_000


def test_when_a_process_died_is_drawn_between_what_is_known_of_it() -> None:
    dead = slot(0, Run(0, 5 * MINUTE, End.SILENT, margin_ms=20 * SECOND))
    noticed = [play(trace(dead, *others(2)), DYNAMIC, seed=seed).unnoticed_ms for seed in range(9)]
    # Whenever it was, its session is over 10 s after a heartbeat that it sent before.
    assert all(7_000 - 150 <= ms <= 10_000 for ms in noticed)
    moments = {_death_ms(trace(dead, *others(2)), seed) for seed in range(9)}
    assert len(moments) > 5
    assert all(abs(at_ms - 5 * MINUTE) <= 20 * SECOND for at_ms in moments)


def test_a_process_was_dead_before_the_next_one_took_its_place() -> None:
    dead = Run(0, 5 * MINUTE, End.SILENT, margin_ms=20 * SECOND)
    given = trace(slot(0, dead, Run(5 * MINUTE + SECOND)), *others(2))
    for seed in range(9):
        assert _death_ms(given, seed) <= 5 * MINUTE + SECOND
        assert play(given, STATIC, seed=seed).rebalances <= 1 + 2


def _death_ms(given: Trace, seed: int) -> int:
    at_ms: list[int] = []

    class Watched(ClassicReplay):
        def stop_heartbeats(self, member: SimulatedMember) -> None:
            at_ms.append(self.now_ms)
            super().stop_heartbeats(member)

    Watched(given, DYNAMIC, seed=seed).run()
    return at_ms[0]


COOPERATIVE = replace(DYNAMIC, cooperative=True)
SLOW_MS = 4_000


def scaled_out(join_ms: int = 50, revoke_ms: int = 5) -> Trace:
    """Three members and a fourth that comes later; the first takes long to give partitions up."""
    first = replace(slot(1, join_ms=join_ms), revoke=Delays((0,), (revoke_ms,)))
    group = trace(first, slot(2), slot(3), slot(4, Run(10 * MINUTE)))
    return replace(group, quick_join_ms=50, revoke_ms=5)


def test_rebalances_that_members_join_of_whom_it_is_not_known_how_long_they_take_are_counted() -> (
    None
):
    group = scaled_out()
    untold = replace(group.slots[0], join=Delays())

    assert play(group, DYNAMIC).guessed == 0
    # The one that it is told of: the first one it begins itself.
    assert play(replace(group, slots=(untold, *group.slots[1:])), DYNAMIC).guessed == 1


def test_rebalances_in_which_members_give_up_that_were_never_seen_to_are_counted() -> None:
    seen = [replace(one, revoke=Delays((0,), (5,))) for one in scaled_out().slots]
    group = replace(scaled_out(), slots=tuple(seen), recorded=COOPERATIVE)
    unseen = replace(group, slots=(replace(seen[0], revoke=Delays()), *seen[1:]))

    assert play(group, DYNAMIC).guessed == 0
    # An eager member gives up all that it has for each newcomer.
    assert play(unseen, DYNAMIC).guessed == 1


def test_a_member_that_has_just_joined_takes_as_long_as_such_ones_do() -> None:
    """librdkafka lets a second pass between two joins."""

    def stopped_by(again_ms: int, fourth_ms: int) -> float:
        quick = [
            replace(slot(number, *runs, join_ms=5), again=Delays((0,), (5,)))
            for number, runs in ((2, ()), (3, (Run(10 * MINUTE),)), (4, (Run(fourth_ms),)))
        ]
        slow = replace(slot(1, join_ms=5), again=Delays((0,), (again_ms,)))
        group = replace(trace(slow, *quick), recorded=QUICK_BEATS, default_again_ms=5)
        return stopped_ms(group, QUICK_BEATS)

    # Soon after the third has come, two others wait for the first; later, none has just joined.
    soon_ms, later_ms = 10 * MINUTE + 600, 10 * MINUTE + 20_000
    assert stopped_by(990, soon_ms) > stopped_by(5, soon_ms) + 2 * 900
    assert stopped_by(990, later_ms) < stopped_by(5, later_ms) + 300


def test_a_member_gives_up_only_when_the_others_have_heard_of_the_assignment() -> None:
    """Else it would join again before a slow one knows what it has to give up."""

    def rebalances(sync_ms: int) -> int:
        slow = replace(slot(2, join_ms=SLOW_MS), sync=Delays((0,), (sync_ms,)))
        group = trace(slot(1), slow, slot(3), slot(4, Run(10 * MINUTE)))
        return play(replace(group, quick_join_ms=50, default_sync_ms=0), COOPERATIVE).rebalances

    assert rebalances(8) == rebalances(0) == 3


def restarted(timer: HeartbeatTimer, *more: Slot, slow_ms: int = 20) -> Trace:
    """Three static members that were restarted one after the other, so that each sends heartbeats
    at other times, and others that come later.
    """
    returns = [Run(at_ms) for at_ms in (61_000, 122_000, 183_900)]
    group = [
        slot(number, Run(number * 200, run.start_ms - SECOND, End.LEFT), run, join_ms=20)
        for number, run in enumerate(returns, start=1)
    ]
    slow = slot(4, join_ms=slow_ms)
    return trace(*(replace(one, timer=timer) for one in (*group, slow, *more)))


def test_a_timer_that_runs_on_keeps_its_times_after_a_rebalance() -> None:
    """Another one is restarted, so that all members are notified of the next rebalance together."""
    fifth, sixth = slot(5, Run(10 * MINUTE), join_ms=20), slot(6, Run(11 * MINUTE), join_ms=20)

    def second_ms(timer: HeartbeatTimer) -> float:
        both = stopped_ms(restarted(timer, fifth, sixth), STATIC)
        return both - stopped_ms(restarted(timer, fifth), STATIC)

    assert second_ms(HeartbeatTimer(2)) < 200
    assert second_ms(HeartbeatTimer(2, runs_on=True)) > 2_000


def test_heartbeats_that_fall_due_during_a_rebalance_are_sent_together_at_its_end() -> None:
    fifth, sixth = slot(5, Run(10 * MINUTE), join_ms=20), slot(6, Run(11 * MINUTE), join_ms=20)
    timer = HeartbeatTimer(2, runs_on=True)

    def second_ms(slow_ms: int) -> float:
        both = stopped_ms(restarted(timer, fifth, sixth, slow_ms=slow_ms), STATIC)
        return both - stopped_ms(restarted(timer, fifth, slow_ms=slow_ms), STATIC)

    # Four wait for the slow one as long as it takes, and for nothing else.
    assert second_ms(7_000) == pytest.approx(4 * 7_000, rel=0.1)


def test_first_heartbeats_tell_how_often_clients_look_where_nothing_else_does() -> None:
    assert look_ms([], 500, [0, 2, 1]) == LOOK_LEAST_MS
    assert look_ms([], 500, [40, 60, 80]) == LOOK_MS
    assert look_ms([], 500, [10, 30]) == 40
    assert look_ms([], 500, [10, 41]) == LOOK_MS, "closer to that than to a timer"
    assert look_ms([], 500, [0]) == LOOK_MS, "too few to tell"


def test_how_far_beats_drift_is_what_members_were_told_soon_after_a_rebalance() -> None:
    together = [(20_000, (400, 401, 402)), (9_000, (2_999, 0, 1)), (30_000, (7, 9, 8))]
    apart = [(20_000, (400, 700, 100)), (9_000, (2_800, 100, 600)), (30_000, (0, 1_900, 900))]

    assert look_ms(together, 3_000) == LOOK_LEAST_MS
    assert look_ms(apart, 3_000) == LOOK_MS
    assert look_ms(together[:1], 3_000) == LOOK_MS, "too few to tell"
    assert look_ms([(999_000, told) for _, told in together], 3_000) == LOOK_MS, "too long after"


def test_few_members_that_happen_to_beat_close_together_are_not_taken_for_timers() -> None:
    """The middle of what two or three show is much less than what there is."""
    chance, interval_ms, beats = Random("few members"), 3_000, 12

    def told(members: int) -> list[int]:
        late = (sum(chance.randrange(LOOK_MS) for _ in range(beats)) for _ in range(members))
        return [one % interval_ms for one in late]

    def seen(rebalances: int) -> int:
        return look_ms(
            [(beats * interval_ms, told(chance.choice((2, 3)))) for _ in range(rebalances)],
            interval_ms,
        )

    assert [seen(20) for _ in range(20)] == [LOOK_MS] * 20
