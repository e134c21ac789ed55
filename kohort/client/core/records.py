"""The records that a consumer returns."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from kohort.client.core.offsets import UNKNOWN_EPOCH
from kohort.protocol.records.batch import TimestampType

K = TypeVar("K")
V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record. Key and value are bytes or None, or the results of the deserialisers.

    A named tuple, because it is the cheapest object to create; access the fields by name.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch, -1 if the record has no timestamp."""
    timestamp_type: TimestampType
    """Whether the producer or the broker set the timestamp."""
    key: K
    value: V
    serialized_key_size: int
    """Number of bytes of the key before deserialisation; -1 for None."""
    serialized_value_size: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = UNKNOWN_EPOCH


AnyRecord: TypeAlias = ConsumerRecord[Any, Any]

RawRecord: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
"""A record before deserialisation."""
