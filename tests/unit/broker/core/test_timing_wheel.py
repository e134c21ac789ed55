import random

from kohort.broker.core.timing_wheel import TimerEntry, TimingWheel
from tests.support.measures.memory import traced_memory

TIMERS = 10_000


class Named(TimerEntry):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def due_names(wheel: TimingWheel[Named], now_ms: int, entries_max: int = 1_000) -> list[str]:
    return [entry.name for entry in wheel.take_due(now_ms, entries_max)]


def test_a_heartbeat_touches_no_slot() -> None:
    wheel: TimingWheel[Named] = TimingWheel()
    entry = Named("member")
    wheel.schedule(entry, 45_000)
    slots_before = dict(wheel._slots)
    for now_ms in range(3_000, 30_000, 3_000):
        wheel.schedule(entry, now_ms + 45_000)
    assert wheel._slots == slots_before
    assert wheel._slot_times == [45_000]


def test_a_cancelled_entry_does_not_fire_and_leaves_nothing_behind() -> None:
    wheel: TimingWheel[Named] = TimingWheel()
    entry = Named("a")
    wheel.schedule(entry, 10)
    assert wheel.cancel(entry)
    assert not wheel.cancel(entry)
    assert due_names(wheel, 100) == []
    assert wheel.next_deadline_ms is None
    assert len(wheel) == 0


def test_a_look_takes_no_more_entries_than_it_may_and_the_next_goes_on() -> None:
    wheel: TimingWheel[Named] = TimingWheel()
    for number in range(5):
        wheel.schedule(Named(str(number)), 10)
    assert due_names(wheel, 10, 2) == ["0", "1"]
    assert wheel.next_deadline_ms == 10
    assert due_names(wheel, 10, 2) == ["2", "3"]
    assert due_names(wheel, 10, 2) == ["4"]


def test_entries_put_off_count_as_looked_at() -> None:
    wheel: TimingWheel[Named] = TimingWheel()
    for number in range(10):
        entry = Named(str(number))
        wheel.schedule(entry, 10)
        wheel.schedule(entry, 1_000)
    assert due_names(wheel, 500, 4) == []
    assert wheel.next_deadline_ms == 10
    assert due_names(wheel, 500, 100) == []
    assert wheel.next_deadline_ms == 1_000


def test_scheduling_and_cancelling_one_entry_for_ever_needs_no_memory() -> None:
    wheel: TimingWheel[Named] = TimingWheel()
    entry = Named("a")
    for deadline_ms in range(10_000):
        wheel.schedule(entry, deadline_ms)
        wheel.cancel(entry)
    assert len(wheel._slot_times) < 100
    assert not wheel._slots


def test_the_memory_of_ten_thousand_timers_is_given_back_when_they_are_cancelled() -> None:
    wheel: TimingWheel[Named] = TimingWheel()
    rng = random.Random(2)
    with traced_memory() as taken:
        entries = [Named("") for _ in range(TIMERS)]
        for entry in entries:
            wheel.schedule(entry, rng.randrange(45_000))
        held = taken()
        for entry in entries:
            wheel.cancel(entry)
        del entries, entry
        after = taken()
    assert held < 500 * TIMERS
    assert after < 20_000
