"""One consumer in a process of its own, which does what lines on standard input say.

`python -m tests.interop.watched.member LIBRARY SEAT`, with the seat as JSON (`Seat`). The lines are
`subscribe TOPIC...`, `work SECONDS` (without a poll), `rejoin` and `close`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from tests.support.processes import java_env

POLL_S: Final = 0.2
REQUEST_MS: Final = 10_000
METADATA_MS: Final = 3_000
"""How soon a member learns that a topic has grown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The settings of a member."""

    bootstrap: str
    group: str
    topics: tuple[str, ...]
    client_id: str
    instance_id: str | None
    session_ms: int
    poll_ms: int
    commit_ms: int
    """The interval of automatic commits; 0 for none."""
    cooperative: bool
    protocol: str
    """`classic` or `consumer`."""


def command(library: str, seat: Seat) -> list[str]:
    """Return the command line of a member."""
    if library != "java":
        return [sys.executable, "-m", __name__, library, json.dumps(asdict(seat))]
    settings = _settings(seat)
    if seat.protocol == "classic":
        assignor = "CooperativeSticky" if seat.cooperative else "Range"
        settings["partition.assignment.strategy"] = (
            f"org.apache.kafka.clients.consumer.{assignor}Assignor"
        )
    return [
        *java_env.quick_jvm("broker", "-Xmx64M"),
        "WatchedMember",
        ",".join(seat.topics),
        *(f"{name}={value}" for name, value in settings.items()),
    ]


def _settings(seat: Seat) -> dict[str, str]:
    """Return the settings under the names that Java and librdkafka have for them."""
    settings = {
        "bootstrap.servers": seat.bootstrap,
        "group.id": seat.group,
        "client.id": seat.client_id,
        "group.protocol": seat.protocol,
        "max.poll.interval.ms": str(seat.poll_ms),
        "metadata.max.age.ms": str(METADATA_MS),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": str(bool(seat.commit_ms)).lower(),
        "auto.commit.interval.ms": str(seat.commit_ms or 5_000),
    }
    if seat.protocol == "classic":
        settings["session.timeout.ms"] = str(seat.session_ms)
        settings["heartbeat.interval.ms"] = str(heartbeat_ms(seat))
    if seat.instance_id is not None:
        settings["group.instance.id"] = seat.instance_id
    return settings


def heartbeat_ms(seat: Seat) -> int:
    """Return the interval of heartbeats: Kafka's default, or less with a short session."""
    return min(3_000, seat.session_ms // 3)


class Orders:
    """Lines from standard input, read by a thread, so that the process ends with its parent."""

    def __init__(self) -> None:
        self._lines: deque[list[str]] = deque()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.append(line.split())
        os._exit(1)

    def next(self) -> list[str] | None:
        return self._lines.popleft() if self._lines else None


def run_librdkafka(seat: Seat) -> None:
    from confluent_kafka import Consumer  # noqa: PLC0415 - one of the libraries is needed.

    settings: dict[str, Any] = {**_settings(seat), "log_level": 0}
    if seat.protocol == "classic":
        name = "cooperative-sticky" if seat.cooperative else "range"
        settings["partition.assignment.strategy"] = name
    consumer = Consumer(settings)
    consumer.subscribe(list(seat.topics))
    orders = Orders()
    while True:
        match orders.next():
            case ["close"]:
                consumer.close()
                return
            case ["subscribe", *topics]:
                consumer.subscribe(topics)
            case ["work", seconds]:
                time.sleep(float(seconds))
        consumer.consume(100, POLL_S)


async def _run_on_loop(library: str, seat: Seat) -> None:
    """aiokafka's consumer, or ours."""
    settings: dict[str, Any] = {
        "bootstrap_servers": seat.bootstrap,
        "group_id": seat.group,
        "client_id": seat.client_id,
        "group_instance_id": seat.instance_id,
        "session_timeout_ms": seat.session_ms,
        "heartbeat_interval_ms": heartbeat_ms(seat),
        "max_poll_interval_ms": seat.poll_ms,
        "metadata_max_age_ms": METADATA_MS,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": bool(seat.commit_ms),
        "auto_commit_interval_ms": seat.commit_ms or 5_000,
    }
    consumer: Any
    if library == "aiokafka":
        from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - as above.
        from aiokafka.coordinator.assignors.range import (  # noqa: PLC0415 - as above.
            RangePartitionAssignor,
        )

        settings["partition_assignment_strategy"] = [RangePartitionAssignor]
        consumer = AIOKafkaConsumer(*seat.topics, **settings)
        poll = partial(consumer.getmany, timeout_ms=int(1_000 * POLL_S))
    else:
        from kohort import Consumer  # noqa: PLC0415 - as above.

        settings["request_timeout_ms"] = REQUEST_MS
        name = "cooperative-sticky" if seat.cooperative else "range"
        settings["partition_assignment_strategy"] = name
        consumer = Consumer(*seat.topics, **settings)
        poll = partial(consumer.poll, POLL_S)
    await consumer.start()
    orders = Orders()
    while True:
        match orders.next():
            case ["close"]:
                await consumer.stop()
                return
            case ["subscribe", *topics]:
                consumer.subscribe(topics)
            case ["work", seconds]:
                await asyncio.sleep(float(seconds))
            case ["rejoin"] if library == "kohort":
                consumer.enforce_rebalance()
        await poll()


def _main(library: str, seat: Seat) -> None:
    if library == "librdkafka":
        run_librdkafka(seat)
    else:
        asyncio.run(_run_on_loop(library, seat))


if __name__ == "__main__":
    _main(sys.argv[1], Seat(**json.loads(sys.argv[2])))
