"""Load by librdkafka (confluent-kafka), whose threads are not Python's: produce, fetch, end to end.

Values are made once and handed over in lists, so that a record costs this process little. The first
eight bytes say which record it is.
"""

import struct
import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.generator.topics import create_topics
from benchmarks.harness import Measured
from benchmarks.processes import cpu_s

_CHUNK: Final = 5_000
"""Records that are handed over at once, and after which values repeat."""
_AHEAD_BYTES: Final = 30_000_000
_NUMBER: Final = struct.Struct(">q")
_TIMEOUT_S: Final = 120

_PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
}

_CONSUMER: Final[dict[str, Any]] = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 500,
    "fetch.min.bytes": 1,
    # A client that has enough waits a whole second otherwise, whatever the broker can do.
    "queued.min.messages": 10_000_000,
    "queued.max.messages.kbytes": 2_000_000,
}


def produce(port: int, pid: int, topic: str, record_bytes: int, records: int) -> Measured:
    """Produce into one new partition, as fast as possible, until everything is acknowledged."""
    create_topics(port, [topic])
    producer = _producer(port, {"batch.size": 1_000_000, "linger.ms": 5})
    values = [_value(number, record_bytes) for number in range(_CHUNK)]
    messages = [{"value": value} for value in values]
    producer.produce(topic, values[0], partition=0)
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("the first record was not acknowledged")
    ahead_max = _AHEAD_BYTES // record_bytes
    server_s, own_s, began_s = cpu_s(pid), time.process_time(), time.perf_counter()
    for _ in range(records // _CHUNK):
        if producer.produce_batch(topic, messages, 0) != _CHUNK:
            raise RuntimeError("the client's queue is full")
        while len(producer) > ahead_max:
            producer.poll(0.001)
    left = producer.flush(_TIMEOUT_S)
    took_s = time.perf_counter() - began_s
    own_s, server_s = time.process_time() - own_s, cpu_s(pid) - server_s
    consumer = _consumer(port)
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0))[1]
    consumer.close()
    if left or end != records // _CHUNK * _CHUNK + 1:
        raise RuntimeError(f"{left} records were not acknowledged, and {end} are there")
    return _throughput(record_bytes * (end - 1) / 1e6, took_s, server_s, own_s)


def fetch(port: int, pid: int, topic: str, record_bytes: int) -> Measured:
    """Everything that `produce` has left in the topic, from its beginning."""
    consumer = _consumer(port)
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0))[1]
    expected = [_value(number, record_bytes) for number in range(_CHUNK)]
    offset = 0
    server_s, own_s, began_s = cpu_s(pid), time.process_time(), time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    while offset < end:
        messages = consumer.consume(min(_CHUNK, end - offset), _TIMEOUT_S)
        if not messages or messages[0].offset() != offset:
            raise RuntimeError(f"nothing, or not the record at {offset}")
        offset += len(messages)
        _check(messages[-1], offset - 1, expected)
    took_s = time.perf_counter() - began_s
    own_s, server_s = time.process_time() - own_s, cpu_s(pid) - server_s
    consumer.close()
    return _throughput(record_bytes * end / 1e6, took_s, server_s, own_s)


def _check(message: Message, offset: int, expected: list[bytes]) -> None:
    # The very first record stands before those that were handed over in lists.
    value = expected[(offset - 1) % _CHUNK if offset else 0]
    if message.offset() != offset or message.value() != value:
        raise RuntimeError(f"the record at {offset} came back changed: {message.error()}")


def end_to_end(port: int, pid: int, topic: str, rate: int, seconds: float) -> Measured:
    """From the moment when a record is due to the moment when a consumer has it.

    A broker that stalls cannot hide it by holding up the sender.
    """
    create_topics(port, [topic])
    producer, consumer = _producer(port, {"linger.ms": 0}), _consumer(port)
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = int(rate * seconds)
    warm = min(rate, count)
    took_s: list[float] = []
    reader = threading.Thread(target=_read, args=(consumer, warm + count, took_s))
    reader.start()
    _send(producer, topic, rate, warm)
    server_s, began_s = cpu_s(pid), time.perf_counter()
    _send(producer, topic, rate, count)
    server_share = (cpu_s(pid) - server_s) / (time.perf_counter() - began_s)
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("not all records were acknowledged")
    reader.join(_TIMEOUT_S)
    if len(took_s) != warm + count:
        raise RuntimeError(f"{len(took_s)} of {warm + count} records arrived, in their order")
    took_s = sorted(took_s[warm:])
    return {
        "p50": took_s[count // 2] * 1e3,
        "p99": took_s[count * 99 // 100] * 1e3,
        "cpu": server_share * 100,
    }


def _send(producer: Producer, topic: str, rate: int, count: int) -> None:
    began_s = time.perf_counter()
    padding = bytes(100 - _NUMBER.size)
    for number in range(count):
        due_s = began_s + number / rate
        wait_s = due_s - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(topic, _NUMBER.pack(int(due_s * 1e9)) + padding, partition=0)
        producer.poll(0)


def _read(consumer: Consumer, count: int, took_s: list[float]) -> None:
    late_s = time.perf_counter() + _TIMEOUT_S
    while len(took_s) < count and time.perf_counter() < late_s:
        message = consumer.poll(1)
        if message is None:
            continue
        value = message.value()
        if message.error() or value is None or message.offset() != len(took_s):
            break
        took_s.append(time.perf_counter() - _NUMBER.unpack_from(value)[0] / 1e9)
    consumer.close()


def produce_one_each(port: int, topics: list[str], partitions: int) -> Measured:
    """One record into every partition."""
    producer = _producer(port, {"linger.ms": 50})
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"one", partition=partition)
        producer.poll(0)
    if left := producer.flush(_TIMEOUT_S):
        raise RuntimeError(f"{left} records were not acknowledged")
    return {}


def _value(number: int, record_bytes: int) -> bytes:
    return _NUMBER.pack(number) + bytes(record_bytes - _NUMBER.size)


def _producer(port: int, settings: dict[str, Any]) -> Producer:
    return Producer({"bootstrap.servers": f"127.0.0.1:{port}", **_PRODUCER, **settings})


def _consumer(port: int) -> Consumer:
    return Consumer({"bootstrap.servers": f"127.0.0.1:{port}", **_CONSUMER})


def _throughput(megabytes: float, took_s: float, server_s: float, own_s: float) -> Measured:
    return {
        "rate": megabytes / took_s,
        "cpu": server_s / megabytes * 1e3,
        "generator": own_s / took_s * 100,
    }
