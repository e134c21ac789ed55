"""The inputs and results of validating a produced batch."""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import BatchHeader


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
    """Parameters of a Produce request that apply to all its partitions, and the current time."""

    api_version: int
    acks: int
    has_transactional_id: bool
    wall_ms: int


class RecordError(NamedTuple):
    """An error in one record of a rejected batch; `batch_index` counts from 0."""

    batch_index: int
    message: str


class ValidBatch(NamedTuple):
    """A batch that may be appended, as it is to be stored except for offset and leader epoch."""

    header: BatchHeader
    """The header of `batch`, as it is to be stored."""
    batch: bytes | memoryview
    """Exactly one batch. These are the request's bytes, unless timestamps or the compressed block
    had to be changed."""
    log_append_time_ms: int = -1
    """The append time in the response; -1 unless the topic uses LogAppendTime."""


class RejectedBatch(NamedTuple):
    """A rejected batch; nothing of it is appended."""

    code: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()
    """Errors of records, for Produce v8 and later (KIP-467); only the first ones if there are very
    many."""
    reports_log_start: bool = True
    """Whether the response has the log start offset: Kafka returns -1 if it rejects a batch before
    it accesses the partition's log."""


Verdict: TypeAlias = ValidBatch | RejectedBatch


class RejectionError(Exception):
    """Raised by a failed check, with the verdict."""

    def __init__(self, verdict: RejectedBatch) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def reject(code: ErrorCode, message: str, *, reports_log_start: bool = True) -> NoReturn:
    """Reject a batch because of an error that concerns the whole batch."""
    raise RejectionError(RejectedBatch(code, message, reports_log_start=reports_log_start))
