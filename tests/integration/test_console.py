"""The console of a broker that real clients use, over its own port."""

import asyncio
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kohort.broker.app import Broker, StartError
from kohort.broker.config import load
from kohort.broker.console import holding
from kohort.groups.requests import CommitRequest, OffsetToCommit
from tests.support.brokers.server_process import free_port


@asynccontextmanager
async def running(directory: Path, **settings: str) -> AsyncIterator[tuple[Broker, int]]:
    """A broker, and the port of its console."""
    port = free_port()
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "kohort.metrics.port": "-1",
        "kohort.console.port": str(port),
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    given = [f"{name}={value}" for name, value in overrides.items()]
    async with Broker(load(overrides=given, environment={})).running() as broker:
        yield broker, port


def fetch(port: int, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body)."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, dict(answer.headers), answer.read()


async def ask(port: int, path: str) -> Any:  # noqa: ANN401 - as JSON has it.
    status, _, body = await asyncio.to_thread(fetch, port, path)
    assert status == 200, body
    return json.loads(body)


@asynccontextmanager
async def reading(broker: Broker) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that has committed six of ten records."""
    bootstrap = f"127.0.0.1:{broker.endpoint.port}"
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait("orders", b"record %d" % number, partition=0)
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        for _ in range(6):
            await consumer.getone()
        await consumer.commit()
        yield consumer
    finally:
        await consumer.stop()


async def test_the_pages_tell_of_what_clients_do(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port), reading(broker):
        (group,) = (await ask(port, "/api/groups"))["groups"]
        one = await ask(port, "/api/groups/readers")
        records = await ask(port, "/api/groups/readers/rebalances")
        topic = await ask(port, "/api/topics/orders")
        about = await ask(port, "/api/broker")
        configs = (await ask(port, "/api/broker/configs"))["configs"]
        address = f"127.0.0.1:{broker.endpoint.port}"
    assert (group["group"], group["state"], group["lag"]) == ("readers", "Stable", 4)
    assert 0 <= group["lag_ms"] < 600_000
    assert one["partitions"][0]["committed"] == 6
    assert len(records["records"]) == 1
    assert topic["groups"][0]["lag"] == 4
    assert {"JoinGroup", "OffsetCommit"} <= {row["api"] for row in about["requests"]}
    assert about["memory"]["resident_bytes"] > 1_000_000
    assert about["disk"]["free_bytes"] > 0
    assert about["disk"]["directory"] == str(tmp_path)
    (listener,) = about["listeners"]
    assert (listener["name"], listener["protocol"]) == ("PLAINTEXT", "PLAINTEXT")
    assert listener["advertised"] == address
    (client,) = about["clients"]
    assert (client["host"], client["principal"]) == ("127.0.0.1", "User:ANONYMOUS")
    assert client["connections"] == about["connections"]
    assert {"name": "log.dirs", "value": str(tmp_path), "source": "STATIC_BROKER"} in configs
    assert not any(config["source"] == "DEFAULT" for config in configs)
    sources = {config["name"]: config["source"] for config in topic["configs"]}
    assert sources["retention.ms"] == "DEFAULT"


async def test_only_looking_is_possible_and_only_by_our_own_names(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, port):
        evil, *_ = await asyncio.to_thread(fetch, port, "/", Host="evil.example")
        status, headers, body = await asyncio.to_thread(fetch, port, "/", Host="localhost")

        def post() -> int:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                connection.request("POST", "/api/groups")
                return connection.getresponse().status

        posted = await asyncio.to_thread(post)
        missing, *_ = await asyncio.to_thread(fetch, port, "/static/..%2fpages.py")
    assert (evil, status, posted, missing) == (421, 200, 405, 404)
    assert b"/static/app.js" in body
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_an_open_transaction_is_shown_with_the_group_that_it_holds_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "HELD_MS", 0)
    held: list[Any] = []
    async with running(tmp_path, num_partitions="2") as (broker, port):
        bootstrap = f"127.0.0.1:{broker.endpoint.port}"
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id="ledger",
            client_id="books",
            transaction_timeout_ms=600_000,
        )
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("orders", b"done", partition=0)
        await producer.begin_transaction()
        # The commit marker is a record of the log, too.
        for partition, end in enumerate((2, 0)):
            await producer.send_and_wait("orders", b"open", partition=partition)
            await broker.services.groups.commit(
                "readers",
                CommitRequest((OffsetToCommit("orders", partition, end),)),
                may_answer_group_not_found=True,
            )
            held.append(await ask(port, "/api/groups/readers"))
        listed = await ask(port, "/api/transactions")
        checks = await ask(port, "/api/checks")
        await producer.abort_transaction()
        free = await ask(port, "/api/groups/readers")
        none = await ask(port, "/api/transactions")
        await producer.stop()
    (transaction,) = listed["transactions"]
    assert (transaction["transactional_id"], transaction["client_id"]) == ("ledger", "books")
    assert transaction["partitions"] == {"orders": [0, 1]}
    (first,), (both,) = (group["findings"] for group in held)
    assert first["check"] == both["check"] == "held-back"
    assert "orders-0 stands at offset 2 of 3, where a transaction of ledger" in first["text"]
    assert "client books" in first["text"]
    assert "other partition" not in first["text"]
    assert "1 other partition too" in both["text"]
    assert re.search(r"aborted in \d+ min", first["advice"])
    assert checks["counts"]["held-back"] == 1
    assert free["findings"] == []
    assert none["transactions"] == []


async def test_offsets_are_not_set_unless_the_console_may_write(tmp_path: Path) -> None:
    path = "/api/groups/readers/reset"

    def post(port: int) -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("POST", path)
            return connection.getresponse().status

    async with running(tmp_path) as (broker, port):
        async with reading(broker):
            pass
        asked, *_ = await asyncio.to_thread(fetch, port, f"{path}?to=earliest")
        posted = await asyncio.to_thread(post, port)
        page = await asyncio.to_thread(fetch, port, "/")
    assert (asked, posted) == (404, 404)
    assert b"data-writes" not in page[2]


async def test_a_port_that_was_set_must_be_free_and_the_default_need_not(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as (_, port):
        with pytest.raises(StartError, match=f"kohort.console.port={port}"):
            async with running(tmp_path / "two", kohort_console_port=str(port)):
                pass
    async with running(tmp_path / "none", kohort_console_port="-1") as (_, port):
        with pytest.raises(urllib.error.URLError):
            await asyncio.to_thread(fetch, port, "/")


@pytest.mark.long
async def test_advice_is_what_the_command_line_gives(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port):
        for _ in range(3):
            async with reading(broker):
                pass
        first = await ask(port, "/api/groups/readers/advice")
        again = await ask(port, "/api/groups/readers/advice")
        nobody, *_ = await asyncio.to_thread(fetch, port, "/api/groups/nobody/advice")
    assert first["group"] == "readers"
    assert first["history"]["rebalances"] == 6
    assert {"recorded", "choices", "check", "unknown"} <= set(first)
    assert again == first
    assert nobody == 404


async def test_no_page_is_served_while_groups_are_unloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    async with running(tmp_path) as (broker, port):
        await ask(port, "/api/groups")
        unload = broker.coordinators.stop_serving

        async def stop_serving() -> None:
            with pytest.raises(urllib.error.URLError):
                await asyncio.to_thread(fetch, port, "/api/groups")
            refused.append(port)
            await unload()

        monkeypatch.setattr(broker.coordinators, "stop_serving", stop_serving)
    assert refused
