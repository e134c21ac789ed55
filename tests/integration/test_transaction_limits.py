"""How many transactional ids there are, and how long their transactions take, is set by the
operator.
"""

from pathlib import Path

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.core.transaction.requests import (
    AddRequest,
    ClientVersion,
    InitRequest,
    TopicPartition,
)
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode

ORDERS = TopicPartition("orders", 0)


def broker_with(directory: Path, *settings: str) -> Broker:
    own = (
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}",
        "kohort.metrics.port=-1",
        "kohort.console.port=-1",
    )
    return Broker(load(overrides=[*own, *settings]))


def transactions_of(broker: Broker) -> Transactions:
    transactions = broker.services.transactions
    assert transactions is not None
    return transactions


async def begin(transactions: Transactions, name: str, *, timeout_ms: int = 60_000) -> int:
    """Open a transaction; its producer's id."""
    begun = await transactions.init_producer_id(name, InitRequest(timeout_ms))
    assert begun.error is ErrorCode.NONE
    producer = begun.producer_id, begun.producer_epoch
    addition = AddRequest(*producer, (ORDERS,), ClientVersion.V2)
    assert await transactions.add_partitions(name, addition) is ErrorCode.NONE
    return begun.producer_id


async def test_an_id_that_is_idle_makes_room_for_a_new_one_and_none_with_a_transaction_does(
    tmp_path: Path,
) -> None:
    async with broker_with(tmp_path, "kohort.transactional.ids.max=2").running() as broker:
        transactions = transactions_of(broker)
        idle = await transactions.init_producer_id("idle", InitRequest(60_000))
        await begin(transactions, "open")
        await begin(transactions, "open too")
        assert sorted(transactions.host.ids.names()) == ["open", "open too"]
        refused = await transactions.init_producer_id("idle", InitRequest(60_000))
        assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    async with broker_with(tmp_path, "kohort.transactional.ids.max=3").running() as broker:
        again = await transactions_of(broker).init_producer_id("idle", InitRequest(60_000))
        assert again.error is ErrorCode.NONE
        assert again.producer_id not in {-1, idle.producer_id}
