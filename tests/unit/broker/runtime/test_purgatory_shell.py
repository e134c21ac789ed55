import asyncio
import socket
import time
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from kohort.broker.core.purgatory import Completion, DelayedOperation, Purgatory
from kohort.broker.core.timing_wheel import KeyedTimers
from kohort.broker.runtime.clock import Clock, SystemClock
from kohort.broker.runtime.purgatory_shell import SLICE_MS, PurgatoryShell
from kohort.testing.virtual_clock import VirtualClock
from tests.support.virtual_time import virtual

START_MS = VirtualClock().monotonic_ms()
Run = Callable[[Coroutine[None, None, None]], None]


class Operation(DelayedOperation):
    kind = "Fetch"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.is_satisfied = False
        self.happened: tuple[str, int] | None = None

    def try_complete(self, key: object = None) -> bool:
        return self.is_satisfied

    def on_complete(self, completion: Completion) -> None:
        self.happened = (completion.name, self.clock.monotonic_ms() - START_MS)

    def on_failed(self, error: Exception) -> None:
        raise AssertionError from error


def report(doing: str, error: Exception) -> None:
    raise AssertionError(doing) from error


@pytest.fixture
def purgatory() -> Purgatory:
    return Purgatory(report=report)


@virtual
async def test_an_earlier_deadline_brings_the_timer_forward(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    late, early = Operation(clock), Operation(clock)
    PurgatoryShell(purgatory, clock)
    purgatory.try_complete_else_watch(late, ["k"], START_MS + 60_000)
    await asyncio.sleep(1)
    purgatory.try_complete_else_watch(early, ["k"], START_MS + 2_000)
    await asyncio.sleep(2)
    assert early.happened == ("EXPIRED", 2_000)
    assert late.happened is None


@virtual
async def test_what_waited_before_the_shell_came_is_driven_too(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    waiting, woken = Operation(clock), Operation(clock)
    purgatory.try_complete_else_watch(waiting, ["k"], START_MS + 1_000)
    purgatory.try_complete_else_watch(woken, ["l"], START_MS + 9_000)
    woken.is_satisfied = True
    purgatory.check_and_complete("l")
    PurgatoryShell(purgatory, clock)
    await asyncio.sleep(2)
    assert waiting.happened == ("EXPIRED", 1_000)
    assert woken.happened == ("SATISFIED", 0)


@virtual
async def test_a_wake_up_is_worked_off_in_the_same_moment(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    operation = Operation(clock)
    PurgatoryShell(purgatory, clock)
    purgatory.try_complete_else_watch(operation, ["k"], START_MS + 60_000)
    await asyncio.sleep(3)
    operation.is_satisfied = True
    purgatory.check_and_complete("k")
    assert operation.happened is None, "not within the call that made the change"
    await asyncio.sleep(1)
    assert operation.happened == ("SATISFIED", 3_000)


@virtual
async def test_many_expiries_and_wake_ups_leave_the_loop_its_turns(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    expiring = [Operation(clock) for _ in range(3_000)]
    woken = [Operation(clock) for _ in range(3_000)]
    most_at_once = 0
    PurgatoryShell(purgatory, clock)
    for operation in expiring:
        purgatory.try_complete_else_watch(operation, ["k"], START_MS + 1_000)
    for operation in woken:
        purgatory.try_complete_else_watch(operation, ["l"], START_MS + 60_000)
    await asyncio.sleep(0.999)
    for operation in woken:
        operation.is_satisfied = True
    purgatory.check_and_complete("l")
    clock.advance(1)
    done = before = 0
    while done < 6_000:
        await asyncio.sleep(0)
        done = sum(operation.is_completed for operation in expiring + woken)
        most_at_once = max(most_at_once, done - before)
        before = done
    assert 0 < most_at_once <= 2_000, "one turn of wake-ups and one of expiries"


class SlowOperation(Operation):
    """Takes a millisecond to answer."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.virtual_clock = clock

    def on_complete(self, completion: Completion) -> None:
        super().on_complete(completion)
        self.virtual_clock.advance(1)


@virtual
async def test_a_turn_of_slow_operations_ends_by_the_clock(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    operations = [SlowOperation(clock) for _ in range(500)]
    most_at_once = 0
    PurgatoryShell(purgatory, clock)
    for number, operation in enumerate(operations):
        deadline_ms = 1_000 if number % 2 else 60_000
        purgatory.try_complete_else_watch(operation, [number % 2], START_MS + deadline_ms)
        operation.is_satisfied = number % 2 == 0
    purgatory.check_and_complete(0)
    clock.advance(1_000)
    done = before = 0
    while done < len(operations):
        await asyncio.sleep(0)
        done = sum(operation.is_completed for operation in operations)
        most_at_once = max(most_at_once, done - before)
        before = done
    assert most_at_once <= 2 * (SLICE_MS + 10), "one turn of wake-ups and one of expiries"


@virtual
async def test_the_ends_of_many_large_join_phases_get_turns_of_their_own(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    ended: list[int] = []

    def end_one(keys: list[str], now_ms: int) -> None:
        ended.append(now_ms)
        clock.advance(2 * SLICE_MS)

    PurgatoryShell(purgatory, clock)
    for _ in range(20):
        timers: KeyedTimers[str] = purgatory.keyed_timers(end_one, kind="Rebalance")
        timers.schedule("join", START_MS + 1_000)
    clock.advance(1_000)
    seen = 0
    while seen < 20:
        await asyncio.sleep(0)
        assert len(ended) - seen <= 1
        seen = len(ended)


@virtual
async def test_closing_completes_all_and_what_that_wakes(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    first, second = Operation(clock), Operation(clock)
    shell = PurgatoryShell(purgatory, clock)
    purgatory.try_complete_else_watch(first, ["k"], START_MS + 60_000)
    purgatory.try_complete_else_watch(second, ["l"], START_MS + 60_000)
    second.is_satisfied = True
    purgatory.check_and_complete("l")
    shell.close()
    shell.close()
    await asyncio.sleep(100)
    assert first.happened == ("SHUTDOWN", 0)
    assert second.happened is not None


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def real_loop(request: pytest.FixtureRequest) -> Run:
    def run_really(test: Coroutine[None, None, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(test)

    return run_really


def test_sessions_survive_a_pause_if_heartbeats_were_waiting_in_the_socket(
    real_loop: Run, purgatory: Purgatory
) -> None:
    """The process sleeps for longer than the session; the heartbeat came in the meantime."""
    clock = SystemClock()
    expired: list[str] = []
    session_ms, long_ms = 50, 60_000

    async def test() -> None:
        shell, ended = PurgatoryShell(purgatory, clock), asyncio.Event()

        def expire(keys: list[str], now_ms: int) -> None:
            expired.extend(keys)
            ended.set()

        sessions: KeyedTimers[str] = purgatory.keyed_timers(expire, kind="Heartbeat")
        member, broker = socket.socketpair()
        silent_member, silent = socket.socketpair()
        tasks: set[asyncio.Task[None]] = set()

        async def handle_heartbeat() -> None:
            sessions.schedule("member", clock.monotonic_ms() + long_ms)

        class Connection(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                # As an async handler would be run.
                tasks.add(asyncio.get_running_loop().create_task(handle_heartbeat()))

        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Connection, sock=broker)
        for key in ("member", "silent member"):
            sessions.schedule(key, clock.monotonic_ms() + session_ms)
        member.send(b"heartbeat")
        # The whole process stands still, as in a suspended machine.
        time.sleep(3 * session_ms / 1_000)  # noqa: ASYNC251
        await ended.wait()
        assert expired == ["silent member"]
        assert sessions.deadline_ms("member") is not None, "the heartbeat counted"
        transport.close()
        shell.close()
        for one in (member, silent_member, silent):
            one.close()

    real_loop(test())


def test_real_deadlines_are_kept_to_the_millisecond_and_never_early(
    real_loop: Run, purgatory: Purgatory
) -> None:
    clock = SystemClock()
    operations = [Operation(clock) for _ in range(20)]

    async def test() -> None:
        shell = PurgatoryShell(purgatory, clock)
        begin_ms = clock.monotonic_ms()
        for number, operation in enumerate(operations):
            purgatory.try_complete_else_watch(operation, [], begin_ms + 10 * number)
        async with asyncio.timeout(60):
            while operations[-1].happened is None:  # noqa: ASYNC110 - an operation has no event for it.
                await asyncio.sleep(0.01)
        late_ms = []
        for number, operation in enumerate(operations):
            assert operation.happened is not None
            why, at_ms = operation.happened
            assert why == "EXPIRED"
            late_ms.append(START_MS + at_ms - begin_ms - 10 * number)
        # A busy machine makes some of them late, and none early.
        assert 0 <= min(late_ms) < 20
        shell.close()

    real_loop(test())


@virtual
async def test_a_timer_that_went_off_for_a_cancelled_deadline_does_not_silence_later_ones(
    clock: VirtualClock, purgatory: Purgatory
) -> None:
    expired: list[tuple[list[str], int]] = []
    PurgatoryShell(purgatory, clock)
    timers: KeyedTimers[str] = purgatory.keyed_timers(
        lambda keys, now_ms: expired.append((keys, now_ms)), kind="Heartbeat"
    )
    timers.schedule("cancelled", START_MS + 500)
    timers.cancel("cancelled")
    await asyncio.sleep(1)
    timers.schedule("later", START_MS + 3_000)
    await asyncio.sleep(3)
    assert expired == [(["later"], START_MS + 3_000)]


@virtual
async def test_an_error_while_deadlines_expire_ends_no_other_deadline(
    clock: VirtualClock, purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of operations do not get so far: only those of the purgatory itself."""
    operations = [Operation(clock) for _ in range(2)]
    expire, drain = purgatory.expire, purgatory.drain
    raised: list[str] = []

    def fail(name: str, goes_on: Callable[..., int]) -> Callable[..., int]:
        def once(*args: int) -> int:
            if name in raised:
                return goes_on(*args)
            raised.append(name)
            raise RuntimeError(name)

        return once

    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    PurgatoryShell(purgatory, clock)
    for operation, deadline_ms in zip(operations, (500, 30_000), strict=True):
        purgatory.try_complete_else_watch(operation, ["k"], START_MS + deadline_ms)
    monkeypatch.setattr(purgatory, "expire", fail("expire", expire))
    monkeypatch.setattr(purgatory, "drain", fail("drain", drain))
    await asyncio.sleep(1)
    operations[1].is_satisfied = True
    purgatory.check_and_complete("k")
    await asyncio.sleep(1)
    assert len(seen) == 2
    assert raised == ["expire", "drain"]
    assert [operation.happened for operation in operations] == [
        ("EXPIRED", 500),
        ("SATISFIED", 1_000),
    ]
