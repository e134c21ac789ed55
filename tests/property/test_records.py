"""Batches and records against other implementations, and against whatever bytes there may be.

aiokafka (C extension and Python) and kafka-python write batches that we read, and read ours.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python_records

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import (
    BatchHeader,
    CompressionType,
    TimestampType,
    crc_matches,
    encode_header,
    iter_headers,
    read_header,
)
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.compression import compress, decompress
from kohort.protocol.records.record import (
    Record,
    decode_records,
    field_of,
    iter_spans,
)
from kohort.protocol.records.varint import (
    encode_uvarint,
    encode_varint,
    encode_varlong,
    read_uvarint,
    read_varint,
    read_varlong,
)
from kohort.protocol.records.walk import check_records, read_span
from tests.support.records.batches import one_record, with_block
from tests.support.records.layout import BATCH_HEADER, RECORD, RECORDS
from tests.support.suites.examples import examples

few = settings(max_examples=examples(60), deadline=None)

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int16s = st.integers(-(1 << 15), (1 << 15) - 1)
timestamps = st.integers(-1, 1 << 48)
values = st.none() | st.binary(max_size=300) | st.integers(0, 20_000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=80)), max_size=4)
records = st.builds(Record, values, values, headers.map(tuple), timestamps, st.just(-1))
record_lists = st.lists(records, min_size=1, max_size=20)
codecs = st.sampled_from(CompressionType)

IMPLEMENTATIONS = [
    pytest.param(
        aiokafka_records.DefaultRecordBatch,
        aiokafka_records.DefaultRecordBatchBuilder,
        id="aiokafka",
    ),
    pytest.param(
        aiokafka_records._DefaultRecordBatchPy,
        aiokafka_records._DefaultRecordBatchBuilderPy,
        id="aiokafka in Python",
    ),
    pytest.param(
        kafka_python_records.DefaultRecordBatch,
        kafka_python_records.DefaultRecordBatchBuilder,
        id="kafka-python",
    ),
]
Other = Callable[..., Any]


@pytest.mark.parametrize(("reader", "_builder"), IMPLEMENTATIONS)
@few
@given(records=record_lists, codec=codecs, base_offset=st.integers(0, 1 << 40))
def test_what_we_write_others_read(
    reader: Other, _builder: Other, records: list[Record], codec: CompressionType, base_offset: int
) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base_offset)
    theirs = reader(batch)
    assert theirs.validate_crc()
    assert [
        (each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs
    ] == [
        (base_offset + index, each.timestamp, each.key, each.value, each.headers)
        for index, each in enumerate(records)
    ]


@pytest.mark.parametrize(("_reader", "builder"), IMPLEMENTATIONS)
@few
@given(records=record_lists, codec=codecs, sequence=st.integers(0, (1 << 31) - 1))
def test_what_others_write_we_read(
    _reader: Other, builder: Other, records: list[Record], codec: CompressionType, sequence: int
) -> None:
    # aiokafka takes a first timestamp of -1 for none, and the next one for the first.
    assume(records[0].timestamp != -1 or builder is not aiokafka_records.DefaultRecordBatchBuilder)
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=1_000,
        producer_epoch=7,
        base_sequence=sequence,
        batch_size=1 << 24,
    )
    for index, record in enumerate(records):
        theirs.append(index, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(theirs.build())
    header = read_header(batch)
    assert crc_matches(batch, header)
    assert header.size_bytes == len(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1_000, 7, sequence)
    assert header.record_count == header.last_offset_delta + 1 == len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert [record._replace(offset=-1) for record in decode_records(batch)] == records


batch_headers = st.builds(
    BatchHeader,
    base_offset=int64s,
    length=st.integers(49, (1 << 31) - 1),
    partition_leader_epoch=int32s,
    magic=st.just(2),
    crc=st.integers(0, (1 << 32) - 1),
    attributes=int16s,
    last_offset_delta=int32s,
    base_timestamp=int64s,
    max_timestamp=int64s,
    producer_id=int64s,
    producer_epoch=int16s,
    base_sequence=int32s,
    record_count=int32s,
)


@given(header=batch_headers)
def test_every_header_is_written_and_read_as_declared(header: BatchHeader) -> None:
    encoded = encode_header(header)
    assert encoded == BATCH_HEADER.build(header._asdict())
    assert read_header(encoded) == header


@given(record=records, timestamp_delta=int64s, offset_delta=int32s)
def test_every_record_is_written_and_read_as_declared(
    record: Record, timestamp_delta: int, offset_delta: int
) -> None:
    block = one_record(record, timestamp_delta, offset_delta)
    declared = RECORD.parse(block)
    assert RECORD.build(declared) == block
    span = read_span(block, 0)
    assert (span.timestamp_delta, span.offset_delta) == (timestamp_delta, offset_delta)
    assert (declared.timestamp_delta, declared.offset_delta) == (timestamp_delta, offset_delta)
    assert field_of(block, span.key_start, span.key_length) == declared.key == record.key
    assert field_of(block, span.value_start, span.value_length) == declared.value == record.value
    assert [(h.key.decode(), h.value) for h in declared.headers] == list(record.headers)


@given(records=record_lists)
def test_a_block_of_records_is_laid_out_as_declared(records: list[Record]) -> None:
    batch = encode_batch(records)
    declared = RECORDS.parse(batch[61:])
    assert RECORDS.build(list(declared)) == batch[61:]
    assert [(each.key, each.value) for each in declared] == [
        (each.key, each.value) for each in decode_records(batch)
    ]


@few
@given(records=record_lists, codec=codecs, cut=st.data())
def test_a_batch_cut_short_is_never_accepted(
    records: list[Record], codec: CompressionType, cut: st.DataObject
) -> None:
    batch = encode_batch(records, codec=codec)
    size = cut.draw(st.integers(1, len(batch) - 1))
    with pytest.raises(DecodeError):
        list(iter_headers(batch[:size]))
    with pytest.raises(DecodeError):
        decode_records(batch[:size])


@few
@given(records=record_lists, cut=st.data())
def test_a_block_of_records_cut_short_is_never_accepted(
    records: list[Record], cut: st.DataObject
) -> None:
    block = encode_batch(records)[61:]
    short = block[: cut.draw(st.integers(0, len(block) - 1))]
    for codec in CompressionType:
        with pytest.raises(DecodeError):
            decode_records(with_block(short, len(records), codec))
    with pytest.raises(DecodeError):
        check_records(short, 0, 0, len(records), len(records) * 1_000)


@few
@given(records=record_lists, codec=codecs, seed=st.integers())
def test_a_damaged_batch_is_caught_by_its_crc_and_never_breaks_the_reader(
    records: list[Record], codec: CompressionType, seed: int
) -> None:
    source = random.Random(seed)
    batch = bytearray(encode_batch(records, codec=codec))
    header = read_header(batch)
    for _ in range(source.randint(1, 4)):
        position = source.randrange(21, len(batch))
        batch[position] ^= source.randint(1, 255)
    if batch != encode_batch(records, codec=codec):
        assert not crc_matches(batch, header)
    with suppress(DecodeError):
        decode_records(batch)


@given(block=st.binary(max_size=200), count=st.integers(0, 30))
def test_whatever_the_bytes_are_readers_agree_or_refuse(block: bytes, count: int) -> None:
    try:
        spans = list(iter_spans(block, count))
    except DecodeError:
        return
    if count and [span.offset_delta for span in spans] == list(range(count)):
        assert check_records(block, 0, 0, count, 1_000).stop == len(block)
    assert b"".join(block[span.start : span.stop] for span in spans) == block


@given(codec=codecs, block=st.binary(max_size=200))
def test_whatever_a_compressed_block_holds_only_decode_errors_come_out(
    codec: CompressionType, block: bytes
) -> None:
    with suppress(DecodeError):
        assert len(decompress(codec, block, 1_000)) <= 1_000


@few
@given(codec=codecs, data=st.binary(max_size=5_000) | st.integers(0, 300_000).map(bytes))
def test_every_codec_gives_back_what_it_was_given(codec: CompressionType, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@given(value=int32s)
def test_varints_come_back(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))
    assert read_varlong(encoded, 0) == (value, len(encoded))


@given(value=int64s)
def test_varlongs_come_back(value: int) -> None:
    encoded = encode_varlong(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))


@given(value=st.integers(0, (1 << 32) - 1))
def test_unsigned_varints_come_back(value: int) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(encoded, 0) == (value, len(encoded))


def test_log_append_time_is_read_as_others_read_it() -> None:
    batch = encode_batch(
        [Record(b"a", timestamp=5), Record(b"b", timestamp=9)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    theirs = list(aiokafka_records.DefaultRecordBatch(batch))
    ours = decode_records(batch)
    assert [each.timestamp for each in ours] == [each.timestamp for each in theirs] == [9, 9]
