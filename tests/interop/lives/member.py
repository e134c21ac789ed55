"""One consumer in a process of its own, which a life starts, ends in order, and kills.

`python -m tests.interop.lives.member LIBRARY SETTINGS`, with the settings as JSON (`Seat`). It says
that it is ready; a line on standard input lets it begin. SIGTERM ends it in order: a dynamic member
leaves the group, a static one goes without a word.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

POLL_S: Final = 0.1
RESTART_S: Final = 1.0
"""How long a supervisor waits before it starts a process again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a member is told."""

    bootstrap: str
    group: str
    topic: str
    client_id: str
    instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    cooperative: bool
    consumer: bool
    """Whether it uses the consumer protocol; the timeouts and `cooperative` are then not used."""
    revoke_s: float
    """How long it takes to give partitions up."""

    def configs(self, assignor: str) -> dict[str, str | int]:
        """Configs of librdkafka and of Java; `assignor` is for the classic protocol."""
        configs: dict[str, str | int] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.client_id,
            "enable.auto.commit": "false",
        }
        if self.instance_id is not None:
            configs["group.instance.id"] = self.instance_id
        if self.consumer:
            return configs | {"group.protocol": "consumer"}
        return configs | {
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": self.heartbeat_interval_ms,
            "partition.assignment.strategy": assignor,
        }


def _wait_for_start() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def run_librdkafka(seat: Seat) -> None:
    """Until SIGTERM."""
    from confluent_kafka import Consumer, KafkaError  # noqa: PLC0415 - one library is needed.

    settings = seat.configs("cooperative-sticky" if seat.cooperative else "range")
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())

    def give_up(consumer: Consumer, partitions: Sequence[Any]) -> None:
        if partitions:
            time.sleep(seat.revoke_s)
        if seat.cooperative or seat.consumer:
            consumer.incremental_unassign(list(partitions))
        else:
            consumer.unassign()

    _wait_for_start()
    while not ends.is_set():
        consumer = Consumer(settings)
        consumer.subscribe([seat.topic], on_revoke=give_up)
        while not ends.is_set():
            message = consumer.poll(POLL_S)
            error = None if message is None else message.error()
            # `fatal()` is false of this error in confluent-kafka 2.16.
            if error is not None and error.code() == KafkaError._FATAL:
                # A static id that is still in use: the process ends, and its supervisor starts it
                # again.
                ends.wait(RESTART_S)
                break
        consumer.close()


def run_aiokafka(seat: Seat) -> None:
    """Until SIGTERM."""
    asyncio.run(_run_aiokafka(seat))


async def _run_aiokafka(seat: Seat) -> None:
    from aiokafka import (  # noqa: PLC0415 - as above.
        AIOKafkaConsumer,
        ConsumerRebalanceListener,
    )
    from aiokafka.coordinator.assignors.range import (  # noqa: PLC0415 - as above.
        RangePartitionAssignor,
    )

    class Slow(ConsumerRebalanceListener):  # type: ignore[misc]  # The library has no types.
        async def on_partitions_revoked(self, revoked: set[Any]) -> None:
            if revoked:
                await asyncio.sleep(seat.revoke_s)

        async def on_partitions_assigned(self, assigned: set[Any]) -> None:
            del assigned

    assert not seat.cooperative, "aiokafka has no cooperative assignor"
    _wait_for_start()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=seat.bootstrap,
        group_id=seat.group,
        client_id=seat.client_id,
        group_instance_id=seat.instance_id,
        session_timeout_ms=seat.session_timeout_ms,
        heartbeat_interval_ms=seat.heartbeat_interval_ms,
        rebalance_timeout_ms=60_000,
        enable_auto_commit=False,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    consumer.subscribe([seat.topic], listener=Slow())
    await consumer.start()
    while not ends.is_set():
        await consumer.getmany(timeout_ms=int(POLL_S * 1000))
    await consumer.stop()


RUNNERS: Final = {"librdkafka": run_librdkafka, "aiokafka": run_aiokafka}

if __name__ == "__main__":
    RUNNERS[sys.argv[1]](Seat(**json.loads(sys.argv[2])))
