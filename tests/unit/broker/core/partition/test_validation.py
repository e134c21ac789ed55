from dataclasses import dataclass, replace

import pytest

from broker.core.partition.record_checks import RECORD_ERRORS_MAX
from broker.core.partition.validation import validate, validation_steps
from broker.core.partition.verdict import (
    ProduceTerms,
    RejectedBatch,
    TopicRules,
    ValidationDepth,
    ValidationPolicy,
    ValidBatch,
    Verdict,
)
from protocol.errors import ErrorCode
from protocol.records.batch import (
    Codec,
    TimestampType,
    crc_matches,
    read_header,
)
from protocol.records.builder import assemble, encode_batch
from protocol.records.record import Record, decode_records
from tests.batches import one_record, with_block, with_header

NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


@dataclass(frozen=True)
class Topic:
    """Kafka's defaults."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = 2_147_483_639
    segment_bytes: int = 1 << 30
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = (1 << 63) - 1
    message_timestamp_after_max_ms: int = HOUR


PLAIN = Topic()
COMPACTED = Topic(cleanup_policy=("compact",))
STAMPING = Topic(message_timestamp_type="LogAppendTime")
TERMS = ProduceTerms(api_version=9, acks=-1, has_transactional_id=False, wall_ms=NOW)
POLICIES = [ValidationPolicy(depth) for depth in ValidationDepth]
OPENING = [policy for policy in POLICIES if policy.depth is not ValidationDepth.HEADER]
FULL = ValidationPolicy(ValidationDepth.FULL)


def records(count: int = 3, key: bytes | None = b"key", timestamp: int = NOW) -> list[Record]:
    return [Record(b"value %d" % n, key, (), timestamp) for n in range(count)]


OK = encode_batch(records())


def rejected(verdict: Verdict) -> RejectedBatch:
    assert isinstance(verdict, RejectedBatch)
    return verdict


def accepted(verdict: Verdict) -> ValidBatch:
    assert isinstance(verdict, ValidBatch), verdict
    assert read_header(verdict.batch) == verdict.header
    assert crc_matches(verdict.batch, verdict.header)
    return verdict


def code_of(
    batch: bytes | None, topic: TopicRules = PLAIN, terms: ProduceTerms = TERMS
) -> ErrorCode:
    """The one code that all policies give."""
    codes = {rejected(validate(batch, topic, terms, policy)).code for policy in POLICIES}
    assert len(codes) == 1
    return codes.pop()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("codec", Codec)
def test_an_ordinary_batch_is_accepted_as_it_is_and_not_copied(
    policy: ValidationPolicy, codec: Codec
) -> None:
    request = bytearray(encode_batch(records(), codec=codec))
    verdict = accepted(validate(request, PLAIN, TERMS, policy))
    assert bytes(verdict.batch) == bytes(request)
    assert verdict.log_append_time_ms == -1
    request[-1] ^= 1
    assert verdict.batch[-1] == request[-1]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_other_than_minus_one_zero_and_one_are_refused(acks: int) -> None:
    assert code_of(OK, terms=replace(TERMS, acks=acks)) is ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_the_three_values_of_acks_are_accepted(acks: int) -> None:
    accepted(validate(OK, PLAIN, replace(TERMS, acks=acks)))


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


@pytest.mark.parametrize("policy", OPENING)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [2, 4])
def test_a_count_other_than_that_of_the_records_is_invalid(
    policy: ValidationPolicy, codec: Codec, count: int
) -> None:
    batch = with_header(
        encode_batch(records(3), codec=codec), record_count=count, last_offset_delta=count - 1
    )
    verdict = rejected(validate(batch, PLAIN, TERMS, policy))
    assert verdict.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("policy", OPENING)
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("payload", [b"", b"garbage garbage garbage", b"\xff" * 30])
def test_a_block_that_does_not_decompress_is_invalid(
    policy: ValidationPolicy, codec: Codec, payload: bytes
) -> None:
    batch = assemble(read_header(encode_batch(records(1), codec=codec)), payload)
    verdict = rejected(validate(batch, PLAIN, TERMS, policy))
    assert verdict.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("policy", OPENING)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("block", [b"\xff" * 40, one_record(Record(b"v")) + b"zz", b"\x01" * 7])
def test_records_that_do_not_parse_are_invalid(
    policy: ValidationPolicy, codec: Codec, block: bytes
) -> None:
    verdict = rejected(validate(with_block(block, 1, codec), PLAIN, TERMS, policy))
    assert verdict.code is ErrorCode.INVALID_RECORD


GOOD = one_record(Record(b"v", b"k"))
MINUS_ONE_HEADERS = GOOD[:-1] + b"\x01"
BADLY_FOLLOWED = one_record(Record(b"v", b"k"), 0, 1)[:-1] + b"\x01"


def codes_by_depth(block: bytes, record_count: int, codec: Codec) -> list[ErrorCode | None]:
    batch = with_block(block, record_count, codec)
    verdicts = [validate(batch, PLAIN, TERMS, policy) for policy in POLICIES]
    return [verdict.code if isinstance(verdict, RejectedBatch) else None for verdict in verdicts]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "first", [MINUS_ONE_HEADERS, one_record(Record(b"v"), 0, 1), one_record(Record(b"v"), 0, -1)]
)
def test_nonsense_inside_the_first_record_is_found_unless_only_the_header_is_looked_at(
    codec: Codec, first: bytes
) -> None:
    invalid = ErrorCode.INVALID_RECORD
    assert codes_by_depth(first, 1, codec) == [None, invalid, invalid]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "second", [BADLY_FOLLOWED, one_record(Record(b"v"), 0, 0), one_record(Record(b"v"), 0, 5)]
)
def test_only_a_full_look_finds_nonsense_inside_a_later_record_of_the_right_length(
    codec: Codec, second: bytes
) -> None:
    assert codes_by_depth(GOOD + second, 2, codec) == [None, None, ErrorCode.INVALID_RECORD]


def test_what_a_policy_does_not_open_is_not_judged() -> None:
    batch = assemble(read_header(encode_batch(records(1), codec=Codec.ZSTD)), b"garbage")
    accepted(validate(batch, PLAIN, TERMS, ValidationPolicy(ValidationDepth.HEADER)))


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


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("version", [3, 6, 7])
def test_zstd_needs_version_seven_and_no_other_codec_does(codec: Codec, version: int) -> None:
    verdict = validate(
        encode_batch(records(), codec=codec), PLAIN, replace(TERMS, api_version=version)
    )
    if codec is Codec.ZSTD and version < 7:
        assert rejected(verdict).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    else:
        accepted(verdict)


@pytest.mark.parametrize("attributes", [0x10, 0x30])
def test_a_transactional_batch_needs_a_transactional_id_in_its_request(attributes: int) -> None:
    batch = with_header(OK, attributes=attributes, producer_id=5, producer_epoch=0, base_sequence=0)
    assert code_of(batch) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transactional_batch_is_refused_where_no_transaction_can_be_open() -> None:
    batch = with_header(OK, attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0)
    terms = replace(TERMS, has_transactional_id=True)
    assert code_of(batch, terms=terms) is ErrorCode.INVALID_TXN_STATE
    accepted(validate(OK, PLAIN, terms))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("cleanup", [("compact",), ("compact", "delete")])
def test_a_compacted_topic_refuses_records_without_key_and_names_them(
    policy: ValidationPolicy, codec: Codec, cleanup: tuple[str, ...]
) -> None:
    batch = encode_batch([*records(2), *records(2, key=None), *records(1, key=b"")], codec=codec)
    topic = replace(PLAIN, cleanup_policy=cleanup)
    verdict = rejected(validate(batch, topic, TERMS, policy))
    assert verdict.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in verdict.record_errors] == [2, 3]
    assert {error.message for error in verdict.record_errors} == {
        "Compacted topic cannot accept message without key"
    }
    assert "2 record errors" in verdict.message
    accepted(validate(encode_batch(records(3, key=b""), codec=codec), topic, TERMS, policy))
    accepted(validate(batch, PLAIN, TERMS, policy))


def test_a_compacted_topic_refuses_what_does_not_parse_whatever_the_policy() -> None:
    batch = with_block(b"\x0e" + b"\x01" * 7, 1)
    assert code_of(batch, COMPACTED) is ErrorCode.INVALID_RECORD


def test_only_so_many_bad_records_of_a_batch_are_explained() -> None:
    batch = encode_batch(records(RECORD_ERRORS_MAX * 3, key=None))
    verdict = rejected(validate(batch, COMPACTED, TERMS))
    assert [error.batch_index for error in verdict.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert f"{RECORD_ERRORS_MAX * 3} record errors" in verdict.message


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("codec", Codec)
def test_timestamps_more_than_an_hour_ahead_are_refused_and_named(
    policy: ValidationPolicy, codec: Codec
) -> None:
    ahead = records(1, timestamp=NOW + HOUR + 1)
    verdict = rejected(
        validate(encode_batch(records(2) + ahead, codec=codec), PLAIN, TERMS, policy)
    )
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    (error,) = verdict.record_errors
    assert error.batch_index == 2
    assert str(NOW + HOUR + 1) in error.message
    accepted(validate(encode_batch(records(2, timestamp=NOW + HOUR), codec=codec), PLAIN, TERMS))


@pytest.mark.parametrize("timestamp", [-1, -5, 0, 5, NOW - 10_000 * DAY])
def test_timestamps_far_in_the_past_and_none_at_all_are_accepted(timestamp: int) -> None:
    for policy in POLICIES:
        accepted(validate(encode_batch(records(2, timestamp=timestamp)), PLAIN, TERMS, policy))


@pytest.mark.parametrize("policy", POLICIES)
def test_where_the_past_is_limited_only_records_without_timestamp_are_exempt(
    policy: ValidationPolicy,
) -> None:
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
    verdict = rejected(validate(batch, topic, TERMS, policy))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [1, 4]


def test_a_bad_timestamp_weighs_more_than_a_missing_key_of_another_record() -> None:
    both = records(1, key=None, timestamp=NOW + DAY)
    assert code_of(encode_batch(both), COMPACTED) is ErrorCode.INVALID_RECORD
    batch = encode_batch([*both, *records(1, timestamp=NOW + DAY)])
    verdict = rejected(validate(batch, COMPACTED, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [0, 1]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("claimed", [NOW + DAY, NOW - 1, 5, -1, -5])
def test_a_maximum_timestamp_that_cannot_be_right_is_corrected(
    policy: ValidationPolicy, claimed: int
) -> None:
    verdict = accepted(validate(with_header(OK, max_timestamp=claimed), PLAIN, TERMS, policy))
    assert verdict.header == read_header(OK)
    assert verdict.batch == OK


def test_a_full_look_corrects_every_wrong_maximum_timestamp() -> None:
    batch = with_header(OK, max_timestamp=NOW + 7)
    assert accepted(validate(batch, PLAIN, TERMS, FULL)).header.max_timestamp == NOW
    assert accepted(validate(batch, PLAIN, TERMS)).header.max_timestamp == NOW + 7


def test_the_maximum_of_negative_timestamps_is_none() -> None:
    verdict = accepted(validate(encode_batch(records(2, timestamp=-5)), PLAIN, TERMS, FULL))
    assert verdict.header.max_timestamp == -1


def test_timestamps_beyond_64_bits_are_refused_and_do_not_wrap() -> None:
    topic = replace(PLAIN, message_timestamp_after_max_ms=(1 << 63) - 1)
    block = one_record(Record(b"v", b"k"), timestamp_delta=(1 << 63) - 1)
    batch = with_block(block, 1, base_timestamp=NOW, max_timestamp=NOW)
    verdict = rejected(validate(batch, topic, TERMS, FULL))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("timestamp", [NOW + 1_000 * DAY, -5, NOW])
def test_a_topic_that_stamps_records_itself_ignores_what_they_say(
    policy: ValidationPolicy, codec: Codec, timestamp: int
) -> None:
    batch = encode_batch(records(3, timestamp=timestamp), codec=codec)
    verdict = accepted(validate(batch, STAMPING, TERMS, policy))
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


def test_log_append_time_claimed_for_the_future_is_refused() -> None:
    batch = with_header(OK, attributes=0x08, max_timestamp=NOW + DAY)
    verdict = rejected(validate(batch, PLAIN, TERMS))
    assert verdict.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in verdict.record_errors] == [0, 1, 2]
    assert "offset 2 is out of range" in verdict.record_errors[2].message


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_compressed_record_above_its_decompressed_limit_is_invalid(
    codec: Codec, policy: ValidationPolicy
) -> None:
    topic = replace(PLAIN, max_decompressed_message_bytes=1_000)
    # 8 bytes beside the value: what Kafka counts is the record without its length.
    largest, larger = ([Record(bytes(size), b"k", (), NOW)] for size in (992, 993))
    accepted(validate(encode_batch(largest * 3, codec=codec), topic, TERMS, policy))
    verdict = rejected(validate(encode_batch(larger, codec=codec), topic, TERMS, policy))
    assert verdict.code is ErrorCode.INVALID_RECORD
    accepted(validate(encode_batch(larger), topic, TERMS, policy))


@pytest.mark.parametrize("policy", OPENING)
def test_a_batch_that_inflates_beyond_the_limit_is_invalid(policy: ValidationPolicy) -> None:
    limited = replace(policy, inflated_bytes_limit=10_000)
    batch = encode_batch([Record(bytes(10_000))], codec=Codec.ZSTD)
    verdict = rejected(validate(batch, PLAIN, TERMS, limited))
    assert verdict.code is ErrorCode.INVALID_RECORD
    assert "more than 10000 bytes" in verdict.message
    accepted(
        validate(encode_batch([Record(bytes(9_000))], codec=Codec.ZSTD), PLAIN, TERMS, limited)
    )


@pytest.mark.parametrize(
    ("batch", "topic", "tells"),
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
    batch: bytes, topic: TopicRules, tells: bool
) -> None:
    assert rejected(validate(batch, topic, TERMS)).tells_log_start is tells


@pytest.mark.parametrize("policy", OPENING)
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_very_many_records_is_judged_in_steps(
    policy: ValidationPolicy, codec: Codec
) -> None:
    count = 100_000
    block = b"".join(one_record(Record(None), 0, n) for n in range(count))
    batch = with_block(block, count, codec, base_timestamp=NOW, max_timestamp=NOW)
    steps = validation_steps(batch, PLAIN, TERMS, policy)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            accepted(done.value)
            break
        pauses += 1
    assert pauses >= 6


@pytest.mark.parametrize("policy", POLICIES)
def test_an_ordinary_batch_is_judged_in_one_step(policy: ValidationPolicy) -> None:
    batch = encode_batch(records(1_000), codec=Codec.LZ4)
    with pytest.raises(StopIteration):
        next(validation_steps(batch, PLAIN, TERMS, policy))
