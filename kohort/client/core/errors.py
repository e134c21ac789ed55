"""What a consumer raises, and what to do about it.

ConsumerError
  IllegalStateError            the call does not fit what the consumer is doing
  ConsumerClosedError          it was closed
  ConfigError                  settings that do not fit together (also a ValueError)
  BrokerUnreachableError       no broker answers at any known address
  AuthenticationError          the broker does not accept who we say we are
    UnsupportedMechanismError  it does not offer the chosen way to authenticate
    TlsError                   the two sides do not come to terms about TLS
      CertificateError         one does not accept the other's certificate
  AuthorizationError           it does, but not for this group or topic
  OperationTimedOutError       all attempts within the call's time failed (also a TimeoutError)
  UnknownTopicError            a topic that does not exist, and is not created by asking for it
  GroupError                   the group cannot go on with this member
    FencedInstanceError        another process uses the same group_instance_id
    InconsistentProtocolError  the members of the group have no assignor in common
    GroupFullError             group.max.size is reached
  CommitError                  positions were not stored
    CommitFailedError          and will not be: the partitions may belong to another member by now
    RebalanceInProgressError   because the group rebalances: poll, then try again
  PartitionError               one partition cannot be read on; the others can
    PositionError              there is no position to go on from
      NoOffsetError            nothing committed, and auto_offset_reset is none
      OffsetOutOfRangeError    the position is not in the log any more (or not yet)
        LogTruncatedError      records before the position are gone, and others took their offsets
    RecordError                what was fetched cannot be given out
      CorruptRecordError       its checksum is wrong, or it does not follow the format
      RecordTooLargeError      a batch that no fetch limit lets through
      DeserialisationError     the deserialiser for its key or value has raised
  HandlerError                 a record could not be handled by Consumer.run
  UnexpectedResponseError      an error that should not come in answer to this request

Each carries its `code`, the ErrorCode behind it, if a broker sent one. A PartitionError carries the
place as well: `consumer.seek(error.partition, error.next_offset)` passes over what cannot be read.
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
    """Whatever a consumer raises of its own accord."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(message)
        self.code = code


class IllegalStateError(ConsumerError):
    """The call does not fit what the consumer is doing."""


class ConsumerClosedError(IllegalStateError):
    """The consumer was closed."""


class ConfigError(ConsumerError, ValueError):
    """Settings that do not fit together."""


class BrokerUnreachableError(ConsumerError):
    """No broker answers at any known address."""


class OperationTimedOutError(ConsumerError, TimeoutError):
    """No attempt succeeded in the time that the call had."""


class AuthenticationError(ConsumerError):
    """The broker does not accept who we say we are."""


class UnsupportedMechanismError(AuthenticationError):
    """The broker does not offer the chosen way to authenticate."""


class TlsError(AuthenticationError):
    """The two sides do not come to terms about TLS."""


class CertificateError(TlsError):
    """One side does not accept the other's certificate."""


class AuthorizationError(ConsumerError):
    """Not allowed for this group or topic."""


class UnknownTopicError(ConsumerError):
    """The topic does not exist."""


class GroupError(ConsumerError):
    """The group cannot go on with this member."""


class FencedInstanceError(GroupError):
    """Another process uses the same group_instance_id."""


class InconsistentProtocolError(GroupError):
    """The members of the group have no assignor in common."""


class GroupFullError(GroupError):
    """group.max.size is reached."""


class CommitError(ConsumerError):
    """Positions were not stored."""


class CommitFailedError(CommitError):
    """They will not be: the partitions may belong to another member by now."""


class RebalanceInProgressError(CommitError):
    """The group rebalances: poll, then try again."""


class PartitionError(ConsumerError):
    """One partition cannot be read on; its position stays until the application seeks."""

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
        """The first one that cannot be read; None if there is no position at all."""
        self.next_offset = next_offset
        """Where to seek to go on; None if that is not known. What is passed over by that are the
        offsets from `offset` on.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is rebuilt from its text alone, which these cannot be.
        return _revived, (type(self), self.args, vars(self))


def _revived(
    kind: type[PartitionError], args: tuple[object, ...], attributes: dict[str, object]
) -> PartitionError:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class PositionError(PartitionError):
    """There is no position to go on from."""


class NoOffsetError(PositionError):
    """Nothing is committed, and auto_offset_reset is none."""


class OffsetOutOfRangeError(PositionError):
    """The position, which is `offset`, is not in the log any more, or not yet."""


class LogTruncatedError(OffsetOutOfRangeError):
    """Records that were read are not in the log any more, and others are at their offsets.

    `offset` is the position, and `next_offset` where the logs part, which is before it.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, parted: OffsetAndMetadata | None
    ) -> None:
        where = "" if parted is None else f" at offset {parted.offset}"
        super().__init__(
            f"{partition.topic}-{partition.partition}: a new leader's log was cut off{where}, and"
            f" it was read up to offset {offset}; auto_offset_reset is none: undo what was done"
            " with the records behind it if need be, then seek",
            partition,
            offset,
            None if parted is None else parted.offset,
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.parted = parted
        """Up to there the records are those that were read; None if that is not known."""


class RecordError(PartitionError):
    """What was fetched cannot be given out.

    `offset` is that of a record, or where reading came to a batch, of which records before it may
    have been given out.
    """

    offset: int


class CorruptRecordError(RecordError):
    """A wrong checksum, or bytes that do not follow the format."""


class RecordTooLargeError(RecordError):
    """A batch that no fetch limit lets through."""


class DeserialisationError(RecordError):
    """A deserialiser has raised; what it raised is the cause."""

    def __init__(self, message: str, record: RawRecord) -> None:
        super().__init__(
            message,
            TopicPartition(record.topic, record.partition),
            record.offset,
            record.offset + 1,
        )
        self.record = record
        """The record as written, for a dead letter topic: key and value are bytes (KIP-1036)."""


class HandlerError(ConsumerError):
    """A record could not be handled, in all its attempts; what the last one raised is the cause."""

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
    """An error that should not come in answer to this request."""


_ADVICE: Final[Mapping[ErrorCode, tuple[type[ConsumerError], str]]] = MappingProxyType(
    {
        ErrorCode.FENCED_INSTANCE_ID: (
            FencedInstanceError,
            (
                "another process has joined with the same group_instance_id; give each its own, or"
                " stop the other one"
            ),
        ),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
            InconsistentProtocolError,
            (
                "the members of the group have no assignor in common, or the group is not one of"
                " consumers; compare partition_assignment_strategy of all members"
            ),
        ),
        ErrorCode.INVALID_SESSION_TIMEOUT: (
            GroupError,
            (
                "session_timeout_ms is outside of what the broker allows"
                " (group.min.session.timeout.ms to group.max.session.timeout.ms)"
            ),
        ),
        ErrorCode.SASL_AUTHENTICATION_FAILED: (
            AuthenticationError,
            "the broker does not accept this user and password any more",
        ),
        ErrorCode.INVALID_GROUP_ID: (GroupError, "the broker does not accept this group_id"),
        ErrorCode.GROUP_MAX_SIZE_REACHED: (
            GroupFullError,
            "the group has as many members as the broker's group.max.size allows",
        ),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: (
            AuthorizationError,
            "not allowed to read in this group; the principal needs READ on it",
        ),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
            AuthorizationError,
            "not allowed to read these topics; the principal needs READ on them",
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
                "the broker is too old for what was asked; with group_instance_id it must be 2.3 or"
                " later"
            ),
        ),
    }
)


def is_refusal(code: ErrorCode) -> bool:
    """Whether something has to be mended before the same request can succeed: an ACL, a
    setting. Any other error, an unknown one included, may pass by itself.
    """
    return code in _ADVICE


def error_for(code: ErrorCode, doing: str) -> ConsumerError:
    """The exception for an error that a broker answered with; `doing` says to what."""
    kind, advice = _ADVICE.get(code, (UnexpectedResponseError, ""))
    text = f"{doing}: {code.name}"
    return kind(f"{text}: {advice}" if advice else text, code)
