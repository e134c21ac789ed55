"""Checks of a batch that need only the 61 bytes of its header, and its CRC.

Each check returns normally if the batch is valid, and raises RejectionError if not.
"""

from __future__ import annotations

from kohort.broker.core.partition.verdict import ProduceTerms, TopicRules, reject
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    LENGTH_MIN,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CompressionType,
    crc_matches,
    read_header,
)
from kohort.protocol.records.crc import crc32c
from kohort.protocol.records.varint import Buffer
from kohort.protocol.records.walk import RECORD_BYTES_MIN

ZSTD_SINCE_VERSION = 7
_MAGIC_POSITION = 16
_MESSAGE_LENGTH_MIN = 14
"""CRC, magic, attributes and the lengths of key and value, in the message format 0."""


def only_batch(records: Buffer | None) -> tuple[BatchHeader, memoryview]:
    """Return the single batch of a request. Independent of the partition."""
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
        # The length is wrong. Kafka notices this by the CRC, after the checks that come first.
        return header, view[: header.size_bytes]
    if excess:
        what = "are missing" if excess < 0 else "follow the one batch there may be"
        reject(ErrorCode.INVALID_RECORD, f"{abs(excess)} bytes {what}", reports_log_start=False)
    return header, view


def _check_beginning(view: memoryview) -> None:
    """Check magic and length, for which Kafka has specific answers."""
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
    """Check that the batch and its request are consistent."""
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
    """Check max.message.bytes."""
    if len(batch) > topic.max_message_bytes:
        reject(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {len(batch)} bytes where {topic.max_message_bytes} are allowed",
            reports_log_start=False,
        )


def check_header(header: BatchHeader) -> None:
    """Check that the fields of the header are consistent."""
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
