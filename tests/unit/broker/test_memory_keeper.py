"""What is done so that many members cost neither long pauses nor memory for ever."""

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from kohort.broker.collector import (
    CROWD_THRESHOLDS,
    THRESHOLDS,
    YOUNG_WORTH_A_LOOK,
    TurnCollector,
    collect_all,
    collect_as_usual,
    collect_in_steps,
)
from kohort.broker.core.steps import Steps
from kohort.broker.memory_keeper import (
    COLLECT_ALL_ANYWAY_LOOKS,
    GIVEN_BACK_AFTER_LOOKS,
    MANY,
    MemoryKeeper,
)

CROWD_COMES_AND_GOES = f"""
import json
from benchmarks.members import resident_kib
from kohort.broker.memory_keeper import MemoryKeeper

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
"""A process of its own, because it changes the allocator."""


CROWD_GOES_BIT_BY_BIT = f"""
import json
from benchmarks.members import resident_kib
from kohort.broker.memory_keeper import GIVEN_BACK_PER_GONE, MemoryKeeper

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
sizes.append(resident_kib())
left = 0
keeper.look()
sizes.append(resident_kib())
print(json.dumps(sizes))
"""


SOME_STAYS = f"""
import json
from benchmarks.members import resident_kib
from kohort.broker.history.rings import Rings, pack
from kohort.broker.memory_keeper import MemoryKeeper
from kohort.broker.metrics.group_counts import CountsByGroup

def left_after(renews):
    waiting = 0
    KEPT
    keeper = MemoryKeeper(lambda: waiting, renewals=[kept.renew_steps] if renews else [])
    before = resident_kib()
    waiting = {MANY}
    keeper.look()
    crowd = []
    for number in range(1_500):
        crowd += [(one, str(one)) for one in range(200)]
        FIRST
        crowd += [(one, str(one)) for one in range(200)]
        SECOND
    del crowd
    waiting = 0
    for _ in range(1 + {GIVEN_BACK_AFTER_LOOKS[1]}):
        keeper.look()
    return resident_kib() - before

print(json.dumps([left_after(True), left_after(False)]))
"""

COUNTS_STAY = (
    SOME_STAYS.replace("KEPT", "kept = CountsByGroup(5_000)")
    .replace("FIRST", 'kept.of(f"group-{number}").count_removed("session_expired")')
    .replace("SECOND", 'kept.of(f"group-{number}").count_rebalance("member_added")')
)
"""What is kept of each of 1,500 groups, 500 bytes."""

RECORDS_STAY = (
    SOME_STAYS.replace("KEPT", "kept = Rings(20, 64 << 20)")
    .replace("FIRST", 'kept.add(f"group-{number}", 1, pack(b"first"), is_rebalance=True)')
    .replace("SECOND", 'kept.add(f"group-{number}", 2, pack(b"second"), is_rebalance=True)')
)
"""The same of their records; the texts themselves lie elsewhere."""

ALLOCATORS = """
import ctypes, json
from kohort.broker import allocator

def functions():
    found = [allocator._allocator_of(domain) for domain in (1, 2)]
    return [(one.malloc, one.calloc, one.realloc, one.free) for one in found]

before = functions()
old = [(number, str(number)) for number in range(10_000)]
assert allocator.serve_objects_by_library()
assert allocator.serve_objects_by_library(), "twice is as good as once"
assert functions() != before
grown = bytearray(b"x" * 100)
some = [(number, str(number)) for number in range(10_000)]
del old[::2]
library = ctypes.CDLL(None)
kept_apart = 0
if hasattr(library, "mallinfo2"):
    class Info(ctypes.Structure):
        _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(10)]

    library.mallinfo2.restype = Info
    crowd = [bytes(50) for _ in range(10_000)]
    for number in range(0, 10_000, 2):
        crowd[number] = None
    kept_apart = library.mallinfo2().field6
allocator.serve_objects_by_python()
allocator.serve_objects_by_python()
assert functions() == before
grown += b"y" * 300
del grown[10:-10], some[::2], old
new = [(number, str(number)) for number in range(10_000)]
assert bytes(grown) == b"x" * 10 + b"y" * 10 and some[0] == (1, "1")
print(json.dumps([kept_apart]))
"""


class Knot:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.myself = self


@pytest.fixture
def in_steps() -> Iterator[None]:
    collect_in_steps()
    yield
    collect_as_usual()


linux_before_313 = pytest.mark.skipif(
    sys.version_info >= (3, 13) or sys.platform != "linux",
    reason="others keep the allocator that they have",
)


def run(script: str) -> list[int]:
    output = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE)
    sizes: list[int] = json.loads(output.stdout)
    return sizes


@linux_before_313
def test_memory_of_a_crowd_goes_back_though_one_in_a_thousand_objects_stays() -> None:
    before, full, after = run(CROWD_COMES_AND_GOES)
    assert full - before > 30_000, "KiB: the crowd cannot be seen"
    assert after - before < (full - before) / 4


@linux_before_313
def test_memory_of_a_crowd_goes_back_bit_by_bit_as_it_goes() -> None:
    full, held, after = run(CROWD_GOES_BIT_BY_BIT)
    assert full - held < full / 10, "while others hold on to what has gone"
    assert held - after > full / 4


@linux_before_313
@pytest.mark.parametrize("script", [COUNTS_STAY, RECORDS_STAY], ids=["counts", "records"])
def test_what_is_kept_of_each_group_holds_no_memory_once_it_was_made_anew(script: str) -> None:
    renewed, as_it_was = run(script)
    assert as_it_was > 6_000, "KiB: what holds memory cannot be seen"
    assert renewed < as_it_was / 4


@linux_before_313
def test_pythons_own_allocator_comes_back_and_frees_what_the_librarys_has_made() -> None:
    (kept_apart,) = run(ALLOCATORS)
    assert kept_apart < 10_000, "bytes that are free and not joined with what is beside them"


def test_what_stays_is_made_anew_each_time_that_a_crowd_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served_by: list[str] = []
    for name in ("serve_objects_by_library", "serve_objects_by_python"):
        monkeypatch.setattr(f"kohort.broker.allocator.{name}", partial(served_by.append, name[17:]))
    steps: list[int] = []

    def renew() -> Steps[None]:
        steps.append(1)
        yield
        steps.append(2)

    waiting, left = 10 * MANY, 0
    keeper = MemoryKeeper(lambda: waiting, lambda: left, [renew])
    for _ in range(2):
        waiting = 10 * MANY
        keeper.look()
        waiting, left = 0, MANY
        look_until_given_back(keeper)
        assert steps == [], "while there is much to be described"
        left = 0
        look_until_given_back(keeper)
        assert steps == [1, 2]
        for _ in range(GIVEN_BACK_AFTER_LOOKS[-1]):
            keeper.look()
        assert steps == [1, 2], "once is enough"
        steps.clear()
    assert served_by == ["library", "python"] * 2


def look_until_given_back(keeper: MemoryKeeper) -> None:
    for _ in range(1 + GIVEN_BACK_AFTER_LOOKS[1]):
        keeper.look()


async def test_what_stays_is_made_anew_with_turns_of_the_loop_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kohort.broker.allocator.serve_objects_by_library", lambda: True)
    steps: list[int] = []

    def renew() -> Steps[None]:
        for number in range(3):
            steps.append(number)
            yield

    waiting = 10 * MANY
    keeper = MemoryKeeper(lambda: waiting, renewals=[renew])
    keeper.start()
    try:
        keeper.look()
        waiting = 0
        look_until_given_back(keeper)
        assert steps == []
        for expected in ([0], [0, 1], [0, 1, 2]):
            await asyncio.sleep(0)
            assert steps == expected
    finally:
        keeper.stop()


def test_a_new_crowd_is_met_while_the_last_one_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is small beside the last."""
    served_by: list[str] = []
    for name in ("serve_objects_by_library", "serve_objects_by_python"):
        monkeypatch.setattr(f"kohort.broker.allocator.{name}", partial(served_by.append, name[17:]))
    waiting = 100 * MANY
    keeper = MemoryKeeper(lambda: waiting)
    keeper.look()
    waiting = 0
    look_until_given_back(keeper)
    waiting = MANY
    keeper.look()
    assert served_by == ["library", "python", "library"]


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
    collector = TurnCollector()
    most = 0
    while old:
        for _ in range(2_000):
            new.append([])
            old.pop()
        most = max(most, collector.look())
        assert len(gc.get_objects(generation=0)) < YOUNG_WORTH_A_LOOK
    assert 2_000 <= most < 4_000
    assert len(gc.get_objects()) < 60_000, "not set aside"
    collector.stop()
    assert gc.get_threshold() == THRESHOLDS


@pytest.mark.usefixtures("in_steps")
def test_a_few_young_objects_are_left_alone() -> None:
    gc.collect()
    collector = TurnCollector()
    knot = Knot()
    assert collector.look() == 0
    assert any(one is knot for one in gc.get_objects(generation=0))


async def test_young_objects_are_looked_at_while_there_are_many_and_until_they_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryKeeper, "_prepare", lambda _: None)
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
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    collect_in_steps()
    collect_as_usual()
    assert gc.get_threshold() == thresholds
    assert gc.callbacks == callbacks
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("in_steps")
def test_cycles_of_a_broker_that_is_never_quiet_are_found_once_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The allocator would be another one for all tests after this.
    monkeypatch.setattr(MemoryKeeper, "_prepare", lambda _: None)
    keeper = MemoryKeeper(lambda: MANY)
    knots = [Knot()]
    gc.collect()
    knots.clear()
    for _ in range(COLLECT_ALL_ANYWAY_LOOKS):
        keeper.look()
    gc.unfreeze()
    assert not any(isinstance(one, Knot) for one in gc.get_objects())
