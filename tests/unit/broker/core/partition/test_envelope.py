from dataclasses import replace

import pytest

from kohort.broker.core.partition.validation import validate
from kohort.broker.core.partition.verdict import (
    TopicRules,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import assemble, encode_batch
from tests.support.records.batches import with_header
from tests.support.records.produced import (
    DAY,
    NOW,
    OK,
    PLAIN,
    TERMS,
    accepted,
    code_of,
    records,
    rejected,
)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_other_than_minus_one_zero_and_one_are_refused(acks: int) -> None:
    assert code_of(OK, terms=TERMS._replace(acks=acks)) is ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_the_three_values_of_acks_are_accepted(acks: int) -> None:
    accepted(validate(OK, PLAIN, TERMS._replace(acks=acks)))


@pytest.mark.parametrize("nothing", [None, b""])
def test_no_batch_is_an_invalid_record(nothing: bytes | None) -> None:
    assert code_of(nothing) is ErrorCode.INVALID_RECORD


def test_more_than_one_batch_is_an_invalid_record() -> None:
    assert code_of(OK + OK) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("excess", [OK[:40], b"x", b"\x00" * 17])
def test_bytes_behind_the_batch_are_refused_rather_than_dropped(excess: bytes) -> None:
    assert code_of(OK + excess) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60, 61, len(OK) - 1])
def test_a_batch_cut_short_is_an_invalid_record(size: int) -> None:
    assert code_of(OK[:size]) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_format_is_an_invalid_record(magic: int) -> None:
    assert code_of(with_header(OK, magic=magic)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [-128, -1, 3, 127])
def test_a_magic_that_never_was_is_corruption(magic: int) -> None:
    assert code_of(with_header(OK, magic=magic)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-5, 0, 10, 48])
def test_a_length_below_that_of_a_header_is_corruption(length: int) -> None:
    assert code_of(with_header(OK, length=length)) is ErrorCode.CORRUPT_MESSAGE


def test_a_wrong_crc_is_corruption_whatever_else_is_wrong() -> None:
    assert code_of(with_header(OK, crc=5)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(with_header(OK, crc=5, record_count=9)) is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    fits = replace(PLAIN, max_message_bytes=len(OK))
    accepted(validate(OK, fits, TERMS))
    assert code_of(OK, replace(PLAIN, max_message_bytes=len(OK) - 1)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_is_too_large_is_not_read_to_find_other_faults() -> None:
    small = replace(PLAIN, max_message_bytes=10)
    assert code_of(with_header(OK, crc=5), small) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_fits_no_segment_is_too_large_a_list() -> None:
    narrow = replace(PLAIN, segment_bytes=len(OK) - 1)
    assert code_of(OK, narrow) is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("count", [0, -1, -(1 << 31)])
def test_a_record_count_of_none_is_an_invalid_record(count: int) -> None:
    for delta in (0, count - 1, 2):
        if delta >= -(1 << 31):
            batch = with_header(OK, record_count=count, last_offset_delta=delta)
            assert code_of(batch) is ErrorCode.INVALID_RECORD
    empty = assemble(read_header(OK)._replace(record_count=0, last_offset_delta=0), b"")
    assert code_of(empty) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("count", "delta"), [(2, 2), (4, 2), (3, 5), (3, 1), (3, -1)])
def test_a_record_count_that_is_not_last_offset_delta_plus_one_is_invalid(
    count: int, delta: int
) -> None:
    batch = with_header(OK, record_count=count, last_offset_delta=delta)
    assert code_of(batch) is ErrorCode.INVALID_RECORD


def test_more_records_than_bytes_can_hold_are_invalid_without_looking() -> None:
    count = (1 << 31) - 1
    batch = with_header(OK, record_count=count, last_offset_delta=count - 1)
    assert code_of(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("bits", [0x20, 0x27])
def test_control_batches_from_clients_are_invalid(bits: int) -> None:
    assert code_of(with_header(OK, attributes=bits)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_ids_of_no_codec_are_invalid(codec_id: int) -> None:
    assert code_of(with_header(OK, attributes=codec_id)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("base_offset", [1, 1_000, -9])
def test_a_client_may_not_choose_offsets(base_offset: int) -> None:
    assert code_of(with_header(OK, base_offset=base_offset)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("sequence", [-1, -2])
def test_a_producer_id_without_sequence_is_invalid(sequence: int) -> None:
    batch = with_header(OK, producer_id=4, producer_epoch=0, base_sequence=sequence)
    assert code_of(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("producer_id", [-1, -2])
def test_without_producer_id_epoch_and_sequence_mean_nothing(producer_id: int) -> None:
    batch = with_header(OK, producer_id=producer_id, producer_epoch=3, base_sequence=-7)
    accepted(validate(batch, PLAIN, TERMS))


@pytest.mark.parametrize("fields", [{"partition_leader_epoch": 77}, {"attributes": -256}])
def test_fields_that_the_broker_sets_and_bits_without_meaning_are_accepted(
    fields: dict[str, int],
) -> None:
    accepted(validate(with_header(OK, **fields), PLAIN, TERMS))


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("version", [3, 6, 7])
def test_zstd_needs_version_seven_and_no_other_codec_does(
    codec: CompressionType, version: int
) -> None:
    verdict = validate(
        encode_batch(records(), codec=codec), PLAIN, TERMS._replace(api_version=version)
    )
    if codec is CompressionType.ZSTD and version < 7:
        assert rejected(verdict).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    else:
        accepted(verdict)


@pytest.mark.parametrize("attributes", [0x10, 0x30])
def test_a_transactional_batch_needs_a_transactional_id_in_its_request(attributes: int) -> None:
    batch = with_header(OK, attributes=attributes, producer_id=5, producer_epoch=0, base_sequence=0)
    assert code_of(batch) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transactional_batch_needs_a_producer() -> None:
    terms = TERMS._replace(has_transactional_id=True)
    batch = with_header(OK, attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0)
    accepted(validate(batch, PLAIN, terms))
    assert code_of(with_header(OK, attributes=0x10), terms=terms) is ErrorCode.INVALID_RECORD
    accepted(validate(OK, PLAIN, terms))


@pytest.mark.parametrize(
    ("batch", "topic", "reports"),
    [
        (b"", PLAIN, False),
        (with_header(OK, magic=1), PLAIN, False),
        (with_header(OK, crc=5), PLAIN, False),
        (OK, replace(PLAIN, max_message_bytes=10), False),
        (OK, replace(PLAIN, segment_bytes=10), False),
        (with_header(OK, record_count=9), PLAIN, True),
        (with_header(OK, base_offset=9), PLAIN, True),
        (encode_batch(records(1, timestamp=NOW + DAY)), PLAIN, True),
    ],
)
def test_the_log_start_is_told_where_kafka_has_looked_at_the_log(
    batch: bytes, topic: TopicRules, reports: bool
) -> None:
    assert rejected(validate(batch, topic, TERMS)).reports_log_start is reports
