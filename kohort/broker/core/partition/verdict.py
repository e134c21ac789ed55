"""The inputs and results of validating a produced batch."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import BatchHeader
from kohort.protocol.records.compression import INFLATED_BYTES_LIMIT


class TopicRules(Protocol):
    """The topic configs that validation uses, under Kafka's names and in its units."""

    @property
    def cleanup_policy(self) -> Sequence[str]: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def max_decompressed_message_bytes(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...


class ProduceTerms(NamedTuple):
    """The parameters of a Produce request for all its partitions, and the time."""

    api_version: int
    acks: int
    has_transactional_id: bool
    wall_ms: int


class ValidationDepth(StrEnum):
    """How far behind the header of a batch validation looks.

    Kafka parses every record of every batch. In Python that costs more than all other work on a
    batch together, and a record that does not parse harms only the readers of the topic its
    producer writes to. So there is a choice (setting kohort.validate.records). What it costs, as
    measured with CPython 3.11 on a shared 2-core machine: microseconds per record, and milliseconds
    per MB of records of 100 B and of 1 kB.

    ======== ============ ======= ======= ===================================================
    header   0            0       0       CRC, count against last offset delta and size
    framing  0.15 - 0.35  1.5 - 3 0.3     first record, and the lengths of all fill the block
    full     1.5 - 3.5    14 - 30 1.7 - 3 every field of every record is what it should be
    ======== ============ ======= ======= ===================================================

    Compressed batches are opened for the last two, which adds 0.4 (lz4, snappy), 1 (zstd) or 4 ms
    (gzip) per inflated MB. `framing` is the default: for a tenth of the price it finds what broken
    producers really send (wrong counts, cut or foreign payloads, blocks that do not decompress,
    bombs). What it misses is a later record of the right length with nonsense inside. Prior art:
    Redpanda's kafka_produce_batch_validation.

    Whatever is chosen, every record is parsed where Kafka's rules need it: in compacted topics
    (keys), where timestamps have a lower limit, and where the header's timestamps look wrong.
    """

    HEADER = "header"
    FRAMING = "framing"
    FULL = "full"


class ValidationPolicy(NamedTuple):
    """The broker's own settings for validation."""

    depth: ValidationDepth = ValidationDepth.FRAMING
    inflated_bytes_limit: int = INFLATED_BYTES_LIMIT
    """A batch that decompresses to more is refused, if it is opened at all."""


class RecordError(NamedTuple):
    """An error in one record of a refused batch; `batch_index` counts from 0."""

    batch_index: int
    message: str


class ValidBatch(NamedTuple):
    """A batch that may be appended, as it is to be stored except for offset and leader epoch."""

    header: BatchHeader
    """Consistent with `batch`."""
    batch: bytes | memoryview
    """Exactly one batch. The request's own bytes unless a timestamp had to be changed."""
    log_append_time_ms: int = -1
    """The append time in the response; -1 unless the topic uses LogAppendTime."""


class RejectedBatch(NamedTuple):
    """A refused batch; nothing of it is appended."""

    code: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()
    """Errors of records, for Produce v8 and later (KIP-467); only the first if there are very
    many."""
    reports_log_start: bool = True
    """Whether the response has the log start offset: Kafka has -1 where it refuses a batch before
    it accesses the partition's log."""


Verdict: TypeAlias = ValidBatch | RejectedBatch


class RejectionError(Exception):
    """Passes a refusal from the checks to where it becomes the verdict."""

    def __init__(self, verdict: RejectedBatch) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def reject(code: ErrorCode, message: str, *, reports_log_start: bool = True) -> NoReturn:
    """Refuse a batch for an error that is not in a single record."""
    raise RejectionError(RejectedBatch(code, message, reports_log_start=reports_log_start))
