"""The exceptions of a consumer, and how to resolve them.

ConsumerError
  IllegalStateError            the call does not fit what the consumer is doing
  ConsumerClosedError          the consumer was closed
  ConfigError                  settings that do not fit together (also a ValueError)
  BrokerUnreachableError       no broker answers at any known address
  AuthenticationError          the broker rejects the credentials
    UnsupportedMechanismError  the broker does not offer the SASL mechanism
    TokenError                 sasl_oauth_token_provider returned no token
    TlsError                   the TLS handshake failed
      CertificateError         one side rejects the other's certificate
  AuthorizationError           access to the group or topic is denied
  OperationTimedOutError       all attempts within the call's time failed (also a TimeoutError)
  UnknownTopicError            the topic does not exist, and brokers do not create it
  GroupError                   the group rejects this member
    FencedInstanceError        another process uses the same group_instance_id
    InconsistentProtocolError  the members of the group have no assignor in common
    GroupFullError             the group has reached group.max.size
  CommitError                  positions were not stored
    CommitFailedError          a retry cannot help: other members may own the partitions by now
    RebalanceInProgressError   the group is rebalancing: poll, then commit again
  PartitionError               one partition cannot be read further; the others can
    PositionError              there is no position to continue from
      NoOffsetError            no offset is committed, and auto_offset_reset is none
      OffsetOutOfRangeError    the position is outside the log, or the topic was recreated
          LogTruncatedError      records before the position were removed and replaced by others
    RecordError                fetched data cannot be returned as records
      CorruptRecordError       the checksum is wrong, or the data is invalid
      RecordTooLargeError      the batch exceeds the fetch limits
      DeserialisationError     the deserialiser of a key or value raised
  HandlerError                 a record could not be handled by Consumer.run
  UnexpectedResponseError      an error code that this request should never get

Each has the broker's ErrorCode, if there is one, as `code`. A PartitionError also has the partition
and offsets: `consumer.seek(error.partition, error.next_offset)` skips what cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.client.core.offsets import OffsetAndMetadata
    from kohort.client.core.records import ConsumerRecord, RawRecord


class ConsumerError(Exception):
    """Base class of all errors that a consumer raises by itself."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(message)
        self.code = code


class IllegalStateError(ConsumerError):
    """The call is not allowed in the present state of the consumer."""


class ConsumerClosedError(IllegalStateError):
    """The consumer was closed."""


class ConfigError(ConsumerError, ValueError):
    """Invalid or contradictory settings."""


class BrokerUnreachableError(ConsumerError):
    """No broker answers at any known address."""


class OperationTimedOutError(ConsumerError, TimeoutError):
    """No attempt succeeded within the timeout of the call."""


class AuthenticationError(ConsumerError):
    """The broker rejects the credentials."""


class UnsupportedMechanismError(AuthenticationError):
    """The broker does not offer the configured SASL mechanism."""


class TokenError(AuthenticationError):
    """The application's token provider has failed; the next attempt asks it again."""


class TlsError(AuthenticationError):
    """The TLS handshake failed."""


class CertificateError(TlsError):
    """One side rejects the other's certificate."""


class AuthorizationError(ConsumerError):
    """Access to the group or topic is denied."""


class UnknownTopicError(ConsumerError):
    """The topic does not exist."""


class GroupError(ConsumerError):
    """The group rejects this member."""


class FencedInstanceError(GroupError):
    """Another process uses the same group_instance_id."""


class InconsistentProtocolError(GroupError):
    """The members of the group have no assignor in common."""


class GroupFullError(GroupError):
    """The group has reached group.max.size."""


class CommitError(ConsumerError):
    """A commit failed."""


class CommitFailedError(CommitError):
    """The commit cannot succeed any more: the partitions may belong to another member by now."""


class RebalanceInProgressError(CommitError):
    """The group is rebalancing: poll, then commit again."""


class StaleEpochError(RebalanceInProgressError):
    """The member's epoch has changed (KIP-848). Awaited commits are repeated with the new epoch."""


class PartitionError(ConsumerError):
    """A partition cannot be read further; its position stays until the application seeks."""

    def __init__(
        self,
        message: str,
        partition: TopicPartition,
        offset: int | None = None,
        next_offset: int | None = None,
        *,
        code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        super().__init__(message, code)
        self.partition = partition
        self.offset = offset
        """The first offset that cannot be read; None if there is no position at all."""
        self.next_offset = next_offset
        """The offset to seek to in order to continue, skipping the offsets from `offset` on; None
        if it is unknown."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default exceptions are unpickled from their message alone, which would lose the fields.
        return _revived, (type(self), self.args, vars(self))


def _revived(
    kind: type[PartitionError], args: tuple[object, ...], attributes: dict[str, object]
) -> PartitionError:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class PositionError(PartitionError):
    """No position to continue from."""


class NoOffsetError(PositionError):
    """No committed offset, and auto_offset_reset is none."""


class OffsetOutOfRangeError(PositionError):
    """The position `offset` is outside the log, or the topic was recreated."""


class LogTruncatedError(OffsetOutOfRangeError):
    """Records that were read have been removed from the log; other records have their offsets now.

    `offset` is the position, `next_offset` the lower offset at which the old and new log diverge.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, parted: OffsetAndMetadata | None
    ) -> None:
        where = "" if parted is None else f" at offset {parted.offset}"
        super().__init__(
            f"{partition.topic}-{partition.partition}: a new leader's log was truncated{where},"
            f" but it was read up to offset {offset}; auto_offset_reset is none: if necessary undo"
            " the effects of the lost records, then seek",
            partition,
            offset,
            None if parted is None else parted.offset,
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.parted = parted
        """The point of truncation: records below this offset are still in the log; None if it is
        unknown."""


class RecordError(PartitionError):
    """Fetched data cannot be returned as records.

    `offset` is that of the first record that is not returned.
    """

    offset: int


class CorruptRecordError(RecordError):
    """A wrong checksum, or invalid data."""


class RecordTooLargeError(RecordError):
    """A batch larger than the fetch limits allow."""


class DeserialisationError(RecordError):
    """A deserialiser raised; its exception is the cause."""

    def __init__(self, message: str, record: RawRecord) -> None:
        super().__init__(
            message,
            TopicPartition(record.topic, record.partition),
            record.offset,
            record.offset + 1,
        )
        self.record = record
        """The record as read, with key and value as bytes, for a dead-letter topic (KIP-1036)."""


class HandlerError(ConsumerError):
    """All attempts at handling a record failed; the exception of the last one is the cause."""

    def __init__(
        self,
        message: str,
        partition: TopicPartition,
        offset: int,
        attempts: int,
        record: ConsumerRecord[bytes | None, bytes | None],
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.attempts = attempts
        self.record = record
        """The record as it was read: key and value are bytes."""


class UnexpectedResponseError(ConsumerError):
    """An error code that this request should never get."""


_ADVICE: Final[Mapping[ErrorCode, tuple[type[ConsumerError], str]]] = MappingProxyType(
    {
        ErrorCode.FENCED_INSTANCE_ID: (
            FencedInstanceError,
            (
                "another process has joined with the same group_instance_id; use a different id"
                " for each, or stop the other process"
            ),
        ),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
            InconsistentProtocolError,
            (
                "the members of the group have no assignor in common, or this is not a group of"
                " consumers; compare partition_assignment_strategy of all members"
            ),
        ),
        ErrorCode.INVALID_SESSION_TIMEOUT: (
            GroupError,
            (
                "session_timeout_ms is outside the broker's limits (group.min.session.timeout.ms"
                " to group.max.session.timeout.ms)"
            ),
        ),
        ErrorCode.SASL_AUTHENTICATION_FAILED: (
            AuthenticationError,
            "the broker no longer accepts this user's credentials",
        ),
        ErrorCode.INVALID_GROUP_ID: (GroupError, "the broker does not accept this group_id"),
        ErrorCode.GROUP_MAX_SIZE_REACHED: (
            GroupFullError,
            "the group has as many members as the broker's group.max.size allows",
        ),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: (
            AuthorizationError,
            "access to this group is denied; the principal needs READ on it",
        ),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
            AuthorizationError,
            "access to these topics is denied; the principal needs READ on them",
        ),
        ErrorCode.OFFSET_METADATA_TOO_LARGE: (
            CommitError,
            "the metadata of a commit is longer than the broker's offset.metadata.max.bytes",
        ),
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: (
            CommitError,
            "too many positions in one commit; commit fewer partitions at a time",
        ),
        ErrorCode.UNSUPPORTED_VERSION: (
            UnexpectedResponseError,
            (
                "the broker is too old for this request; with group_instance_id it must be 2.3 or"
                " later"
            ),
        ),
    }
)


def is_refusal(code: ErrorCode) -> bool:
    """Whether an operator must fix something (an ACL, a setting) before the same request can
    succeed. Any other error, unknown ones included, may be temporary.
    """
    return code in _ADVICE


def error_for(code: ErrorCode, doing: str) -> ConsumerError:
    """Return the exception for a broker's error code; `doing` describes the request."""
    kind, advice = _ADVICE.get(code, (UnexpectedResponseError, ""))
    text = f"{doing}: {code.name}"
    return kind(f"{text}: {advice}" if advice else text, code)
