"""Timeouts of transactions, and the ids that are forgotten or make room."""

import asyncio

import pytest

from kohort.broker.core.transaction.requests import ClientVersion, TransactionConfig
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.peer_log import LINES_PER_INTERVAL
from kohort.broker.transactions.host import TransactionsConfig
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryTransactionLog
from tests.support.transactions.driven_id import ABORT, COMMIT, ORDERS, OTHER, given
from tests.support.transactions.harness import (
    FIRST_PRODUCER,
    TIMEOUT_MS,
    MarkedPartitions,
    Written,
    running,
)
from tests.support.virtual_time import virtual
from tests.support.waiting import turns

PID = FIRST_PRODUCER
V1, V2 = ClientVersion.V1, ClientVersion.V2
NONE = ErrorCode.NONE


# Timeouts.


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
        assert harness.init("t", PID, 0) == given(PID, 1)


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
async def test_an_abort_that_cannot_be_written_is_retried_once_a_second(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryTransactionLog()
    async with running(clock, log, MarkedPartitions(ORDERS)) as harness:
        for number in range(20):
            harness.init(f"t{number}")
            harness.add(ORDERS, name=f"t{number}", producer_id=PID + number)
        log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        await asyncio.sleep(TIMEOUT_MS / 1_000 + 10)
        assert 20 * 9 <= harness.host.counts["append_failures"] <= 20 * 11
        assert caplog.text.count("the disk is full") <= 2 * LINES_PER_INTERVAL
        log.failure = None
        await asyncio.sleep(2)
        assert {harness.state(f"t{number}") for number in range(20)} == {"CompleteAbort"}


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
        assert harness.init("idle", PID, 0) == given(PID + 2, 0)
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
            assert harness.init(name) == given(PID + count, 0)
        harness.init("a")
        harness.add(ORDERS, name="b", producer_id=PID + 1)
        assert harness.init("d") == given(PID + 3, 0)
        assert sorted(harness.host.ids.names()) == ["a", "b", "d"]
        for name, pid, epoch in (("a", PID, 1), ("d", PID + 3, 0)):
            harness.add(ORDERS, name=name, producer_id=pid, epoch=epoch)
        assert harness.init("e").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert harness.end(ABORT, name="b", producer_id=PID + 1).error is NONE
        log.hold()
        assert harness.init("e").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log.release()
        await turns()
        assert harness.init("e").error is NONE
        assert sorted(harness.host.ids.names()) == ["a", "d", "e"]
