"""What is done so that many members cost neither long pauses nor memory for ever."""

import gc
import json
import os
import subprocess
import sys

import pytest

from kohort.broker.runtime.memory.collector import (
    CROWD_THRESHOLDS,
    THRESHOLDS,
)
from kohort.broker.runtime.memory.keeper import (
    COLLECT_ALL_ANYWAY_LOOKS,
    GIVEN_BACK_AFTER_LOOKS,
    MANY,
    MemoryKeeper,
)
from tests.unit.broker.runtime.memory.knot import Knot

CROWD_COMES_AND_GOES = f"""
import json
from tests.support.measures.memory import resident_kib
from kohort.broker.runtime.memory.keeper import MemoryKeeper

waiting = 0
keeper = MemoryKeeper(lambda: waiting)
keeper.look()
sizes = [resident_kib()]
waiting = {MANY}
keeper.look()
crowd = [(number, str(number)) for number in range(500_000)]
stay = crowd[::1_000]
sizes.append(resident_kib())
del crowd
waiting = 0
for _ in range(1 + {GIVEN_BACK_AFTER_LOOKS[0]}):
    keeper.look()
sizes.append(resident_kib())
print(json.dumps(sizes))
"""

CROWD_GOES_BIT_BY_BIT = f"""
import json
from tests.support.measures.memory import resident_kib
from kohort.broker.runtime.memory.keeper import GIVEN_BACK_PER_GONE, MemoryKeeper

waiting, left = {MANY} + 2 * GIVEN_BACK_PER_GONE, 0
keeper = MemoryKeeper(lambda: waiting, lambda: left)
keeper.look()
crowd = [(number, str(number)) for number in range(600_000)]
sizes = [resident_kib()]
stay = crowd[::1_000]
# They go, and most of them are still to be described.
del crowd[-400_000:]
waiting, left = waiting - 2 * GIVEN_BACK_PER_GONE, GIVEN_BACK_PER_GONE + 1
keeper.look()
left = 0
keeper.look()
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
    assert full - before > 30_000, "KiB: the crowd cannot be seen"
    assert after - before < (full - before) / 4


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_memory_of_a_crowd_goes_back_bit_by_bit_as_it_goes() -> None:
    full, after = run_by_the_librarys_allocator(CROWD_GOES_BIT_BY_BIT)
    assert full - after > full / 4


async def test_young_objects_are_looked_at_while_there_are_many_and_until_they_have_gone() -> None:
    count = MANY - 1
    keeper = MemoryKeeper(lambda: count)
    keeper.start()
    try:
        keeper.look()
        assert gc.get_threshold() == THRESHOLDS
        count = MANY
        keeper.look()
        assert gc.get_threshold() == CROWD_THRESHOLDS
        count = 0
        for _ in range(1 + GIVEN_BACK_AFTER_LOOKS[-1]):
            keeper.look()
        assert gc.get_threshold() == THRESHOLDS
    finally:
        keeper.stop()


@pytest.mark.usefixtures("in_steps")
def test_cycles_of_a_broker_that_is_never_quiet_are_found_once_a_day() -> None:
    keeper = MemoryKeeper(lambda: MANY)
    knots = [Knot()]
    gc.collect()
    knots.clear()
    for _ in range(COLLECT_ALL_ANYWAY_LOOKS):
        keeper.look()
    gc.unfreeze()
    assert not any(isinstance(one, Knot) for one in gc.get_objects())
