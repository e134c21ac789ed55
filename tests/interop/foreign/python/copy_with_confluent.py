"""By confluent-kafka, which is librdkafka. How it is called: tests/interop/foreign/copying.py."""

import json
import sys
from collections.abc import Callable, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

TIMEOUT_S = 30


def until_done(step: Callable[[float], None]) -> None:
    """Whether a step that took too long has been taken is told by asking for it again."""
    while True:
        try:
            step(TIMEOUT_S)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
        else:
            return


def positions(records: Sequence[Message]) -> list[TopicPartition]:
    behind: dict[tuple[str, int], int] = {}
    for record in records:
        behind[record.topic() or "", record.partition() or 0] = (record.offset() or 0) + 1
    return [TopicPartition(*place, offset) for place, offset in behind.items()]


def rewind(consumer: Consumer) -> None:
    for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
        if place.offset < 0:
            place.offset = OFFSET_BEGINNING
        consumer.seek(place)


def copy(
    consumer: Consumer, producer: Producer, out: str, records: Sequence[Message], *, aborts: bool
) -> None:
    producer.begin_transaction()
    for record in records:
        producer.produce(out, record.value(), partition=record.partition() or 0)
    producer.send_offsets_to_transaction(
        positions(records), consumer.consumer_group_metadata(), TIMEOUT_S
    )
    until_done(producer.abort_transaction if aborts else producer.commit_transaction)


def records_of(found: Sequence[Message]) -> list[Message]:
    """What has been read; what is no record is an error of the consumer's, which it outlives."""
    for one in found:
        if one.error() is not None:
            print(one.error(), file=sys.stderr)
    return [one for one in found if one.error() is None]


def main(
    bootstrap: str, group: str, source: str, out: str, abort_every: str, more: str = "{}"
) -> None:
    common = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "reconnect.backoff.max.ms": 200,
        # librdkafka 2.16 bootstraps again when it has lost its only broker, and then never sends
        # what waits for the coordinator of the group, whether that is a Kohort or a Kafka.
        "metadata.recovery.strategy": "none",
        **json.loads(more),
    }
    producer = Producer({**common, "transactional.id": group, "linger.ms": 0})
    until_done(producer.init_transactions)
    consumer = Consumer(
        {
            **common,
            "group.id": group,
            "session.timeout.ms": 3_000,
            "heartbeat.interval.ms": 300,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([source])
    ended = 0
    while True:
        records = records_of(consumer.consume(10, 0.1))
        if not records:
            continue
        aborts = (ended + 1) % int(abort_every) == 0
        try:
            copy(consumer, producer, out, records, aborts=aborts)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            until_done(producer.abort_transaction)
            rewind(consumer)
            continue
        ended += 1
        print("aborted" if aborts else "committed", flush=True)
        if aborts:
            rewind(consumer)


main(*sys.argv[1:])
