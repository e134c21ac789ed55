"""Many at a time: handlers side by side, each customer's orders in order, failures put aside.

    python examples/handle_orders.py localhost:9092 orders billing orders-dead

What cannot be handled goes to the last topic; `pip install 'kohort[dead-letters]'`. SIGTERM and
Ctrl-C end it when what is in hand is done. Start it twice, and the two share the partitions.
"""

import asyncio
import json
import signal
import sys
from typing import Any

from kohort import Consumer, ConsumerRecord


async def handle(record: ConsumerRecord[bytes | None, dict[str, Any]]) -> None:
    """Your own work. What it raises is tried again, three times by default."""
    order = record.value
    if order["amount"] < 0:
        raise ValueError(f"{order['amount']} is no amount")
    await asyncio.sleep(0.01)  # A database, or another service.
    print(f"{record.topic}-{record.partition}@{record.offset}: {order['amount']}", flush=True)


async def main(bootstrap: str, topic: str, group: str, dead_topic: str) -> None:
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
    ) as consumer:
        await consumer.run(
            handle,
            concurrency=32,
            ordering="key",
            retry_on=OSError,
            handler_timeout_ms=10_000,
            dead_letter=dead_topic,
            stop_on=(signal.SIGTERM, signal.SIGINT),
        )
        run = consumer.health().run
        assert run is not None
        print(f"handled {run.handled}, put aside {run.dead_lettered}", flush=True)


asyncio.run(main(*sys.argv[1:5]))
