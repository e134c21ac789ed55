"""Open transactions as operators see them: metrics, pages, and the commands that ask these."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from kohort.broker.app import Broker
from kohort.broker.config import load
from tests.support.brokers.server_process import free_port


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[tuple[str, str]]:
    """A broker: where Kafka's protocol is spoken, and the URL of its HTTP port."""
    port = free_port()
    overrides = [
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}",
        f"kohort.metrics.port={port}",
    ]
    async with Broker(load(overrides=overrides, environment={})).running() as broker:
        yield f"127.0.0.1:{broker.endpoint.port}", f"http://127.0.0.1:{port}"


async def told(bootstrap: str, *arguments: str) -> str:
    ran = await asyncio.to_thread(
        subprocess.run,
        [
            *(sys.executable, "-m", "kohort.cli", "transactions", *arguments),
            *("--bootstrap-server", bootstrap, "--timeout", "60"),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ran.stdout


async def page(http: str, path: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(http + path, timeout=30) as answer:
            text: bytes = answer.read()
        return text.decode()

    return await asyncio.to_thread(fetch)


async def metrics(http: str) -> dict[str, dict[tuple[str, ...], float]]:
    text = await page(http, "/metrics")
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def test_an_open_transaction_is_seen_everywhere_with_whose_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as (bootstrap, http):
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id="billing-7", transactional_id="bills"
        )
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"undecided", partition=0)

        (one,) = json.loads(await page(http, "/transactions"))["transactions"]
        assert (one["transactional_id"], one["client_id"]) == ("bills", "billing-7")
        found = await metrics(http)
        assert found["kohort_transactions_open"] == {(): 1}
        assert found["kohort_partition_last_stable_offset_lag"] == {("orders", "0"): 1}
        assert found["kafka_server_replicamanager_produceridcount"][()] >= 1
        why = await told(bootstrap, "why", "orders", "0")
        assert "bills (client billing-7 at 127.0.0.1) has a transaction open from there" in why
        described = await told(bootstrap, "describe", "bills")
        assert "Last used by client billing-7 at 127.0.0.1." in described
        as_json: Any = json.loads(
            await told(bootstrap, "why", "orders", "0", "--json", "--http", http)
        )
        (held,) = as_json["open"]
        assert held["client"] == {"client_id": "billing-7", "host": "/127.0.0.1"}

        await producer.commit_transaction()
        await producer.stop()
        found = await metrics(http)
        assert found["kohort_transactions_open"] == {(): 0}
        assert found["kohort_transactions_ended_total"]["commit", "client"] == 1
        assert "kohort_partition_last_stable_offset_lag" not in found
