"""A thousand topics with ten partitions each, a record in every one: memory, and an unclean start.

Half as many come first, so that the table shows how both grow. Kafka and Kohort are killed and
started again over what they left, until every partition has said where it ends; the answer to
Metadata and the number of records have to be right. Once only: it takes minutes.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.brokers import Contender, RunningBroker
from benchmarks.generator import generate
from benchmarks.generator.topics import count_records, create_topics
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.live import start

TITLE: Final = "1,000 topics with 10 partitions, and 500 on the way"

_TOPICS: Final = 500
"""Twice."""
_PARTITIONS: Final = 10
_AT_ONCE: Final = 50
_SETTLE_S: Final = 3.0


def measure(bench: Bench) -> Iterable[Row]:
    once, topics = replace(bench, runs=1), int(bench.scaled(_TOPICS))
    figures = once.alternate(partial(_measure, bench, topics))
    for count in (topics, 2 * topics):
        name = f"{count:,} topics"
        yield Row(f"{name}: memory of a partition", "KiB", figures[f"{count} partition"])
        yield Row(f"{name}: start after a kill", "ms", figures[f"{count} start"])
        yield Row(f"{name}: memory then", "MiB", figures[f"{count} memory"])


def _measure(bench: Bench, topics: int, contender: Contender) -> Measured:
    measured: dict[str, float] = {}
    settle_s = bench.scaled(_SETTLE_S, 0.01)
    with start(bench, contender, "partitions") as broker:
        broker.wait_serving()
        time.sleep(settle_s)
        idle_mib = broker.resident_mib()
    for count in (topics, 2 * topics):
        names = [f"topic-{number:04}" for number in range(count)]
        with start(bench, contender, "partitions") as broker:
            broker.wait_serving()
            progress(f"  {contender.name}: to {count:,} topics")
            _fill(broker, names[count - topics :])
            time.sleep(settle_s)
            partition_kib = (broker.resident_mib() - idle_mib) * 1_024 / (count * _PARTITIONS)
            broker.kill()
        with start(bench, contender, "partitions") as broker:
            broker.wait_serving()
            found = count_records(broker.port, names, _PARTITIONS)
            took_s = time.perf_counter() - broker.started_s
            if found != count * _PARTITIONS:
                raise RuntimeError(f"{found} of {count * _PARTITIONS} records survived")
            time.sleep(settle_s)
            memory_mib = broker.resident_mib()
        measured |= {
            f"{count} partition": partition_kib,
            f"{count} start": took_s * 1e3,
            f"{count} memory": memory_mib,
        }
    return measured


def _fill(broker: RunningBroker, names: list[str]) -> None:
    for first in range(0, len(names), _AT_ONCE):
        create_topics(broker.port, names[first : first + _AT_ONCE], _PARTITIONS)
    generate("one record each", port=broker.port, topics=names, partitions=_PARTITIONS)
