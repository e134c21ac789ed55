"""Predictions weighed against each other, and put into words."""

from dataclasses import replace
from fnmatch import fnmatchcase
from statistics import fmean
from typing import Any

import pytest

from kohort.insight.advisor.advice import Advice, advise, pareto_front
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


def advised(
    recorded: Prediction,
    *tried: Prediction,
    like: Prediction | None = None,
    doubts: tuple[Uncertainty, ...] = (),
    **group: Any,  # noqa: ANN401 - any field of the trace.
) -> Advice:
    """The advice of a group whose history has the figures of `like`, or of the replay."""
    history = replace(trace(like=like or recorded, doubts=doubts), recorded=recorded.setting)
    return advise(replace(history, **group), [recorded, *tried])


STATIC = replace(RECORDED, static=True)
COOPERATIVE = replace(RECORDED, cooperative=True)
LONGER = replace(RECORDED, session_timeout_ms=45_000)
NOW = prediction(RECORDED, 41, 310)
BETTER = prediction(STATIC, 3, 22)
LATER = prediction(LONGER, 3, 22)
OF_PARTITIONS = replace(CONSUMER_DEFAULTS, static=False)


@pytest.mark.parametrize(
    ("recorded", "tried", "words"),
    [
        pytest.param(
            NOW,
            prediction(replace(LONGER, static=True), 3, 22),
            "static membership with a 45 s session: 41 -> 3 rebalances, 310 -> 22 s stopped; "
            "a crash is noticed 39 s later",
            id="what is gained and what it costs",
        ),
        pytest.param(
            replace(prediction(RECORDED, 141, 6_600), convergence_ms=1_410_000),
            replace(prediction(OF_PARTITIONS, 139, 212), convergence_ms=139_000),
            "the consumer protocol with a 45 s session and heartbeats every 5 s: "
            "141 -> 139 rebalances, partitions stood still 6600 -> 212 s, "
            "stable 10 -> 1 s after a cause; *",
            id="the consumer protocol is told by partitions",
        ),
        pytest.param(
            NOW,
            replace(BETTER, stopped_spread_ms=2_100),
            "*22 s stopped;*",
            id="a small spread is left out",
        ),
        pytest.param(
            NOW,
            replace(BETTER, stopped_spread_ms=2_500),
            "*22 s stopped ± 2.5 s;*",
            id="a large spread",
        ),
        pytest.param(
            NOW,
            prediction(RECORDED, 1, 4.96),
            "*41 -> 1 rebalance, 310 -> 5 s stopped*",
            id="one rebalance and whole seconds",
        ),
        pytest.param(
            replace(NOW, unread_ms=900_000),
            replace(LATER, unread_ms=1_400_000),
            "*; a crash is noticed 39 s later; "
            "partitions without a reader for 900 -> 1400 s, all together",
            id="another time without a reader",
        ),
        pytest.param(
            replace(NOW, unread_ms=900_000),
            replace(LATER, unread_ms=980_000),
            "*39 s later",
            id="about the same time without a reader",
        ),
        pytest.param(
            prediction(LONGER, 5, 1.25),
            prediction(replace(RECORDED, heartbeat_interval_ms=2_000), 4, 1),
            "a 6 s session and heartbeats every 2 s: 5 -> 4 rebalances, 1.2 -> 1 s stopped; "
            "a crash is noticed 38 s sooner, and a pause of 6 s counts as one",
            id="a crash is noticed sooner",
        ),
        pytest.param(
            prediction(LONGER, 5, 1.25),
            prediction(replace(LONGER, initial_rebalance_delay_ms=0), 4, 1),
            "an initial delay of 0 s: *a crash is noticed as soon as now",
            id="a crash is noticed as soon",
        ),
    ],
)
def test_the_words_of_a_setting(recorded: Prediction, tried: Prediction, words: str) -> None:
    assert fnmatchcase(describe(recorded, tried), words)


def test_the_consumer_protocol_is_shown_by_itself_beside_a_combination_that_beats_it() -> None:
    both = replace(OF_PARTITIONS, static=True)
    recorded = prediction(RECORDED, 100, 900)
    given = [
        prediction(STATIC, 40, 300),
        prediction(OF_PARTITIONS, 90, 100),
        prediction(both, 20, 50),
    ]
    told = advised(recorded, *given)
    assert [one.setting for one in told.front if one.setting.consumer] == [both, OF_PARTITIONS]
    # How long members take to give up partitions is all that it depends on.
    unknown = advised(recorded, *given, doubts=(Uncertainty.JOINS,))
    assert not [one for one in unknown.front if one.setting.consumer]


def test_fewer_rebalances_do_not_make_up_for_partitions_that_no_one_reads() -> None:
    few = prediction(replace(STATIC, cooperative=False), 61, 210, unread_s=1_742)
    quick = prediction(replace(RECORDED, heartbeat_interval_ms=2_000), 90, 294, unread_s=694)
    told = advised(prediction(RECORDED, 90, 367, unread_s=922), few, quick)
    assert set(told.front) == {few, quick}
    assert told.best == quick


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
    static = prediction(STATIC, 142, 6_493, unread_s=32_885)
    alone = prediction(COOPERATIVE, 221, 1_332, unread_s=4_099)
    both = prediction(replace(COOPERATIVE, static=True), *with_static)
    assert (both in advised(recorded, static, alone, both).front) is is_told


def test_session_and_heartbeat_are_one_part_of_a_choice() -> None:
    longer = replace(LONGER, heartbeat_interval_ms=5_000)
    static = replace(longer, static=True)
    both = prediction(longer, 3, 22)
    assert set(ablations(longer, RECORDED)) == {RECORDED}
    assert set(ablations(static, RECORDED)) == {longer, STATIC}
    assert advised(NOW, both, prediction(static, 3, 22)).front == (both,)


def test_what_is_won_with_some_seeds_and_lost_with_others_is_no_gain() -> None:
    recorded, alone = prediction(RECORDED, 40, 300), prediction(COOPERATIVE, 20, 100)
    static = prediction(replace(COOPERATIVE, static=True), 20, 90)
    by_chance = replace(static, stopped_by_seed=(50_000, 130_000, 60_000, 125_000, 85_000))
    surely = replace(static, stopped_by_seed=(88_000, 92_000, 91_000, 89_000, 90_000))
    assert advised(recorded, alone, by_chance).front == (alone,)
    assert surely in advised(recorded, alone, surely).front


def test_what_chance_may_give_or_take_is_no_gain() -> None:
    recorded = prediction(RECORDED, 13, 19)
    less = prediction(replace(RECORDED, heartbeat_interval_ms=2_000), 13, 14)
    assert advise(trace(), [recorded, replace(less, stopped_spread_ms=4_900)]).front
    assert not advise(trace(), [recorded, replace(less, stopped_spread_ms=5_100)]).front


def test_the_front_has_only_what_nothing_else_beats() -> None:
    best = prediction(replace(LONGER, static=True), 3, 20)
    beaten = prediction(replace(LONGER, cooperative=True), 4, 20)
    assert pareto_front([NOW, beaten, best], RECORDED) == [NOW, best]


def test_of_settings_that_come_to_the_same_the_one_that_changes_least_is_told() -> None:
    much, little = (
        prediction(replace(STATIC, cooperative=True), 3, 20.2),
        prediction(STATIC, 3, 20.4),
    )
    assert pareto_front([much, little], RECORDED) == [little]
    assert pareto_front([little, much], RECORDED) == [little]


def test_advice_names_what_gains_most_and_says_what_is_not_known() -> None:
    static = prediction(replace(LONGER, static=True), 3, 22)
    later = prediction(replace(static.setting, session_timeout_ms=300_000), 3, 21.9)
    told = advised(NOW, static, later, like=prediction(RECORDED, 40, 300))
    assert (told.best, told.front, told.unknown) == (static, (static,), ("something",))
    assert told.check == (
        "check: under the recorded settings the replay has 41 rebalances, the history 40; "
        "310 s stopped, the history 300 s"
    )


@pytest.mark.parametrize(
    ("tried", "what"),
    [
        (prediction(LONGER, 2, 3), "was tried"),
        (prediction(replace(RECORDED, session_timeout_ms=3_000), 1, 1), "could be ranked"),
    ],
)
def test_where_nothing_gains_that_is_said(tried: Prediction, what: str) -> None:
    told = advised(prediction(RECORDED, 2, 3), tried)
    assert told.best is None
    assert told.nothing == f"nothing that {what} would have been better than the recorded settings"


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
    near, fewer, longer = (
        advised(NOW, BETTER, like=prediction(RECORDED, *history))
        for history in ((40, 300), (60, 300), (40, 500))
    )
    assert near.best == BETTER
    assert (fewer.best, fewer.front, longer.best) == (None, (BETTER,), None)
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
    recorded, tried = prediction(RECORDED, *replayed), prediction(STATIC, 1, 0)
    advice = advised(recorded, tried, like=prediction(RECORDED, *history))
    assert advice.front == (tried,)
    assert (advice.best is not None) is has_star
    assert advice.is_off is not has_star


@pytest.mark.parametrize("rebalances", [4, 5])
def test_fewer_than_five_rebalances_are_no_reason_for_a_setting(rebalances: int) -> None:
    advice = advised(prediction(RECORDED, rebalances, 20), prediction(STATIC, 1, 0))
    assert (advice.best is None) is advice.is_short is (rebalances < 5)


def test_the_check_may_be_off_by_as_much_as_one_run_from_another() -> None:
    recorded = replace(NOW, stopped_spread_ms=100_000)
    assert not advised(recorded, BETTER, like=prediction(RECORDED, 41, 400)).is_off
    assert advised(recorded, BETTER, like=prediction(RECORDED, 41, 420)).is_off


def test_a_gain_that_one_run_may_have_by_chance_has_no_star() -> None:
    recorded = replace(prediction(RECORDED, 40, 300), stopped_spread_ms=20_000)

    def has_star(rebalances: int, stopped_s: float) -> bool:
        less = replace(prediction(STATIC, rebalances, stopped_s), stopped_spread_ms=15_000)
        return advised(recorded, less).best is not None

    assert has_star(40, 270)
    assert not has_star(40, 280), "each of the two runs may be off"
    assert has_star(30, 280), "fewer rebalances, each time"


def test_a_start_of_a_group_is_no_reason_for_a_setting() -> None:
    recorded, tried = prediction(RECORDED, 10, 30), prediction(STATIC, 2, 3)
    assert advised(recorded, tried, initial_rebalances=1, end_ms=30_000).best is None
    assert advised(recorded, tried, initial_rebalances=1, end_ms=300_000).best == tried
    assert advised(recorded, tried, initial_rebalances=0, end_ms=30_000).best == tried


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
    now, better = prediction(before, 41, 310), prediction(replace(before, **tried), 3, 22)
    doubted = advised(now, better, doubts=(doubt,))
    assert advised(now, better).front == (better,)
    assert (doubted.front, doubted.best) == ((), None)
    assert doubted.unranked == (f"not ranked: 1 setting, since {doubt.value}",)


def test_what_waits_for_members_of_whom_it_is_not_known_how_long_they_take_is_not_ranked() -> None:
    little = replace(prediction(STATIC, 20, 22), guessed=2)
    much = replace(prediction(COOPERATIVE, 20, 22), guessed=3)
    told = advised(NOW, little, much)
    assert set(told.front) <= {little, much}
    assert not told.unranked
    told = advised(NOW, little, much, doubts=(Uncertainty.SOME_JOINS,))
    assert told.front == (little,)
    assert told.unranked == (f"not ranked: 1 setting, since {Uncertainty.SOME_JOINS.value}",)


def test_eager_members_that_were_never_seen_to_give_up_are_not_ranked() -> None:
    eager = replace(prediction(RECORDED, 20, 22), guessed=3)
    cooperative = replace(prediction(replace(COOPERATIVE, static=True), 20, 22), guessed=3)
    recorded, doubt = prediction(COOPERATIVE, 41, 310), Uncertainty.SOME_REVOCATIONS
    told = advised(recorded, eager, cooperative, doubts=(doubt,))
    assert told.front == (cooperative,)
    assert told.unranked == (f"not ranked: 1 setting, since {doubt.value}",)


def test_stopped_times_weigh_nothing_where_no_join_is_known() -> None:
    stopped, fewer = prediction(STATIC, 41, 22), prediction(STATIC, 20, 500)
    assert advised(NOW, stopped).best == stopped
    assert advised(NOW, stopped, doubts=(Uncertainty.JOINS,)).front == ()
    # What is told is what was predicted.
    assert advised(NOW, fewer, doubts=(Uncertainty.JOINS,)).best == fewer


@pytest.mark.parametrize(
    ("tried", "is_told", "has_star"),
    [
        (prediction(STATIC, 1, 2, unread_s=70), True, True),
        (prediction(STATIC, 1, 2, unread_s=110), True, False),
        (prediction(STATIC, 1, 2, unread_s=200), False, False),
        (prediction(replace(RECORDED, session_timeout_ms=60_000), 1, 2, unread_s=57), True, True),
        (prediction(replace(RECORDED, session_timeout_ms=90_000), 1, 2, unread_s=57), False, False),
    ],
)
def test_how_long_nobody_may_read_or_notice_a_crash_for_nearly_no_rebalances(
    tried: Prediction, *, is_told: bool, has_star: bool
) -> None:
    """All in all, each of them gains: more than twice the time without a reader, or a crash noticed
    more than a minute later, is not told, whatever it spares.
    """
    told = advised(replace(NOW, unread_ms=57_000), tried)
    assert (tried in told.front, told.best == tried) == (is_told, has_star)


def test_a_shorter_session_is_not_ranked_as_it_may_notice_what_the_history_has_not() -> None:
    told = advised(prediction(LONGER, 41, 310), prediction(RECORDED, 20, 100))
    assert (told.front, told.best) == ((), None)
    assert told.unranked == (f"not ranked: 1 setting, since {Uncertainty.SILENCES.value}",)


def test_an_initial_delay_is_told_of_if_it_beats_the_same_without_it_on_the_same_seeds() -> None:
    recorded = by_seed(RECORDED, (40, 41, 40, 39), (300_000, 320_000, 310_000, 290_000))
    delayed = replace(RECORDED, initial_rebalance_delay_ms=10_000)
    by_chance = by_seed(delayed, (40, 41, 40, 39), (280_000, 335_000, 270_000, 300_000))
    better = by_seed(delayed, (36, 37, 36, 35), (280_000, 300_000, 290_000, 270_000))

    assert advised(recorded, by_chance).front == ()
    assert advised(recorded, better).front == (better,)


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
