"""Looks of the garbage collector that do not grow with what lives."""

import gc

import pytest

from kohort.broker.runtime.memory.collector import (
    CHECKS_PER_COUNT,
    THRESHOLDS,
    YOUNG_COUNT_MIN,
    IterationCollector,
    collect_all,
    collect_as_usual,
    collect_in_steps,
)
from tests.unit.broker.runtime.memory.knot import Knot


@pytest.mark.usefixtures("in_steps")
def test_a_look_of_the_collector_never_has_more_than_has_come_lately() -> None:
    everybody: list[list[object]] = []
    most = 0
    for _ in range(100):
        everybody += ([] for _ in range(2_000))
        most = max(most, len(gc.get_objects()))
    assert len(everybody) == 200_000
    young, middle, _ = THRESHOLDS
    assert most < 2 * young * (middle + 1)


@pytest.mark.usefixtures("in_steps")
def test_young_objects_are_seen_though_old_ones_go_as_fast_as_they_come() -> None:
    """What the interpreter counts is made less freed, and says that there is nothing."""
    old: list[list[object]] = [[] for _ in range(200_000)]
    gc.collect()
    new: list[list[object]] = []
    collector = IterationCollector()
    most = 0
    while old:
        for _ in range(2_000):
            new.append([])
            old.pop()
        most = max(most, collector.check())
        assert len(gc.get_objects(generation=0)) < YOUNG_COUNT_MIN + CHECKS_PER_COUNT * 2_000
    assert 2_000 <= most < (CHECKS_PER_COUNT + 1) * 2_000
    assert len(gc.get_objects()) < 60_000, "not set aside"
    collector.stop()
    assert gc.get_threshold() == THRESHOLDS


@pytest.mark.usefixtures("in_steps")
def test_a_few_young_objects_are_left_alone() -> None:
    gc.collect()
    collector = IterationCollector()
    knot = Knot()
    assert not any(collector.check() for _ in range(CHECKS_PER_COUNT))
    assert any(one is knot for one in gc.get_objects(generation=0))


@pytest.mark.usefixtures("in_steps")
def test_a_cycle_among_old_objects_is_found_by_the_look_at_everything() -> None:
    knots = [Knot()]
    gc.collect()
    assert not any(isinstance(one, Knot) for one in gc.get_objects()), "not set aside"
    knots.clear()
    gc.collect()
    collect_all()
    gc.unfreeze()
    assert not any(isinstance(one, Knot) for one in gc.get_objects())


def test_afterwards_the_collector_works_as_it_did_before() -> None:
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    gc.set_threshold(901, 11, 12)
    try:
        collect_in_steps()
        collect_in_steps()
        collect_as_usual()
        assert gc.get_threshold() == (901, 11, 12)
    finally:
        gc.set_threshold(*before)
    assert gc.callbacks == callbacks
    assert gc.get_freeze_count() == 0
