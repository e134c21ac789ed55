import pytest

from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.records.batch import CompressionType, TimestampType, read_header, restamped
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.record import Record, decode_records
from tests.support.records.batches import SHAPES, one_record, with_block


@pytest.mark.parametrize("codec", CompressionType)
def test_records_come_back_from_a_batch_with_their_offsets(codec: CompressionType) -> None:
    records = [record._replace(timestamp=1_000 - n) for n, record in enumerate(SHAPES)]
    decoded = decode_records(memoryview(encode_batch(records, base_offset=50, codec=codec)))
    assert [record.offset for record in decoded] == list(range(50, 50 + len(records)))
    assert [record._replace(offset=-1) for record in decoded] == records


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    batch = encode_batch([Record(b"a", timestamp=1), Record(b"b", timestamp=2)])
    _, header = restamped(batch, read_header(batch), TimestampType.LOG_APPEND_TIME, 99)
    assert [record.timestamp for record in decode_records(batch, header)] == [99, 99]


def test_header_keys_that_are_not_text_survive() -> None:
    record = Record(b"v", None, (("\udcff\udcfe", b"x"),))
    block = one_record(record)
    assert b"\xff\xfe" in block
    assert decode_records(with_block(block, 1))[0].headers == record.headers


def test_a_header_key_that_no_bytes_can_stand_for_is_not_written() -> None:
    with pytest.raises(EncodeError, match="header key"):
        one_record(Record(b"v", None, (("\ud800", b"x"),)))


def test_attributes_of_a_record_have_no_meaning_yet() -> None:
    block = bytearray(one_record(Record(b"v")))
    block[1] = 0xFF
    assert decode_records(with_block(bytes(block), 1))[0].value == b"v"


@pytest.mark.parametrize("declared", [0, 1, 3, -1, (1 << 31) - 1])
def test_a_batch_holds_exactly_as_many_records_as_it_says(declared: int) -> None:
    batch = with_block(one_record(Record(b"a")) + one_record(Record(b"b"), 0, 1), declared)
    with pytest.raises(DecodeError):
        decode_records(batch)


def test_a_batch_whose_records_were_all_compacted_away_has_none() -> None:
    header = read_header(encode_batch([Record(b"x")]))._replace(record_count=0)
    assert decode_records(assemble(header, b"")) == []


def test_a_block_that_inflates_beyond_the_limit_is_not_decoded() -> None:
    batch = encode_batch([Record(bytes(10_000))], codec=CompressionType.GZIP)
    with pytest.raises(DecodeError, match="more than 9999 bytes"):
        decode_records(batch, limit_bytes=9_999)
