"""Handlers that block the event loop. In virtual time, `time.sleep` advances the clock."""

import asyncio
import time
from typing import Any

from kohort import ConsumerRecord
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import member

Record = ConsumerRecord[Any, Any]


async def test_only_one_handler_that_blocks_is_called_before_other_tasks_run(
    virtual_kafka: VirtualKafka,
) -> None:
    await virtual_kafka.create_topic("t", partitions=20)
    for number in range(100):
        await virtual_kafka.produce("t", b"", partition=number % 20)
    generations: list[int] = []
    turns: list[int] = []

    async with member(virtual_kafka, max_poll_interval_ms=5_000) as consumer:

        def block(_: Record) -> None:
            time.sleep(0.5)
            generations.append(consumer.health().generation)

        run = asyncio.create_task(consumer.run(block))
        while len(generations) < 100:
            before = len(generations)
            await asyncio.sleep(0)
            turns.append(len(generations) - before)
        consumer.end_run()
        await run
    assert max(turns) == 1
    assert len(set(generations)) == 1, "it has left its group"
