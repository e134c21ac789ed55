"""Topic rules and request terms for tests of validation."""

from dataclasses import dataclass

from kohort.broker.core.partition.validation import validate
from kohort.broker.core.partition.verdict import (
    ProduceTerms,
    RejectedBatch,
    TopicRules,
    ValidBatch,
    Verdict,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import crc_matches, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record

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
    return rejected(validate(batch, topic, terms)).code
