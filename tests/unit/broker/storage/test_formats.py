"""The files beside the log are written as they are declared here: index entries and the producer
snapshot. The code that writes them uses `struct`, because an index is searched on every fetch and a
snapshot may have a hundred thousand producers.
"""

from typing import Final

import construct
from construct import Const, GreedyRange, Int16sb, Int16ub, Int32sb, Int32ub, Int64sb, Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.core.partition.producers import ProducerSnapshot
from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checkpoints.producer_snapshot import encode_snapshot
from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.segment.offset_index import OffsetIndex
from kohort.broker.storage.segment.time_index import TimeIndex
from kohort.broker.storage.segment.transaction_index import encode_entries
from kohort.testing.simulated_filesystem import SimulatedFileSystem

OFFSET_INDEX: Final = GreedyRange(
    Struct(
        "relative_offset"
        / Int32ub,  # Last offset of a batch, minus the base offset of the segment.
        "position" / Int32ub,  # Where that batch starts in the .log file.
    )
)

TIME_INDEX: Final = GreedyRange(
    Struct(
        "timestamp" / Int64sb,  # The largest so far in the segment,
        "relative_offset" / Int32ub,  # and the last offset of the first batch that has it.
    )
)

TRANSACTION_INDEX: Final = GreedyRange(
    Struct(
        "version" / Const(0, Int16ub),
        "producer_id" / Int64sb,
        "first_offset" / Int64sb,
        "last_offset" / Int64sb,  # The offset of the abort marker.
        "last_stable_offset" / Int64sb,  # When the marker came.
    )
)

PRODUCER_SNAPSHOT: Final = Struct(
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


INT16, INT32, INT64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), min_size=1))
def test_the_offset_index_is_written_as_declared(pairs: list[tuple[int, int]]) -> None:
    files = SimulatedFileSystem()
    index = OffsetIndex(files, "/i", 1000, None)
    for relative, position in pairs:
        index.append(1000 + relative, position)
    index.save()
    parsed = OFFSET_INDEX.parse(read_file(files, "/i"))
    assert [(entry.relative_offset, entry.position) for entry in parsed] == pairs


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**62), min_size=1, unique=True).map(sorted))
def test_the_time_index_is_written_as_declared(timestamps: list[int]) -> None:
    files = SimulatedFileSystem()
    index = TimeIndex(files, "/t", 1000, None)
    for number, timestamp in enumerate(timestamps):
        index.append_if_later(timestamp, 1000 + number)
    index.save()
    parsed = TIME_INDEX.parse(read_file(files, "/t"))
    assert [(entry.timestamp, entry.relative_offset) for entry in parsed] == [
        (timestamp, number) for number, timestamp in enumerate(timestamps)
    ]


@settings(deadline=None)
@given(st.lists(st.builds(AbortedTransaction, INT64, INT64, INT64, INT64)))
def test_the_transaction_index_is_written_as_declared(entries: list[AbortedTransaction]) -> None:
    parsed = TRANSACTION_INDEX.parse(encode_entries(entries))
    assert [
        (one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
        for one in parsed
    ] == entries


@settings(deadline=None)
@given(
    st.lists(st.builds(ProducerSnapshot, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64))
)
def test_the_producer_snapshot_is_written_as_declared(producers: list[ProducerSnapshot]) -> None:
    parsed = PRODUCER_SNAPSHOT.parse(encode_snapshot(producers))
    assert [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.offset_delta,
            producer.timestamp,
            producer.coordinator_epoch,
            producer.current_transaction_first_offset,
        )
        for producer in parsed.producers
    ] == producers
