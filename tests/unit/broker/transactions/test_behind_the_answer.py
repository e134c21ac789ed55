"""The markers of an end that is answered before they are written."""

import asyncio
from collections.abc import Callable

from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.transactions.markers import ANSWERED_FIRST_MAX
from kohort.broker.transactions.timers import RETRY_MS
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.support.transactions.driven_id import ABORT, COMMIT, ORDERS, OTHER, given
from tests.support.transactions.harness import (
    FIRST_PRODUCER,
    MarkedPartitions,
    TransactionsHarness,
    Written,
    running,
)
from tests.support.virtual_time import virtual

PID = FIRST_PRODUCER
NONE = ErrorCode.NONE


def leave_work(harness: TransactionsHarness) -> list[Callable[[], None]]:
    """What is left for after the answers, from now on."""
    left: list[Callable[[], None]] = []
    harness.host.marking.after_answers = left.append
    return left


@virtual
async def test_an_end_is_answered_when_it_is_decided_and_marked_behind_that(
    clock: VirtualClock,
) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        left = leave_work(harness)
        harness.init()
        harness.add(ORDERS)
        assert harness.end(COMMIT) == given(PID, 1)
        assert (harness.state(), harness.partitions.markers[ORDERS]) == ("PrepareCommit", [])
        (work,) = left
        work()
        assert harness.state() == "CompleteCommit"
        assert harness.partitions.markers[ORDERS] == [Written(COMMIT, PID, 1, 0, 2)]
        assert harness.host.marking.answered_count == 0


@virtual
async def test_a_producer_that_has_its_answer_finds_its_transaction_at_an_end(
    clock: VirtualClock,
) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS, OTHER)) as harness:
        left = leave_work(harness)
        harness.init()
        harness.add(ORDERS)
        assert harness.end(COMMIT) == given(PID, 1)
        assert harness.add(OTHER, epoch=1) is NONE
        assert harness.state() == "Ongoing"
        assert harness.end(ABORT, epoch=1) == given(PID, 2)
        assert harness.init() == given(PID, 3)
        harness.add(ORDERS, epoch=3)
        assert harness.end(COMMIT, epoch=3) == given(PID, 4)
        assert harness.transactions.settling("t", adds=True) is None
        assert len(harness.partitions.markers[ORDERS]) == 2
        for work in left:
            work()
        assert len(harness.partitions.markers[ORDERS]) == 2


@virtual
async def test_an_end_of_many_partitions_is_answered_behind_its_markers(
    clock: VirtualClock,
) -> None:
    many = [TopicPartition("wide", index) for index in range(ANSWERED_FIRST_MAX + 1)]
    async with running(clock, partitions=MarkedPartitions(*many)) as harness:
        left = leave_work(harness)
        harness.init()
        harness.add(*many)
        assert harness.end(COMMIT) == given(PID, 1)
        assert (harness.state(), left) == ("CompleteCommit", [])


@virtual
async def test_an_end_whose_markers_may_wait_for_a_disk_is_answered_behind_them(
    clock: VirtualClock,
) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        left = leave_work(harness)
        harness.init()
        harness.add(ORDERS)
        harness.partitions.hold()
        ended = harness.end(COMMIT)
        assert not ended.is_done
        harness.partitions.release()
        assert (ended.result(), harness.state(), left) == (given(PID, 1), "CompleteCommit", [])


@virtual
async def test_a_partition_that_goes_offline_behind_the_answer_is_tried_again(
    clock: VirtualClock,
) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        left = leave_work(harness)
        harness.init()
        harness.add(ORDERS)
        assert harness.end(COMMIT) == given(PID, 1)
        harness.partitions.offline.add(ORDERS)
        left.pop()()
        assert (harness.state(), harness.host.stuck_count) == ("PrepareCommit", 1)
        harness.partitions.offline.clear()
        await asyncio.sleep(2 * RETRY_MS / 1_000)
        assert harness.state() == "CompleteCommit"


@virtual
async def test_a_stop_writes_the_markers_of_what_was_answered(clock: VirtualClock) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        leave_work(harness)
        harness.init()
        harness.add(ORDERS)
        assert harness.end(COMMIT) == given(PID, 1)
    assert len(harness.partitions.markers[ORDERS]) == 1
