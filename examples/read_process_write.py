"""A service that reads, works and writes exactly once, in as many copies as it has places.

    python examples/read_process_write.py localhost:9092 payments receipts bookkeeping 0

What was read and what was made of it take effect together or not at all, also when a copy is killed
or stalls for minutes. The last argument is this copy's place in the deployment, such as the number
of its pod: started again there it goes on with the partitions it had. Stop it with Ctrl-C.

Each partition has its own producer, with its own transactional id. The member that is assigned the
partition starts that producer again, which fences the previous one and aborts the transaction that
it left open; only then does it look up where to continue. Any error ends the process: the next one
begins behind the last transaction that was committed.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition

from kohort import Consumer, ConsumerRecord, RebalanceListener, TopicPartition

RECORDS_PER_TRANSACTION = 100


def receipt(payment: bytes | None) -> bytes:
    """Your own work."""
    return b"received: " + (payment or b"")


class Copier(RebalanceListener):
    """Has one producer for each partition that is read here."""

    def __init__(self, consumer: Consumer, bootstrap: str, out: str) -> None:
        self._consumer = consumer
        self._bootstrap = bootstrap
        self._out = out
        self._producers: dict[TopicPartition, AIOKafkaProducer] = {}

    async def on_assigned(self, partitions: AbstractSet[TopicPartition]) -> None:
        group = self._consumer.group_metadata().group_id
        for partition in partitions:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=f"{group}-{partition.topic}-{partition.partition}",
            )
            self._producers[partition] = producer
            await producer.start()
            # No other member can commit for this partition any more.
            position = await self._consumer.committed(partition)
            if position is not None:
                self._consumer.seek(partition, position)

    async def on_revoked(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Nothing is open: transactions begin and end between two polls."""
        for partition in partitions:
            await self._producers.pop(partition).stop()

    async def copy(
        self,
        partition: TopicPartition,
        records: Sequence[ConsumerRecord[bytes | None, bytes | None]],
    ) -> None:
        """One transaction: the receipts, and the position behind the payments."""
        producer = self._producers[partition]
        position = records[-1].offset + 1
        async with producer.transaction():
            for record in records:
                await producer.send(self._out, receipt(record.value), record.key)
            await producer.send_offsets_to_transaction(
                {AiokafkaPartition(*partition): position},
                self._consumer.group_metadata().group_id,
            )
        print(f"{partition.topic}-{partition.partition} up to {position}", flush=True)


async def main(bootstrap: str, source: str, out: str, group: str, place: str) -> None:
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=f"{group}-{place}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=RECORDS_PER_TRANSACTION,
    )
    copier = Copier(consumer, bootstrap, out)
    consumer.subscribe([source], listener=copier)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with consumer:
        while not stopping.is_set():
            for partition, records in (await consumer.poll(timeout=0.5)).items():
                await copier.copy(partition, records)


asyncio.run(main(*sys.argv[1:6]))
