"""`run_batches`: batches of one partition, split if they fail."""

import asyncio
import json
from typing import Any

import pytest

from kohort import ConsumerRecord, TopicPartition
from kohort.client.core.errors import ConfigError, HandlerError
from kohort.client.processing.dead_letters import DeadLetter
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import figures, fill, member

Record = ConsumerRecord[Any, Any]
PLACE = TopicPartition("t", 0)


async def test_batches_are_of_one_partition_and_in_order(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("t", partitions=2)
    for number in range(50):
        await virtual_kafka.produce("t", b"%d" % number, partition=number % 2)
    seen: dict[int, list[int]] = {0: [], 1: []}
    sizes: list[int] = []
    async with member(virtual_kafka, value_deserializer=json.loads) as consumer:

        async def handle(records: list[Record]) -> None:
            sizes.append(len(records))
            (partition,) = {record.partition for record in records}
            await asyncio.sleep(0.01)
            seen[partition] += [record.value for record in records]
            if sum(map(len, seen.values())) == 50:
                consumer.end_run()

        await consumer.run_batches(handle, max_records=10, max_wait_ms=100)
        assert await consumer.committed(PLACE) == 25
    assert seen == {0: list(range(0, 50, 2)), 1: list(range(1, 50, 2))}
    assert max(sizes) == 10


async def test_a_batch_that_fails_is_repeated_and_then_split(virtual_kafka: VirtualKafka) -> None:
    await fill(virtual_kafka, [b"0", b"1", b"no json", b"3", b"4", b"5"])
    letters: list[DeadLetter] = []
    batches: list[list[int]] = []
    weak = iter(range(1))

    async def store(letter: DeadLetter) -> None:
        letters.append(letter)

    async with member(virtual_kafka, value_deserializer=json.loads) as consumer:

        async def handle(records: list[Record]) -> None:
            numbers = [record.value for record in records]
            batches.append(numbers)
            if 4 in numbers:
                raise LookupError("there is no four")
            if 5 in numbers:
                if next(weak, None) is not None:
                    raise OSError("try again")
                consumer.end_run()

        await consumer.run_batches(
            handle, max_records=6, max_wait_ms=50, retries=1, retry_backoff_ms=5, dead_letter=store
        )
        assert await consumer.committed(PLACE) == 6
        assert (figures(consumer).handled, figures(consumer).dead_lettered) == (4, 2)
    assert batches == [[0], [1], [3], [4], [4], [5], [5]]
    assert [letter.record.value for letter in letters] == [b"no json", b"4"]


async def test_without_dead_letters_the_record_that_fails_ends_the_run(
    virtual_kafka: VirtualKafka,
) -> None:
    await fill(virtual_kafka, [b"0", b"1", b"2"])
    async with member(virtual_kafka, value_deserializer=json.loads) as consumer:

        def handle(records: list[Record]) -> None:
            if any(record.value == 1 for record in records):
                raise LookupError("there is no one")

        with pytest.raises(HandlerError) as caught:
            await consumer.run_batches(handle, max_wait_ms=20, retries=0)
        assert caught.value.offset == 1
        assert await consumer.committed(PLACE) == 1
        assert "there is no one" in (consumer.health().problem or "")


@pytest.mark.parametrize(
    "options",
    [
        {"max_records": 0},
        {"max_wait_ms": -1},
        {"ordering": "key"},
        {"in_flight_records_limit": 10},
    ],
    ids=str,
)
async def test_options_that_do_not_fit_are_rejected(
    virtual_kafka: VirtualKafka, options: dict[str, Any]
) -> None:
    async with member(virtual_kafka, value_deserializer=json.loads) as consumer:
        with pytest.raises(ConfigError, match=next(iter(options))):
            await consumer.run_batches(lambda _: None, **options)
