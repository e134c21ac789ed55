"""The pages about transactions, over a real coordinator and real partitions, without sockets."""

import json
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import pytest

from kohort.broker.http.lazy import transaction_pages
from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse
from tests.support import messages as m
from tests.support.transactions.running_transactions import (
    TIMEOUT_MS,
    RunningTransactions,
    running_transactions,
)


async def ask(broker: RunningTransactions, path: str, *values: str, query: str = "") -> Any:  # noqa: ANN401
    source = broker.transactions.host, broker.topics, broker.topics.clock
    request = HttpRequest("GET", "/", query, "", values)
    with ThreadPoolExecutor() as executor:
        response = await transaction_pages(lambda: source, executor)[path](request)
    assert isinstance(response, HttpResponse)
    assert response.content_type == "application/json"
    data = json.loads(b"".join(response.body))
    assert ("error" in data) == (response.status is not HTTPStatus.OK)
    return data


async def begin(broker: RunningTransactions, name: str, *indexes: int) -> int:
    """A transaction of that id in partitions of the topic "t"; the producer id."""
    producer_id = (await broker.init(name)).producer_id
    topic = m.AddPartitionsToTxnTopic(name="t", partitions=list(indexes))
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )
    await broker.ask(request, 3)
    for index in indexes:
        broker.produce(producer_id, 0, index=index)
    return producer_id


async def test_open_transactions_are_listed_the_oldest_first_with_their_clients() -> None:
    async with running_transactions() as broker:
        await broker.init("idle")
        first = await begin(broker, "first", 2, 0)
        await begin(broker, "second", 1)
        found = await ask(broker, "/transactions")
        assert found["total"] == 2
        one, other = found["transactions"]
        assert other["transactional_id"] == "second"
        assert one == {
            "transactional_id": "first",
            "state": "Ongoing",
            "producer_id": first,
            "producer_epoch": 0,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "start_ms": one["start_ms"],
            "age_ms": found["at_ms"] - one["start_ms"],
            "timeout_ms": TIMEOUT_MS,
            "is_stuck": False,
            "partition_count": 2,
            "partitions": {"t": [0, 2]},
        }
        shorter = await ask(broker, "/transactions", query="limit=1")
        assert [one["transactional_id"] for one in shorter["transactions"]] == ["first"]
        assert shorter["total"] == 2


async def test_one_id_is_told_with_what_became_of_its_transactions() -> None:
    async with running_transactions() as broker:
        producer_id = await begin(broker, "id", 0)
        end = m.EndTxnRequest(
            transactional_id="id", producer_id=producer_id, producer_epoch=0, committed=True
        )
        await broker.ask(end, 3)
        found = await ask(broker, "/transactions/{id}", "id")
        assert (found["state"], found["start_ms"], found["age_ms"]) == (
            "CompleteCommit",
            None,
            None,
        )
        assert found["partitions"] == {}
        counts = found["since_start"]
        assert (counts["started"], counts["committed"], counts["aborted_by_client"]) == (1, 1, 0)
        assert counts["last_duration_ms"] >= 0
        missing = await ask(broker, "/transactions/{id}", "other")
        assert "unknown transactional id" in missing["error"]


async def test_what_holds_a_partition_back_is_told_with_whose_it_is() -> None:
    path = "/topics/{topic}/{partition}/transactions"
    async with running_transactions() as broker:
        holder = await begin(broker, "holder", 0)
        # No coordinator knows this one.
        broker.produce(4_242, 0, index=0)
        found = await ask(broker, path, "t", "0")
        assert (found["high_watermark"], found["last_stable_offset"]) == (2, 0)
        first, second = found["open"]
        assert first["transactional_id"] == "holder"
        assert (first["producer_id"], first["first_offset"]) == (holder, 0)
        assert (first["client_id"], first["client_host"]) == ("c", "/127.0.0.1")
        assert first["age_ms"] == found["at_ms"] - first["start_ms"]
        assert (second["transactional_id"], second["producer_id"]) == (None, 4_242)
        shorter = await ask(broker, path, "t", "0", query="limit=1")
        assert (len(shorter["open"]), shorter["total"]) == (1, 2)
        free = await ask(broker, path, "t", "1")
        assert (free["open"], free["total"]) == ([], 0)


async def test_a_look_at_a_partition_that_there_is_not_makes_none() -> None:
    path = "/topics/{topic}/{partition}/transactions"
    async with running_transactions() as broker:
        for topic, index in (("t", "3"), ("no", "0"), ("__transaction_state", "1"), ("../t", "0")):
            assert (await ask(broker, path, topic, index))["error"]
        with pytest.raises(BadRequestError):
            await ask(broker, path, "t", "-1")
        with pytest.raises(BadRequestError):
            await ask(broker, "/transactions", query="limit=0")


async def test_after_a_restart_the_client_is_not_known_until_it_is_heard_of() -> None:
    async with running_transactions() as broker:
        await begin(broker, "id", 0)
        one = broker.transactions.host.transactional_id("id")
        assert one is not None
        one.client = None
        (found,) = (await ask(broker, "/transactions"))["transactions"]
        assert (found["client_id"], found["client_host"]) == (None, None)
