"""Transactional ids while the broker runs: what is answered when, and what is written before."""

import asyncio
from typing import Any

import pytest

from kohort.broker.core.transaction.requests import ClientVersion, TopicPartition
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import SLICE_MS
from kohort.broker.transactions.timers import RETRY_MS
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryTransactionLog
from tests.support.transactions.driven_id import ABORT, COMMIT, ORDERS, OTHER, given
from tests.support.transactions.harness import FIRST_PRODUCER, MarkedPartitions, Written, running
from tests.support.virtual_time import virtual
from tests.support.waiting import turns

PID = FIRST_PRODUCER
V1, V2 = ClientVersion.V1, ClientVersion.V2
NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("version", [V1, V2])
@virtual
async def test_nothing_is_waited_for_where_appends_are_durable_at_once(
    version: ClientVersion, clock: VirtualClock
) -> None:
    partitions = MarkedPartitions(ORDERS, OTHER)
    async with running(clock, partitions=partitions) as harness:
        assert harness.init() == given(PID, 0)
        epoch = 0
        for count in range(1, 4):
            assert harness.add(ORDERS, OTHER, epoch=epoch, version=version) is NONE
            result = COMMIT if count % 2 else ABORT
            ended = harness.end(result, epoch=epoch, version=version)
            epoch += version is V2
            assert ended == given(PID, epoch)
            assert partitions.markers[ORDERS][-1] == Written(result, PID, epoch, 0, version)
            assert len(partitions.markers[OTHER]) == count
        # One record for the id, and three for each transaction.
        assert harness.log.batch_count == 1 + 3 * 3
        assert harness.host.counts == {
            "started": 3,
            "commit_by_client": 2,
            "abort_by_client": 1,
        }


@virtual
async def test_the_steps_of_an_end_wait_for_each_other(clock: VirtualClock) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS)
    async with running(clock, log, partitions) as harness:
        harness.init()
        harness.add(ORDERS)
        log.hold()
        partitions.hold()
        ended = harness.end(COMMIT)
        assert isinstance(ended, Deferred)
        assert harness.add(OTHER) is BUSY
        assert harness.init().error is BUSY
        await turns()
        assert harness.state() == "Ongoing"
        log.release_one()
        await turns()
        assert harness.state() == "PrepareCommit"
        assert not ended.is_done
        partitions.release()
        # The decision and the markers are durable; Complete* may take its time.
        assert ended.result() == given(PID, 1)
        assert (harness.state(), log.held_count) == ("PrepareCommit", 1)
        log.release()
        await turns()
        assert harness.state() == "CompleteCommit"


@virtual
async def test_what_cannot_be_written_is_answered_and_has_not_happened(
    clock: VirtualClock,
) -> None:
    log = MemoryTransactionLog()
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    async with running(clock, log, MarkedPartitions(ORDERS)) as harness:
        log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        assert harness.init().error is unavailable
        assert harness.host.stats()["ids"] == 0
        log.failure = None
        harness.init(producer_id=-1)
        pid, _ = harness.producer()
        log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        assert harness.add(ORDERS, producer_id=pid) is unavailable
        with pytest.raises(KafkaError):
            harness.transactions.add("t", pid, 0, [ORDERS])
        log.failure = None
        harness.add(ORDERS, producer_id=pid)
        log.hold()
        ended = harness.end(COMMIT, producer_id=pid)
        log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        log.release()
        assert (await ended).error is unavailable
        assert harness.state() == "Ongoing"
        assert harness.partitions.markers[ORDERS] == []


@virtual
async def test_an_offline_partition_is_tried_again(clock: VirtualClock) -> None:
    partitions = MarkedPartitions(ORDERS, OTHER)
    async with running(clock, partitions=partitions) as harness:
        harness.init()
        harness.add(ORDERS, OTHER)
        partitions.offline.add(ORDERS)
        assert harness.end(COMMIT) == given(PID, 1)
        assert harness.state() == "PrepareCommit"
        assert harness.transactions.verify("t", PID, 1, [ORDERS], adds=True) is BUSY
        assert harness.transactions.settling("t", adds=True) is None
        await asyncio.sleep(RETRY_MS / 1_000 + 0.1)
        assert harness.state() == "PrepareCommit"
        partitions.offline.clear()
        await asyncio.sleep(RETRY_MS / 1_000 + 0.1)
        assert harness.state() == "CompleteCommit"
        assert len(partitions.markers[OTHER]) == 1
        assert harness.host.stats()["stuck"] == 0


@virtual
async def test_a_transaction_of_many_partitions_ends_over_several_turns(
    clock: VirtualClock,
) -> None:
    many = [TopicPartition("wide", index) for index in range(1_050)]

    class SlowPartitions(MarkedPartitions):
        def write(self, *place: Any, **marker: Any) -> Deferred[ErrorCode] | ErrorCode:  # noqa: ANN401
            clock.advance(1)
            return super().write(*place, **marker)

    async with running(clock, partitions=SlowPartitions(*many)) as harness:
        harness.init()
        harness.add(*many)
        ended = harness.end(COMMIT)
        assert isinstance(ended, Deferred)
        written = harness.partitions.markers
        assert sum(map(len, written.values())) == SLICE_MS
        await asyncio.sleep(0)
        assert sum(map(len, written.values())) == 2 * SLICE_MS
        assert await ended == given(PID, 1)
        assert all(len(markers) == 1 for markers in written.values())


# Batches.


@virtual
async def test_what_a_batch_adds_is_durable_before_it_is_appended(clock: VirtualClock) -> None:
    log = MemoryTransactionLog()
    async with running(clock, log, MarkedPartitions(ORDERS)) as harness:
        harness.init()
        transactions = harness.transactions
        assert transactions.verify("t", PID, 0, [ORDERS], adds=True) is NONE
        assert transactions.add("t", PID, 0, [ORDERS]) is None
        assert transactions.add("t", PID, 0, [ORDERS]) is None
        assert transactions.settling("t", adds=True) is None
        log.hold()
        assert transactions.verify("t", PID, 0, [OTHER], adds=True) is NONE
        added = transactions.add("t", PID, 0, [OTHER])
        assert isinstance(added, Deferred)
        assert transactions.verify("t", PID, 0, [OTHER], adds=True) is BUSY
        assert transactions.verify("t", PID, 0, [ORDERS], adds=True) is NONE
        order: list[str] = []
        added.add_done_callback(lambda _: order.append("added"))
        for adds in (True, False):
            waiting = transactions.settling("t", adds=adds)
            assert waiting is not None
            waiting.add_done_callback(lambda _: order.append("settled"))
        log.release()
        await turns()
        # In the order of the requests, so that batches keep theirs.
        assert order == ["added", "settled", "settled"]
        assert transactions.verify("t", PID, 0, [OTHER], adds=False) is NONE
        assert transactions.verify("no", PID, 0, [OTHER], adds=True) is (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        assert transactions.verify("", PID, 0, [OTHER], adds=True) is ErrorCode.INVALID_REQUEST


@virtual
async def test_a_batch_of_the_next_transaction_waits_for_the_end_of_the_last(
    clock: VirtualClock,
) -> None:
    log = MemoryTransactionLog()
    async with running(clock, log, MarkedPartitions(ORDERS)) as harness:
        harness.init()
        harness.transactions.add("t", PID, 0, [ORDERS])
        log.hold()
        harness.end(COMMIT)
        await turns()
        assert harness.transactions.settling("t", adds=False) is None
        waiting = harness.transactions.settling("t", adds=True)
        assert waiting is not None
        log.release()
        await waiting
        assert harness.transactions.verify("t", PID, 1, [ORDERS], adds=True) is NONE


@virtual
async def test_batches_that_add_nothing_need_not_be_checked(clock: VirtualClock) -> None:
    async with running(clock) as harness:
        unchecked = Transactions(harness.host, verifies=lambda: False)
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert unchecked.verify("no", PID, 0, [ORDERS], adds=False) is NONE
        assert unchecked.verify("no", PID, 0, [ORDERS], adds=True) is unknown
        assert unchecked.verify_only("no", PID, 0, ORDERS) is unknown


# The end.


@virtual
async def test_a_stop_answers_waiting_requests(clock: VirtualClock) -> None:
    log = MemoryTransactionLog()
    async with running(clock, log) as harness:
        harness.init()
        log.hold()
        waiting = harness.init()
        settling = harness.transactions.settling("t", adds=True)
        assert settling is not None
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        waiting.result()
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        settling.result()
    assert harness.init().error is ErrorCode.NOT_COORDINATOR
    assert harness.add(ORDERS) is ErrorCode.NOT_COORDINATOR
    assert harness.end(COMMIT).error is ErrorCode.NOT_COORDINATOR


@virtual
async def test_a_fault_of_ours_breaks_one_id_and_leaves_no_one_waiting(
    clock: VirtualClock,
) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        harness.init()
        harness.init("other")
        one = harness.host.transactional_id("t")
        assert one is not None
        one.record = object()  # type: ignore[assignment]
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            harness.init()
        assert harness.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert harness.init("other") == given(PID + 1, 1)


@pytest.mark.parametrize("what", ["marker", "record"])
@virtual
async def test_a_fault_of_ours_behind_a_wait_is_answered_too(
    what: str, clock: VirtualClock
) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS)
    async with running(clock, log, partitions) as harness:
        harness.init()
        harness.add(ORDERS)
        (partitions if what == "marker" else log).hold()
        ended = harness.end(COMMIT)
        settling = harness.transactions.settling("t", adds=True)
        assert settling is not None
        one = harness.host.transactional_id("t")
        assert one is not None
        if what == "marker":
            one.record = object()  # type: ignore[assignment]
        else:
            one._pending = None
        (partitions if what == "marker" else log).release()
        await settling
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            ended.result()
        assert harness.host.stats()["broken"] == 1
