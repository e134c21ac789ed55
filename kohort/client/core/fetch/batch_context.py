"""The fields of a batch that `unpack` needs."""

from __future__ import annotations

from typing import NamedTuple

from kohort.protocol.records.batch import TimestampType


class BatchContext(NamedTuple):
    """The fields that all records of a batch share."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    append_timestamp: int | None
    """The timestamp of all records with LogAppendTime; None with CreateTime."""
    timestamp_type: TimestampType
    leader_epoch: int
