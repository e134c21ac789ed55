"""What TLS costs: one connection of TLS 1.3 beside one without, on the same broker.

The client is a blocking socket of this process; what is measured is the broker's processor time.
"""

import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.brokers import Contender, RunningBroker
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.secured import add_listeners, ask, connect
from kohort.protocol.messages.membership import HeartbeatRequest
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kohort.protocol.messages.topic_changes import CreatableTopic, CreateTopicsRequest
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.requests import fetch_request
from tests.support.network.wire import framed, request_body

TITLE: Final = "TLS 1.3 with a P-256 key, one connection"

_REQUESTS: Final = 5_000
_MEGABYTES: Final = 150
_HANDSHAKES: Final = 200
_BATCH_RECORDS: Final = 950
_TOPIC: Final = "tls"


def measure(bench: Bench) -> Iterable[Row]:
    requests = int(bench.scaled(_REQUESTS, 20))
    megabytes = int(bench.scaled(_MEGABYTES, 2))
    handshakes = int(bench.scaled(_HANDSHAKES, 3))

    def measure_one(contender: Contender) -> Measured:
        directory = bench.directory / f"tls-{contender.name}-{time.monotonic_ns()}"
        authority = Authority(directory / "certificates")
        with _running(contender, directory, authority) as (broker, ports):
            context = ssl.create_default_context(cafile=authority.certificate)
            found: dict[str, float] = {}
            _create_topic(broker.port)
            for name, port in ports.items():
                progress(f"  {contender.name}: {name}")
                with closing(connect(port, context if name == "tls" else None)) as client:
                    # The first half is for a JVM to learn it.
                    _tiny(broker, client, requests)
                    found[f"{name} tiny"] = _tiny(broker, client, requests)
                    for kind, frame in (("produce", _produce()), ("fetch", _fetch())):
                        _bulk(broker, client, frame, megabytes)
                        cpu, rate = _bulk(broker, client, frame, megabytes)
                        found[f"{name} {kind}"], found[f"{name} {kind} rate"] = cpu, rate
            found["tiny more"] = found["tls tiny"] - found["plain tiny"]
            began_s = time.perf_counter()
            for _ in range(handshakes):
                connect(ports["tls"], context).close()
            found["handshakes"] = handshakes / (time.perf_counter() - began_s)
            return found

    figures = bench.alternate(measure_one)
    yield Row("a tiny request more than without: server CPU", "us", figures["tiny more"], limit=5)
    for kind in ("produce", "fetch"):
        for name in ("plain", "tls"):
            cpu, rate = figures[f"{name} {kind}"], figures[f"{name} {kind} rate"]
            yield Row(f"{kind} of 1 kB, {name}: server CPU", "s/GB", cpu, aim=0.6)
            yield Row(f"{kind} of 1 kB, {name}", "MB/s", rate, "more", aim=1.0)
    yield Row("new connections", "1/s", figures["handshakes"], "more", aim=1.0)


@contextmanager
def _running(
    contender: Contender, directory: Path, authority: Authority
) -> Iterator[tuple[RunningBroker, dict[str, int]]]:
    server = contender.server(directory)
    tls = free_port()
    add_listeners(server, {"SSL": tls}, authority.issue("broker", "IP:127.0.0.1"))
    with RunningBroker(server) as broker:
        broker.wait_serving()
        yield broker, {"plain": broker.port, "tls": tls}


def _tiny(broker: RunningBroker, client: socket.socket, count: int) -> float:
    """Microseconds of the broker's processor for each."""
    frame = framed(request_body(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4))
    place = memoryview(bytearray(1 << 16))
    began_s = broker.cpu_s()
    for _ in range(count):
        ask(client, frame, place)
    return (broker.cpu_s() - began_s) / count * 1e6


def _bulk(
    broker: RunningBroker, client: socket.socket, frame: bytes, megabytes: int
) -> tuple[float, float]:
    """Seconds of the broker's processor per GB, and MB per second."""
    place = memoryview(bytearray(4 << 20))
    began_s, cpu_s, moved = time.perf_counter(), broker.cpu_s(), 0
    while moved < megabytes * 1_000_000:
        moved += max(ask(client, frame, place), len(frame))
    return (
        (broker.cpu_s() - cpu_s) / moved * 1e9,
        moved / 1e6 / (time.perf_counter() - began_s),
    )


def _create_topic(port: int) -> None:
    topic = CreatableTopic(
        name=_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    with closing(connect(port, None)) as client:
        ask(client, framed(request_body(request, 5)), memoryview(bytearray(1 << 16)))


def _produce() -> bytes:
    now_ms = int(time.time() * 1_000)
    records = [Record(bytes(1_000), None, (), now_ms) for _ in range(_BATCH_RECORDS)]
    data = PartitionProduceData(index=0, records=memoryview(encode_batch(records)))
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=_TOPIC, partition_data=[data])],
    )
    return framed(request_body(request, 9))


def _fetch() -> bytes:
    return framed(request_body(fetch_request(_TOPIC, max_wait_ms=500), 11))
