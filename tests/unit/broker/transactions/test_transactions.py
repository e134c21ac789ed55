"""Transactional ids while the broker runs: what is answered when, and what is written before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker.core.transaction.requests import (
    ClientVersion,
    InitResult,
    TopicPartition,
    TransactionConfig,
)
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.slices import SLICE_MS
from kohort.broker.transactions.host import TransactionsConfig
from kohort.broker.transactions.marking import ANSWERED_FIRST_MAX
from kohort.broker.transactions.timers import RETRY_MS
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.control import ControlType
from kohort.testing.memory_transaction_log import MemoryTransactionLog
from kohort.testing.virtual_clock import VirtualClock
from tests.support.transactions.driven_id import ORDERS, OTHER
from tests.support.transactions.harness import (
    FIRST_PRODUCER,
    TIMEOUT_MS,
    MarkedPartitions,
    TransactionsHarness,
    Written,
    running,
    virtual,
)

PID = FIRST_PRODUCER
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
V1, V2 = ClientVersion.V1, ClientVersion.V2
NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


def given(epoch: int, producer_id: int = PID) -> InitResult:
    return InitResult(NONE, producer_id, epoch)


def leave_work(harness: TransactionsHarness) -> list[Callable[[], None]]:
    """What is left for after the answers, from now on."""
    left: list[Callable[[], None]] = []
    harness.host.marking.after_answers = left.append
    return left


async def settle() -> None:
    """Let tasks that are ready go on."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", [V1, V2])
@virtual
async def test_nothing_is_waited_for_where_appends_are_durable_at_once(
    version: ClientVersion, clock: VirtualClock
) -> None:
    partitions = MarkedPartitions(ORDERS, OTHER)
    async with running(clock, partitions=partitions) as harness:
        assert harness.init() == given(0)
        epoch = 0
        for count in range(1, 4):
            assert harness.add(ORDERS, OTHER, epoch=epoch, version=version) is NONE
            result = COMMIT if count % 2 else ABORT
            ended = harness.end(result, epoch=epoch, version=version)
            epoch += version is V2
            assert ended == given(epoch)
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
async def test_an_instance_that_is_replaced_is_fenced_in_one_turn(clock: VirtualClock) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        harness.init()
        harness.add(ORDERS)
        assert harness.init() == given(2)
        assert harness.partitions.markers[ORDERS] == [Written(ABORT, PID, 1, 0, 2)]
        assert harness.add(ORDERS) is ErrorCode.PRODUCER_FENCED
        assert harness.end(COMMIT).error is ErrorCode.PRODUCER_FENCED
        assert harness.host.counts["abort_by_fence"] == 1


@virtual
async def test_the_steps_of_an_end_wait_for_each_other(clock: VirtualClock) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS)
    async with running(clock, log, partitions) as harness:
        harness.init()
        harness.add(ORDERS)
        log.hold()
        partitions.hold()
        ended = harness.end(COMMIT)
        assert isinstance(ended, Later)
        assert harness.add(OTHER) is BUSY
        assert harness.init().error is BUSY
        await settle()
        assert harness.state() == "Ongoing"
        log.release_one()
        await settle()
        assert harness.state() == "PrepareCommit"
        assert not ended.is_done
        partitions.release()
        # The decision and the markers are durable; Complete* may take its time.
        assert ended.result() == given(1)
        assert (harness.state(), log.held_count) == ("PrepareCommit", 1)
        log.release()
        await settle()
        assert harness.state() == "CompleteCommit"


@virtual
async def test_a_fence_that_has_to_wait_sends_its_client_away(clock: VirtualClock) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS)
    async with running(clock, log, partitions) as harness:
        harness.init()
        harness.add(ORDERS)
        partitions.hold()
        assert harness.init().error is BUSY
        assert harness.state() == "PrepareAbort"
        partitions.release()
        assert harness.state() == "CompleteAbort"
        assert harness.init() == given(2)


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
        assert harness.end(COMMIT) == given(1)
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
        def write(self, *place: Any, **marker: Any) -> Later[ErrorCode] | ErrorCode:  # noqa: ANN401
            clock.advance(1)
            return super().write(*place, **marker)

    async with running(clock, partitions=SlowPartitions(*many)) as harness:
        harness.init()
        harness.add(*many)
        ended = harness.end(COMMIT)
        assert isinstance(ended, Later)
        written = harness.partitions.markers
        assert sum(map(len, written.values())) == SLICE_MS
        await asyncio.sleep(0)
        assert sum(map(len, written.values())) == 2 * SLICE_MS
        assert await ended == given(1)
        assert all(len(markers) == 1 for markers in written.values())


# Behind the answer.


@virtual
async def test_an_end_is_answered_when_it_is_decided_and_marked_behind_that(
    clock: VirtualClock,
) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        left = leave_work(harness)
        harness.init()
        harness.add(ORDERS)
        assert harness.end(COMMIT) == given(1)
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
        assert harness.end(COMMIT) == given(1)
        assert harness.add(OTHER, epoch=1) is NONE
        assert harness.state() == "Ongoing"
        assert harness.end(ABORT, epoch=1) == given(2)
        assert harness.init() == given(3)
        harness.add(ORDERS, epoch=3)
        assert harness.end(COMMIT, epoch=3) == given(4)
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
        assert harness.end(COMMIT) == given(1)
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
        assert (ended.result(), harness.state(), left) == (given(1), "CompleteCommit", [])


@virtual
async def test_a_partition_that_goes_offline_behind_the_answer_is_tried_again(
    clock: VirtualClock,
) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        left = leave_work(harness)
        harness.init()
        harness.add(ORDERS)
        assert harness.end(COMMIT) == given(1)
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
        assert harness.end(COMMIT) == given(1)
    assert len(harness.partitions.markers[ORDERS]) == 1


# Time.


@virtual
async def test_an_overdue_transaction_is_aborted_by_a_timer(clock: VirtualClock) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        harness.init()
        harness.add(ORDERS)
        await asyncio.sleep(TIMEOUT_MS / 1_000)
        assert harness.state() == "Ongoing"
        await asyncio.sleep(0.1)
        assert harness.state() == "CompleteAbort"
        assert harness.partitions.markers[ORDERS] == [Written(ABORT, PID, 1, 0, 2)]
        assert harness.init("t", PID, 0) == given(1)


@virtual
async def test_each_transaction_has_its_own_time(clock: VirtualClock) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        harness.init()
        for _ in range(4):
            harness.add(ORDERS)
            await asyncio.sleep(TIMEOUT_MS / 2_000)
            assert harness.end(COMMIT, version=V1).error is NONE
        await asyncio.sleep(TIMEOUT_MS / 500)
        assert (harness.state(), harness.producer()) == ("CompleteCommit", (PID, 0))


@virtual
async def test_a_wall_clock_that_jumps_is_noticed(clock: VirtualClock) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        harness.init()
        harness.add(ORDERS)
        await asyncio.sleep(1)
        clock.jump_wall(TIMEOUT_MS)
        await asyncio.sleep(10.1)
        assert harness.state() == "CompleteAbort"


@virtual
async def test_a_timeout_waits_for_what_is_being_written(clock: VirtualClock) -> None:
    log = MemoryTransactionLog()
    async with running(clock, log, MarkedPartitions(ORDERS)) as harness:
        harness.init()
        harness.add(ORDERS)
        log.hold()
        added = harness.add(OTHER)
        await asyncio.sleep(TIMEOUT_MS / 500)
        assert harness.state() == "Ongoing"
        log.release()
        assert await added is NONE
        await asyncio.sleep(0.1)
        assert harness.state() == "CompleteAbort"


@virtual
async def test_ids_that_no_one_uses_are_forgotten(clock: VirtualClock) -> None:
    log = MemoryTransactionLog()
    config = TransactionsConfig(TransactionConfig(id_expiration_ms=100_000), expiry_check_ms=10_000)
    async with running(clock, log, MarkedPartitions(ORDERS), config) as harness:
        harness.init("idle")
        harness.init("busy", timeout_ms=900_000)
        harness.add(ORDERS, name="busy", producer_id=PID + 1)
        await asyncio.sleep(99)
        assert harness.state("idle") == "Empty"
        await asyncio.sleep(11.5)
        assert harness.state("idle") is None
        assert harness.state("busy") == "Ongoing"
        assert harness.add(ORDERS, name="idle") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert harness.init("idle", PID, 0) == given(0, PID + 2)
    async with running(clock, log) as harness:
        assert sorted(harness.host.ids.names()) == ["busy", "idle"]


@virtual
async def test_an_id_whose_expiry_fails_does_not_keep_the_others_from_theirs(
    clock: VirtualClock,
) -> None:
    config = TransactionsConfig(TransactionConfig(id_expiration_ms=100_000), expiry_check_ms=10_000)
    is_expired = TransactionalId.is_expired

    def fail_for_one(one: TransactionalId, rules: TransactionConfig, wall_ms: int) -> bool:
        if one.transactional_id == "bad":
            raise RuntimeError("unforeseen")
        return is_expired(one, rules, wall_ms)

    async with running(clock, MemoryTransactionLog(), MarkedPartitions(ORDERS), config) as harness:
        harness.init("bad")
        harness.init("good")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionalId, "is_expired", fail_for_one)
            await asyncio.sleep(120)
        assert (harness.state("bad"), harness.state("good")) == ("Empty", None)
        await asyncio.sleep(20)
        assert harness.state("bad") is None


# Bounds.


@virtual
async def test_the_id_that_was_idle_longest_makes_room(clock: VirtualClock) -> None:
    config = TransactionsConfig(ids_max=3)
    log = MemoryTransactionLog()
    async with running(clock, log, MarkedPartitions(ORDERS), config) as harness:
        for count, name in enumerate("abc"):
            assert harness.init(name) == given(0, PID + count)
        harness.init("a")
        harness.add(ORDERS, name="b", producer_id=PID + 1)
        assert harness.init("d") == given(0, PID + 3)
        assert sorted(harness.host.ids.names()) == ["a", "b", "d"]
        for name, pid, epoch in (("a", PID, 1), ("d", PID + 3, 0)):
            harness.add(ORDERS, name=name, producer_id=pid, epoch=epoch)
        assert harness.init("e").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert harness.end(ABORT, name="b", producer_id=PID + 1).error is NONE
        log.hold()
        assert harness.init("e").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log.release()
        await settle()
        assert harness.init("e").error is NONE
        assert sorted(harness.host.ids.names()) == ["a", "d", "e"]


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
        assert isinstance(added, Later)
        assert transactions.verify("t", PID, 0, [OTHER], adds=True) is BUSY
        assert transactions.verify("t", PID, 0, [ORDERS], adds=True) is NONE
        order: list[str] = []
        added.on_done(lambda _: order.append("added"))
        for adds in (True, False):
            waiting = transactions.settling("t", adds=adds)
            assert waiting is not None
            waiting.on_done(lambda _: order.append("settled"))
        log.release()
        await settle()
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
        await settle()
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
        assert harness.init("other") == given(1, PID + 1)


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
