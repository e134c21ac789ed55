"""Does what the advisor predicts come true?

One life, lived by a whole broker and its clients under one setting; the advisor sees its history
and predicts another setting; then the same life is lived under that one, and a second time, to see
how far the simulation agrees with itself, for heartbeats fall as they fall.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any, Final

from pipeline.advisor.prediction import predict
from pipeline.advisor.reading import read_trace
from pipeline.advisor.setting import Setting
from tests.simulation.what_if import GROUP, Spacing, live, make_plan

CLOSE: Final = 0.10
"""Stopped time that differs by no more than this counts as the same."""


@dataclass(frozen=True)
class Case:
    """One trace. Figures are (rebalances, stopped time in ms)."""

    seed: str
    recorded: Setting
    tried: Setting
    predicted: tuple[int, int]
    lived: tuple[int, int]
    lived_again: tuple[int, int]

    @property
    def is_equal(self) -> bool:
        return self.predicted[0] == self.lived[0]

    @property
    def error(self) -> float:
        return _difference(self.predicted[1], self.lived[1])

    def __str__(self) -> str:
        return (
            f"{self.seed}: {self.predicted[0]} rebalances predicted, {self.lived[0]} lived, "
            f"{self.lived_again[0]} lived again; {self.predicted[1] / 1000:.1f} s stopped "
            f"predicted, {self.lived[1] / 1000:.1f} s lived, {self.lived_again[1] / 1000:.1f} s "
            f"lived again; {self.tried}"
        )


@dataclass
class Fidelity:
    """Of many."""

    cases: list[Case] = field(default_factory=list)

    @property
    def equal(self) -> float:
        return _part(case.is_equal for case in self.cases)

    @property
    def close(self) -> float:
        return _part(case.error <= CLOSE for case in self.cases)

    @property
    def close_of_itself(self) -> float:
        """As `close`, of the second life: nobody can foresee more than the middle between lives."""
        return _part(
            _difference(case.lived_again[1], case.lived[1]) <= CLOSE for case in self.cases
        )

    @property
    def median_error(self) -> float:
        return median(case.error for case in self.cases)

    @property
    def total_error(self) -> float:
        """Of all stopped time together."""
        return _difference(
            sum(case.predicted[1] for case in self.cases), sum(case.lived[1] for case in self.cases)
        )

    def describe(self) -> str:
        itself = _part(case.lived_again[0] == case.lived[0] for case in self.cases)
        errors = [_difference(case.lived_again[1], case.lived[1]) for case in self.cases]
        return (
            f"what-if fidelity over {len(self.cases)} traces:\n"
            f"  rebalance count equal in {self.equal:.1%} "
            f"(the simulation, lived twice, agrees with itself in {itself:.1%})\n"
            f"  stopped time within 10 % in {self.close:.1%} "
            f"(itself: {self.close_of_itself:.1%}); the median differs by "
            f"{self.median_error:.1%} (itself: {median(errors):.1%}), all together by "
            f"{self.total_error:.1%}"
        )

    def misses(self) -> list[str]:
        return [str(case) for case in self.cases if not case.is_equal or case.error > CLOSE]


def try_many(seed: str, spacing: Spacing, count: int) -> Iterator[Case]:
    """Traces with seeds of their own, on all cores, in order."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        work = [pool.submit(try_one, f"{seed}.{number}", spacing) for number in range(count)]
        try:
            for future in work:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def try_one(seed: str, spacing: Spacing, *, events: int = 30) -> Case:
    """One trace."""
    plan = make_plan(seed, spacing, events=events)
    recorded, tried = choose_settings(seed)
    trace = read_trace(GROUP, live(plan, recorded, run="recorded"))
    assert trace is not None
    predicted = predict(trace, tried)
    return Case(
        seed,
        recorded,
        tried,
        (predicted.rebalances, predicted.stopped_ms),
        _figures(live(plan, tried, run="tried")),
        _figures(live(plan, tried, run="again")),
    )


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


def _figures(records: list[dict[str, Any]]) -> tuple[int, int]:
    rebalances = [record for record in records if record["kind"] == "rebalance"]
    return len(rebalances), sum(record["stopped"]["total_ms"] for record in rebalances)


def _difference(value: int, truth: int) -> float:
    return abs(value - truth) / max(truth, 1)


def _part(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed)
