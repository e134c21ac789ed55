"""The apis that a transaction takes, by version: what is checked first, and how it is told."""

import gc
from typing import Any

import pytest

from kohort.broker.dispatch.failures import error_response
from kohort.broker.handlers import load_handlers
from kohort.broker.handlers.produce import ProduceCall
from kohort.protocol.codec import Codec, codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import RESPONSES
from kohort.protocol.messages.transactions import DescribeProducersRequest, TopicRequest
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.transactions.running_transactions import (
    RunningTransactions,
    running_transactions,
)
from tests.unit.broker.handlers.transaction_requests import add, end, marker, state

NONE = ErrorCode.NONE
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


# InitProducerId.


# A whole transaction.


async def test_all_of_it_behind_an_fsync() -> None:
    async with running_transactions("log.flush.interval.messages=1") as b:
        pid = (await b.init()).producer_id
        assert await add(b, {"t": [0]}) == {"t": [NONE]}
        b.produce(pid, 0)
        partition = b.topics.partition("t", 0)
        assert partition is not None
        assert (await end(b, pid)).error_code == NONE
        assert partition.last_stable_offset == 2


# Produce.


async def send(
    b: RunningTransactions, pid: int, version: int, *, epoch: int = 0, sequence: int = 0
) -> tuple[int, int, str | None]:
    """A batch of a transaction to partition 0 of "t": error, where the log begins, and text."""
    batch = encode_batch(
        [Record(b"value", timestamp=b.topics.clock.wall_ms())],
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    topic = b.topics.get("t")
    assert topic is not None
    data = m.TopicProduceData(
        name="t",
        topic_id=topic.topic_id,
        partition_data=[m.PartitionProduceData(index=0, records=batch)],
    )
    request = m.ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topic_data=[data])
    (answer,) = (await b.ask(request, version)).responses[0].partition_responses
    return answer.error_code, answer.log_start_offset, answer.error_message


async def test_an_offline_partition_is_not_added_to_a_transaction() -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        partition = b.topics.partition("t", 0)
        assert partition is not None
        partition.take_offline("the disk failed")
        assert (await send(b, pid, 12))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert state(b) == "Empty"


@pytest.mark.parametrize("version", [5, 10, 11, 12, 13])
async def test_where_the_log_begins_is_told_by_logs_alone(version: int) -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        await add(b, {"t": [0]})
        assert await send(b, pid + 1, version) == (UNMAPPED, -1, None)
        assert (await send(b, pid, version, epoch=1))[:2] == (OLD_FENCED, -1)
        await b.ask(m.WriteTxnMarkersRequest(markers=[marker(pid, 3, t=[0])]), 2)
        assert (await send(b, pid, version))[:2] == (OLD_FENCED, -1)


async def test_a_batch_of_a_transaction_is_freed_without_the_collector() -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        gc.disable()
        try:
            assert (await send(b, pid, 12))[0] == NONE
            assert not [one for one in gc.get_objects() if isinstance(one, ProduceCall)]
        finally:
            gc.enable()


# What failed as a whole.


@pytest.mark.parametrize(
    "request_",
    [
        m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1),
        m.AddPartitionsToTxnRequest(
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[1, 2])]
        ),
        m.AddOffsetsToTxnRequest(
            transactional_id="id", producer_id=1, producer_epoch=0, group_id="g"
        ),
        m.EndTxnRequest(transactional_id="id", producer_id=1, producer_epoch=0, committed=True),
        m.WriteTxnMarkersRequest(markers=[marker(1, 2, t=[0])]),
        DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]),
        m.DescribeTransactionsRequest(transactional_ids=["id"]),
        m.ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_every_version_can_say_that_the_request_failed(request_: object) -> None:
    api = next(api for api in load_handlers().values() if isinstance(request_, api.request))
    for version in range(api.versions.low, api.versions.high + 1):
        code = ErrorCode.NOT_COORDINATOR
        response = error_response(api.on_error, request_, version, code)
        response_codec: Codec[Any] = codec(RESPONSES[api.key], version)
        encoded = response_codec.encode(response)
        assert code.to_bytes(2, "big") in encoded
