"""Restarts without a rebalance: a static member, in a group that rebalances cooperatively.

    python examples/rolling_restart.py localhost:9092 orders shipping shipping-0

The last argument is the name of this instance (a pod of a StatefulSet, a host). Stop it and start
it again within session_timeout_ms: no rebalance, and the others read on. With a Kohort broker,
`kohort groups why shipping` shows what was avoided. When members come or go for good, only the
partitions that move stand still.
"""

import asyncio
import signal
import sys
from collections.abc import Set as AbstractSet

from kohort import Consumer, RebalanceListener, TopicPartition


class Tell(RebalanceListener):
    """In a cooperative group these are only the partitions that come and go."""

    def on_revoked(self, partitions: AbstractSet[TopicPartition]) -> None:
        print("gave up", sorted(partitions), flush=True)

    def on_assigned(self, partitions: AbstractSet[TopicPartition]) -> None:
        print("got", sorted(partitions), flush=True)


async def main(bootstrap: str, topic: str, group: str, instance: str) -> None:
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        # Longer than a restart takes; a crash is noticed so much later.
        session_timeout_ms=45_000,
        partition_assignment_strategy="cooperative-sticky",
        auto_offset_reset="earliest",
        # When you deploy a new version: join_reason="upgrade".
    )
    consumer.subscribe([topic], listener=Tell())
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with consumer:
        while not stopping.is_set():
            for records in (await consumer.poll(timeout=0.5)).values():
                print(f"{len(records)} records up to {records[-1].offset}", flush=True)


asyncio.run(main(*sys.argv[1:5]))
