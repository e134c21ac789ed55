"""At least once: process a record, then commit; what was processed is committed before it moves.

    python examples/process_orders.py localhost:9092 orders billing

Stop it with Ctrl-C. Start it twice, and the two share the topic's partitions.
"""

import asyncio
import signal
import sys
from collections.abc import Set as AbstractSet

from kohort import Consumer, ConsumerRecord, RebalanceListener, TopicPartition


class CommitFirst(RebalanceListener):
    """Partitions that go to another member go with all that was done here."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def on_revoked(self, partitions: AbstractSet[TopicPartition]) -> None:
        print("giving up", sorted(partitions), flush=True)
        await self._consumer.commit()

    def on_lost(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Others have them by now: a commit would only be refused."""
        print("lost", sorted(partitions), flush=True)

    def on_assigned(self, partitions: AbstractSet[TopicPartition]) -> None:
        print("reading", sorted(partitions), flush=True)


def process(record: ConsumerRecord[bytes | None, bytes | None]) -> None:
    """Your own work. It may block: heartbeats come from a thread of their own."""
    print(f"{record.topic}-{record.partition}@{record.offset}: {record.value!r}", flush=True)


async def main(bootstrap: str, topic: str, group: str) -> None:
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic], listener=CommitFirst(consumer))
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with consumer:
        while not stopping.is_set():
            for records in (await consumer.poll(timeout=0.5)).values():
                for record in records:
                    process(record)
            await consumer.commit()


asyncio.run(main(*sys.argv[1:4]))
