"""The console with 10,000 groups of six partitions: its list, and what an open page costs others.

A page is played by what it does: it hears `/events` and asks for the list as often as the console's
own does. The other client sends ApiVersions 500 times a second; its slowest hundredth is compared
with and without the page. The list is timed when it has to be made again: after as long as an older
one would serve.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.brokers import Kohort, RunningBroker, ask_api_versions
from benchmarks.harness import Bench, Measured, Row, progress
from kohort.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import RawClient

TITLE: Final = "The console with 10,000 groups"

LIST_MS_MAX: Final = 300
ADDED_MS_MAX: Final = 1

_GROUPS: Final = 10_000
_PARTITIONS: Final = 6
_TOPIC: Final = "console"
_RECORDS: Final = 1_000
"""The number of records of each partition; groups have committed all of them."""
_PAGE_EVERY_S: Final = 5.0
_REQUESTS_PER_S: Final = 500
_TURN_S: Final = 6.0
_OPENED_S: Final = 2.0
"""What opening takes is not what an open one costs."""
_AFRESH_S: Final = 4.0
"""A list serves who asks within ten times as long as it took."""


def measure(bench: Bench) -> Iterable[Row]:
    kohort = next(one for one in bench.contenders if isinstance(one, Kohort))
    port = free_port()
    with kohort.start(bench.directory / "console", {"kohort.console.port": str(port)}) as broker:
        broker.wait_serving()
        progress("  committing for all groups")
        _fill(broker.port, int(bench.scaled(_GROUPS, least=10)))
        figures = bench.measure_ours(lambda: _measure(broker, f"http://127.0.0.1:{port}", bench))
    yield Row("the list, made again", "ms", figures["list"], limit=LIST_MS_MAX)
    yield Row("the list, soon after", "ms", figures["again"])
    yield Row("another client's requests, p99, no page open", "ms", figures["without"])
    yield Row("another client's requests, p99, a page open", "ms", figures["with"])
    yield Row("what the page adds to p99", "ms", figures["added"], limit=ADDED_MS_MAX)


def _fill(port: int, groups: int) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - loaded where records are written.

    with RawClient(port) as client:
        topic = CreatableTopic(
            name=_TOPIC,
            num_partitions=_PARTITIONS,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5, CreateTopicsResponse)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
        for number in range(_RECORDS * _PARTITIONS):
            producer.produce(_TOPIC, b"%d" % number, partition=number % _PARTITIONS)
        producer.flush(60)
        for number in range(groups):
            places = [
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=number % _RECORDS,
                    committed_metadata="",
                )
                for index in range(_PARTITIONS)
            ]
            request = OffsetCommitRequest(
                group_id=f"group-{number:05}",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[OffsetCommitRequestTopic(name=_TOPIC, partitions=places)],
            )
            answer = client.call(request, 8, OffsetCommitResponse)
            if any(one.error_code for told in answer.topics for one in told.partitions):
                raise RuntimeError(f"a commit was refused: {answer}")


def _measure(broker: RunningBroker, console: str, bench: Bench) -> Measured:
    time.sleep(bench.scaled(_AFRESH_S, least=0.1))
    made_ms = _list_ms(console)
    soon_after_ms = _list_ms(console)
    turn_s = bench.scaled(_TURN_S, least=0.2)
    without = _p99_ms(broker.port, turn_s)
    with _page(console):
        time.sleep(bench.scaled(_OPENED_S, least=0.2))
        beside = _p99_ms(broker.port, turn_s)
    return {
        "list": made_ms,
        "again": soon_after_ms,
        "without": without,
        "with": beside,
        "added": beside - without,
    }


def _list_ms(console: str) -> float:
    began_s = time.perf_counter()
    answer = _groups(console)
    took_ms = (time.perf_counter() - began_s) * 1e3
    if not answer["groups"]:
        raise RuntimeError(f"no groups: {answer}")
    return took_ms


def _groups(console: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{console}/api/groups", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _p99_ms(port: int, turn_s: float) -> float:
    """Latencies of requests that are due at fixed times: a late one delays the next ones, too."""
    found: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began_s = time.perf_counter()
        for number in range(int(turn_s * _REQUESTS_PER_S)):
            due_s = began_s + number / _REQUESTS_PER_S
            time.sleep(max(0.0, due_s - time.perf_counter()))
            sent_s = time.perf_counter()
            ask_api_versions(connection)
            found.append((time.perf_counter() - sent_s) * 1e3)
    return statistics.quantiles(found, n=100)[98]


@contextmanager
def _page(console: str) -> Iterator[None]:
    """An open page, until the end: a process of its own, which takes no time of the one that
    measures.
    """
    page = subprocess.Popen([sys.executable, "-m", "benchmarks.console", console])
    try:
        yield
    finally:
        page.kill()
        page.wait()


def main() -> None:
    """Be a page."""
    console = sys.argv[1]
    with urllib.request.urlopen(f"{console}/events", timeout=30):
        while True:
            _groups(console)
            time.sleep(_PAGE_EVERY_S)


if __name__ == "__main__":
    main()
