"""Kills and losses of power: what lies on the disk then, and what a start makes of it."""

import asyncio
from typing import Any

import pytest

from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.broker.transactions.markers import MarkerWriter
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.running_topics import aborted_in
from tests.support.transactions.running_transactions import (
    Disk,
    RunningTransactions,
    running_transactions,
)

NONE = ErrorCode.NONE
V1, V2 = 4, 5
"""Versions of EndTxn: the latter raises the epoch."""
flows = pytest.mark.parametrize("version", [V1, V2])
outcomes = pytest.mark.parametrize("commit", [True, False])


@pytest.fixture
def disk() -> Disk:
    """What one broker leaves to the next."""
    return Disk()


class Dying:
    """A MarkerWriter of a process that is killed after so many markers, which `is_dead` tells."""

    def __init__(self, real: MarkerWriter, count: int, is_dead: asyncio.Event) -> None:
        self.real = real
        self.left = count
        self.is_dead = is_dead

    def may_wait(self, topic: str, partition: int) -> bool:
        return self.real.may_wait(topic, partition)

    def write(self, *place: Any, **marker: Any) -> Deferred[ErrorCode] | ErrorCode:  # noqa: ANN401
        self.left -= 1
        if self.left >= 0:
            return self.real.write(*place, **marker)
        self.is_dead.set()
        return Deferred()


async def work(b: RunningTransactions) -> int:
    """A transaction with a record in t-0 and a position of the group "g"; returns its producer."""
    pid = (await b.init()).producer_id
    topics = [m.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    added = await b.ask(
        m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=pid,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    b.produce(pid, 0)
    producer: dict[str, Any] = {"transactional_id": "id", "producer_id": pid, "producer_epoch": 0}
    offsets = m.AddOffsetsToTxnRequest(**producer, group_id="g")
    assert (await b.ask(offsets)).error_code == NONE
    partition = m.TxnOffsetCommitRequestPartition(
        partition_index=1, committed_offset=42, committed_metadata=None
    )
    commit = m.TxnOffsetCommitRequest(
        **producer,
        group_id="g",
        topics=[m.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    (topic,) = (await b.ask(commit, 4)).topics
    assert topic.partitions[0].error_code == NONE
    return pid


def end(b: RunningTransactions, pid: int, version: int, *, commit: bool) -> asyncio.Future[Any]:
    request = m.EndTxnRequest(
        transactional_id="id", producer_id=pid, producer_epoch=0, committed=commit
    )
    return b.start(request, version)


def check_ended(b: RunningTransactions, pid: int, *, commit: bool) -> None:
    """Everything says the same of the transaction."""
    one = b.transactions.host.transactional_id("id")
    assert one is not None
    assert one.record is not None
    assert one.record.state.value == ("CompleteCommit" if commit else "CompleteAbort")
    check_partitions(b, pid, commit=commit)


def check_partitions(b: RunningTransactions, pid: int, *, commit: bool) -> None:
    partition = b.topics.partition("t", 0)
    assert partition is not None
    assert partition.open_transactions() == []
    assert partition.last_stable_offset == partition.high_watermark
    aborted = aborted_in(partition, 0, partition.high_watermark)
    assert aborted == ([] if commit else [(pid, 0)])
    found = b.groups.committed("g", "t", 1)
    assert (found.offset if found else None) == (42 if commit else None)


@flows
@outcomes
@pytest.mark.parametrize("markers", [0, 1, 2])
async def test_a_kill_between_decision_and_completion(
    disk: Disk, version: int, commit: bool, markers: int
) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
        host, is_dead = b.transactions.host, asyncio.Event()
        host.marking.writer = Dying(host.marking.writer, markers, is_dead)
        if markers == 2:
            # All are written; what cannot be is the end.
            host._log.append = lambda *args, **_: _first_only(b, args, is_dead)  # type: ignore[method-assign]
        ended = end(b, pid, version, commit=commit)
        async with asyncio.timeout(60):
            await is_dead.wait()
        ended.cancel()
    async with running_transactions(disk=disk) as b:
        check_ended(b, pid, commit=commit)
        again: m.EndTxnResponse = await end(b, pid, version, commit=commit)
        assert again.error_code == NONE
        if version == V2:
            assert (again.producer_id, again.producer_epoch) == (pid, 1)


def _first_only(b: RunningTransactions, args: Any, is_dead: asyncio.Event) -> Any:  # noqa: ANN401
    """The decision is written; from then on the disk is silent."""
    host = b.transactions.host
    real = type(host._log).append

    def silent(*_: object, **__: object) -> asyncio.Future[Any]:
        is_dead.set()
        return asyncio.get_running_loop().create_future()

    host._log.append = silent  # type: ignore[method-assign]
    return real(host._log, *args, wall_ms=b.topics.clock.wall_ms())


@flows
@outcomes
async def test_a_kill_after_the_completion(disk: Disk, version: int, commit: bool) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
        assert (await end(b, pid, version, commit=commit)).error_code == NONE
    async with running_transactions(disk=disk) as b:
        check_ended(b, pid, commit=commit)
        again = await end(b, pid, version, commit=commit)
        assert again.error_code == NONE


@flows
async def test_an_open_transaction_goes_on_after_a_kill(disk: Disk, version: int) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
    async with running_transactions(disk=disk) as b:
        partition = b.topics.partition("t", 0)
        assert partition is not None
        assert partition.last_stable_offset == 0
        b.produce(pid, 0, sequence=1)
        assert (await end(b, pid, version, commit=True)).error_code == NONE
        check_ended(b, pid, commit=True)


# A loss of power: each log may have lost its own end.


@outcomes
async def test_a_lost_marker_of_a_known_outcome_is_written_again(disk: Disk, commit: bool) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
        await end(b, pid, V2, commit=commit)
        offsets = b.groups.offsets_partition("g")
    disk.cut("t", 0)
    disk.cut(CONSUMER_OFFSETS, offsets)
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        check_ended(b, pid, commit=commit)


async def test_a_lost_marker_of_the_older_flow_aborts(disk: Disk) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
        await end(b, pid, V1, commit=True)
        offsets = b.groups.offsets_partition("g")
    disk.cut("t", 0)
    disk.cut(CONSUMER_OFFSETS, offsets)
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        check_partitions(b, pid, commit=False)


async def test_lost_additions_are_made_again(disk: Disk) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
        place = b.transactions.host._partition_of("id")
    # The record that added the group's partition.
    disk.cut("__transaction_state", place)
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        assert (await end(b, pid, V2, commit=True)).error_code == NONE
        check_ended(b, pid, commit=True)


@pytest.mark.parametrize("lost", [2, 3])
async def test_a_transaction_that_the_coordinator_has_lost_is_aborted(
    disk: Disk, lost: int
) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
        place = b.transactions.host._partition_of("id")
    # Both additions, or the id as well.
    disk.cut("__transaction_state", place, batches=lost)
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        check_partitions(b, pid, commit=False)


async def test_an_epoch_that_the_coordinator_has_lost_is_not_given_again(disk: Disk) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = (await b.init()).producer_id
        again = await b.init()
        assert again.producer_epoch == 1
        assert b.transactions.add("id", pid, 1, [("t", 0)]) is None
        b.produce(pid, 1)
        place = b.transactions.host._partition_of("id")
    # The addition, and the record of the epoch.
    disk.cut("__transaction_state", place, batches=2)
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        check_partitions(b, pid, commit=False)
        # Who has it still is fenced, and its successor begins behind it.
        assert (
            b.transactions.verify("id", pid, 1, [("t", 0)], adds=True) == ErrorCode.PRODUCER_FENCED
        )
        successor = await b.init()
        assert (successor.producer_id, successor.producer_epoch) == (pid, 3)
        assert b.transactions.add("id", pid, 3, [("t", 0)]) is None
        b.produce(pid, 3)
        partition = b.topics.partition("t", 0)
        assert partition is not None
        assert partition.high_watermark == 3


@flows
async def test_who_lost_a_part_of_its_transaction_cannot_commit_the_rest(
    disk: Disk, version: int
) -> None:
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        pid = await work(b)
        place = b.transactions.host._partition_of("id")
    # All additions: the coordinator knows of no transaction.
    disk.cut("__transaction_state", place, batches=2)
    async with running_transactions(disk=disk, stop_cleanly=False) as b:
        assert (
            b.transactions.verify("id", pid, 0, [("t", 0)], adds=True) == ErrorCode.PRODUCER_FENCED
        )
        assert (await end(b, pid, version, commit=True)).error_code == ErrorCode.PRODUCER_FENCED
        assert (await b.init()).producer_epoch == 2
