import random
from collections.abc import Callable, Hashable

import pytest

from kohort.broker.core.purgatory import Completion, DelayedOperation, ParkingLimits, Purgatory
from kohort.broker.core.timing_wheel import KeyedTimers
from tests.support.measures.memory import traced_memory

Happened = list[tuple[str, str]]


class Operation(DelayedOperation):
    """Waits until `holds` says so; then does `effect` and notes it."""

    kind = "Fetch"

    def __init__(
        self,
        name: str,
        happened: Happened,
        *,
        holds: Callable[[], bool] = lambda: False,
        effect: Callable[[], None] = lambda: None,
        owner: Hashable | None = None,
        held_bytes: int = 0,
    ) -> None:
        super().__init__(owner=owner, held_bytes=held_bytes)
        self.name = name
        self.happened = happened
        self.holds = holds
        self.effect = effect
        self.keys_seen: list[Hashable | None] = []

    def try_complete(self, key: Hashable | None = None) -> bool:
        self.keys_seen.append(key)
        return self.holds()

    def on_complete(self, completion: Completion) -> None:
        self.effect()
        self.happened.append((self.name, completion.name))

    def on_failed(self, error: Exception) -> None:
        self.happened.append((self.name, f"UNKNOWN_SERVER_ERROR after {error}"))

    def on_cancelled(self) -> None:
        self.happened.append((self.name, "CANCELLED"))


class Produce(Operation):
    kind = "Produce"


@pytest.fixture
def happened() -> Happened:
    return []


@pytest.fixture
def reported() -> list[tuple[str, Exception]]:
    return []


@pytest.fixture
def purgatory(reported: list[tuple[str, Exception]]) -> Purgatory:
    return Purgatory(report=lambda doing, error: reported.append((doing, error)))


def drain(purgatory: Purgatory) -> None:
    while purgatory.has_work:
        purgatory.drain()


def test_an_operation_is_told_which_key_woke_it(purgatory: Purgatory, happened: Happened) -> None:
    operation = Operation("a", happened)
    purgatory.try_complete_else_watch(operation, ["k", "l"], 100)
    purgatory.check_and_complete("l")
    drain(purgatory)
    assert operation.keys_seen == [None, "l"]


def test_a_long_chain_of_wake_ups_needs_no_recursion(
    purgatory: Purgatory, happened: Happened
) -> None:
    satisfied = {0}
    length = 5_000

    def holds(number: int) -> Callable[[], bool]:
        return lambda: number in satisfied

    def wake_next(number: int) -> Callable[[], None]:
        def effect() -> None:
            satisfied.add(number + 1)
            purgatory.check_and_complete(number + 1)

        return effect

    for number in reversed(range(1, length)):
        operation = Operation(str(number), happened, holds=holds(number), effect=wake_next(number))
        purgatory.try_complete_else_watch(operation, [number], 100)
    first = Operation("0", happened, holds=holds(0), effect=wake_next(0))
    purgatory.try_complete_else_watch(first, [0], 100)
    drain(purgatory)
    assert [name for name, _ in happened] == [str(number) for number in range(length)]


def test_an_operation_registered_during_a_walk_is_not_visited_in_it(
    purgatory: Purgatory, happened: Happened
) -> None:
    second = Operation("second", happened)

    def register_second() -> None:
        purgatory.try_complete_else_watch(second, ["k"], 100)

    is_open: list[bool] = []
    first = Operation("first", happened, holds=lambda: bool(is_open), effect=register_second)
    purgatory.try_complete_else_watch(first, ["k"], 100)
    is_open.append(True)
    purgatory.check_and_complete("k")
    drain(purgatory)
    assert second.keys_seen == [None]


def test_a_walk_passes_over_operations_that_complete_during_it(
    purgatory: Purgatory, happened: Happened
) -> None:
    operations: list[Operation] = []
    is_open: list[bool] = []

    def cancel_others() -> None:
        for operation in operations[1:]:
            purgatory.cancel_operation(operation)

    for number in range(3):
        operation = Operation(
            str(number), happened, holds=lambda: bool(is_open), effect=cancel_others
        )
        operations.append(operation)
        purgatory.try_complete_else_watch(operation, ["k"], 100)
    is_open.append(True)
    purgatory.check_and_complete("k")
    drain(purgatory)
    assert happened == [("1", "CANCELLED"), ("2", "CANCELLED"), ("0", "SATISFIED")]


def test_an_operation_that_cancels_itself_while_completing_stays_completed(
    purgatory: Purgatory, happened: Happened
) -> None:
    operation = Operation("a", happened)
    operation.effect = lambda: happened.append(
        ("cancelled", str(purgatory.cancel_operation(operation)))
    )
    purgatory.try_complete_else_watch(operation, ["k"], 100)
    purgatory.expire(100)
    assert happened == [("cancelled", "False"), ("a", "EXPIRED")]


def test_expiring_one_operation_may_complete_another_of_the_same_turn(
    purgatory: Purgatory, happened: Happened
) -> None:
    second = Operation("second", happened)
    first = Operation("first", happened, effect=lambda: void(purgatory.cancel_operation(second)))
    purgatory.try_complete_else_watch(first, ["k"], 100)
    purgatory.try_complete_else_watch(second, ["k"], 100)
    purgatory.expire(100)
    assert happened == [("second", "CANCELLED"), ("first", "EXPIRED")]


def void(_: object) -> None:
    return


def test_an_exception_in_a_condition_fails_that_operation_and_not_its_neighbours(
    purgatory: Purgatory, happened: Happened, reported: list[tuple[str, Exception]]
) -> None:
    is_open: list[bool] = []

    def broken() -> bool:
        if is_open:
            raise RuntimeError("broken condition")
        return False

    operations = (
        Operation("a", happened, holds=lambda: bool(is_open)),
        Operation("b", happened, holds=broken),
        Operation("c", happened, holds=lambda: bool(is_open)),
    )
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["k"], 100)
    is_open.append(True)
    purgatory.check_and_complete("k")
    drain(purgatory)
    assert happened == [
        ("a", "SATISFIED"),
        ("b", "UNKNOWN_SERVER_ERROR after broken condition"),
        ("c", "SATISFIED"),
    ]
    assert [str(error) for _, error in reported] == ["broken condition"]
    assert purgatory.next_deadline_ms is None


def test_an_exception_in_an_answer_fails_that_operation_and_the_turn_goes_on(
    purgatory: Purgatory, happened: Happened, reported: list[tuple[str, Exception]]
) -> None:
    def broken() -> None:
        raise RuntimeError("broken answer")

    purgatory.try_complete_else_watch(Operation("a", happened, effect=broken), ["k"], 100)
    purgatory.try_complete_else_watch(Operation("b", happened), ["k"], 100)
    purgatory.expire(100)
    assert happened == [
        ("a", "UNKNOWN_SERVER_ERROR after broken answer"),
        ("b", "EXPIRED"),
    ]
    assert len(reported) == 1


def test_the_shutdown_completes_everything_and_what_comes_after_it(
    purgatory: Purgatory, happened: Happened
) -> None:
    late = Operation("late", happened)
    first = Operation(
        "first",
        happened,
        effect=lambda: void(purgatory.try_complete_else_watch(late, ["k"], 100)),
    )
    purgatory.try_complete_else_watch(first, ["k"], 100)
    purgatory.try_complete_else_watch(Operation("second", happened), ["l"], 50)
    purgatory.shutdown()
    assert happened == [("late", "SHUTDOWN"), ("first", "SHUTDOWN"), ("second", "SHUTDOWN")]
    assert purgatory.next_deadline_ms is None
    satisfied = Operation("satisfied", happened, holds=lambda: True)
    assert purgatory.try_complete_else_watch(satisfied, ["k"], 100)
    assert happened[-1] == ("satisfied", "SATISFIED")


@pytest.mark.parametrize(
    ("limits", "parked"),
    [
        (ParkingLimits(count_max=3), 3),
        (ParkingLimits(bytes_max=40), 4),
        (ParkingLimits(owner_count_max=1), 2),
        (ParkingLimits(owner_bytes_max=20), 4),
    ],
)
def test_what_waits_is_bounded_in_count_and_bytes_in_all_and_per_client(
    limits: ParkingLimits, parked: int, happened: Happened
) -> None:
    purgatory = Purgatory(report=lambda doing, error: None, limits=limits)
    operations = [
        Operation(str(number), happened, owner=f"c{number % 2}", held_bytes=10)
        for number in range(10)
    ]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["k"], 100)
    assert purgatory.stats()["Fetch"]["delayed"] == parked
    assert [why for _, why in happened] == ["REFUSED"] * (10 - parked)
    purgatory.cancel_owner("c0")
    purgatory.cancel_owner("c1")
    late = Operation("late", happened, owner="c0", held_bytes=10)
    assert not purgatory.try_complete_else_watch(late, ["k"], 100)


def test_a_turn_of_expiries_is_bounded_and_the_next_one_goes_on(
    purgatory: Purgatory, happened: Happened
) -> None:
    for number in range(10):
        purgatory.try_complete_else_watch(Operation(str(number), happened), ["k"], 100)
    purgatory.expire(100, 4)
    assert [name for name, _ in happened] == ["0", "1", "2", "3"]
    assert purgatory.next_deadline_ms == 100
    purgatory.expire(100, 100)
    assert len(happened) == 10


def test_a_key_that_changes_while_it_is_walked_is_walked_again(
    purgatory: Purgatory, happened: Happened
) -> None:
    satisfied: set[str] = set()

    def satisfy_first() -> None:
        satisfied.add("first")
        purgatory.check_and_complete("k")

    first = Operation("first", happened, holds=lambda: "first" in satisfied)
    second = Operation(
        "second", happened, holds=lambda: "second" in satisfied, effect=satisfy_first
    )
    purgatory.try_complete_else_watch(first, ["k"], 100)
    purgatory.try_complete_else_watch(second, ["k"], 100)
    satisfied.add("second")
    purgatory.check_and_complete("k")
    drain(purgatory)
    assert happened == [("second", "SATISFIED"), ("first", "SATISFIED")]


def test_gauges_count_each_kind_for_itself(purgatory: Purgatory, happened: Happened) -> None:
    purgatory.try_complete_else_watch(Operation("a", happened), ["k", "l", "k"], 100)
    purgatory.try_complete_else_watch(Produce("b", happened), ["k"], 100)
    timers: KeyedTimers[str] = purgatory.keyed_timers(lambda keys, now_ms: None, kind="Heartbeat")
    timers.schedule("m", 10)
    assert purgatory.stats() == {
        "Fetch": {"watched": 2, "delayed": 1},
        "Produce": {"watched": 1, "delayed": 1},
        "Heartbeat": {"watched": 0, "delayed": 1},
    }


def park(count: int, purgatory: Purgatory, happened: Happened) -> list[Operation]:
    rng = random.Random(3)
    operations = [Operation("", happened) for _ in range(count)]
    for number, operation in enumerate(operations):
        keys = [number % 1_000, number % 777 + 5_000]
        purgatory.try_complete_else_watch(operation, keys, rng.randrange(500))
    return operations


def test_the_memory_of_cancelled_operations_is_given_back(purgatory: Purgatory) -> None:
    happened: Happened = []
    with traced_memory() as taken:
        operations = park(10_000, purgatory, happened)
        for operation in operations:
            purgatory.cancel_operation(operation)
        del operations, operation
        happened.clear()
        after = taken()
    assert after < 200_000, "10,000 would be 4 MB"
