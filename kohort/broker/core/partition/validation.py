"""Validates the batch that a Produce request has for a partition.

Pure: computes a verdict from a buffer, topic configs and the time. Each partition of a request has
its own verdict.
The order of the checks is Kafka's, because it determines which of two errors is reported. If Kafka
answers UNKNOWN_SERVER_ERROR or not at all (records that cannot be decompressed, null records,
unknown codecs) Kohort answers INVALID_RECORD. Bytes after the single batch, which Kafka drops
although it acknowledges the batch, are rejected: an acknowledgement must not cover data that is not
stored.

Header fields that can be derived are not trusted: every record of every batch is parsed, as in
Kafka, and the maximum timestamp in the header, on which retention and searches by time rely, is
replaced with that of the records. The checks of the header and the CRC return normally if the batch
is valid, and raise RejectionError if not.
"""

from kohort.broker.core.partition.record_checks import (
    ANY_TIMESTAMP,
    RECORD_ERRORS_MAX,
    RecordRules,
    TimestampRange,
    check_steps,
    timestamp_range,
)
from kohort.broker.core.partition.verdict import (
    ProduceTerms,
    RecordError,
    RejectedBatch,
    RejectionError,
    TopicRules,
    ValidBatch,
    Verdict,
    reject,
)
from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import DecodeError, ErrorCode, InflatedTooLargeError
from kohort.protocol.limits import INFLATED_BYTES_LIMIT
from kohort.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_MIN,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CompressionType,
    TimestampType,
    crc_matches,
    read_header,
    restamped,
    seal,
)
from kohort.protocol.records.compression import compress_steps, open_steps
from kohort.protocol.records.crc import crc32c
from kohort.protocol.records.varint import Buffer
from kohort.protocol.records.walk import RECORD_BYTES_MIN

ZSTD_SINCE_VERSION = 7
_MAGIC_POSITION = 16
_MESSAGE_LENGTH_MIN = 14
"""Bytes of CRC, magic, attributes and the lengths of key and value in message format 0."""


def only_batch(records: Buffer | None) -> tuple[BatchHeader, memoryview]:
    """Return header and bytes of the single batch in a partition's records, or reject them."""
    if not records:
        reject(ErrorCode.INVALID_RECORD, "no batch", reports_log_start=False)
    view = memoryview(records)
    _check_beginning(view)
    try:
        header = read_header(view)
    except DecodeError as error:
        reject(ErrorCode.INVALID_RECORD, str(error), reports_log_start=False)
    excess = len(view) - header.size_bytes
    if excess > 0 and not crc_matches(view, header):
        # The length field is wrong. The caller's CRC check reports this, as in Kafka, so that the
        # checks before it take precedence.
        return header, view[: header.size_bytes]
    if excess:
        what = "are missing" if excess < 0 else "follow the one batch there may be"
        reject(ErrorCode.INVALID_RECORD, f"{abs(excess)} bytes {what}", reports_log_start=False)
    return header, view


def _check_beginning(view: memoryview) -> None:
    """Check the magic and the length, for which Kafka returns specific errors."""
    if len(view) <= _MAGIC_POSITION:
        reject(ErrorCode.INVALID_RECORD, "batch is cut short", reports_log_start=False)
    length = int.from_bytes(view[8:LENGTH_OVERHEAD_BYTES], "big", signed=True)
    (magic,) = view[_MAGIC_POSITION : _MAGIC_POSITION + 1].cast("b")
    if 0 <= magic < MAGIC and length >= _MESSAGE_LENGTH_MIN:
        # Message sets from before 2017; clients that write them can be configured to write newer
        # ones.
        message = f"message format {magic} is not supported, only {MAGIC}"
        reject(ErrorCode.INVALID_RECORD, message, reports_log_start=False)
    if length < LENGTH_MIN:
        message = f"batch length {length} is less than that of a header"
        reject(ErrorCode.CORRUPT_MESSAGE, message, reports_log_start=False)
    if magic != MAGIC:
        message = f"invalid magic {magic}"
        reject(ErrorCode.CORRUPT_MESSAGE, message, reports_log_start=False)


def check_terms(header: BatchHeader, terms: ProduceTerms) -> None:
    if header.attributes & TRANSACTIONAL_BIT and not terms.has_transactional_id:
        reject(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional batch in a request without transactional id",
            reports_log_start=False,
        )
    codec_id = header.attributes & CODEC_MASK
    if codec_id == CompressionType.ZSTD and terms.api_version < ZSTD_SINCE_VERSION:
        reject(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{ZSTD_SINCE_VERSION} or later",
            reports_log_start=False,
        )
    if terms.acks not in {-1, 0, 1}:
        message = f"acks {terms.acks} is none of -1, 0, 1"
        reject(ErrorCode.INVALID_REQUIRED_ACKS, message, reports_log_start=False)


def check_envelope(header: BatchHeader, batch: memoryview, topic: TopicRules) -> None:
    """Check the base offset, the length and the CRC."""
    if header.base_offset != 0:
        reject(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset} instead of 0")
    check_size(batch, topic)
    if crc32c(batch[CRC_START:]) != header.crc:
        message = "CRC does not match"
        reject(ErrorCode.CORRUPT_MESSAGE, message, reports_log_start=False)


def check_size(batch: memoryview, topic: TopicRules) -> None:
    if len(batch) > topic.max_message_bytes:
        reject(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {len(batch)} bytes where {topic.max_message_bytes} are allowed",
            reports_log_start=False,
        )


def check_header(header: BatchHeader) -> None:
    attributes = header.attributes
    count = header.record_count
    if count <= 0:
        reject(ErrorCode.INVALID_RECORD, f"record count {count}")
    if header.last_offset_delta != count - 1:
        message = f"last offset delta {header.last_offset_delta} with {count} records"
        reject(ErrorCode.INVALID_RECORD, message)
    codec_id = attributes & CODEC_MASK
    if codec_id > CompressionType.ZSTD:
        reject(ErrorCode.INVALID_RECORD, f"unknown compression codec {codec_id}")
    payload_bytes = header.length - LENGTH_MIN
    if codec_id == CompressionType.NONE and count > payload_bytes // RECORD_BYTES_MIN:
        reject(ErrorCode.INVALID_RECORD, f"{count} records in {payload_bytes} bytes")
    if attributes & CONTROL_BIT:
        reject(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        message = f"producer id {header.producer_id} with sequence {header.base_sequence}"
        reject(ErrorCode.INVALID_RECORD, message)
    if attributes & TRANSACTIONAL_BIT and header.producer_id <= NO_PRODUCER_ID:
        reject(ErrorCode.INVALID_RECORD, "transactional batch without a producer id")


_INT32_MAX = (1 << 31) - 1
_LOG_APPEND_TIME = "LogAppendTime"
_COMPACT = "compact"
_REJECTED_RECORDS = "One or more records have been rejected"


def validate(
    records: Buffer | None,
    topic: TopicRules,
    terms: ProduceTerms,
    inflated_bytes_limit: int = INFLATED_BYTES_LIMIT,
) -> Verdict:
    """Like `validation_steps`, but without pauses, however long it takes."""
    return at_once(validation_steps(records, topic, terms, inflated_bytes_limit))


def validation_steps(
    records: Buffer | None,
    topic: TopicRules,
    terms: ProduceTerms,
    inflated_bytes_limit: int = INFLATED_BYTES_LIMIT,
) -> Steps[Verdict]:
    """Validate a partition's part of a request; the verdict is the generator's return value.

    It yields after every few milliseconds of work; an ordinary batch takes less. An unfinished
    generator may hold `inflated_bytes_limit` bytes, and briefly twice as many, so a broker should
    finish a generator that has yielded before it continues the next one.
    """
    try:
        header, batch = only_batch(records)
        check_terms(header, terms)
        check_envelope(header, batch, topic)
        check_header(header)
        verdict = yield from _check_records(header, batch, topic, terms, inflated_bytes_limit)
        if len(verdict.batch) > topic.segment_bytes:
            reject(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"batch of {len(verdict.batch)} bytes where a segment has {topic.segment_bytes}",
                reports_log_start=False,
            )
    except RejectionError as rejection:
        return rejection.verdict
    except InflatedTooLargeError as error:
        # Kafka does not limit the decompressed size. This error is one that clients know, and on
        # which Java's producer splits the batch.
        return RejectedBatch(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except DecodeError as error:
        return RejectedBatch(ErrorCode.INVALID_RECORD, str(error))
    return verdict


def _check_records(
    header: BatchHeader,
    batch: memoryview,
    topic: TopicRules,
    terms: ProduceTerms,
    inflated_bytes_limit: int,
) -> Steps[ValidBatch]:
    """Check the records, and correct the header and the compressed block where necessary."""
    stamps_itself = topic.message_timestamp_type == _LOG_APPEND_TIME
    allowed = timestamp_range(
        terms.wall_ms, topic.message_timestamp_before_max_ms, topic.message_timestamp_after_max_ms
    )
    claims_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    is_compressed = bool(header.attributes & CODEC_MASK)
    has_own_timestamps = not stamps_itself and not claims_append_time
    rules = RecordRules(
        timestamps=allowed if has_own_timestamps else ANY_TIMESTAMP,
        needs_key=_COMPACT in topic.cleanup_policy,
        body_bytes_max=topic.max_decompressed_message_bytes if is_compressed else _INT32_MAX,
    )
    payload = batch[HEADER_BYTES:]
    block, is_one_stream = yield from open_steps(header.codec, payload, inflated_bytes_limit)
    yield from check_steps(block, header, rules)
    # Checked after the records, because Kafka reports an undecodable record first.
    if claims_append_time:
        _check_claimed_append_time(header, allowed, stamps_itself=stamps_itself)
    _check_findings(rules)
    if not is_one_stream:
        # Recompress a block of several compressed streams: only Java's consumers can read it. Kafka
        # would store it.
        compressed = yield from compress_steps(header.codec, block)
        sealed, header = seal(header._replace(length=LENGTH_MIN + len(compressed)), compressed)
        batch = memoryview(sealed)
        # Check again: recompressing with other parameters can make a block fifty times larger.
        check_size(batch, topic)
    max_timestamp = rules.max_timestamp
    if not has_own_timestamps:
        max_timestamp = max(header.max_timestamp, NO_TIMESTAMP)
    return _stamped(header, batch, max_timestamp, terms.wall_ms if stamps_itself else None)


def _check_claimed_append_time(
    header: BatchHeader, allowed: TimestampRange, *, stamps_itself: bool
) -> None:
    """Check a batch in which the client set LogAppendTime: all records have the header's time."""
    if stamps_itself or header.max_timestamp == NO_TIMESTAMP:
        error = RecordError(0, "Producer should not set timestamp type to LogAppendTime.")
    elif header.max_timestamp not in allowed:
        error = allowed.objection(header.max_timestamp, 0)
    else:
        return
    errors = tuple(
        RecordError(index, error.message.replace("offset 0", f"offset {index}"))
        for index in range(min(header.record_count, RECORD_ERRORS_MAX))
    )
    message = f"{_REJECTED_RECORDS} due to invalid timestamp"
    raise RejectionError(RejectedBatch(ErrorCode.INVALID_TIMESTAMP, message, errors))


def _check_findings(rules: RecordRules) -> None:
    if rules.bad_timestamps:
        code, why = ErrorCode.INVALID_TIMESTAMP, "due to invalid timestamp"
    elif rules.bad_keys:
        code, why = ErrorCode.INVALID_RECORD, f"due to {rules.bad_keys} record errors in total"
    else:
        return
    errors = tuple(rules.errors)
    raise RejectionError(RejectedBatch(code, f"{_REJECTED_RECORDS} {why}", errors))


def _stamped(
    header: BatchHeader, batch: memoryview, max_timestamp: int, append_time_ms: int | None
) -> ValidBatch:
    """Return the batch to store: a copy only if fields that its CRC covers have to change."""
    if append_time_ms is not None:
        kind, max_timestamp = TimestampType.LOG_APPEND_TIME, append_time_ms
    elif header.attributes & LOG_APPEND_TIME_BIT or max_timestamp != header.max_timestamp:
        kind = TimestampType.CREATE_TIME
    else:
        return ValidBatch(header, batch)
    stored, changed = restamped(batch, header, kind, max_timestamp)
    return ValidBatch(changed, stored, -1 if append_time_ms is None else append_time_ms)
