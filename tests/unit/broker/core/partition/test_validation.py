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
    LOG_APPEND_TIME_BIT,
    CompressionType,
    read_header,
)
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.compression import open_steps
from kohort.protocol.records.record import Record
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


def test_only_so_many_bad_records_of_a_batch_are_explained() -> None:
    batch = encode_batch(records(RECORD_ERRORS_MAX * 3, key=None))
    verdict = rejected(validate(batch, COMPACTED, TERMS))
    assert [error.batch_index for error in verdict.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert f"{RECORD_ERRORS_MAX * 3} record errors" in verdict.message


def test_a_bad_timestamp_weighs_more_than_a_missing_key_of_another_record() -> None:
    both = records(1, key=None, timestamp=NOW + DAY)
    assert code_of(encode_batch(both), COMPACTED) is ErrorCode.INVALID_RECORD
    batch = encode_batch([*both, *records(1, timestamp=NOW + DAY)])
    verdict = rejected(validate(batch, COMPACTED, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [0, 1]


def test_a_record_that_cannot_be_decoded_weighs_more_than_a_claimed_append_time() -> None:
    claimed = int(LOG_APPEND_TIME_BIT)
    block = one_record(Record(b"v", b"k"))
    whole = with_block(block, 1, attributes=claimed, max_timestamp=NOW)
    short = with_block(block[:-1], 1, attributes=claimed, max_timestamp=NOW)
    assert code_of(whole, STAMPING) is ErrorCode.INVALID_TIMESTAMP
    assert code_of(short, STAMPING) is ErrorCode.INVALID_RECORD


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


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_a_batch_of_very_many_records_is_validated_in_steps(codec: CompressionType) -> None:
    count = 40_000
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
    assert pauses >= 2


def test_headers_are_counted_among_what_is_parsed_in_one_step() -> None:
    """A record with many takes as long as many records."""
    count = 20
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


def test_a_transactional_batch_needs_a_producer_and_a_transactional_id() -> None:
    terms = TERMS._replace(has_transactional_id=True)
    batch = with_header(OK, attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0)
    accepted(validate(batch, PLAIN, terms))
    assert code_of(batch) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code_of(with_header(OK, attributes=0x10), terms=terms) is ErrorCode.INVALID_RECORD
