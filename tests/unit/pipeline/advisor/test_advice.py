"""Predictions weighed against each other, and put into words."""

from dataclasses import replace

from kohort.pipeline.advisor.advice import advise, pareto_front, words
from kohort.pipeline.advisor.prediction import Prediction
from kohort.pipeline.advisor.setting import Setting, grid
from kohort.pipeline.advisor.trace import Delays, Rejoin, Run, Slot, Trace
from kohort.protocol.join_reason import JoinReason

RECORDED = Setting(static=False, session_timeout_ms=6_000)


def prediction(setting: Setting, rebalances: int, stopped_s: float) -> Prediction:
    return Prediction(
        setting=setting,
        rebalances=rebalances,
        stopped_ms=round(stopped_s * 1000),
        stopped_longest_ms=0,
        stopped_by_slot=(),
        unread_ms=0,
        unread_longest_ms=0,
        deaths=0,
        unnoticed_ms=0,
        unnoticed_longest_ms=0,
    )


def trace(*rejoins: Rejoin, join_ms: int = 100) -> Trace:
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
        rebalances=40,
        stopped_ms=300_000,
        unknown=("something",),
    )


def test_the_words_say_what_is_gained_and_what_it_costs() -> None:
    recorded = prediction(RECORDED, 41, 310)
    tried = replace(RECORDED, static=True, session_timeout_ms=45_000)

    assert words(recorded, prediction(tried, 3, 22)) == (
        "static membership with a 45 s session: 41 -> 3 rebalances, 310 -> 22 s stopped; "
        "a crash is noticed 39 s later"
    )


def test_the_words_say_how_much_chance_has_a_say_in_it_where_it_is_much() -> None:
    recorded = prediction(RECORDED, 41, 310)
    tried = prediction(replace(RECORDED, static=True), 3, 22)

    assert "22 s stopped;" in words(recorded, replace(tried, stopped_spread_ms=2_100))
    assert "22 s stopped, give or take 2.5 s;" in words(
        recorded, replace(tried, stopped_spread_ms=2_500)
    )


def test_the_words_count_one_rebalance_and_round_to_whole_seconds_where_it_is_one() -> None:
    told = words(prediction(RECORDED, 41, 310), prediction(RECORDED, 1, 4.96))
    assert "41 -> 1 rebalance, 310 -> 5 s stopped" in told


def test_the_words_name_the_time_without_a_reader_where_it_differs() -> None:
    recorded = replace(prediction(RECORDED, 41, 310), unread_ms=900_000)
    tried = prediction(replace(RECORDED, session_timeout_ms=45_000), 3, 22)

    assert words(recorded, replace(tried, unread_ms=1_400_000)).endswith(
        "; a crash is noticed 39 s later; "
        "partitions without a reader for 900 -> 1400 s, all together"
    )
    assert words(recorded, replace(tried, unread_ms=980_000)).endswith("39 s later")


def test_fewer_rebalances_do_not_make_up_for_partitions_that_nobody_reads() -> None:
    recorded = replace(prediction(RECORDED, 90, 367), unread_ms=922_000)
    few = replace(RECORDED, static=True, cooperative=False)
    quick = replace(RECORDED, heartbeat_interval_ms=2_000)
    told = advise(
        trace(),
        [
            recorded,
            replace(prediction(few, 61, 210), unread_ms=2_342_000),
            replace(prediction(quick, 90, 294), unread_ms=694_000),
        ],
    )
    assert {one.setting for one in told.front} == {few, quick}
    assert told.best is not None
    assert told.best.setting == quick


def test_what_chance_may_give_or_take_is_no_gain() -> None:
    recorded = prediction(RECORDED, 13, 19)
    less = prediction(replace(RECORDED, initial_rebalance_delay_ms=0), 13, 14)
    assert advise(trace(), [recorded, replace(less, stopped_spread_ms=4_900)]).front
    assert not advise(trace(), [recorded, replace(less, stopped_spread_ms=5_100)]).front


def test_the_words_tell_of_a_crash_that_is_noticed_sooner_or_as_soon() -> None:
    recorded = prediction(replace(RECORDED, session_timeout_ms=45_000), 5, 1.25)
    sooner = prediction(replace(RECORDED, heartbeat_interval_ms=2_000), 4, 1)
    as_soon = prediction(replace(recorded.setting, initial_rebalance_delay_ms=0), 4, 1)

    assert words(recorded, sooner) == (
        "a 6 s session and heartbeats every 2 s: 5 -> 4 rebalances, 1.2 -> 1 s stopped; "
        "a crash is noticed 38 s sooner, and a pause of 6 s is taken for one"
    )
    assert words(recorded, as_soon).endswith("a crash is noticed as soon as now")
    assert words(recorded, as_soon).startswith("an initial delay of 0 s: ")


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
    assert told.lines()[1] == (
        "check: with the settings of the time the replay has 41 rebalances, the history 40; "
        "310 s stopped, the history 300 s"
    )
    assert told.lines()[2:] == ["not known: something"]


def test_where_nothing_gains_that_is_said() -> None:
    told = advise(
        trace(),
        [
            prediction(RECORDED, 2, 3),
            prediction(replace(RECORDED, session_timeout_ms=45_000), 2, 3),
        ],
    )
    assert told.best is None
    assert told.lines()[0] == "nothing that was tried would have been better than what there is"


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
