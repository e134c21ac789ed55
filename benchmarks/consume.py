"""Our consumer beside aiokafka and confluent-kafka: how fast they read the same topic, on what CPU.

A Kohort holds a topic for each kind of record, and then a Kafka does, if there is one: where their
rows differ, it is the broker's doing. Each client reads a topic from beginning to end in a process
of its own, in turns, on the standard event loop. Time runs from the first poll to the last record.
Every client looks at the offset and the value of every record, and has to find what was written. It
fetches as it does by default; ours and aiokafka's defaults are the same (1 MiB of a partition and
50 MiB in an answer, 1 byte, 500 ms, checksums are looked at).
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from benchmarks.brokers import Contender, Kohort, RunningBroker
from benchmarks.harness import Bench, Figure, Measured, Pair, Row, figures, progress

TITLE: Final = "Consuming: our client beside the one that is named"

AIM: Final = 1.5
"""Times aiokafka's records per second."""

_POLL_RECORDS: Final = 500
_BATCH_BYTES: Final = 64 << 10
_PROBE_EVERY: Final = 997


class Kind(NamedTuple):
    """What a topic is full of."""

    value_bytes: int
    codec: str
    records: int

    @property
    def name(self) -> str:
        size = f"{self.value_bytes // 1_000} kB" if self.value_bytes >= 1_000 else "100 B"
        return f"{size}, {self.codec}"

    @property
    def topic(self) -> str:
        return f"consume-{self.value_bytes}-{self.codec}"


KINDS: Final = tuple(
    Kind(size, codec, records)
    for size, records in ((100, 300_000), (1_000, 100_000))
    for codec in ("none", "lz4")
)


class Check:
    """What was written, and whether it comes back."""

    def __init__(self, kind: Kind) -> None:
        source = random.Random(kind.value_bytes)
        words = [b"%x" % source.getrandbits(40) for _ in range(3_000)]
        self._values = [
            b" ".join(source.choices(words, k=kind.value_bytes // 9 + 1))[: kind.value_bytes]
            for _ in range(_PROBE_EVERY)
        ]
        self.kind = kind

    def value(self, offset: int) -> bytes:
        return self._values[offset % _PROBE_EVERY]

    def found(self, offset: int, value_bytes: int) -> None:
        """To be called at the end, with what was counted."""
        expected = self.kind.records * self.kind.value_bytes
        if offset != self.kind.records or value_bytes != expected:
            raise RuntimeError(f"{offset} records of {value_bytes} bytes, not {expected}")


def measure(bench: Bench) -> Iterable[Row]:
    for contender in bench.contenders:
        with contender.start(bench.directory / "consume") as broker:
            broker.wait_serving()
            found = _measure_at(broker, contender, bench.runs)
        yield from _rows(contender, found)


def _measure_at(
    broker: RunningBroker, contender: Contender, runs: int
) -> dict[tuple[Kind, str], dict[str, Figure]]:
    """What all clients show there, by kind and client."""
    results: dict[tuple[Kind, str], list[Measured]] = {}
    bootstrap = f"127.0.0.1:{broker.port}"
    for kind in KINDS:
        progress(f"  {contender.name}: writing {kind.name}")
        _fill(bootstrap, kind)
    for run in range(runs):
        for kind in KINDS:
            for client in CLIENTS:
                progress(f"  {contender.name}, run {run + 1} of {runs}: {kind.name}, {client}")
                measured = _measure_in_process(client, bootstrap, kind)
                results.setdefault((kind, client), []).append(measured)
    progress("")
    return {key: figures(some) for key, some in results.items()}


def _rows(contender: Contender, found: dict[tuple[Kind, str], dict[str, Figure]]) -> Iterator[Row]:
    where = "" if contender.name == Kohort.name else f", from {contender.name}"
    for kind in KINDS:
        for ours, theirs, aim in (
            ("poll", "aiokafka getmany", AIM),
            ("async for", "aiokafka async for", AIM),
            ("poll", "confluent consume", None),
        ):
            a, b = found[kind, ours], found[kind, theirs]
            name = f"{kind.name}{where}: {ours} / {theirs}"
            yield Row(name, "records/s", Pair(a["speed"], b["speed"]), "more", aim)
            yield Row(name, "CPU s per million", Pair(a["cpu"], b["cpu"]))


def _fill(bootstrap: str, kind: Kind) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - not in the processes that are measured.

    check = Check(kind)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": kind.codec,
            "batch.size": _BATCH_BYTES,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for offset in range(kind.records):
        producer.produce(kind.topic, check.value(offset), b"key-%d" % offset, partition=0)
        if not offset % 1_000:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("not all records could be written")


def _measure_in_process(client: str, bootstrap: str, kind: Kind) -> Measured:
    command = [sys.executable, "-m", "benchmarks.consume", client, bootstrap, json.dumps(kind)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    measured: dict[str, float] = json.loads(output)
    return measured


# The clients, each in a process of its own.


Reading: TypeAlias = Callable[[Any, Check], Coroutine[Any, Any, Measured]]
"""Reads all records with a consumer that has its partition."""
Client: TypeAlias = Callable[[str, Check], Coroutine[Any, Any, Measured]]
"""Makes a consumer for these bootstrap servers, and reads."""
Classes: TypeAlias = tuple[Any, Any]
"""A library's consumer and its partition of a topic, imported when they are asked for."""


class Clock:
    """The time between the first poll and the last record."""

    def __init__(self) -> None:
        self._began_s, self._cpu_s = time.perf_counter(), time.process_time()

    def stop(self, count: int) -> Measured:
        took_s = time.perf_counter() - self._began_s
        cpu_s = time.process_time() - self._cpu_s
        return {"speed": count / took_s, "cpu": cpu_s / count * 1e6}


async def _by_poll(consumer: Any, check: Check) -> Measured:  # noqa: ANN401 - ours or aiokafka's.
    return await _by_batches(partial(consumer.poll, 10, max_records=_POLL_RECORDS), check)


async def _by_getmany(consumer: Any, check: Check) -> Measured:  # noqa: ANN401 - as above.
    poll = partial(consumer.getmany, timeout_ms=10_000, max_records=_POLL_RECORDS)
    return await _by_batches(poll, check)


async def _by_batches(
    poll: Callable[[], Coroutine[Any, Any, dict[Any, list[Any]]]], check: Check
) -> Measured:
    offset = total = 0
    clock = Clock()
    while offset < check.kind.records:
        for records in (await poll()).values():
            for record in records:
                if record.offset != offset or (
                    not offset % _PROBE_EVERY and record.value != check.value(offset)
                ):
                    raise RuntimeError(f"not record {offset}: {record}")
                total += len(record.value)
                offset += 1
    measured = clock.stop(offset)
    check.found(offset, total)
    return measured


async def _one_by_one(consumer: Any, check: Check) -> Measured:  # noqa: ANN401 - as above.
    offset = total = 0
    clock = Clock()
    async for record in consumer:
        if record.offset != offset or (
            not offset % _PROBE_EVERY and record.value != check.value(offset)
        ):
            raise RuntimeError(f"not record {offset}: {record}")
        total += len(record.value)
        offset += 1
        if offset == check.kind.records:
            break
    measured = clock.stop(offset)
    check.found(offset, total)
    return measured


def _ours() -> Classes:
    from kohort import Consumer, TopicPartition  # noqa: PLC0415 - as above.

    return Consumer, TopicPartition


def _aiokafka() -> Classes:
    from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: PLC0415 - as above.

    return AIOKafkaConsumer, TopicPartition


def _with(classes: Callable[[], Classes], read: Reading) -> Client:
    async def measured(bootstrap: str, check: Check) -> Measured:
        consumer_class, partition_class = classes()
        consumer = consumer_class(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([partition_class(check.kind.topic, 0)])
            return await read(consumer, check)

    return measured


async def _confluent(bootstrap: str, check: Check) -> Measured:
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - as above.

    kind, offset, total = check.kind, 0, 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([TopicPartition(kind.topic, 0, 0)])
    clock = Clock()
    while offset < kind.records:
        for record in consumer.consume(_POLL_RECORDS, 10):
            value = record.value()
            if record.offset() != offset or (
                not offset % _PROBE_EVERY and value != check.value(offset)
            ):
                raise RuntimeError(f"not record {offset}: {record}")
            total += len(value or b"")
            offset += 1
    measured = clock.stop(offset)
    consumer.close()
    check.found(offset, total)
    return measured


CLIENTS: Final[dict[str, Client]] = {
    "poll": _with(_ours, _by_poll),
    "aiokafka getmany": _with(_aiokafka, _by_getmany),
    "async for": _with(_ours, _one_by_one),
    "aiokafka async for": _with(_aiokafka, _one_by_one),
    "confluent consume": _confluent,
}


def main() -> None:
    client, bootstrap, kind = sys.argv[1:]
    check = Check(Kind(*json.loads(kind)))
    measured = asyncio.run(CLIENTS[client](bootstrap, check))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
