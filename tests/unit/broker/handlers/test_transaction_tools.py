"""The apis of transactions that operators use: to look at transactions, and to end them."""

import pytest

from kohort.broker.topics.names import TRANSACTION_STATE
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.support import messages as m
from tests.support.transactions.running_transactions import (
    running_transactions,
)
from tests.unit.broker.handlers.transaction_requests import add, end, marker

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


async def test_transactions_are_described() -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        await b.init("idle", transaction_timeout_ms=5_000)
        await add(b, {"t": [2, 0], "u": [1]})
        response = await b.ask(
            m.DescribeTransactionsRequest(transactional_ids=["id", "no", "", "idle", "id"])
        )
        first, no, empty, idle, again = response.transaction_states
        assert first == again
        assert (first.error_code, first.transactional_id) == (NONE, "id")
        assert (first.transaction_state, first.transaction_timeout_ms) == ("Ongoing", 60_000)
        assert (first.producer_id, first.producer_epoch) == (pid, 0)
        assert [(topic.topic, topic.partitions) for topic in first.topics] == [
            ("t", [2, 0]),
            ("u", [1]),
        ]
        assert first.transaction_start_time_ms > 0
        assert (idle.transaction_state, idle.transaction_start_time_ms) == ("Empty", -1)
        for wrong, error in (
            (no, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            (empty, ErrorCode.INVALID_REQUEST),
        ):
            assert (wrong.error_code, wrong.transaction_state) == (error, "")
            assert (wrong.producer_id, wrong.transaction_timeout_ms, wrong.topics) == (0, 0, [])
        await end(b, pid)
        (ended,) = (
            await b.ask(m.DescribeTransactionsRequest(transactional_ids=["id"]))
        ).transaction_states
        assert (ended.transaction_state, ended.topics) == ("CompleteCommit", [])
        assert ended.transaction_start_time_ms == first.transaction_start_time_ms


async def test_transactions_are_listed() -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        other = (await b.init("other")).producer_id
        await add(b, {"t": [0]})

        async def names(version: int = 2, **filters: object) -> list[str]:
            fields = {"state_filters": [], "producer_id_filters": []} | filters
            response = await b.ask(m.ListTransactionsRequest(**fields), version)  # type: ignore[arg-type]
            assert response.error_code == NONE
            return sorted(one.transactional_id for one in response.transaction_states)

        for version in range(3):
            assert await names(version) == ["id", "other"]
            assert await names(version, state_filters=["Ongoing"]) == ["id"]
            assert await names(version, state_filters=["ongoing"]) == []
            assert await names(version, state_filters=["Dead"]) == []
            assert await names(version, state_filters=["Empty", "x"]) == ["other"]
            assert await names(version, producer_id_filters=[other, 99]) == ["other"]
            assert await names(version, state_filters=["Empty"], producer_id_filters=[pid]) == []
        assert await names(duration_filter=-1) == ["id", "other"]
        # What never began is older than everything.
        assert await names(duration_filter=1_000_000) == ["other"]
        assert await names(transactional_id_pattern="") == ["id", "other"]
        assert await names(transactional_id_pattern="o.*") == ["other"]
        assert await names(transactional_id_pattern="the") == []
        unknown = await b.ask(
            m.ListTransactionsRequest(state_filters=["x", "Dead", "y", "x"], producer_id_filters=[])
        )
        assert unknown.unknown_state_filters == ["x", "y"]
        bad = b.start(
            m.ListTransactionsRequest(
                state_filters=[], producer_id_filters=[], transactional_id_pattern="(a"
            )
        )
        with pytest.raises(Exception, match="INVALID_REGULAR_EXPRESSION"):
            await bad


async def test_producers_are_described() -> None:
    async with running_transactions() as b:
        pid = (await b.init()).producer_id
        await add(b, {"t": [0]})
        b.produce(pid, 0)
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="t", partition_indexes=[0, 1, 9]),
                TopicRequest(name="no", partition_indexes=[0]),
                TopicRequest(name="not/a name", partition_indexes=[0]),
                TopicRequest(name=TRANSACTION_STATE, partition_indexes=[0]),
            ]
        )
        t, no, bad, internal = (await b.ask(request)).topics
        (known,) = t.partitions[0].active_producers
        assert (known.producer_id, known.producer_epoch, known.last_sequence) == (pid, 0, 0)
        assert (known.coordinator_epoch, known.current_txn_start_offset) == (-1, 0)
        assert [one.error_code for one in t.partitions] == [NONE, NONE, UNKNOWN]
        assert t.partitions[1].active_producers == []
        assert no.partitions[0].error_code == UNKNOWN
        assert bad.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert internal.partitions[0].error_code == NONE
        await end(b, pid)
        (known,) = (await b.ask(request)).topics[0].partitions[0].active_producers
        assert (known.producer_epoch, known.last_sequence) == (1, -1)
        assert (known.coordinator_epoch, known.current_txn_start_offset) == (0, -1)
