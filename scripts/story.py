"""An hour of a consumer group, lived by aiokafka's consumers and the broker on virtual time.

What pictures show is made from it: nothing in them is drawn by hand. The same seed lives the same
hour; with PYTHONHASHSEED given, to the millisecond.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

from kohort.testing import VirtualKafka
from kohort.testing.kit.machine import MemoryMachine
from kohort.testing.virtual_clock import VirtualClock

GROUP: Final = "billing"
TOPIC: Final = "orders"
PARTITIONS: Final = 12
BEGIN: Final = datetime(2026, 1, 12, 13, 4, tzinfo=UTC)
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": 3_000,
    # The clock of the story is not that of the machine that it is told on.
    "log.message.timestamp.after.max.ms": 2**62,
}

_SESSION_MS: Final = 20_000
_STEP_S: Final = 25.0
"""Between two processes of a deploy."""


class _SlowToGiveUp(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types.
    """Finishes what it has before it gives partitions up."""

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        if revoked:
            await asyncio.sleep(self._takes_s)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        pass


class _Worker:
    """A process of the service, that can be stopped, restarted and killed."""

    def __init__(
        self, kafka: VirtualKafka, name: str, *, takes_s: float = 0.2, static_id: str | None = None
    ) -> None:
        self._kafka = kafka
        self.name = name
        self._static_id = static_id
        self._takes_s = takes_s
        self._consumer: AIOKafkaConsumer
        self._polling: asyncio.Task[None]

    async def start(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka.bootstrap_servers,
            group_id=GROUP,
            client_id=self.name,
            group_instance_id=self._static_id,
            session_timeout_ms=_SESSION_MS,
            auto_offset_reset="earliest",
        )
        self._consumer.subscribe([TOPIC], listener=_SlowToGiveUp(self._takes_s))
        await self._consumer.start()
        self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await self._consumer.getmany(timeout_ms=1_000)

    async def stop(self) -> None:
        self._polling.cancel()
        with suppress(asyncio.CancelledError):
            await self._polling
        await self._consumer.stop()

    async def restart(self) -> None:
        await self.stop()
        await asyncio.sleep(4.0)
        await self.start()

    async def die(self) -> None:
        """End as a process that is killed does: without a word to its group."""
        with self._kafka.fault("LeaveGroup", client_id=self.name, error="UNKNOWN_SERVER_ERROR"):
            await self.stop()


async def _deploy(workers: list[_Worker]) -> None:
    for worker in workers:
        await worker.restart()
        await asyncio.sleep(_STEP_S)


async def _live(kafka: VirtualKafka) -> MemoryMachine:
    await kafka.create_topic(TOPIC, partitions=PARTITIONS)
    workers = [
        _Worker(kafka, "billing-1"),
        _Worker(kafka, "billing-2", takes_s=2.2),
        _Worker(kafka, "billing-3"),
        _Worker(kafka, "billing-4", static_id="billing-four"),
    ]
    for number in range(60):
        await kafka.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    for worker in workers:
        await worker.start()
    await kafka.group(GROUP).wait(state="Stable", members=4)
    await asyncio.sleep(9 * 60)
    await _deploy(workers)
    await asyncio.sleep(8 * 60)
    await workers[2].die()
    await asyncio.sleep(95.0)
    await workers[2].start()
    await asyncio.sleep(11 * 60)
    await _deploy(workers)
    await asyncio.sleep(6 * 60)
    fifth = _Worker(kafka, "billing-5")
    await fifth.start()
    await asyncio.sleep(7 * 60)
    await fifth.stop()
    await asyncio.sleep(3 * 60)
    await workers[2].die()
    await kafka.group(GROUP).wait(state="Stable", members=3)
    await asyncio.sleep(45.0)
    # What another broker would find if this one were killed now: what comes after is not told.
    former = kafka._kit.machine  # noqa: SLF001 - no test needs it, so the kit does not show it.
    assert isinstance(former, MemoryMachine)
    told = MemoryMachine(VirtualClock(wall_ms=kafka.clock.wall_ms()))
    told.files = former.files.copy()
    told.metadata = former.metadata.copy()
    for worker in (workers[0], workers[1], workers[3]):
        await worker.stop()
    return told


def lived() -> MemoryMachine:
    """The machine at the end of the hour: its disk, and its clock, which stands still."""
    # What happens to the workers is meant to.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    kafka = VirtualKafka(SETTINGS)
    kafka.clock.jump_wall(int(BEGIN.timestamp() * 1_000) - kafka.clock.wall_ms())
    try:
        return kafka.run(_live(kafka))
    finally:
        kafka.close()
