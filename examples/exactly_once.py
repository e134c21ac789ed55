"""Exactly once from topic to topic: aiokafka's transactions carry this consumer's positions.

    python examples/exactly_once.py localhost:9092 payments receipts bookkeeping

What was read and what was made of it take effect together or not at all. Needs a broker with
transactions. Ends when there has been nothing to read for three seconds.
"""

import asyncio
import sys

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition

from kohort import Consumer, ConsumerRecord

Records = list[ConsumerRecord[bytes | None, bytes | None]]


def receipt(payment: bytes | None) -> bytes:
    """Your own work."""
    return b"received: " + (payment or b"")


async def copy(consumer: Consumer, producer: AIOKafkaProducer, records: Records, out: str) -> None:
    """One transaction: the receipts, and the positions behind the payments."""
    positions = {}
    async with producer.transaction():
        for record in records:
            await producer.send(out, receipt(record.value), record.key)
            positions[AiokafkaPartition(record.topic, record.partition)] = record.offset + 1
        group = consumer.group_metadata()
        await producer.send_offsets_to_transaction(positions, group.group_id)


async def main(bootstrap: str, source: str, out: str, group: str) -> None:
    consumer = Consumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    # The id belongs to this place in the deployment: the process that takes it over ends what its
    # predecessor has left open.
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{group}-0")
    count = 0
    async with consumer, producer:
        while polled := await consumer.poll(timeout=3.0 if count else 30.0):
            records = [record for of_partition in polled.values() for record in of_partition]
            await copy(consumer, producer, records, out)
            count += len(records)
    print(f"{count} receipts", flush=True)


asyncio.run(main(*sys.argv[1:5]))
