"""Predictions weighed against each other, and put into words."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from kohort.insight.advisor.advice import advise, pareto_front
from kohort.insight.advisor.computation import predict_beyond_grid
from kohort.insight.advisor.grid import grid
from kohort.insight.advisor.prediction import Prediction, predict
from kohort.insight.advisor.setting import CONSUMER_DEFAULTS, Setting
from kohort.insight.advisor.text import describe
from kohort.insight.advisor.trace import Delays, End, Rejoin, Run, Slot, Trace, Uncertainty
from kohort.insight.advisor.weighing import ablations
from kohort.protocol.join_reason import JoinReason

RECORDED = Setting(static=False, session_timeout_ms=6_000)


SEEDS = 5


def prediction(
    setting: Setting, rebalances: int, stopped_s: float, unread_s: float = 0
) -> Prediction:
    """The same with each seed."""
    return Prediction(
        setting=setting,
        rebalances=rebalances,
        stopped_ms=round(stopped_s * 1000),
        stopped_longest_ms=0,
        stopped_by_slot=(),
        unread_ms=round(unread_s * 1000),
        unread_longest_ms=0,
        deaths=0,
        unnoticed_ms=0,
        unnoticed_longest_ms=0,
        rebalances_by_seed=(rebalances,) * SEEDS,
        stopped_by_seed=(round(stopped_s * 1000),) * SEEDS,
        unread_by_seed=(round(unread_s * 1000),) * SEEDS,
    )


def trace(
    *rejoins: Rejoin,
    join_ms: int = 100,
    like: Prediction | None = None,
    doubts: tuple[Uncertainty, ...] = (),
) -> Trace:
    """A trace whose history has the figures of `like`."""
    like = like or prediction(RECORDED, 40, 300)
    joins = Delays((0,), (join_ms,))
    slots = (Slot("a", "a", "/h", None, (Run(0),), join=joins),)
    return Trace(
        group="g",
        slots=slots,
        rejoins=rejoins,
        begin_ms=0,
        end_ms=1,
        recorded=RECORDED,
        partition_count=1,
        rebalances=like.rebalances,
        stopped_ms=like.stopped_ms,
        unknown=("something",),
        doubts=doubts,
    )


def test_the_words_say_what_is_gained_and_what_it_costs() -> None:
    recorded = prediction(RECORDED, 41, 310)
    tried = replace(RECORDED, static=True, session_timeout_ms=45_000)

    assert describe(recorded, prediction(tried, 3, 22)) == (
        "static membership with a 45 s session: 41 -> 3 rebalances, 310 -> 22 s stopped; "
        "a crash is noticed 39 s later"
    )


def test_the_words_about_the_consumer_protocol_speak_of_partitions() -> None:
    tried = replace(CONSUMER_DEFAULTS, static=False)
    told = describe(
        replace(prediction(RECORDED, 141, 6_600), convergence_ms=1_410_000),
        replace(prediction(tried, 139, 212), convergence_ms=139_000),
    )
    assert told.startswith(
        "the consumer protocol with a 45 s session and heartbeats every 5 s: "
        "141 -> 139 rebalances, partitions stood still 6600 -> 212 s, "
        "stable 10 -> 1 s after a cause; "
    )


def test_the_consumer_protocol_is_shown_by_itself_beside_a_combination_that_beats_it() -> None:
    alone = replace(CONSUMER_DEFAULTS, static=False)
    both = replace(alone, static=True)
    recorded = prediction(RECORDED, 100, 900)
    given = [
        recorded,
        prediction(replace(RECORDED, static=True), 40, 300),
        prediction(alone, 90, 100),
        prediction(both, 20, 50),
    ]
    told = advise(trace(like=recorded), given)
    assert [one.setting for one in told.front if one.setting.consumer] == [both, alone]
    # How long members take to give up partitions is all that it depends on.
    unknown = advise(trace(like=recorded, doubts=(Uncertainty.JOINS,)), given)
    assert not [one for one in unknown.front if one.setting.consumer]


def test_the_words_say_how_much_chance_has_a_say_in_it_where_it_is_much() -> None:
    recorded = prediction(RECORDED, 41, 310)
    tried = prediction(replace(RECORDED, static=True), 3, 22)

    assert "22 s stopped;" in describe(recorded, replace(tried, stopped_spread_ms=2_100))
    assert "22 s stopped ± 2.5 s;" in describe(recorded, replace(tried, stopped_spread_ms=2_500))


def test_the_words_count_one_rebalance_and_round_to_whole_seconds_where_it_is_one() -> None:
    told = describe(prediction(RECORDED, 41, 310), prediction(RECORDED, 1, 4.96))
    assert "41 -> 1 rebalance, 310 -> 5 s stopped" in told


def test_the_words_name_the_time_without_a_reader_where_it_differs() -> None:
    recorded = prediction(RECORDED, 41, 310, unread_s=900)
    tried = prediction(replace(RECORDED, session_timeout_ms=45_000), 3, 22)

    assert describe(recorded, replace(tried, unread_ms=1_400_000)).endswith(
        "; a crash is noticed 39 s later; "
        "partitions without a reader for 900 -> 1400 s, all together"
    )
    assert describe(recorded, replace(tried, unread_ms=980_000)).endswith("39 s later")


def test_fewer_rebalances_do_not_make_up_for_partitions_that_no_one_reads() -> None:
    recorded = prediction(RECORDED, 90, 367, unread_s=922)
    few = replace(RECORDED, static=True, cooperative=False)
    quick = replace(RECORDED, heartbeat_interval_ms=2_000)
    told = advise(
        trace(like=recorded),
        [
            recorded,
            prediction(few, 61, 210, unread_s=1_742),
            prediction(quick, 90, 294, unread_s=694),
        ],
    )
    assert {one.setting for one in told.front} == {few, quick}
    assert told.best is not None
    assert told.best.setting == quick


@pytest.mark.parametrize(
    ("with_static", "is_told"),
    [
        pytest.param((220, 1_467, 6_235), False, id="a percent fewer rebalances for much else"),
        pytest.param((221, 1_332, 4_099), False, id="the same"),
        pytest.param((214, 1_332, 4_099), False, id="fewer by less than a twentieth"),
        pytest.param((150, 1_332, 4_600), True, id="fewer for a little more without a reader"),
        pytest.param((221, 1_100, 4_099), True, id="less stopped time"),
        pytest.param((221, 1_332, 3_400), True, id="less time without a reader"),
    ],
)
def test_a_choice_is_told_of_if_it_beats_the_same_without_each_of_its_parts(
    with_static: tuple[int, int, int], is_told: bool
) -> None:
    recorded = prediction(RECORDED, 142, 6_493, unread_s=32_885)
    cooperative = replace(RECORDED, cooperative=True)
    alone = prediction(cooperative, 221, 1_332, unread_s=4_099)
    both = prediction(replace(cooperative, static=True), *with_static)
    static = prediction(replace(RECORDED, static=True), 142, 6_493, unread_s=32_885)

    told = advise(trace(like=recorded), [recorded, static, alone, both])
    assert (both in told.front) is is_told


def test_session_and_heartbeat_are_one_part_of_a_choice() -> None:
    recorded = prediction(RECORDED, 41, 310)
    longer = replace(RECORDED, session_timeout_ms=45_000, heartbeat_interval_ms=5_000)
    both = prediction(longer, 3, 22)
    static = replace(longer, static=True)

    assert set(ablations(longer, RECORDED)) == {RECORDED}
    assert set(ablations(static, RECORDED)) == {longer, replace(RECORDED, static=True)}
    told = advise(trace(like=recorded), [recorded, both, prediction(static, 3, 22)])
    assert told.front == (both,)


def test_what_is_won_with_some_seeds_and_lost_with_others_is_no_gain() -> None:
    recorded = prediction(RECORDED, 40, 300)
    cooperative = replace(RECORDED, cooperative=True)
    alone = prediction(cooperative, 20, 100)
    static = replace(cooperative, static=True)
    by_chance = replace(
        prediction(static, 20, 90), stopped_by_seed=(50_000, 130_000, 60_000, 125_000, 85_000)
    )
    surely = replace(
        prediction(static, 20, 90), stopped_by_seed=(88_000, 92_000, 91_000, 89_000, 90_000)
    )

    assert advise(trace(like=recorded), [recorded, alone, by_chance]).front == (alone,)
    assert surely in advise(trace(like=recorded), [recorded, alone, surely]).front


def test_what_chance_may_give_or_take_is_no_gain() -> None:
    recorded = prediction(RECORDED, 13, 19)
    less = prediction(replace(RECORDED, heartbeat_interval_ms=2_000), 13, 14)
    assert advise(trace(), [recorded, replace(less, stopped_spread_ms=4_900)]).front
    assert not advise(trace(), [recorded, replace(less, stopped_spread_ms=5_100)]).front


def test_the_words_tell_of_a_crash_that_is_noticed_sooner_or_as_soon() -> None:
    recorded = prediction(replace(RECORDED, session_timeout_ms=45_000), 5, 1.25)
    sooner = prediction(replace(RECORDED, heartbeat_interval_ms=2_000), 4, 1)
    as_soon = prediction(replace(recorded.setting, initial_rebalance_delay_ms=0), 4, 1)

    assert describe(recorded, sooner) == (
        "a 6 s session and heartbeats every 2 s: 5 -> 4 rebalances, 1.2 -> 1 s stopped; "
        "a crash is noticed 38 s sooner, and a pause of 6 s counts as one"
    )
    assert describe(recorded, as_soon).endswith("a crash is noticed as soon as now")
    assert describe(recorded, as_soon).startswith("an initial delay of 0 s: ")


def test_the_front_has_only_what_nothing_else_beats() -> None:
    longer = replace(RECORDED, session_timeout_ms=45_000)
    best = prediction(replace(longer, static=True), 3, 20)
    beaten = prediction(replace(longer, cooperative=True), 4, 20)
    quick = prediction(RECORDED, 41, 310)

    assert pareto_front([quick, beaten, best], RECORDED) == [quick, best]


def test_of_settings_that_come_to_the_same_the_one_that_changes_least_is_told() -> None:
    much = replace(RECORDED, static=True, cooperative=True)
    little = replace(RECORDED, static=True)
    equals = [prediction(much, 3, 20.2), prediction(little, 3, 20.4)]

    assert [one.setting for one in pareto_front(equals, RECORDED)] == [little]
    assert [one.setting for one in pareto_front(equals[::-1], RECORDED)] == [little]


def test_advice_names_what_gains_most_and_says_what_is_not_known() -> None:
    static = replace(RECORDED, static=True, session_timeout_ms=45_000)
    told = advise(
        trace(),
        [
            prediction(RECORDED, 41, 310),
            prediction(static, 3, 22),
            prediction(replace(static, session_timeout_ms=300_000), 3, 21.9),
        ],
    )

    assert told.best is not None
    assert told.best.setting == static
    assert [one.setting for one in told.front] == [static]
    assert told.check == (
        "check: under the recorded settings the replay has 41 rebalances, the history 40; "
        "310 s stopped, the history 300 s"
    )
    assert told.unknown == ("something",)


def test_where_nothing_gains_that_is_said() -> None:
    told = advise(
        trace(),
        [
            prediction(RECORDED, 2, 3),
            prediction(replace(RECORDED, session_timeout_ms=45_000), 2, 3),
        ],
    )
    assert told.best is None
    assert (
        told.nothing == "nothing that was tried would have been better than the recorded settings"
    )

    shorter = prediction(replace(RECORDED, session_timeout_ms=3_000), 1, 1)
    told = advise(trace(), [prediction(RECORDED, 2, 3), shorter])
    assert told.nothing == (
        "nothing that could be ranked would have been better than the recorded settings"
    )


def test_the_grid_begins_with_what_was_recorded_and_has_nothing_twice() -> None:
    settings = grid(trace())
    assert settings[0] == RECORDED
    assert len(settings) == len(set(settings))
    assert {one.static for one in settings} == {False, True}


def test_the_grid_varies_only_what_can_make_a_difference() -> None:
    asks = Rejoin(0, 0, JoinReason.ENFORCED)
    assert {one.states_reasons for one in grid(trace())} == {False}
    assert {one.states_reasons for one in grid(trace(asks))} == {False, True}
    assert {one.rebalance_timeout_ms for one in grid(trace())} == {300_000}
    assert {one.rebalance_timeout_ms for one in grid(trace(join_ms=50_000))} == {60_000, 300_000}


def test_nothing_is_advised_where_the_replay_is_another_life_than_the_history() -> None:
    recorded = prediction(RECORDED, 41, 310)
    tried = prediction(replace(RECORDED, static=True), 3, 22)

    near = advise(trace(like=prediction(RECORDED, 40, 300)), [recorded, tried])
    fewer = advise(trace(like=prediction(RECORDED, 60, 300)), [recorded, tried])
    longer = advise(trace(like=prediction(RECORDED, 40, 500)), [recorded, tried])

    assert near.best == tried
    assert (fewer.best, fewer.front, longer.best) == (None, (tried,), None)
    assert fewer.check.endswith("; too far off to recommend anything")


@pytest.mark.parametrize(
    ("replayed", "history", "has_star"),
    [
        pytest.param((41, 520), (41, 520), True, id="the same"),
        pytest.param((36, 470), (30, 520), True, id="a fifth of the rebalances"),
        pytest.param((37, 520), (30, 520), False, id="more than a fifth of the rebalances"),
        pytest.param((41, 460), (41, 520), False, id="more than a tenth of the stopped time"),
        pytest.param((7, 20), (5, 20), False, id="two of five"),
        pytest.param((5, 0.5), (5, 0.3), False, id="two tenths of half a second"),
        pytest.param((5, 0.07), (5, 0.01), True, id="what the check line does not show"),
    ],
)
def test_nothing_has_a_star_if_the_check_is_off(
    replayed: tuple[int, float], history: tuple[int, float], has_star: bool
) -> None:
    recorded = prediction(RECORDED, *replayed)
    tried = prediction(replace(RECORDED, static=True), 1, 0)
    advice = advise(trace(like=prediction(RECORDED, *history)), [recorded, tried])

    assert advice.front == (tried,)
    assert (advice.best is not None) is has_star
    assert advice.is_off is not has_star


@pytest.mark.parametrize("rebalances", [4, 5])
def test_fewer_than_five_rebalances_are_no_reason_for_a_setting(rebalances: int) -> None:
    recorded = prediction(RECORDED, rebalances, 20)
    tried = prediction(replace(RECORDED, static=True), 1, 0)
    advice = advise(trace(like=recorded), [recorded, tried])

    assert (advice.best is None) is advice.is_short is (rebalances < 5)


def test_the_check_may_be_off_by_as_much_as_one_run_from_another() -> None:
    recorded = replace(prediction(RECORDED, 41, 310), stopped_spread_ms=100_000)
    tried = prediction(replace(RECORDED, static=True), 3, 22)

    assert not advise(trace(like=prediction(RECORDED, 41, 400)), [recorded, tried]).is_off
    assert advise(trace(like=prediction(RECORDED, 41, 420)), [recorded, tried]).is_off


def test_a_gain_that_one_run_may_have_by_chance_has_no_star() -> None:
    recorded = replace(prediction(RECORDED, 40, 300), stopped_spread_ms=20_000)
    tried = replace(RECORDED, static=True)

    def has_star(rebalances: int, stopped_s: float, spread_s: float = 15) -> bool:
        less = replace(
            prediction(tried, rebalances, stopped_s), stopped_spread_ms=round(spread_s * 1000)
        )
        return advise(trace(), [recorded, less]).best is not None

    assert has_star(40, 270)
    assert not has_star(40, 280), "each of the two runs may be off"
    assert has_star(30, 280), "fewer rebalances, each time"


def test_a_start_of_a_group_is_no_reason_for_a_setting() -> None:
    recorded, tried = prediction(RECORDED, 10, 30), prediction(replace(RECORDED, static=True), 2, 3)
    start = replace(trace(like=recorded), initial_rebalances=1, end_ms=30_000)

    assert advise(start, [recorded, tried]).best is None
    assert advise(replace(start, end_ms=300_000), [recorded, tried]).best == tried
    assert advise(replace(start, initial_rebalances=0), [recorded, tried]).best == tried


@pytest.mark.parametrize(
    ("doubt", "recorded", "tried"),
    [
        (Uncertainty.CRASHES, {"static": True}, {"static": False}),
        (Uncertainty.PAUSES, {}, {"session_timeout_ms": 45_000}),
        (Uncertainty.MODE, {}, {"cooperative": True}),
        (Uncertainty.REVOCATIONS, {"cooperative": True}, {"cooperative": False}),
        (Uncertainty.JOINS, {}, {"cooperative": True}),
        (Uncertainty.SESSION, {}, {"static": True}),
        (Uncertainty.SESSION, {}, {"session_timeout_ms": 45_000}),
        (Uncertainty.HEARTBEAT, {}, {"heartbeat_interval_ms": 1_000}),
        (Uncertainty.TIMEOUT, {}, {"rebalance_timeout_ms": 60_000}),
        (Uncertainty.DELAY, {}, {"initial_rebalance_delay_ms": 10_000}),
    ],
)
def test_what_is_not_known_takes_the_settings_that_rest_on_it_out_of_the_ranking(
    doubt: Uncertainty, recorded: dict[str, Any], tried: dict[str, Any]
) -> None:
    before = replace(RECORDED, **recorded)
    after = replace(before, **tried) if tried else replace(before, static=True)
    now = prediction(before, 41, 310)
    better = prediction(after, 3, 22)

    known = advise(replace(trace(like=now), recorded=before), [now, better])
    doubted = advise(replace(trace(like=now, doubts=(doubt,)), recorded=before), [now, better])

    assert known.front == (better,)
    assert (doubted.front, doubted.best) == ((), None)
    assert doubted.unranked == (f"not ranked: 1 setting, since {doubt.value}",)


def test_what_waits_for_members_of_whom_it_is_not_known_how_long_they_take_is_not_ranked() -> None:
    recorded = prediction(RECORDED, 41, 310)
    little = replace(prediction(replace(RECORDED, static=True), 20, 22), guessed=2)
    much = replace(prediction(replace(RECORDED, cooperative=True), 20, 22), guessed=3)
    told = advise(trace(like=recorded), [recorded, little, much])
    assert set(told.front) <= {little, much}
    assert not told.unranked

    told = advise(trace(like=recorded, doubts=(Uncertainty.SOME_JOINS,)), [recorded, little, much])
    assert told.front == (little,)
    assert told.unranked == (f"not ranked: 1 setting, since {Uncertainty.SOME_JOINS.value}",)


def test_eager_members_that_were_never_seen_to_give_up_are_not_ranked() -> None:
    was = replace(RECORDED, cooperative=True)
    recorded = prediction(was, 41, 310)
    eager = replace(prediction(RECORDED, 20, 22), guessed=3)
    cooperative = replace(prediction(replace(was, static=True), 20, 22), guessed=3)
    doubts = (Uncertainty.SOME_REVOCATIONS,)

    told = advise(
        replace(trace(like=recorded, doubts=doubts), recorded=was), [recorded, eager, cooperative]
    )
    assert told.front == (cooperative,)
    assert told.unranked == (f"not ranked: 1 setting, since {Uncertainty.SOME_REVOCATIONS.value}",)


def test_stopped_times_weigh_nothing_where_no_join_is_known() -> None:
    recorded = prediction(RECORDED, 41, 310)
    stopped = prediction(replace(RECORDED, static=True), 41, 22)
    fewer = prediction(replace(RECORDED, static=True), 20, 500)
    doubts = (Uncertainty.JOINS,)

    assert advise(trace(like=recorded), [recorded, stopped]).best == stopped
    assert advise(trace(like=recorded, doubts=doubts), [recorded, stopped]).front == ()
    # What is told is what was predicted.
    assert advise(trace(like=recorded, doubts=doubts), [recorded, fewer]).best == fewer


def test_what_no_one_would_take_is_not_told() -> None:
    recorded = prediction(RECORDED, 41, 310, unread_s=57)
    unread = prediction(replace(RECORDED, static=True), 1, 2, unread_s=1_596)
    late = prediction(replace(RECORDED, session_timeout_ms=300_000), 1, 2)

    assert advise(trace(like=recorded), [recorded, unread, late]).front == ()


@pytest.mark.parametrize(
    ("unread_s", "is_told", "has_star"), [(70, True, True), (110, True, False), (200, False, False)]
)
def test_how_long_partitions_may_be_without_a_reader_for_nearly_no_rebalances(
    unread_s: float, *, is_told: bool, has_star: bool
) -> None:
    """All in all, each of them gains: more than twice the time is not told, whatever it spares."""
    recorded = prediction(RECORDED, 41, 310, unread_s=57)
    tried = prediction(replace(RECORDED, static=True), 1, 2, unread_s=unread_s)

    told = advise(trace(like=recorded), [recorded, tried])

    assert (tried in told.front, told.best == tried) == (is_told, has_star)


@pytest.mark.parametrize(("session_ms", "is_told"), [(60_000, True), (90_000, False)])
def test_how_much_later_a_crash_may_be_noticed_for_nearly_no_rebalances(
    session_ms: int, *, is_told: bool
) -> None:
    """All in all, both gain: more than a minute later is not told, whatever it spares."""
    recorded = prediction(RECORDED, 41, 310)
    tried = prediction(replace(RECORDED, session_timeout_ms=session_ms), 1, 2)

    told = advise(trace(like=recorded), [recorded, tried])

    assert told.front == ((tried,) if is_told else ())


def test_a_shorter_session_is_not_ranked_as_it_may_notice_what_the_history_has_not() -> None:
    before = replace(RECORDED, session_timeout_ms=45_000)
    recorded = prediction(before, 41, 310)
    shorter = prediction(RECORDED, 20, 100)
    told = advise(replace(trace(like=recorded), recorded=before), [recorded, shorter])

    assert (told.front, told.best) == ((), None)
    assert told.unranked == (f"not ranked: 1 setting, since {Uncertainty.SILENCES.value}",)


def test_an_initial_delay_is_told_of_if_it_beats_the_same_without_it_on_the_same_seeds() -> None:
    recorded = by_seed(RECORDED, (40, 41, 40, 39), (300_000, 320_000, 310_000, 290_000))
    delayed = replace(RECORDED, initial_rebalance_delay_ms=10_000)
    by_chance = by_seed(delayed, (40, 41, 40, 39), (280_000, 335_000, 270_000, 300_000))
    better = by_seed(delayed, (36, 37, 36, 35), (280_000, 300_000, 290_000, 270_000))

    assert advise(trace(like=recorded), [recorded, by_chance]).front == ()
    assert advise(trace(like=recorded), [recorded, better]).front == (better,)


def by_seed(setting: Setting, rebalances: tuple[int, ...], stopped: tuple[int, ...]) -> Prediction:
    made = prediction(setting, round(fmean(rebalances)), fmean(stopped) / 1000)
    unread = (0,) * len(stopped)
    return replace(
        made, rebalances_by_seed=rebalances, stopped_by_seed=stopped, unread_by_seed=unread
    )


def test_a_member_that_all_wait_for_is_tried_as_quick_as_the_others() -> None:
    slow = Slot("slow", "s", "/h", None, (Run(0),), join=Delays((0,), (5_000,)))
    quick = tuple(
        Slot(
            name,
            name,
            "/h",
            None,
            (Run(0, at_ms, End.LEFT), Run(at_ms + 10_000)),
            join=Delays((0,), (100,)),
        )
        for name, at_ms in (("a", 60_000), ("b", 120_000), ("c", 180_000))
    )
    group = replace(
        trace(),
        slots=(slow, *quick),
        end_ms=240_000,
        recorded=replace(RECORDED, session_timeout_ms=10_000),
        partition_count=8,
        default_join_ms=100,
        waited_by_slot=(30_000, 200, 100, 0),
    )
    recorded = predict(group, group.recorded)
    (found,) = predict_beyond_grid(group, [recorded])
    told = advise(group, [recorded, found])

    assert found.quicker == "slow"
    assert found.setting == group.recorded
    assert found.stopped_ms < recorded.stopped_ms / 2
    assert told.quicker == found
    assert told.front == ()
    assert describe(recorded, found).startswith("slow as quick as the others: ")

    assert predict_beyond_grid(replace(group, waited_by_slot=(0, 0, 0, 0)), [recorded]) == []
