"""Handlers that block the event loop. In virtual time, `time.sleep` advances the clock."""

import asyncio
import time
from typing import Any

import pytest

from kohort import ConsumerRecord
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import fill, member

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


@pytest.mark.parametrize("is_blocking", [True, False])
async def test_a_handler_that_blocks_for_long_is_reported_once(
    virtual_kafka: VirtualKafka, caplog: pytest.LogCaptureFixture, is_blocking: bool
) -> None:
    await fill(virtual_kafka, [b""] * 5)

    async def handle(record: Record) -> None:
        await asyncio.sleep(5)
        if is_blocking:
            time.sleep(2)  # noqa: ASYNC251 - that is what is tested.
        if record.offset == 4:
            consumer.end_run()

    async with member(virtual_kafka) as consumer:
        await consumer.run(handle)
    reports = [line for line in caplog.records if line.name.endswith("processing.block_watch")]
    assert len(reports) == is_blocking
