import pytest

from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.timing_wheel import KeyedTimers

Expired = list[tuple[list[str], int]]


@pytest.fixture
def purgatory() -> Purgatory:
    def report(doing: str, error: Exception) -> None:
        reported.append(str(error))

    reported.clear()
    return Purgatory(report=report)


reported: list[str] = []


@pytest.fixture
def expired() -> Expired:
    return []


@pytest.fixture
def timers(purgatory: Purgatory, expired: Expired) -> KeyedTimers[str]:
    return purgatory.keyed_timers(
        lambda keys, now_ms: expired.append((keys, now_ms)), kind="Heartbeat"
    )


def test_keys_that_come_due_together_are_handed_over_in_one_call_in_deadline_order(
    purgatory: Purgatory, timers: KeyedTimers[str], expired: Expired
) -> None:
    for key, deadline_ms in (("b", 20), ("a", 10), ("c", 20), ("later", 500)):
        timers.schedule(key, deadline_ms)
    purgatory.expire(100)
    assert expired == [(["a", "b", "c"], 100)]
    assert len(timers) == 1


def test_a_key_that_is_rescheduled_or_cancelled_in_the_turn_of_its_expiry_does_not_expire(
    purgatory: Purgatory,
) -> None:
    """One owner's expiry may move another's keys that are due in the same turn."""
    expired: list[str] = []
    second: KeyedTimers[str]

    def on_first(keys: list[str], now_ms: int) -> None:
        second.schedule("moved", now_ms + 100)
        second.cancel("cancelled")

    first = purgatory.keyed_timers(on_first, kind="Heartbeat")
    second = purgatory.keyed_timers(lambda keys, now_ms: expired.extend(keys), kind="Heartbeat")
    first.schedule("x", 10)
    for key in ("moved", "cancelled", "due"):
        second.schedule(key, 10)
    purgatory.expire(10)
    assert expired == ["due"]
    purgatory.expire(110)
    assert expired == ["due", "moved"]
    assert purgatory.stats()["Heartbeat"]["delayed"] == 0


def test_equal_keys_of_two_owners_are_two_timers(purgatory: Purgatory) -> None:
    expired: list[str] = []
    one: KeyedTimers[str] = purgatory.keyed_timers(
        lambda keys, now_ms: expired.append("one"), kind="Heartbeat"
    )
    two: KeyedTimers[str] = purgatory.keyed_timers(
        lambda keys, now_ms: expired.append("two"), kind="Rebalance"
    )
    one.schedule("member", 10)
    two.schedule("member", 20)
    assert purgatory.stats() == {
        "Heartbeat": {"watched": 0, "delayed": 1},
        "Rebalance": {"watched": 0, "delayed": 1},
    }
    one.cancel("member")
    purgatory.expire(100)
    assert expired == ["two"]


def test_an_owner_that_raises_is_reported_and_does_not_stop_the_others(
    purgatory: Purgatory, timers: KeyedTimers[str], expired: Expired
) -> None:
    def broken(keys: list[str], now_ms: int) -> None:
        raise RuntimeError("broken group")

    purgatory.keyed_timers(broken, kind="Heartbeat").schedule("x", 5)
    timers.schedule("member", 10)
    purgatory.expire(100)
    assert expired == [(["member"], 100)]
    assert reported == ["broken group"]


def test_an_owner_may_schedule_from_within_its_expiry(purgatory: Purgatory) -> None:
    expired: list[int] = []

    def again(keys: list[str], now_ms: int) -> None:
        expired.append(now_ms)
        ticks.schedule("tick", now_ms + 10)

    ticks = purgatory.keyed_timers(again, kind="Heartbeat")
    ticks.schedule("tick", 10)
    for now_ms in range(100):
        purgatory.expire(now_ms)
    assert expired == [10, 20, 30, 40, 50, 60, 70, 80, 90]
