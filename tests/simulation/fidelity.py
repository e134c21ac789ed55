"""Checks that what the advisor predicts comes true.

One life, lived by a whole broker and its clients under one setting; the advisor sees its history
and predicts another setting; then the same life is lived under that one, several times, for
heartbeats fall as they fall: what the setting comes to is the mean of these lives, and how far a
single one is from another is what chance makes of it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from statistics import fmean, median
from typing import Any, Final, TypeAlias

from kohort.insight.advisor.prediction import Prediction, predict
from kohort.insight.advisor.reading import JOIN_TIME_OF, read_trace
from kohort.insight.advisor.setting import CONSUMER_DEFAULTS, Setting
from kohort.insight.advisor.text import is_by_chance
from kohort.insight.advisor.trace import Trace, Uncertainty
from tests.simulation.campaign import in_processes
from tests.simulation.what_if import GROUP, Spacing, live, make_plan
from tests.simulation.what_if_consumers import live_as_consumers

CLOSE: Final = 0.10
"""Stopped time that differs by no more than this counts as the same."""


Lived: TypeAlias = tuple[int, int]
"""Rebalances, and stopped time in ms."""


@dataclass(frozen=True)
class Case:
    """One trace, what was predicted of it, and how it was lived."""

    seed: str
    recorded: Setting
    tried: Setting
    predicted: Prediction
    lives: tuple[Lived, ...]
    """Under the setting that was predicted. They differ by chance alone."""
    is_told: bool
    """Whether the history says how long every member takes to join."""
    is_given: bool
    """Whether it says how long every member takes to give partitions up, where members that were
    cooperative are predicted as eager ones: of those that never had to, no replay can know it, and
    the advice does not rank it.
    """

    @property
    def is_equal(self) -> bool:
        return self.predicted.rebalances == self.lives[0][0]

    @property
    def is_equal_itself(self) -> bool:
        return self.lives[1][0] == self.lives[0][0]

    @property
    def mean_ms(self) -> float:
        """What the setting comes to, chance aside."""
        return fmean(stopped_ms for _, stopped_ms in self.lives)

    @property
    def error(self) -> float:
        """Error of the predicted stopped time, against the mean of all lives."""
        return _difference(self.predicted.stopped_ms, self.mean_ms)

    @property
    def error_of_one(self) -> float:
        """Against a single life."""
        return _difference(self.predicted.stopped_ms, self.lives[0][1])

    @property
    def error_of_itself(self) -> float:
        """Error of a second life against the first: as near as a look at one life comes."""
        return _difference(self.lives[1][1], self.lives[0][1])

    @property
    def is_within(self) -> bool:
        """Whether that error is small, or no more than the spread that the advice states."""
        difference_ms = abs(self.predicted.stopped_ms - self.mean_ms)
        return self.error <= CLOSE or difference_ms <= self.predicted.stopped_spread_ms

    @property
    def is_by_chance(self) -> bool:
        """Whether the advice shows "±"."""
        return is_by_chance(self.predicted)

    def __str__(self) -> str:
        told, lived = self.predicted, ", ".join(f"{ms / 1000:.1f}" for _, ms in self.lives)
        return (
            f"{self.seed}: {told.rebalances} rebalances predicted, "
            f"{', '.join(str(count) for count, _ in self.lives)} lived; "
            f"{told.stopped_ms / 1000:.1f} s stopped predicted ± "
            f"{told.stopped_spread_ms / 1000:.1f} s, {lived} s lived; "
            f"{'' if self.is_told else 'not all joins are told; '}"
            f"{'' if self.is_given else 'not all revocations are told; '}{self.tried}"
        )


@dataclass
class Fidelity:
    cases: list[Case] = field(default_factory=list)

    @property
    def equal(self) -> float:
        return _part(case.is_equal for case in self.cases)

    @property
    def given(self) -> list[Case]:
        """Cases that the advice ranks, as far as giving up of partitions decides it."""
        return [case for case in self.cases if case.is_given]

    @property
    def close(self) -> float:
        """Stopped time, against what the setting comes to, in given cases."""
        return _part(case.error <= CLOSE for case in self.given)

    @property
    def within(self) -> float:
        """Share as `close`, or as close as the advice says."""
        return _part(case.is_within for case in self.given)

    @property
    def close_to_one(self) -> float:
        return _part(case.error_of_one <= CLOSE for case in self.cases)

    @property
    def close_of_itself(self) -> float:
        """Share as `close_to_one`, for the second life: chance cannot be foreseen."""
        return _part(case.error_of_itself <= CLOSE for case in self.cases)

    @property
    def median_error(self) -> float:
        return median(case.error for case in self.given)

    @property
    def total_error(self) -> float:
        """Error of all stopped time of given cases together."""
        return _difference(
            sum(case.predicted.stopped_ms for case in self.given),
            sum(case.mean_ms for case in self.given),
        )

    @property
    def sure(self) -> list[Case]:
        """Cases of which the advice does not say that chance decides."""
        return [case for case in self.cases if not case.is_by_chance]

    def describe(self) -> str:
        sure = self.sure
        itself = _part(case.is_equal_itself for case in self.cases)
        untold = [case for case in self.cases if not case.is_told]
        return (
            f"what-if fidelity over {len(self.cases)} traces, each lived "
            f"{len(self.cases[0].lives)} times under the setting that was predicted:\n"
            f"  rebalance count equal in {self.equal:.1%} "
            f"(the simulation, lived twice, agrees with itself in {itself:.1%})\n"
            f"  in {len(self.cases) - len(self.given)} traces eager members are predicted of whom "
            "it is not told how long they take to give partitions up; of the other "
            f"{len(self.given)}:\n"
            f"  stopped time within 10 % of the mean of these lives in {self.close:.1%} "
            f"({_part(case.error <= CLOSE for case in self.cases):.1%} of all traces), "
            f"or by no more than the advice says in {self.within:.1%}; "
            f"the median differs by {self.median_error:.1%}, all together by "
            f"{self.total_error:.1%}\n"
            "  of all traces, stopped time within 10 % of a single life in "
            f"{self.close_to_one:.1%} (of another single life: {self.close_of_itself:.1%})\n"
            f"  in {len(self.cases) - len(sure)} traces the advice says that chance decides about "
            f"more than 10 %; of the other {len(sure)}, a single life is within 10 % in "
            f"{_part(case.error_of_one <= CLOSE for case in sure):.1%}\n"
            f"  in {len(untold)} traces the advice says that it does not know how long some member "
            f"takes to join; counts are equal in {sum(case.is_equal for case in untold)} of them"
        )

    def misses(self) -> list[str]:
        return [
            str(case)
            for case in self.cases
            if not case.is_equal or case.error > CLOSE or case.error_of_one > CLOSE
        ]


def try_many(
    seed: str,
    spacing: Spacing,
    count: int,
    *,
    lives: int,
    consumer: bool = False,
    was_consumer: bool = False,
) -> Iterator[Case]:
    """Traces with seeds of their own, on all cores, in order."""
    tried = partial(
        try_one, spacing=spacing, lives=lives, consumer=consumer, was_consumer=was_consumer
    )
    return in_processes([partial(tried, f"{seed}.{number}") for number in range(count)])


def try_one(
    seed: str,
    spacing: Spacing,
    lives: int,
    *,
    events: int = 30,
    consumer: bool = False,
    was_consumer: bool = False,
) -> Case:
    """One trace, and so many lives under another setting: with `consumer`, of consumer groups; with
    `was_consumer`, the trace is of one too.
    """
    plan = make_plan(seed, spacing, events=events)
    recorded, tried = choose_settings(seed)
    live_first: Callable[..., list[dict[str, Any]]] = live
    live_again: Callable[..., list[dict[str, Any]]] = live
    if consumer:
        # As consumers do, so that the history says when a process ran again.
        live_first = partial(live, beats_when_thawed=True)
    if was_consumer:
        recorded = replace(choose_as_consumers(f"recorded {seed}"), static=False)
        live_first = live_as_consumers
    if consumer:
        tried, live_again = choose_as_consumers(seed), live_as_consumers
    trace = read_trace(GROUP, live_first(plan, recorded, run="recorded"))
    assert trace is not None
    return Case(
        seed,
        recorded,
        tried,
        predict(trace, tried),
        tuple(_figures(live_again(plan, tried, run=f"tried {number}")) for number in range(lives)),
        not any(text.startswith(JOIN_TIME_OF) for text in trace.unknown),
        _is_given(trace, tried),
    )


def _is_given(trace: Trace, tried: Setting) -> bool:
    is_untold = {Uncertainty.SOME_REVOCATIONS, Uncertainty.REVOCATIONS} & set(trace.doubts)
    return tried.cooperative or not trace.recorded.cooperative or not is_untold


def choose_settings(seed: str) -> tuple[Setting, Setting]:
    """What a life is recorded under, and what is predicted of it."""
    chance = Random(f"settings {seed}")
    recorded = Setting(
        static=False,
        session_timeout_ms=chance.choice((6_000, 10_000)),
        heartbeat_interval_ms=chance.choice((2_000, 3_000)),
        cooperative=chance.random() < 0.25,
        states_reasons=chance.random() < 0.3,
    )
    tried = recorded
    while tried == recorded:
        tried = Setting(
            static=chance.random() < 0.5,
            session_timeout_ms=chance.choice((6_000, 10_000, 45_000, 60_000)),
            heartbeat_interval_ms=chance.choice((2_000, 3_000)),
            rebalance_timeout_ms=chance.choice((60_000, 300_000)),
            initial_rebalance_delay_ms=chance.choice((0, 3_000, 6_000)),
            cooperative=chance.random() < 0.4,
            states_reasons=chance.random() < 0.3,
        )
    return recorded, tried


def choose_as_consumers(seed: str) -> Setting:
    """What is predicted of a life as a consumer group."""
    chance = Random(f"consumers {seed}")
    return replace(
        CONSUMER_DEFAULTS,
        static=chance.random() < 0.5,
        heartbeat_interval_ms=chance.choice((500, 2_000, 5_000)),
        states_reasons=chance.random() < 0.3,
    )


def _figures(records: list[dict[str, Any]]) -> tuple[int, int]:
    rebalances = [record for record in records if record["kind"] == "rebalance"]
    return len(rebalances), sum(record["stopped"]["total_ms"] for record in rebalances)


def _difference(value: float, truth: float) -> float:
    return abs(value - truth) / max(truth, 1)


def _part(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed) if listed else 1.0
