"""Batches that cannot be read."""

from typing import Any, Literal

import pytest
from aiokafka import AIOKafkaProducer

from kohort import ConsumerRecord, TopicPartition
from kohort.client.core.errors import RecordTooLargeError
from kohort.client.processing.dead_letters import PREFIX, DeadLetter
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import figures, member

PLACE = TopicPartition("t", 0)
AT = 2


async def fill(kafka: VirtualKafka) -> None:
    """Produce five records, of which the middle one does not fit when decompressed."""
    await kafka.create_topic("t", partitions=1)
    for number in range(AT):
        await kafka.produce("t", b"%d" % number)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, compression_type="gzip"
    ) as producer:
        await producer.send_and_wait("t", bytes(100_000))
    for number in range(AT + 1, 5):
        await kafka.produce("t", b"%d" % number)


@pytest.mark.parametrize("wanted", ["skip", "dead_letter"])
async def test_a_batch_is_passed_over(
    virtual_kafka: VirtualKafka, wanted: Literal["skip", "dead_letter"]
) -> None:
    await fill(virtual_kafka)
    handled: list[int] = []
    letters: list[DeadLetter] = []

    async def store(letter: DeadLetter) -> None:
        assert handled == [0, 1], "out of order"
        letters.append(letter)

    async with member(virtual_kafka, inflated_bytes_limit=10_000) as consumer:

        def handle(record: ConsumerRecord[Any, Any]) -> None:
            handled.append(record.offset)
            if record.offset == 4:
                consumer.end_run()

        is_stored = wanted == "dead_letter"
        await consumer.run(handle, on_unreadable=wanted, dead_letter=store if is_stored else None)
        assert handled == [0, 1, 3, 4]
        assert await consumer.committed(PLACE) == 5
        run = figures(consumer)
        assert (run.dead_lettered, run.skipped) == ((1, 0) if is_stored else (0, 1))
    for letter in letters:
        headers = dict(letter.headers())
        assert headers[f"{PREFIX}offset"] == b"%d" % AT
        assert isinstance(letter.error, RecordTooLargeError)
        assert letter.record.value is None


async def test_without_an_option_the_run_ends(virtual_kafka: VirtualKafka) -> None:
    await fill(virtual_kafka)

    async def store(letter: DeadLetter) -> None:
        raise AssertionError(letter)

    async with member(virtual_kafka, inflated_bytes_limit=10_000) as consumer:
        with pytest.raises(RecordTooLargeError):
            await consumer.run(lambda _: None, dead_letter=store)
        assert await consumer.committed(PLACE) == AT
