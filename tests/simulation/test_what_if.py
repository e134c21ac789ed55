"""What would have happened with other settings: the advisor against the simulation itself."""

from dataclasses import replace

import pytest

from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.setting import Setting
from tests.simulation.fidelity import Fidelity, try_many, try_one
from tests.simulation.what_if import APART, GROUP, live, make_plan

MANY = 100
LIVES = 5
"""Lives of each trace, where there are many: their mean is close to what a setting comes to."""
CONSUMER_LIVES = 10
"""The same of consumer groups, which no broker has to be started for."""


def test_a_cooperative_process_joins_at_once_and_takes_its_time_to_give_up() -> None:
    """The way of librdkafka and the Java client: an eager one takes it before its join."""
    plan = make_plan("slow", events=12)
    plan.places = [replace(place, slowness_ms=2_000, jitter_ms=10) for place in plan.places]
    recorded = Setting(static=False, session_timeout_ms=10_000, heartbeat_interval_ms=2_000)

    for cooperative in (False, True):
        records = live(plan, replace(recorded, cooperative=cooperative), run="a")
        trace = read_trace(GROUP, records)
        assert trace is not None
        joins = [took for slot in trace.slots for took in slot.join.took_ms]
        revocations = [took for slot in trace.slots for took in slot.revoke.took_ms]
        assert joins
        if cooperative:
            assert max(joins) < 100
            assert revocations
            assert min(revocations) >= 2_000
        else:
            assert min(joins) >= 2_000


@pytest.mark.parametrize("was_consumer", [False, True])
def test_lives_predicted_as_consumers_and_lived_so(was_consumer: bool) -> None:
    cases = [
        try_one(f"as.{number}", APART, 2, events=12, consumer=True, was_consumer=was_consumer)
        for number in (0, 1)
    ]
    for case in cases:
        assert case.is_equal, case
        # A prediction is of a mean: no further from it than one life may be, and a bit.
        assert abs(case.predicted.stopped_ms - case.mean_ms) <= (
            case.predicted.stopped_spread_ms + 0.1 * case.mean_ms
        ), case


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("was_consumer", [False, True])
def test_many_lives_predicted_as_consumers(
    was_consumer: bool, what_if_traces: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # The history of a classic group takes a whole broker.
    count = what_if_traces if was_consumer else max(what_if_traces // 3, 1)
    cases = try_many(
        "lives", APART, count, lives=CONSUMER_LIVES, consumer=True, was_consumer=was_consumer
    )
    fidelity = Fidelity(list(cases))
    with capsys.disabled():
        print(f"\n{fidelity.describe()}", *fidelity.misses(), sep="\n  ")

    assert fidelity.equal >= 0.95, fidelity.misses()
    assert fidelity.within >= 0.93, fidelity.misses()
    # The mean of many lives in which chance decides about a fifth may be off by a twentieth.
    assert fidelity.close >= 0.85, fidelity.misses()
    assert fidelity.median_error <= 0.06, fidelity.misses()
    assert fidelity.total_error <= 0.03, fidelity.misses()
    assert fidelity.close_to_one >= fidelity.close_of_itself - 0.10, fidelity.misses()


@pytest.mark.timeout(7200)
def test_predictions_come_true(what_if_traces: int, capsys: pytest.CaptureFixture[str]) -> None:
    is_many = what_if_traces >= MANY
    lives = LIVES if is_many else 2
    fidelity = Fidelity(list(try_many("lives", APART, what_if_traces, lives=lives)))
    with capsys.disabled():
        print(f"\n{fidelity.describe()}", *fidelity.misses(), sep="\n  ")

    assert fidelity.median_error <= 0.10, fidelity.misses()
    if is_many:
        assert fidelity.equal >= 0.95, fidelity.misses()
        # What is not held to be close is little.
        assert len(fidelity.given) >= 0.85 * len(fidelity.cases)
        # It is 95 %, of which chance moves two.
        assert fidelity.close >= 0.93, fidelity.misses()
        assert fidelity.total_error <= 0.02
        # Heartbeats do not fall twice as they fell: another life is no closer to a life.
        assert fidelity.close_to_one >= fidelity.close_of_itself - 0.05, fidelity.misses()
    else:
        # So few may have the misses of many.
        assert fidelity.equal >= 0.75, fidelity.misses()
