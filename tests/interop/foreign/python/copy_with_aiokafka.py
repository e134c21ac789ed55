"""By aiokafka, both sides. How it is called: tests/interop/foreign/copying.py."""

import asyncio
import json
import ssl
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced


async def rewind(consumer: AIOKafkaConsumer) -> None:
    for partition in consumer.assignment():
        position = await consumer.committed(partition)
        if position is None:
            await consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, position)


async def copy(
    consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, group: str, out: str, abort_every: int
) -> None:
    ended = 0
    while True:
        found = await consumer.getmany(timeout_ms=100, max_records=10)
        if not found:
            continue
        aborts = (ended + 1) % abort_every == 0
        positions = {partition: records[-1].offset + 1 for partition, records in found.items()}
        await producer.begin_transaction()
        try:
            for partition, records in found.items():
                for record in records:
                    await producer.send(out, record.value, partition=partition.partition)
            await producer.send_offsets_to_transaction(positions, group)
            await (producer.abort_transaction() if aborts else producer.commit_transaction())
        except ProducerFenced:
            raise
        except KafkaError as failure:
            print(repr(failure), file=sys.stderr)
            await producer.abort_transaction()
            await rewind(consumer)
            continue
        ended += 1
        print("aborted" if aborts else "committed", flush=True)
        if aborts:
            await rewind(consumer)


async def main(
    bootstrap: str, group: str, source: str, out: str, abort_every: str, more: str = "{}"
) -> None:
    common: dict[str, Any] = {"bootstrap_servers": bootstrap, **json.loads(more)}
    if authority := common.pop("ssl_cafile", None):
        common["ssl_context"] = ssl.create_default_context(cafile=authority)
    producer = AIOKafkaProducer(**common, transactional_id=group)
    consumer = AIOKafkaConsumer(
        source,
        **common,
        group_id=group,
        session_timeout_ms=3_000,
        heartbeat_interval_ms=300,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    async with producer, consumer:
        await copy(consumer, producer, group, out, int(abort_every))


asyncio.run(main(*sys.argv[1:]))
