"""Batch header, record and control record as declarations in construct.

These define the bytes. They are too slow for the broker and check no bounds, so `batch`, `record`
and `control` read and write the same in straight-line code, and tests compare them with these.
"""

from typing import Any

import construct as c


def _length_of(name: str) -> Any:  # noqa: ANN401 - a construct.
    return c.Rebuild(c.ZigZag, lambda this: -1 if this[name] is None else len(this[name]))


def _field(name: str) -> tuple[Any, Any]:
    """Declare a length and as many bytes; length -1 is an absent value."""
    length = f"{name}_length"
    return length / _length_of(name), name / c.If(
        lambda this: this[length] >= 0, c.Bytes(lambda this: this[length])
    )


BATCH_HEADER = c.Struct(
    "base_offset" / c.Int64sb,
    "length" / c.Int32sb,
    "partition_leader_epoch" / c.Int32sb,
    "magic" / c.Int8sb,
    "crc" / c.Int32ub,
    "attributes" / c.Int16sb,
    "last_offset_delta" / c.Int32sb,
    "base_timestamp" / c.Int64sb,
    "max_timestamp" / c.Int64sb,
    "producer_id" / c.Int64sb,
    "producer_epoch" / c.Int16sb,
    "base_sequence" / c.Int32sb,
    "record_count" / c.Int32sb,
)

ATTRIBUTES = c.BitStruct(
    "unused" / c.BitsInteger(9),
    "has_delete_horizon" / c.Flag,
    "is_control" / c.Flag,
    "is_transactional" / c.Flag,
    "timestamp_type" / c.BitsInteger(1),
    "codec_id" / c.BitsInteger(3),
)

HEADER = c.Struct(*_field("key"), *_field("value"))

RECORD = c.Prefixed(
    c.ZigZag,
    c.Struct(
        "attributes" / c.Const(0, c.Int8sb),
        "timestamp_delta" / c.ZigZag,
        "offset_delta" / c.ZigZag,
        *_field("key"),
        *_field("value"),
        "headers" / c.PrefixedArray(c.ZigZag, HEADER),
    ),
)

RECORDS = c.GreedyRange(RECORD)

CONTROL_KEY = c.Struct("version" / c.Int16sb, "type" / c.Int16sb)
END_TRANSACTION_MARKER = c.Struct("version" / c.Int16sb, "coordinator_epoch" / c.Int32sb)
