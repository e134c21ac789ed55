"""Whole consumers, with the applications that use them, through all that can happen to them."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.client.group.callbacks import Offsets
from kohort.client.group.offsets import GroupOffsets
from kohort.protocol.records.batch import TimestampType
from tests.simulation.consuming import process
from tests.simulation.consuming.campaign import STEPS, describe, live_many
from tests.simulation.consuming.group_host import Author
from tests.simulation.consuming.interrupted import Interrupted
from tests.simulation.consuming.ledger import Ledger
from tests.simulation.consuming.life import Life, LifeError, Tally, live
from tests.simulation.consuming.network import ConsumersClock, ConsumersLoop, Network

ROOT = Path(__file__).parents[2]
PRINT_TRACE = """
from tests.simulation.consuming.life import live
live("hash.2", 60, report=print)
"""


@pytest.mark.parametrize("seed", range(2))
def test_consumers_keep_their_promises_and_get_all_done_when_left_alone(seed: int) -> None:
    """Nothing is committed that was not processed, or behind another owner's position; nothing is
    returned of a partition that is not held; callbacks run to their end, once.
    """
    tally = live(f"short.{seed}", 120)
    assert tally.records > 100
    assert tally.commits > 10


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_consumers_keep_their_promises_for_a_million_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun_s, total = time.monotonic(), Tally()
    for tally in live_many("long", 1_000_000):
        total.add(tally)
        with capsys.disabled():
            if total.lives % 100 == 0:
                print(f"\n{describe(total, begun_s)}")
    assert total.steps >= 1_000_000
    assert total.lives > 100_000 // STEPS


def test_the_same_seed_gives_the_same_life() -> None:
    traces = []
    for _ in range(2):
        # Sets are in the order of hashes, and what is in them does not wait for its turn.
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PRINT_TRACE]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        traces.append(done.stdout)
    assert traces[0].count(b"\n") > 30
    assert traces[0] == traces[1]


# That each promise can be broken.


def record(offset: int) -> AnyRecord:
    return ConsumerRecord("t", 0, offset, 0, TimestampType.CREATE_TIME, None, b"%d" % offset, -1, 1)


HELD = {TopicPartition("t", 0)}
FIRST = Author(process=1, generation=5, member_id="first")
SECOND = Author(process=2, generation=6, member_id="second")


def test_a_record_of_a_partition_that_is_not_held_is_noticed() -> None:
    with pytest.raises(AssertionError, match="process 1 was given 0 of partition 0, and holds"):
        Ledger().handed_out(1, [record(0)], set())


def test_a_commit_of_what_is_not_processed_is_noticed() -> None:
    ledger = Ledger()
    ledger.handed_out(1, [record(0), record(1), record(2)], HELD)
    ledger.process(record(0))
    ledger.process(record(2))
    ledger.commit(FIRST, 0, 1, {0})
    with pytest.raises(AssertionError, match="committed 2 of partition 0, of which records are"):
        ledger.commit(FIRST, 0, 2, {0})


def test_a_commit_behind_that_of_another_owner_is_noticed() -> None:
    ledger = Ledger()
    ledger.process(record(0))
    ledger.process(record(1))
    ledger.commit(FIRST, 0, 2, {0})
    with pytest.raises(AssertionError, match="committed 1 of partition 0 behind 2 of process 1"):
        ledger.commit(SECOND, 0, 1, {0})


def test_a_commit_for_a_partition_that_is_not_held_is_noticed() -> None:
    ledger = Ledger()
    ledger.process(record(0))
    with pytest.raises(AssertionError, match=r"committed 1 of partition 0, and holds \[1, 2\]"):
        ledger.commit(FIRST, 0, 1, {2, 1})


def test_a_commit_as_another_than_it_was_asked_for_is_noticed() -> None:
    ledger = Ledger()
    ledger.process(record(0))
    ledger.ask(FIRST, 0, 1)
    ledger.commit(FIRST, 0, 1, {0})
    ledger.commit(SECOND, 0, 1, {0})  # It never asks: its consumer commits of itself.
    with pytest.raises(AssertionError, match=r"1 of partition 0 committed as .* and asked for as"):
        ledger.commit(FIRST._replace(generation=6), 0, 1, {0})


class Undisturbed(Life):
    """Nothing goes wrong but what processes bring upon themselves."""

    def _happen(self) -> None:
        self._go_on()


def test_a_commit_that_goes_out_under_a_later_identity_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fault is put back: an attempt after a rebalance has offsets of the time before it."""
    send = GroupOffsets._send_commit

    async def send_as_of_now(
        self: GroupOffsets, author: object, offsets: Offsets, *, is_automatic: bool
    ) -> float:
        del author
        return await send(self, self._commit_identity(), offsets, is_automatic=is_automatic)

    monkeypatch.setattr(GroupOffsets, "_send_commit", send_as_of_now)
    monkeypatch.setattr(process, "COMMITS_LOST", 1.0)
    monkeypatch.setattr(process, "BACKOFFS_MS", [2_000])

    def live_on() -> None:
        for number in range(300):  # One in ten comes across it.
            live(f"by then.{number}", 60, kind=Undisturbed)

    with pytest.raises(LifeError, match="committed"):
        live_on()


# The parts that are made up.


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test()

    network = Network(Random(1))
    loop = lambda: ConsumersLoop(ConsumersClock(), network)  # noqa: E731
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(whole())


@pytest.mark.parametrize(("at", "waits"), [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_call_is_cancelled_at_the_wait_that_was_chosen(at: int, waits: int) -> None:
    begun = []

    async def call() -> None:
        for number in range(3):
            begun.append(number)
            await asyncio.sleep(1)

    async def test() -> None:
        interrupted = Interrupted(call(), at=at)
        try:
            await interrupted
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            assert task.uncancel() == 0
        assert interrupted.has_cancelled == (at <= 3)
        assert len(begun) == waits

    run(test)


def test_a_loop_that_never_rests_is_noticed() -> None:
    async def test() -> None:
        while True:  # noqa: ASYNC110 - that is the point.
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="the loop spins"):
        run(test)
