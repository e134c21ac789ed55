"""Declarations of the binary files beside the log: index entries and the producer snapshot.

These constructs are the declaration, and the oracle in tests. The code that reads and writes the
files uses `struct` with the same fields, because an index is searched on every fetch and a snapshot
may have a hundred thousand producers. The log itself consists of record batches only
(:mod:`kohort.protocol.records.batch`).
"""

from typing import TYPE_CHECKING, Any, Final

import construct
from construct import Const, GreedyRange, Int16sb, Int16ub, Int32sb, Int32ub, Int64sb, Struct

if TYPE_CHECKING:
    _Layout = construct.Construct[Any, Any]
else:
    _Layout = construct.Construct  # Generic in its stubs only.

OFFSET_INDEX: Final[_Layout] = GreedyRange(
    Struct(
        "relative_offset"
        / Int32ub,  # Last offset of a batch, minus the base offset of the segment.
        "position" / Int32ub,  # Where that batch starts in the .log file.
    )
)

TIME_INDEX: Final[_Layout] = GreedyRange(
    Struct(
        "timestamp" / Int64sb,  # The largest so far in the segment,
        "relative_offset" / Int32ub,  # and the last offset of the first batch that has it.
    )
)

TRANSACTION_INDEX: Final[_Layout] = GreedyRange(
    Struct(
        "version" / Const(0, Int16ub),
        "producer_id" / Int64sb,
        "first_offset" / Int64sb,
        "last_offset" / Int64sb,  # The offset of the abort marker.
        "last_stable_offset" / Int64sb,  # When the marker came.
    )
)

PRODUCER_SNAPSHOT: Final[_Layout] = Struct(
    "version" / Const(1, Int16ub),
    "crc" / Int32ub,  # CRC-32C of all that follows.
    "producers"
    / construct.PrefixedArray(
        Int32ub,
        Struct(
            "producer_id" / Int64sb,
            "producer_epoch" / Int16sb,
            "last_sequence" / Int32sb,
            "last_offset" / Int64sb,
            "offset_delta" / Int32sb,  # Last sequence minus first sequence of the last batch.
            "timestamp" / Int64sb,
            "coordinator_epoch" / Int32sb,
            "current_transaction_first_offset" / Int64sb,
        ),
    ),
)
