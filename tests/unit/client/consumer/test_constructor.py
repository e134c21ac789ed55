"""What type checkers make of deserialisers; mypy reads this file as the tests run it."""

from typing import Any, assert_type

from pydantic import BaseModel

from kohort.client.consumer.consumer import Consumer
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import ConsumerRecord


class Order(BaseModel):
    id: int


def as_number(raw: bytes | None) -> int:
    return int(raw or b"0")


def as_text(raw: bytes | None) -> str:
    return (raw or b"").decode()


async def as_looked_up(raw: bytes | None) -> float:
    return float(raw or b"0")


async def none(consumer: Consumer) -> None:
    """Naming no types means any."""
    assert_type(await consumer.getone(), ConsumerRecord[Any, Any])


async def some() -> None:
    plain = Consumer()
    assert_type((await plain.getone()).value, Any)
    by_key = Consumer("t", group_id="g", key_deserializer=as_number)
    assert_type(await by_key.getone(), ConsumerRecord[int, Any])
    by_value = Consumer(value_deserializer=as_text)
    assert_type(await by_value.getone(), ConsumerRecord[Any, str])
    assert_type(await by_value.poll(), dict[TopicPartition, list[ConsumerRecord[Any, str]]])
    # mypy infers nothing from a coroutine function, so the types are named.
    mixed = Consumer[int, float](key_deserializer=as_number, value_deserializer=as_looked_up)
    assert_type(await mixed.getone(), ConsumerRecord[int, float])
    validated = Consumer(value_deserializer=Order.model_validate_json)
    assert_type(await validated.getone(), ConsumerRecord[Any, Order])
    Consumer("t", group_idd="g")  # type: ignore[call-arg]
    both = Consumer(key_deserializer=as_number, value_deserializer=as_text)
    assert_type(both, Consumer[int, str])
    async with both as entered:
        async for record in entered:
            assert_type(record, ConsumerRecord[int, str])


def test_a_consumer_can_be_named_with_its_types() -> None:
    assert isinstance(Consumer[int, str](value_deserializer=as_text), Consumer)
