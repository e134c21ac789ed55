"""The apis that a transaction takes, by version: what is checked first, and how it is told."""

from typing import Any

import pytest

from kohort.broker.core.transaction.requests import TransactionConfig
from kohort.broker.dispatch.failures import error_response
from kohort.broker.handlers import load_handlers
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.broker.transactions.host import TransactionsConfig
from kohort.protocol.codec import Codec, codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import RESPONSES
from kohort.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.brokers.running_topics import aborted_in
from tests.support.transactions.running_transactions import (
    RunningTransactions,
    running_transactions,
)
from tests.unit.broker.handlers.transaction_requests import add, end, marker, state

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


# InitProducerId.


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_gets_the_epochs_of_its_id(version: int) -> None:
    async with running_transactions() as b:
        first = await b.init(version=version)
        assert (first.error_code, first.producer_epoch) == (NONE, 0)
        again = await b.init(version=version)
        assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1)
        other = await b.init("other", version)
        assert (other.producer_epoch, other.producer_id) != (0, first.producer_id)
        plain = await b.init(None, version, transaction_timeout_ms=-7)
        assert plain.producer_id not in {first.producer_id, other.producer_id}


async def test_what_init_producer_id_refuses() -> None:
    config = TransactionsConfig(TransactionConfig(max_timeout_ms=1_000))
    async with running_transactions(config=config) as b:
        cases: list[tuple[dict[str, Any], ErrorCode]] = [
            ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
            ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ({"transaction_timeout_ms": 1_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ({"transaction_timeout_ms": 1_000}, NONE),
        ]
        for changes, error in cases:
            response = await b.init(**changes)
            assert response.error_code == error
            assert (response.producer_id == -1) is bool(error)
        empty = await b.init("", transaction_timeout_ms=0)
        assert empty.error_code == ErrorCode.INVALID_REQUEST


# A whole transaction.


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_from_its_begin_to_its_end(version: int, commit: bool) -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        await add(b, {"t": [0, 2]})
        partition = b.topics.partition("t", 0)
        assert partition is not None
        b.produce(pid, 0)
        assert partition.last_stable_offset == 0
        response = await end(b, pid, commit=commit, version=version)
        assert response.error_code == NONE
        if version >= 5:
            assert (response.producer_id, response.producer_epoch) == (pid, 1)
        assert partition.last_stable_offset == partition.high_watermark == 2
        aborted = aborted_in(partition, 0, 2)
        assert aborted == ([] if commit else [(pid, 0)])
        # The answer was lost, and the client asks again.
        assert (await end(b, pid, commit=commit, version=version)).error_code == NONE
        wrong = await end(b, pid, commit=not commit, version=version)
        assert wrong.error_code == ErrorCode.INVALID_TXN_STATE
        assert (wrong.producer_id, wrong.producer_epoch) == (-1, -1)


async def test_all_of_it_behind_an_fsync() -> None:
    async with running_transactions("log.flush.interval.messages=1") as b:
        pid = (await b.init()).producer_id
        await add(b, {"t": [0]})
        b.produce(pid, 0)
        partition = b.topics.partition("t", 0)
        assert partition is not None
        assert (await end(b, pid)).error_code == NONE
        assert partition.last_stable_offset == 2


async def test_the_offsets_of_a_group_join_by_their_partition() -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        request = m.AddOffsetsToTxnRequest(
            transactional_id="id", producer_id=pid, producer_epoch=0, group_id="g"
        )
        assert (await b.ask(request)).error_code == NONE
        found = b.transactions.host.transactional_id("id")
        assert found is not None
        place = (CONSUMER_OFFSETS, b.groups.offsets_partition("g"))
        assert list(found.unmarked) == [place]


async def test_a_topic_that_was_deleted_holds_nothing_up() -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        await add(b, {"t": [0], "u": [0]})
        topic = b.topics.get("u")
        assert topic is not None
        assert await b.topics.changes.delete_topics([topic]) == [None]
        assert (await end(b, pid)).error_code == NONE
        assert state(b) == "CompleteCommit"


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


@pytest.mark.parametrize("version", [12, 13])
async def test_a_batch_that_its_log_refuses_adds_nothing(version: int) -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        error, log_start_offset, _ = await send(b, pid, version, sequence=1)
        assert (error, log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
        assert state(b) == "Empty"
        assert (await send(b, pid, version))[0] == NONE
        assert state(b) == "Ongoing"


@pytest.mark.parametrize("version", [5, 10, 11, 12, 13])
async def test_where_the_log_begins_is_told_by_logs_alone(version: int) -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        await add(b, {"t": [0]})
        assert await send(b, pid + 1, version) == (UNMAPPED, -1, None)
        assert (await send(b, pid, version, epoch=1))[:2] == (OLD_FENCED, -1)
        await b.ask(m.WriteTxnMarkersRequest(markers=[marker(pid, 3, t=[0])]), 2)
        assert (await send(b, pid, version))[:2] == (OLD_FENCED, -1)


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
