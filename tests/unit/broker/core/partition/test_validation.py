import random
from dataclasses import replace

import lz4.frame
import pytest

from kohort.broker.core.partition.record_checks import RECORD_ERRORS_MAX
from kohort.broker.core.partition.validation import validate, validation_steps
from kohort.groups.steps import at_once
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import (
    HEADER_BYTES,
    CompressionType,
    TimestampType,
    read_header,
)
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.compression import open_steps
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.records.walk import HEADERS_MAX
from tests.support.records.batches import one_record, with_block, with_header
from tests.support.records.compressed_forms import FORMS, Form, Readers
from tests.support.records.produced import (
    COMPACTED,
    DAY,
    HOUR,
    NOW,
    OK,
    PLAIN,
    STAMPING,
    TERMS,
    Topic,
    accepted,
    code_of,
    records,
    rejected,
)


@pytest.mark.parametrize("codec", CompressionType)
def test_an_ordinary_batch_is_accepted_as_it_is_and_not_copied(codec: CompressionType) -> None:
    request = bytearray(encode_batch(records(), codec=codec))
    verdict = accepted(validate(request, PLAIN, TERMS))
    assert bytes(verdict.batch) == bytes(request)
    assert verdict.log_append_time_ms == -1
    request[-1] ^= 1
    assert verdict.batch[-1] == request[-1]


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("count", [2, 4])
def test_a_count_other_than_that_of_the_records_is_invalid(
    codec: CompressionType, count: int
) -> None:
    batch = with_header(
        encode_batch(records(3), codec=codec), record_count=count, last_offset_delta=count - 1
    )
    verdict = rejected(validate(batch, PLAIN, TERMS))
    assert verdict.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec])
@pytest.mark.parametrize("payload", [b"", b"garbage garbage garbage", b"\xff" * 30])
def test_a_block_that_does_not_decompress_is_invalid(
    codec: CompressionType, payload: bytes
) -> None:
    batch = assemble(read_header(encode_batch(records(1), codec=codec)), payload)
    verdict = rejected(validate(batch, PLAIN, TERMS))
    assert verdict.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("block", [b"\xff" * 40, one_record(Record(b"v")) + b"zz", b"\x01" * 7])
def test_records_that_do_not_parse_are_invalid(codec: CompressionType, block: bytes) -> None:
    verdict = rejected(validate(with_block(block, 1, codec), PLAIN, TERMS))
    assert verdict.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("topic", [PLAIN, COMPACTED, STAMPING])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_compressed_block_is_stored_in_a_form_that_all_clients_can_read(
    form: Form, topic: Topic
) -> None:
    plain = encode_batch(records(200))
    header = read_header(plain)._replace(attributes=int(form.codec))
    batch = assemble(header, form.compress(plain[HEADER_BYTES:]))
    verdict = validate(batch, topic, TERMS)
    if form.readers is Readers.NOT_JAVA:
        assert rejected(verdict).code is ErrorCode.INVALID_RECORD
        return
    stored = accepted(verdict)
    is_unchanged = bytes(stored.batch[HEADER_BYTES:]) == batch[HEADER_BYTES:]
    assert is_unchanged is (form.readers is Readers.ALL)
    opened = at_once(open_steps(form.codec, stored.batch[HEADER_BYTES:]))
    assert opened == (plain[HEADER_BYTES:], True)


def test_a_block_that_is_too_large_once_it_is_compressed_again_is_refused() -> None:
    """Blocks of 4 MiB use matches across 64 KiB, which is the size that the broker writes."""
    plain = encode_batch([Record(random.Random(1).randbytes(60_000) * 20)])
    header = read_header(plain)._replace(attributes=int(CompressionType.LZ4))
    block = lz4.frame.compress(
        plain[HEADER_BYTES:], block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False
    )
    topic = replace(PLAIN, max_message_bytes=200_000)
    accepted(validate(assemble(header, block), topic, TERMS))
    verdict = rejected(validate(assemble(header, block + b"\0"), topic, TERMS))
    assert verdict.code is ErrorCode.MESSAGE_TOO_LARGE


GOOD = one_record(Record(b"v", b"k"))
MINUS_ONE_HEADERS = GOOD[:-1] + b"\x01"
BADLY_FOLLOWED = one_record(Record(b"v", b"k"), 0, 1)[:-1] + b"\x01"


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize(
    "first", [MINUS_ONE_HEADERS, one_record(Record(b"v"), 0, 1), one_record(Record(b"v"), 0, -1)]
)
def test_a_malformed_first_record_is_invalid(codec: CompressionType, first: bytes) -> None:
    assert code_of(with_block(first, 1, codec)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize(
    "second", [BADLY_FOLLOWED, one_record(Record(b"v"), 0, 0), one_record(Record(b"v"), 0, 5)]
)
def test_a_malformed_later_record_of_the_right_length_is_invalid(
    codec: CompressionType, second: bytes
) -> None:
    assert code_of(with_block(GOOD + second, 2, codec)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("cleanup", [("compact",), ("compact", "delete")])
def test_a_compacted_topic_refuses_records_without_key_and_names_them(
    codec: CompressionType, cleanup: tuple[str, ...]
) -> None:
    batch = encode_batch([*records(2), *records(2, key=None), *records(1, key=b"")], codec=codec)
    topic = replace(PLAIN, cleanup_policy=cleanup)
    verdict = rejected(validate(batch, topic, TERMS))
    assert verdict.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in verdict.record_errors] == [2, 3]
    assert {error.message for error in verdict.record_errors} == {
        "Compacted topic cannot accept message without key"
    }
    assert "2 record errors" in verdict.message
    accepted(validate(encode_batch(records(3, key=b""), codec=codec), topic, TERMS))
    accepted(validate(batch, PLAIN, TERMS))


def test_a_compacted_topic_refuses_what_does_not_parse_whatever_the_policy() -> None:
    batch = with_block(b"\x0e" + b"\x01" * 7, 1)
    assert code_of(batch, COMPACTED) is ErrorCode.INVALID_RECORD


def test_only_so_many_bad_records_of_a_batch_are_explained() -> None:
    batch = encode_batch(records(RECORD_ERRORS_MAX * 3, key=None))
    verdict = rejected(validate(batch, COMPACTED, TERMS))
    assert [error.batch_index for error in verdict.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert f"{RECORD_ERRORS_MAX * 3} record errors" in verdict.message


@pytest.mark.parametrize("codec", CompressionType)
def test_timestamps_more_than_an_hour_ahead_are_refused_and_named(codec: CompressionType) -> None:
    ahead = records(1, timestamp=NOW + HOUR + 1)
    verdict = rejected(validate(encode_batch(records(2) + ahead, codec=codec), PLAIN, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    (error,) = verdict.record_errors
    assert error.batch_index == 2
    assert str(NOW + HOUR + 1) in error.message
    accepted(validate(encode_batch(records(2, timestamp=NOW + HOUR), codec=codec), PLAIN, TERMS))


@pytest.mark.parametrize("timestamp", [-1, -5, 0, 5, NOW - 10_000 * DAY])
def test_timestamps_far_in_the_past_and_none_at_all_are_accepted(timestamp: int) -> None:
    accepted(validate(encode_batch(records(2, timestamp=timestamp)), PLAIN, TERMS))


def test_where_the_past_is_limited_only_records_without_timestamp_are_exempt() -> None:
    topic = replace(PLAIN, message_timestamp_before_max_ms=DAY)
    batch = encode_batch(
        [
            *records(1, timestamp=NOW),
            *records(1, timestamp=NOW - DAY - 1),
            *records(1, timestamp=NOW - DAY),
            *records(1, timestamp=-1),
            *records(1, timestamp=-5),
        ]
    )
    verdict = rejected(validate(batch, topic, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [1, 4]


def test_a_bad_timestamp_weighs_more_than_a_missing_key_of_another_record() -> None:
    both = records(1, key=None, timestamp=NOW + DAY)
    assert code_of(encode_batch(both), COMPACTED) is ErrorCode.INVALID_RECORD
    batch = encode_batch([*both, *records(1, timestamp=NOW + DAY)])
    verdict = rejected(validate(batch, COMPACTED, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [0, 1]


@pytest.mark.parametrize("claimed", [NOW + DAY, NOW - 1, 5, -1, -5])
def test_a_maximum_timestamp_that_cannot_be_right_is_corrected(claimed: int) -> None:
    verdict = accepted(validate(with_header(OK, max_timestamp=claimed), PLAIN, TERMS))
    assert verdict.header == read_header(OK)
    assert verdict.batch == OK


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("times", [(0, 10, 5), (10, 5, 0), (0, 0, 3), (-1, 7, -7)])
@pytest.mark.parametrize("claimed", [-1, 0, 5, 7, 9, 10, 11, HOUR])
def test_the_maximum_timestamp_stored_is_that_of_the_records(
    codec: CompressionType, times: tuple[int, ...], claimed: int
) -> None:
    """kafka-go's Conn writes that of the last record, Sarama none."""
    right = encode_batch([Record(b"v", b"k", (), NOW + time) for time in times], codec=codec)
    verdict = accepted(validate(with_header(right, max_timestamp=NOW + claimed), PLAIN, TERMS))
    assert verdict.header.max_timestamp == NOW + max(times)
    assert bytes(verdict.batch) == right


@pytest.mark.parametrize("codec", CompressionType)
def test_a_record_in_the_future_is_found_whatever_the_header_says(codec: CompressionType) -> None:
    times = (NOW, NOW + HOUR + 1, NOW)
    batch = encode_batch([Record(b"v", b"k", (), time) for time in times], codec=codec)
    verdict = rejected(validate(with_header(batch, max_timestamp=NOW), PLAIN, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [1]


def test_the_maximum_of_negative_timestamps_is_none() -> None:
    verdict = accepted(validate(encode_batch(records(2, timestamp=-5)), PLAIN, TERMS))
    assert verdict.header.max_timestamp == -1


@pytest.mark.parametrize("is_limited", [True, False])
def test_a_timestamp_beyond_64_bits_wraps_as_in_kafka(is_limited: bool) -> None:
    after_max_ms = HOUR if is_limited else (1 << 63) - 1
    topic = replace(PLAIN, message_timestamp_after_max_ms=after_max_ms)
    block = one_record(Record(b"v", b"k"), timestamp_delta=(1 << 63) - 1)
    batch = with_block(block, 1, base_timestamp=NOW, max_timestamp=NOW)
    verdict = validate(batch, topic, TERMS)
    if is_limited:
        assert rejected(verdict).code is ErrorCode.INVALID_TIMESTAMP
    else:
        # All timestamps are negative, which means no timestamp.
        assert accepted(verdict).header.max_timestamp == -1


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("timestamp", [NOW + 1_000 * DAY, -5, NOW])
def test_a_topic_that_stamps_records_itself_ignores_what_they_say(
    codec: CompressionType, timestamp: int
) -> None:
    batch = encode_batch(records(3, timestamp=timestamp), codec=codec)
    verdict = accepted(validate(batch, STAMPING, TERMS))
    assert verdict.log_append_time_ms == NOW
    assert verdict.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in decode_records(verdict.batch)] == [NOW] * 3


def test_a_client_may_not_stamp_for_a_topic_that_stamps_itself() -> None:
    batch = with_header(OK, attributes=0x08)
    verdict = rejected(validate(batch, STAMPING, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [0, 1, 2]


def test_log_append_time_claimed_for_another_topic_is_taken_back() -> None:
    batch = with_header(OK, attributes=0x08)
    verdict = accepted(validate(batch, PLAIN, TERMS))
    assert verdict.header == read_header(OK)
    assert verdict.log_append_time_ms == -1


def test_a_negative_claimed_log_append_time_is_stored_as_no_timestamp() -> None:
    verdict = accepted(validate(with_header(OK, attributes=0x08, max_timestamp=-5), PLAIN, TERMS))
    assert verdict.header.max_timestamp == -1


def test_unknown_attributes_are_dropped_only_where_the_header_is_rewritten() -> None:
    batch = with_header(OK, attributes=0x4180)
    assert accepted(validate(batch, PLAIN, TERMS)).header.attributes == 0x4180
    batch = with_header(batch, max_timestamp=NOW + 1)
    assert accepted(validate(batch, PLAIN, TERMS)).header.attributes == 0


def test_a_length_that_cuts_the_batch_short_is_found_by_the_crc() -> None:
    assert code_of(with_header(OK, length=len(OK) - 13)) is ErrorCode.CORRUPT_MESSAGE


def test_a_message_of_an_old_format_that_is_too_short_is_corrupt() -> None:
    old = OK[:8] + (14).to_bytes(4, "big") + OK[12:16] + b"\x01" + OK[17:]
    assert code_of(old) is ErrorCode.INVALID_RECORD
    assert code_of(old[:8] + (13).to_bytes(4, "big") + old[12:]) is ErrorCode.CORRUPT_MESSAGE


def test_log_append_time_claimed_without_a_time_is_refused() -> None:
    batch = with_header(OK, attributes=0x08, max_timestamp=-1)
    assert code_of(batch) is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_claimed_for_the_future_is_refused() -> None:
    batch = with_header(OK, attributes=0x08, max_timestamp=NOW + DAY)
    verdict = rejected(validate(batch, PLAIN, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [0, 1, 2]
    assert "offset 2 is out of range" in verdict.record_errors[2].message


@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec])
def test_a_compressed_record_above_its_decompressed_limit_is_invalid(
    codec: CompressionType,
) -> None:
    topic = replace(PLAIN, max_decompressed_message_bytes=1_000)
    # 8 bytes beside the value: what Kafka counts is the record without its length.
    largest, larger = ([Record(bytes(size), b"k", (), NOW)] for size in (992, 993))
    accepted(validate(encode_batch(largest * 3, codec=codec), topic, TERMS))
    verdict = rejected(validate(encode_batch(larger, codec=codec), topic, TERMS))
    assert verdict.code is ErrorCode.INVALID_RECORD
    accepted(validate(encode_batch(larger), topic, TERMS))


def test_a_batch_that_inflates_beyond_the_limit_is_too_large() -> None:
    limit = 10_000
    batch = encode_batch([Record(bytes(10_000))], codec=CompressionType.ZSTD)
    verdict = rejected(validate(batch, PLAIN, TERMS, limit))
    assert verdict.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "more than 10000 bytes" in verdict.message
    accepted(
        validate(
            encode_batch([Record(bytes(9_000))], codec=CompressionType.ZSTD), PLAIN, TERMS, limit
        )
    )


@pytest.mark.parametrize("codec", CompressionType)
def test_a_batch_of_very_many_records_is_validated_in_steps(codec: CompressionType) -> None:
    count = 100_000
    block = b"".join(one_record(Record(None), 0, n) for n in range(count))
    batch = with_block(block, count, codec, base_timestamp=NOW, max_timestamp=NOW)
    steps = validation_steps(batch, PLAIN, TERMS)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            accepted(done.value)
            break
        pauses += 1
    assert pauses >= 6


def test_headers_are_counted_among_what_is_parsed_in_one_step() -> None:
    """A record with many takes as long as many records."""
    count = 50
    headers = (("", b""),) * HEADERS_MAX
    block = b"".join(one_record(Record(None, headers=headers), 0, n) for n in range(count))
    batch = with_block(block, count, CompressionType.ZSTD, base_timestamp=NOW, max_timestamp=NOW)

    steps = validation_steps(batch, PLAIN, TERMS)

    assert sum(1 for _ in steps) >= count - 1


def test_a_record_of_very_many_headers_is_invalid() -> None:
    """Three kilobytes can hold sixteen million of them, which took a minute to read."""
    headers = (("", b""),) * (HEADERS_MAX + 1)
    batch = encode_batch([Record(None, headers=headers, timestamp=NOW)], codec=CompressionType.ZSTD)
    verdict = rejected(validate(batch, PLAIN, TERMS))
    assert (verdict.code, verdict.message) == (
        ErrorCode.INVALID_RECORD,
        f"record with {HEADERS_MAX + 1} headers",
    )


def test_an_ordinary_batch_is_validated_in_one_step() -> None:
    batch = encode_batch(records(1_000), codec=CompressionType.LZ4)
    with pytest.raises(StopIteration):
        next(validation_steps(batch, PLAIN, TERMS))
