"""Requests of a transaction as tests of its apis send them."""

from tests.support import messages as m
from tests.support.transactions.running_transactions import RunningTransactions


async def add(
    b: RunningTransactions, topics: dict[str, list[int]], version: int = 3, epoch: int = 0
) -> dict[str, list[int]]:
    """AddPartitionsToTxn up to v3; errors by topic."""
    one = b.transactions.host.transactional_id("id")
    pid = 0 if one is None or one.record is None else one.record.producer_id
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=pid,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            m.AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )
    response = await b.ask(request, version)
    return {
        topic.name: [one.partition_error_code for one in topic.results_by_partition]
        for topic in response.results_by_topic_v3_and_below
    }


async def end(
    b: RunningTransactions, pid: int, epoch: int = 0, *, commit: bool = True, version: int = 5
) -> m.EndTxnResponse:
    request = m.EndTxnRequest(
        transactional_id="id", producer_id=pid, producer_epoch=epoch, committed=commit
    )
    response: m.EndTxnResponse = await b.ask(request, version)
    return response


def state(b: RunningTransactions, name: str = "id") -> str | None:
    one = b.transactions.host.transactional_id(name)
    return None if one is None or one.record is None else one.record.state.value


def marker(
    pid: int, epoch: int, *, commit: bool = True, version: int = 0, **topics: list[int]
) -> m.WritableTxnMarker:
    return m.WritableTxnMarker(
        producer_id=pid,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[
            m.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=3,
        transaction_version=version,
    )
