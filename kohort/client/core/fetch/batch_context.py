"""What `unpack` is told of the batch that it makes records of."""

from __future__ import annotations

from typing import NamedTuple

from kohort.protocol.records.batch import TimestampType


class BatchContext(NamedTuple):
    """What all records of a batch have in common."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    append_timestamp: int | None
    """Instead of each record's own, if the broker has set it."""
    timestamp_type: TimestampType
    leader_epoch: int
