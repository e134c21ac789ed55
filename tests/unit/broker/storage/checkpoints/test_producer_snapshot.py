import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.core.partition.producers import ProducerSnapshot
from kohort.broker.storage.checkpoints.producer_snapshot import decode_snapshot, encode_snapshot
from kohort.broker.storage.errors import CorruptFileError

PRODUCERS = [
    ProducerSnapshot(7, 2, 99, 1234, 4, 1_700_000_000_000),
    ProducerSnapshot(8, 0, 2**31 - 1, 1300, 0, -1),
]


def test_producers_of_transactions_are_written_as_kafka_writes_them() -> None:
    """A file of Kafka 4.4: one producer has a transaction open from offset 0; of the other a marker
    has raised the epoch, which leaves it without a batch.
    """
    kafkas = bytes.fromhex(
        "0001 94a306f2 00000002"
        "00000000000003e8 0000 00000002 0000000000000002 00000001 000001a20290cf12 ffffffff"
        "0000000000000000"
        "00000000000003e9 0001 ffffffff ffffffffffffffff 00000000 000001a20290cf64 00000002"
        "ffffffffffffffff"
    )
    producers = [
        ProducerSnapshot(1000, 0, 2, 2, 1, 0x1A20290CF12, -1, 0),
        ProducerSnapshot(1001, 1, -1, -1, 0, 0x1A20290CF64, 2, -1),
    ]
    assert decode_snapshot(kafkas) == producers
    assert encode_snapshot(producers) == kafkas


@settings(deadline=None)
@given(st.data())
def test_a_damaged_or_torn_snapshot_is_refused(data: st.DataObject) -> None:
    content = bytearray(encode_snapshot(PRODUCERS))
    position = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(CorruptFileError):
        decode_snapshot(bytes(content[:position]))
    content[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptFileError):
        decode_snapshot(bytes(content))
