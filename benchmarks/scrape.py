"""What a scrape of a broker with many partitions takes, and what a client notices of it."""

import asyncio
import socket
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.brokers import Kohort, RunningBroker, ask_api_versions
from benchmarks.harness import Bench, Measured, Row, progress

TITLE: Final = "Scrape of 1,000 topics with 10 partitions each"

_TOPICS: Final = 1_000
_PARTITIONS: Final = 10
_TOPICS_PER_REQUEST: Final = 100


def measure(bench: Bench) -> Iterable[Row]:
    kohort = next(one for one in bench.contenders if isinstance(one, Kohort))
    with kohort.start(bench.directory / "scrape") as broker:
        broker.wait_serving()
        progress("  creating topics")
        asyncio.run(_create_topics(broker.port))
        figures = bench.measure_ours(lambda: _measure_scrape(kohort, broker))
    yield Row("answer", "ms", figures["answer"])
    yield Row("processor time", "ms", figures["cpu"])
    yield Row("a client's requests meanwhile, median", "ms", figures["request median"])
    yield Row("a client's requests meanwhile, slowest", "ms", figures["request slowest"])
    yield Row("a client's requests otherwise, median", "ms", figures["request otherwise"])
    yield Row("memory afterwards", "MiB", figures["memory"])


async def _create_topics(port: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}", request_timeout_ms=120_000)
    await admin.start()
    for first in range(0, _TOPICS, _TOPICS_PER_REQUEST):
        names = [f"topic-{number:04}" for number in range(first, first + _TOPICS_PER_REQUEST)]
        await admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in names])
    await admin.close()


def _measure_scrape(kohort: Kohort, broker: RunningBroker) -> Measured:
    with _requests(broker.port) as otherwise:
        time.sleep(0.5)
    cpu_before_s = broker.cpu_s()
    _scrape(kohort.metrics_port)
    cpu_s = broker.cpu_s() - cpu_before_s
    with _requests(broker.port) as meanwhile:
        began = time.perf_counter()
        _scrape(kohort.metrics_port)
        answer_s = time.perf_counter() - began
    return {
        "answer": answer_s * 1e3,
        "cpu": cpu_s * 1e3,
        "request median": statistics.median(meanwhile) * 1e3,
        "request slowest": max(meanwhile) * 1e3,
        "request otherwise": statistics.median(otherwise) * 1e3,
        "memory": broker.resident_mib(),
    }


def _scrape(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().count(b"\nkafka_topic_partition_current_offset{")
    if lines != _TOPICS * _PARTITIONS:
        raise RuntimeError(f"a scrape with {lines} partitions")


@contextmanager
def _requests(port: int) -> Iterator[list[float]]:
    """Durations of requests that one client sends, one after the other, inside of the context."""
    durations: list[float] = []
    is_over = threading.Event()

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            while not is_over.is_set():
                began = time.perf_counter()
                ask_api_versions(connection)
                durations.append(time.perf_counter() - began)

    client = threading.Thread(target=ask)
    client.start()
    try:
        yield durations
    finally:
        is_over.set()
        client.join()
