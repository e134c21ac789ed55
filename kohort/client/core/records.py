"""Records as users get them."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from kohort.client.core.offsets import UNKNOWN_EPOCH
from kohort.protocol.records.batch import TimestampType

K = TypeVar("K")
V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record. Key and value are bytes or None, or what the deserialisers made of them.

    A named tuple because nothing is cheaper to make; read the fields by their names.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch, -1 if the producer gave none."""
    timestamp_type: TimestampType
    """Whether the producer or the broker set the timestamp."""
    key: K
    value: V
    serialized_key_size: int
    """Bytes, -1 for None; the same for the value."""
    serialized_value_size: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = UNKNOWN_EPOCH
    """Epoch of the leader that appended it."""


AnyRecord: TypeAlias = ConsumerRecord[Any, Any]

RawRecord: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
"""One that no deserialiser has seen."""
