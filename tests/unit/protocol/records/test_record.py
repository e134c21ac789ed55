import pytest

from protocol.errors import DecodeError, EncodeError
from protocol.records.batch import Codec, read_header, with_log_append_time
from protocol.records.builder import assemble, encode_batch
from protocol.records.layout import RECORD
from protocol.records.record import (
    Record,
    decode_records,
    field_of,
    iter_spans,
    read_span,
    skip_records,
)
from protocol.records.varint import encode_varint
from tests.batches import one_record, with_block

LARGE = Record(b"v" * 40_000, b"k" * 9_000, (("h" * 200, b"x" * 200), ("", None), ("e", b"")), 5)
SHAPES = [
    Record(None),
    Record(b""),
    Record(b"value", b"key"),
    Record(b"value", b"", (("a", b"1"), ("a", None), ("ключ", b""))),
    Record(b"value", None, (("last", b"header"),)),
    Record(b"v" * 63, b"k" * 64),
    Record(b"v" * 64, b"k" * 63),
    Record(b"v" * 8_191),
    Record(b"v" * 8_192),
    LARGE,
]


@pytest.mark.parametrize("record", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("timestamp_delta", [0, 63, 64, -1, 8_191, 8_192, -(1 << 62), (1 << 62)])
@pytest.mark.parametrize("offset_delta", [0, 63, 64, 10_000, (1 << 31) - 1])
def test_a_record_is_written_and_read_as_declared(
    record: Record, timestamp_delta: int, offset_delta: int
) -> None:
    block = one_record(record, timestamp_delta, offset_delta)
    declared = RECORD.parse(block)
    assert RECORD.build(declared) == block
    span = read_span(memoryview(b"before" + block + b"behind"), 6)
    assert (span.start, span.stop) == (6, 6 + len(block))
    assert (span.timestamp_delta, span.offset_delta) == (timestamp_delta, offset_delta)
    assert (declared.timestamp_delta, declared.offset_delta) == (timestamp_delta, offset_delta)
    moved = b"before" + block
    assert field_of(moved, span.key_start, span.key_length) == declared.key == record.key
    assert field_of(moved, span.value_start, span.value_length) == declared.value == record.value
    assert span.header_count == len(declared.headers) == len(record.headers)
    assert [(h.key.decode(), h.value) for h in declared.headers] == list(record.headers)


@pytest.mark.parametrize("codec", Codec)
def test_records_come_back_from_a_batch_with_their_offsets(codec: Codec) -> None:
    records = [record._replace(timestamp=1_000 - n) for n, record in enumerate(SHAPES)]
    decoded = decode_records(memoryview(encode_batch(records, base_offset=50, codec=codec)))
    assert [record.offset for record in decoded] == list(range(50, 50 + len(records)))
    assert [record._replace(offset=-1) for record in decoded] == records


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    batch = encode_batch([Record(b"a", timestamp=1), Record(b"b", timestamp=2)])
    header = with_log_append_time(batch, read_header(batch), 99)
    assert [record.timestamp for record in decode_records(batch, header)] == [99, 99]


def test_header_keys_that_are_not_text_survive() -> None:
    record = Record(b"v", None, (("\udcff\udcfe", b"x"),))
    block = one_record(record)
    assert b"\xff\xfe" in block
    assert decode_records(with_block(block, 1))[0].headers == record.headers


def test_a_header_key_that_no_bytes_can_stand_for_is_not_written() -> None:
    with pytest.raises(EncodeError, match="header key"):
        one_record(Record(b"v", None, (("\ud800", b"x"),)))


def test_keys_and_values_are_found_without_being_copied() -> None:
    source = bytearray(one_record(Record(b"value", b"key")))
    span = read_span(source, 0)
    source[span.value_start] = ord("V")
    assert field_of(source, span.value_start, span.value_length) == b"Value"


@pytest.mark.parametrize("record", SHAPES[:6], ids=range(6))
def test_a_record_cut_short_anywhere_is_refused(record: Record) -> None:
    block = one_record(record)
    for size in range(len(block)):
        with pytest.raises(DecodeError):
            read_span(block[:size], 0)


def test_a_record_must_fill_the_length_it_claims_and_no_more() -> None:
    block = one_record(Record(b"value", b"key", (("h", b"x"),)))
    body = len(block) - 1
    assert block[:1] == encode_varint(body)
    for claimed in range(body + 40):
        if claimed == body:
            continue
        with pytest.raises(DecodeError):
            read_span(encode_varint(claimed) + block[1:] + bytes(40), 0)


HEAD = b"\x00\x00\x00"
"""Attributes, timestamp delta 0, offset delta 0."""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(HEAD + b"\x03\x01\x00", id="key of length -2"),
        pytest.param(HEAD + b"\x01\x03\x00", id="value of length -2"),
        pytest.param(HEAD + b"\x03k\x01\x00", id="key of length -2 and a byte"),
        pytest.param(HEAD + b"\x01\x03v\x00", id="value of length -2 and a byte"),
        pytest.param(HEAD + b"\x01\x01\x01", id="header count -1"),
        pytest.param(HEAD + b"\x01\x01\x02\x01", id="header key of length -1 alone"),
        pytest.param(HEAD + b"\x01\x01\x02\x01\x01", id="header without key"),
        pytest.param(HEAD + b"\x01\x01\x02\x00\x03", id="header value of length -2"),
        pytest.param(HEAD + b"\x01\x01\x04\x00\x01", id="a header too few"),
        pytest.param(HEAD + b"\x0a\x01\x00", id="key longer than the record"),
        pytest.param(HEAD + b"\x01\x0a\x00", id="value longer than the record"),
        pytest.param(HEAD + b"\x01\x01\xfe\xff\xff\xff\x0f", id="2147483647 headers"),
        pytest.param(HEAD + b"\xfe\xff\xff\xff\x0f\x01\x00", id="key of 2147483647 bytes"),
        pytest.param(b"\x00\x00\xff\xff\xff\xff\x7f\x01\x01\x00", id="offset delta of 35 bits"),
    ],
)
def test_a_record_with_nonsense_inside_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        read_span(encode_varint(len(body)) + body + bytes(64), 0)


def test_a_record_of_negative_length_is_refused() -> None:
    block = one_record(Record(b"value", b"key"))
    for size in (block[0] - 1, block[0] + 1):
        with pytest.raises(DecodeError):
            read_span(bytes([size]) + block[1:], 0)


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\x01" * 40, b"\x80" * 40, b"garbage " * 5])
def test_garbage_is_no_record(garbage: bytes) -> None:
    with pytest.raises(DecodeError):
        read_span(garbage, 0)
    with pytest.raises(DecodeError):
        decode_records(with_block(garbage, 1))


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


def test_following_lengths_finds_where_each_record_stops() -> None:
    block = b"".join(one_record(record, 0, n) for n, record in enumerate(SHAPES))
    stops = [span.stop for span in iter_spans(block, len(SHAPES))]
    position = 0
    for stop in stops:
        position = skip_records(memoryview(block), position, 1)
        assert position == stop
    assert skip_records(block, 0, len(SHAPES)) == len(block)
    assert skip_records(block, stops[2], 3) == stops[5]


@pytest.mark.parametrize(
    "block", [b"", b"\x80", b"\xff\xff", b"\x01\x01", b"\x00\x01", b"\x83\x80\x00", b"\xff" * 9]
)
def test_lengths_that_cannot_be_followed_are_refused(block: bytes) -> None:
    with pytest.raises(DecodeError):
        skip_records(block, 0, 2)


def test_a_length_beyond_the_end_is_seen_by_where_it_leads() -> None:
    assert skip_records(b"\x7e", 0, 1) == 64
    with pytest.raises(DecodeError):
        skip_records(b"\x7e", 0, 2)


def test_a_block_that_inflates_beyond_the_limit_is_not_decoded() -> None:
    batch = encode_batch([Record(bytes(10_000))], codec=Codec.GZIP)
    with pytest.raises(DecodeError, match="more than 9999 bytes"):
        decode_records(batch, limit_bytes=9_999)
