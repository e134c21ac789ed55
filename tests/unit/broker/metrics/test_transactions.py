"""What is told of transactions, of a host that has some."""

from kohort.broker.core.transaction.requests import ClientVersion
from kohort.broker.metrics.exposition import transaction_metrics
from kohort.broker.metrics.transactions import TransactionMetrics
from kohort.protocol.records.control import ControlType
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryTransactionLog
from tests.support.transactions.driven_id import ORDERS
from tests.support.transactions.harness import (
    FIRST_PRODUCER,
    MarkedPartitions,
    TransactionsHarness,
    running,
)
from tests.support.virtual_time import virtual
from tests.unit.broker.metrics.sources import values

V2 = ClientVersion.V2


def told(
    harness: TransactionsHarness, metrics: TransactionMetrics | None = None
) -> dict[str, dict[tuple[str, ...], float]]:
    return values(transaction_metrics(harness.host, metrics or TransactionMetrics()))


@virtual
async def test_what_is_open_and_since_when_is_told(clock: VirtualClock) -> None:
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        nothing = told(harness)
        assert nothing["kohort_transactions_open"] == {(): 0}
        assert "kohort_transactions_oldest_since_seconds" not in nothing
        harness.init("first")
        harness.init("second")
        harness.add(ORDERS, name="first")
        began_s = clock.wall_ms() / 1_000
        clock.advance(500)
        harness.add(ORDERS, name="second", producer_id=FIRST_PRODUCER + 1)
        found = told(harness)
        assert found["kohort_transactions_open"] == {(): 2}
        assert found["kohort_transactions_oldest_since_seconds"] == {(): began_s}
        assert found["kohort_transactional_ids"] == {(): 2}
        harness.end(ControlType.COMMIT, name="first", version=V2)
        assert told(harness)["kohort_transactions_oldest_since_seconds"] == {(): began_s + 0.5}


@virtual
async def test_the_oldest_is_known_after_a_start_whatever_was_written_last(
    clock: VirtualClock,
) -> None:
    log, partitions = MemoryTransactionLog(), MarkedPartitions(ORDERS)
    async with running(clock, log, partitions) as before:
        for count, name in enumerate(("old", "new")):
            before.init(name)
            before.add(name=name, producer_id=FIRST_PRODUCER + count)
            clock.advance(100)
        began_s = (clock.wall_ms() - 200) / 1_000
        before.add(ORDERS, name="old")
    async with running(clock, log, partitions) as after:
        assert told(after)["kohort_transactions_oldest_since_seconds"] == {(): began_s}


@virtual
async def test_ends_are_counted_by_result_and_cause_and_measured(clock: VirtualClock) -> None:
    metrics = TransactionMetrics()
    async with running(clock, partitions=MarkedPartitions(ORDERS)) as harness:
        harness.host.counts.on_ended = metrics.on_transaction_ended
        harness.init()
        for epoch, result in enumerate((ControlType.COMMIT, ControlType.ABORT)):
            harness.add(ORDERS, epoch=epoch, version=V2)
            clock.advance(2_000)
            harness.end(result, epoch=epoch)
        harness.add(ORDERS, epoch=2, version=V2)
        harness.init()
        found = told(harness, metrics)
        assert found["kohort_transactions_started_total"] == {(): 3}
        ended = found["kohort_transactions_ended_total"]
        assert {labels for labels, count in ended.items() if count} == {
            ("commit", "client"),
            ("abort", "client"),
            ("abort", "fence"),
        }
        assert found["kohort_transaction_seconds_count"] == {("commit",): 1, ("abort",): 2}
        assert found["kohort_transaction_seconds_sum"] == {("commit",): 2.0, ("abort",): 2.0}
        counts = harness.host.counts.by_id["t"]
        assert (counts.started, counts.committed) == (3, 1)
        assert (counts.aborted_by_client, counts.aborted_by_fence) == (1, 1)


@virtual
async def test_one_that_cannot_be_completed_is_told(clock: VirtualClock) -> None:
    partitions = MarkedPartitions(ORDERS)
    async with running(clock, partitions=partitions) as harness:
        harness.init()
        harness.add(ORDERS)
        partitions.offline.add(ORDERS)
        harness.end(ControlType.COMMIT)
        found = told(harness)
        assert found["kohort_transactions_stuck"] == {(): 1}
        assert found["kohort_transactions_open"] == {(): 1}
