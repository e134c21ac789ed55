"""Values that brokers choose for themselves, such as the id of a topic, in one request for two."""

from typing import Any, TypeAlias

from kohort.protocol.message import Struct, schema_of

Value: TypeAlias = Any
"""A message or a part of one. Of what type depends on the request, which only the test knows."""


class Each:
    """A value that is another one for each broker; stands wherever a field of a request may."""

    __slots__ = ("kafka", "kohort")

    def __init__(self, kafka: object, kohort: object) -> None:
        self.kafka = kafka
        self.kohort = kohort


def each(kafka: object, kohort: object) -> Value:
    """An Each, as far as types are concerned whatever the field wants."""
    return Each(kafka, kohort)


def for_broker(value: Value, broker: str) -> Value:
    """`value`, or a copy of it, with every Each in it replaced by what is meant for `broker`."""
    if isinstance(value, Each):
        return getattr(value, broker)
    if isinstance(value, list):
        return [for_broker(element, broker) for element in value]
    if isinstance(value, Struct):
        fields = schema_of(type(value)).fields
        return type(value)(
            **{field.name: for_broker(getattr(value, field.name), broker) for field in fields}
        )
    return value
