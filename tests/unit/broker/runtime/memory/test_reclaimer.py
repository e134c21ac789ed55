"""What is done so that many members cost neither long pauses nor memory for ever."""

import gc
import json
import os
import subprocess
import sys

import pytest

from kohort.broker.runtime.memory.collector import BURST_THRESHOLDS, THRESHOLDS
from kohort.broker.runtime.memory.reclaimer import (
    COLLECT_ALL_LATEST_CHECKS,
    MANY,
    RETURN_AFTER_CHECKS,
    MemoryReclaimer,
)
from tests.unit.broker.runtime.memory.knot import Knot

CROWD_COMES_AND_GOES = f"""
import json
from tests.support.measures.memory import resident_kib
from kohort.broker.runtime.memory.reclaimer import MemoryReclaimer

waiting = 0
reclaimer = MemoryReclaimer(lambda: waiting)
reclaimer.check()
sizes = [resident_kib()]
waiting = {MANY}
reclaimer.check()
crowd = [(number, str(number)) for number in range(200_000)]
stay = crowd[::1_000]
sizes.append(resident_kib())
del crowd
waiting = 0
for _ in range(1 + {RETURN_AFTER_CHECKS[0]}):
    reclaimer.check()
sizes.append(resident_kib())
print(json.dumps(sizes))
"""

CROWD_GOES_BIT_BY_BIT = f"""
import json
from tests.support.measures.memory import resident_kib
from kohort.broker.runtime.memory.reclaimer import RETURN_EVERY_DEPARTURES, MemoryReclaimer

waiting, left = {MANY} + 2 * RETURN_EVERY_DEPARTURES, 0
reclaimer = MemoryReclaimer(lambda: waiting, lambda: left)
reclaimer.check()
crowd = [(number, str(number)) for number in range(240_000)]
sizes = [resident_kib()]
stay = crowd[::1_000]
# They go, and most of them are still to be described.
del crowd[-160_000:]
waiting, left = waiting - 2 * RETURN_EVERY_DEPARTURES, RETURN_EVERY_DEPARTURES + 1
reclaimer.check()
left = 0
reclaimer.check()
sizes.append(resident_kib())
print(json.dumps(sizes))
"""


def run_by_the_librarys_allocator(script: str) -> list[int]:
    """KiB that a process of its own has taken at the moments that the script prints."""
    output = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONMALLOC": "malloc"},
    )
    sizes: list[int] = json.loads(output.stdout)
    return sizes


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_memory_of_a_crowd_goes_back_though_one_in_a_thousand_objects_stays() -> None:
    before, full, after = run_by_the_librarys_allocator(CROWD_COMES_AND_GOES)
    assert full - before > 12_000, "KiB: the crowd cannot be seen"
    assert after - before < (full - before) / 4


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_memory_of_a_crowd_goes_back_bit_by_bit_as_it_goes() -> None:
    full, after = run_by_the_librarys_allocator(CROWD_GOES_BIT_BY_BIT)
    assert full - after > full / 4


async def test_young_objects_are_looked_at_while_there_are_many_and_until_they_have_gone() -> None:
    count = MANY - 1
    reclaimer = MemoryReclaimer(lambda: count)
    reclaimer.start()
    try:
        reclaimer.check()
        assert gc.get_threshold() == THRESHOLDS
        count = MANY
        reclaimer.check()
        assert gc.get_threshold() == BURST_THRESHOLDS
        count = 0
        for _ in range(1 + RETURN_AFTER_CHECKS[-1]):
            reclaimer.check()
        assert gc.get_threshold() == THRESHOLDS
    finally:
        reclaimer.stop()


@pytest.mark.usefixtures("in_steps")
def test_cycles_of_a_broker_that_is_never_quiet_are_found_once_a_day() -> None:
    reclaimer = MemoryReclaimer(lambda: MANY)
    knots = [Knot()]
    gc.collect()
    knots.clear()
    for _ in range(COLLECT_ALL_LATEST_CHECKS):
        reclaimer.check()
    gc.unfreeze()
    assert not any(isinstance(one, Knot) for one in gc.get_objects())
