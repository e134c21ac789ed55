"""By kafka-python. How it is called: tests/interop/foreign/copying.py."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import ConsumerGroupMetadata, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

Records = Mapping[TopicPartition, Sequence[Any]]


def commit(producer: KafkaProducer) -> None:
    """Whether a commit that took too long has happened is told by asking for it again."""
    while True:
        try:
            producer.commit_transaction()
        except KafkaTimeoutError:
            continue
        return


def rewind(consumer: KafkaConsumer) -> None:
    for partition in consumer.assignment():
        position = consumer.committed(partition)
        if position is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, position)


def copy(
    member: ConsumerGroupMetadata,
    producer: KafkaProducer,
    out: str,
    found: Records,
    *,
    aborts: bool,
) -> None:
    producer.begin_transaction()
    for partition, records in found.items():
        for record in records:
            producer.send(out, record.value, partition=partition.partition)
    positions = {
        partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)
        for partition, records in found.items()
    }
    producer.send_offsets_to_transaction(positions, member)
    if aborts:
        producer.abort_transaction()
    else:
        commit(producer)


def main(
    bootstrap: str, group: str, source: str, out: str, abort_every: str, more: str = "{}"
) -> None:
    # A topic that it may not read is told nowhere else.
    logging.basicConfig(level=logging.ERROR)
    common = {
        "bootstrap_servers": bootstrap,
        "reconnect_backoff_max_ms": 200,
        **json.loads(more),
    }
    producer = KafkaProducer(**common, transactional_id=group)
    producer.init_transactions()
    consumer = KafkaConsumer(
        source,
        **common,
        group_id=group,
        session_timeout_ms=3_000,
        heartbeat_interval_ms=300,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=10,
    )
    ended = 0
    while True:
        found: Records = consumer.poll(timeout_ms=100)
        if not found:
            continue
        aborts = (ended + 1) % int(abort_every) == 0
        try:
            copy(consumer.group_metadata(), producer, out, found, aborts=aborts)
        except ProducerFencedError:
            raise
        except KafkaError as failure:
            print(repr(failure), file=sys.stderr)
            producer.abort_transaction()
            rewind(consumer)
            continue
        ended += 1
        print("aborted" if aborts else "committed", flush=True)
        if aborts:
            rewind(consumer)


main(*sys.argv[1:])
