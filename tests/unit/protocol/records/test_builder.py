import pytest

from kohort.protocol.errors import EncodeError
from kohort.protocol.records.batch import crc_matches, read_header
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.record import Record, decode_records


def test_unless_told_otherwise_a_batch_is_one_of_an_ordinary_producer() -> None:
    header = read_header(encode_batch([Record(b"a", timestamp=5)]))
    assert header.attributes == header.base_offset == 0
    assert not header.has_producer_id
    assert (header.producer_epoch, header.base_sequence, header.partition_leader_epoch) == (-1,) * 3


def test_offsets_are_consecutive_whatever_the_records_had_before() -> None:
    batch = encode_batch([Record(b"a", offset=9), Record(b"b", offset=3)], base_offset=20)
    assert [record.offset for record in decode_records(batch)] == [20, 21]


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(EncodeError, match="at least one"):
        encode_batch([])


def test_records_can_be_kept_and_dropped_without_renumbering_the_rest() -> None:
    batch = encode_batch([Record(b"a"), Record(b"b"), Record(b"c")], base_offset=5)
    header, block = read_header(batch), batch[61:]
    size = len(block) // 3
    kept = assemble(header._replace(record_count=1), block[size : 2 * size])
    assert [(record.offset, record.value) for record in decode_records(kept)] == [(6, b"b")]
    assert read_header(kept).last_offset == 7
    assert crc_matches(kept, read_header(kept))
