import pytest

from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.record import Record, decode_records
from tests.support.records.batches import one_record, with_block


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
