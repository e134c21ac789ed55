"""WriteTxnMarkers, with which operators end transactions."""

from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.transactions.running_transactions import (
    running_transactions,
)
from tests.unit.broker.handlers.transaction_requests import marker

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


async def test_an_operator_ends_what_hangs() -> None:
    async with running_transactions() as b:
        b.produce(77, 4)
        partition = b.topics.partition("t", 0)
        assert partition is not None
        assert partition.last_stable_offset == 0
        request = m.WriteTxnMarkersRequest(
            markers=[
                marker(77, 4, commit=False, t=[0, 9], none=[0]),
                marker(77, -1, t=[1]),
                marker(78, 0, version=-1, t=[1]),
                marker(77, 3, t=[0]),
                marker(79, 1, version=5, t=[2]),
            ]
        )
        response = await b.ask(request, 2)
        told = {
            (one.producer_id, topic.name): [
                (p.partition_index, p.error_code) for p in topic.partitions
            ]
            for one in response.markers
            for topic in one.topics
        }
        assert told == {
            # Of two markers for one partition, the later one is told of.
            (77, "t"): [(0, OLD_FENCED), (9, UNKNOWN), (1, ErrorCode.INVALID_REQUEST)],
            (77, "none"): [(0, UNKNOWN)],
            (78, "t"): [(1, ErrorCode.INVALID_REQUEST)],
            (79, "t"): [(2, NONE)],
        }
        assert partition.last_stable_offset == 2
        for nothing in ([], [marker(77, 4)], [marker(77, 4, t=[])]):
            assert (await b.ask(m.WriteTxnMarkersRequest(markers=nothing), 1)).markers == []
