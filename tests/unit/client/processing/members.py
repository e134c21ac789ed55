"""Consumers on virtual time, and what is known of their runs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from kohort import Consumer
from kohort.client.processing.figures import RunFigures
from kohort.testing import VirtualKafka


def member(
    kafka: VirtualKafka,
    topics: Sequence[str] = ("t",),
    **settings: Any,  # noqa: ANN401 - any setting.
) -> Consumer:
    """A member of the group `g` that reads topics from their beginning."""
    given = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
    }
    return Consumer(*topics, **given | settings)


async def fill(kafka: VirtualKafka, values: list[bytes]) -> None:
    """Create `t`, which has one partition, with these records."""
    await kafka.create_topic("t", partitions=1)
    for value in values:
        await kafka.produce("t", value)


def figures(consumer: Consumer) -> RunFigures:
    found = consumer.health().run
    assert found is not None
    return found


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(600):
        while not holds():  # noqa: ASYNC110 - virtual time.
            await asyncio.sleep(0.01)
