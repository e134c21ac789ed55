"""A start: ids are read back, what was decided is completed, and what was lost is repaired."""

import asyncio

import pytest

from kohort.broker.core.transaction.reconcile import OpenInPartition
from kohort.broker.core.transaction.records import TransactionTombstone, encode_key
from kohort.broker.core.transaction.requests import ClientVersion, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryTransactionLog
from tests.support.transactions.driven_id import ORDERS, OTHER
from tests.support.transactions.harness import FIRST_PRODUCER, MarkedPartitions, Written, running
from tests.support.virtual_time import virtual

PID = FIRST_PRODUCER
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
V1, V2 = ClientVersion.V1, ClientVersion.V2


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("result", [COMMIT, ABORT])
@virtual
async def test_a_decision_is_completed_before_the_first_request(
    result: ControlType, version: ClientVersion, clock: VirtualClock
) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS, OTHER)
    epoch = int(version is V2)
    async with running(clock, log, partitions) as before:
        before.init()
        before.add(ORDERS, OTHER, version=version)
        partitions.hold()
        before.end(result, version=version)
        assert before.state() in {"PrepareCommit", "PrepareAbort"}
    after_crash = MarkedPartitions(ORDERS, OTHER)
    async with running(clock, log, after_crash) as after:
        expected = "CompleteCommit" if result is COMMIT else "CompleteAbort"
        assert after.state() == expected
        for place in (ORDERS, OTHER):
            assert after_crash.markers[place] == [Written(result, PID, epoch, 0, version)]
        assert after.host.counts[f"{result.name.lower()}_by_start"] == 1


@virtual
async def test_an_offline_partition_does_not_hold_up_a_start(clock: VirtualClock) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS)
    async with running(clock, log, partitions) as before:
        before.init()
        before.add(ORDERS)
        partitions.offline.add(ORDERS)
        before.end(COMMIT)
    async with running(clock, log, partitions) as after:
        assert after.state() == "PrepareCommit"
        partitions.offline.clear()
        await asyncio.sleep(1.5)
        assert after.state() == "CompleteCommit"


@virtual
async def test_what_cannot_be_understood_is_left_out(clock: VirtualClock) -> None:
    log = MemoryTransactionLog(1)
    async with running(clock, log) as before:
        before.init("good")
    bad = encode_key(TransactionTombstone("bad"))
    for key, value in [(bad, b"\0\1rubbish"), (b"\0\7what", b"\0\1"), (b"\0\0\0\\9x", b"")]:
        log.append_stored(0, encode_batch([Record(value, key=key)]))
    async with running(clock, log) as after:
        assert after.host.ids.names() == ["good"]


@virtual
async def test_ids_of_an_unreadable_partition_are_not_new(clock: VirtualClock) -> None:
    log = MemoryTransactionLog(1)
    async with running(clock, log) as before:
        before.init()
    log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    log.unreadable.add(0)
    async with running(clock, log) as after:
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert after.init().error is unavailable
        assert after.add(ORDERS) is unavailable
        assert after.transactions.verify("t", PID, 0, [ORDERS], adds=True) is unavailable


@virtual
async def test_markers_carry_the_epoch_of_the_log(clock: VirtualClock) -> None:
    log = MemoryTransactionLog()
    log.epoch = 12
    async with running(clock, log, MarkedPartitions(ORDERS)) as harness:
        harness.init()
        harness.add(ORDERS)
        harness.end(COMMIT)
        assert harness.partitions.markers[ORDERS][0].coordinator_epoch == 12


# After a loss of power.


@virtual
async def test_a_lost_addition_is_made_again(clock: VirtualClock) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS, OTHER)
    async with running(clock, log, partitions) as before:
        before.init()
        before.add(ORDERS)
    found = [OpenInPartition(*place, PID, 0) for place in (ORDERS, OTHER)]
    async with running(clock, log, partitions, found_open=found) as after:
        assert after.transactions.verify("t", PID, 0, [OTHER], adds=False) is ErrorCode.NONE
        assert not any(partitions.markers.values())
    async with running(clock, log, partitions) as again:
        assert again.transactions.verify("t", PID, 0, [OTHER], adds=False) is ErrorCode.NONE


@virtual
async def test_a_lost_marker_is_written_again(clock: VirtualClock) -> None:
    log = MemoryTransactionLog()
    async with running(clock, log, MarkedPartitions(ORDERS)) as before:
        before.init()
        before.add(ORDERS)
        before.end(COMMIT)
    lost = MarkedPartitions(ORDERS)
    found = [OpenInPartition(*ORDERS, PID, 0)]
    async with running(clock, log, lost, found_open=found):
        assert lost.markers[ORDERS] == [Written(COMMIT, PID, 1, 0, 2)]


@pytest.mark.parametrize("is_known", [True, False])
@virtual
async def test_what_may_be_undecided_is_aborted(is_known: bool, clock: VirtualClock) -> None:
    log = MemoryTransactionLog()
    if is_known:
        async with running(clock, log, MarkedPartitions(ORDERS)) as before:
            before.init()
            before.add(ORDERS)
            before.end(COMMIT, version=V1)
    lost = MarkedPartitions(ORDERS)
    async with running(clock, log, lost, found_open=[OpenInPartition(*ORDERS, PID, 0)]):
        assert lost.markers[ORDERS] == [Written(ABORT, PID, 0, 0, 0)]


@virtual
async def test_all_of_it_works_behind_an_fsync(clock: VirtualClock) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS, OTHER)
    async with running(clock, log, partitions) as before:
        before.init("lost")
        before.add(ORDERS, name="lost")
        before.init("decided")
        before.add(ORDERS, name="decided", producer_id=PID + 1)
        partitions.hold()
        before.end(COMMIT, name="decided", producer_id=PID + 1)
    log.hold()
    slow = MarkedPartitions(ORDERS, OTHER)
    slow.hold()

    async def release() -> None:
        while True:
            await asyncio.sleep(0.01)
            log.release()
            log.hold()
            slow.release()
            slow.hold()

    releasing = asyncio.create_task(release())
    found = [OpenInPartition(*OTHER, PID, 0), OpenInPartition(*TopicPartition("gone", 1), 5, 5)]
    async with running(clock, log, slow, found_open=found) as after:
        assert after.state("decided") == "CompleteCommit"
        assert after.transactions.verify("lost", PID, 0, [OTHER], adds=False) is ErrorCode.NONE
        releasing.cancel()
        log.release()
