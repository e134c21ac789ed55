"""Encodes and decodes the records of consumer groups in __consumer_offsets, as Kafka does."""

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from kohort.groups.classic.stored_value import BEGUN_HEADER
from kohort.groups.consumer.records import (
    ClassicPart,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    CurrentRecord,
    CurrentTombstone,
    EpochRecord,
    EpochTombstone,
    OldMetadataTombstone,
    RegexRecord,
    RegexTombstone,
    TargetEpochRecord,
    TargetEpochTombstone,
    TargetRecord,
    TargetTombstone,
)
from kohort.groups.kinds import GroupKind
from kohort.groups.records import DurableRecord, RecordCodec, RecordHeaders
from kohort.groups.steps import LARGE
from kohort.protocol.codec import decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.consumer_groups_log import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

_VALUE_VERSION: Final = 0

EPOCH: Final = 3
OLD_METADATA: Final = 4
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
REGEX: Final = 16

_OF_MEMBERS: Final = frozenset({MEMBER, TARGET, CURRENT})
"""Records whose key consists of the ids of the group and of a member."""

KEYS_KEPT_MAX: Final = 300
"""Maximum number of cached key prefixes: one for each group and type of record."""

ID_KEPT_MAX: Final = 255
"""Longest group id that is cached; ids may be a hundred times as long."""

_KEY_VERSIONS: Final[Mapping[type[Any], int]] = {
    EpochRecord: EPOCH,
    EpochTombstone: EPOCH,
    OldMetadataTombstone: OLD_METADATA,
    ConsumerMemberRecord: MEMBER,
    ConsumerMemberTombstone: MEMBER,
    TargetEpochRecord: TARGET_EPOCH,
    TargetEpochTombstone: TARGET_EPOCH,
    TargetRecord: TARGET,
    TargetTombstone: TARGET,
    CurrentRecord: CURRENT,
    CurrentTombstone: CURRENT,
    RegexRecord: REGEX,
    RegexTombstone: REGEX,
}


def _encode_key(record: Any) -> bytes:  # noqa: ANN401 - any of the records.
    version = _KEY_VERSIONS[record.__class__]
    if version in _OF_MEMBERS and len(record.group_id) <= ID_KEPT_MAX:
        # Faster, for nearly every record: the codec produces the same bytes in five times the time.
        # Tests compare them.
        try:
            member_id: bytes = record.member_id.encode()
            return _key_start(version, record.group_id) + _LENGTH(len(member_id)) + member_id
        except (UnicodeEncodeError, struct.error):
            pass  # The codec raises the error.
    return encode_key_by_codec(record)


_LENGTH: Final = struct.Struct(">h").pack


@lru_cache(maxsize=KEYS_KEPT_MAX)
def _key_start(version: int, group_id: str) -> bytes:
    name = group_id.encode()
    return version.to_bytes(2, "big") + _LENGTH(len(name)) + name


def encode_key_by_codec(record: Any) -> bytes:  # noqa: ANN401 - any of the records.
    """Encode the key of any record with its codec."""
    version = _KEY_VERSIONS[record.__class__]
    if version == REGEX:
        key: object = ConsumerGroupRegularExpressionKey(
            group_id=record.group_id, regular_expression=record.regex
        )
    elif version == MEMBER:
        key = ConsumerGroupMemberMetadataKey(group_id=record.group_id, member_id=record.member_id)
    elif version in {TARGET, CURRENT}:
        key = ConsumerGroupAssignmentKey(group_id=record.group_id, member_id=record.member_id)
    elif version == TARGET_EPOCH:
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=record.group_id)
    else:
        key = ConsumerGroupMetadataKey(group_id=record.group_id)
    return encode_versioned(key, version)


def _is_large(record: DurableRecord) -> bool:
    """Whether encoding the record takes several milliseconds."""
    match record:
        case CurrentRecord():
            return len(record.assigned) + len(record.pending) > LARGE
        case TargetRecord():
            return len(record.partitions) > LARGE
        case ConsumerMemberRecord():
            return len(record.topic_names) > LARGE
        case RegexRecord():
            return len(record.topics) > LARGE
    return False


def _encode_value(record: DurableRecord) -> bytes | None:
    value: object
    match record:
        case ConsumerMemberRecord():
            value = _member_value(record)
        case CurrentRecord():
            value = ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=record.epoch,
                previous_member_epoch=record.previous_epoch,
                state=record.state,
                assigned_partitions=_current(record.assigned),
                partitions_pending_revocation=_current(record.pending),
            )
        case TargetRecord():
            value = ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    TopicPartition(topic_id=topic_id, partitions=list(numbers))
                    for topic_id, numbers in record.partitions.items()
                ]
            )
        case EpochRecord():
            value = ConsumerGroupMetadataValue(
                epoch=record.epoch, metadata_hash=record.metadata_hash
            )
        case TargetEpochRecord():
            value = ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=record.epoch, assignment_timestamp=record.computed_at_ms
            )
        case RegexRecord():
            value = ConsumerGroupRegularExpressionValue(
                topics=list(record.topics),
                version=record.topics_version,
                timestamp=record.resolved_at_ms,
            )
        case _:
            return None
    return encode_versioned(value, _VALUE_VERSION)


def _member_value(record: ConsumerMemberRecord) -> ConsumerGroupMemberMetadataValue:
    metadata: ClassicMemberMetadata | None = None
    if record.classic is not None:
        metadata = ClassicMemberMetadata(
            session_timeout_ms=record.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=data) for name, data in record.classic.protocols
            ],
        )
    return ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=list(record.topic_names),
        subscribed_topic_regex=record.topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        classic_member_metadata=metadata,
    )


def _current(owned: Mapping[bytes, Mapping[int, int]]) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in owned.items()
    ]


def _decode(key: bytes, value: bytes | None, headers: RecordHeaders) -> DurableRecord:
    """Decode a record. Raises DecodeError, also for a value of a later version."""
    version = int.from_bytes(key[:2], "big")
    if version == REGEX:
        parsed, _ = decode_versioned(ConsumerGroupRegularExpressionKey, key)
        return _decode_regex(parsed.group_id, parsed.regular_expression, value)
    if version == MEMBER:
        stated, _ = decode_versioned(ConsumerGroupMemberMetadataKey, key)
        return _decode_of_member(version, stated.group_id, stated.member_id, value)
    if version in {TARGET, CURRENT}:
        assigned, _ = decode_versioned(ConsumerGroupAssignmentKey, key)
        return _decode_of_member(version, assigned.group_id, assigned.member_id, value)
    if version == TARGET_EPOCH:
        target, _ = decode_versioned(ConsumerGroupTargetAssignmentMetadataKey, key)
        return _decode_of_group(version, target.group_id, value, headers)
    of_group, _ = decode_versioned(ConsumerGroupMetadataKey, key)
    return _decode_of_group(version, of_group.group_id, value, headers)


def _decode_regex(group_id: str, regex: str, value: bytes | None) -> DurableRecord:
    if value is None:
        return RegexTombstone(group_id, regex)
    parsed, _ = decode_versioned(ConsumerGroupRegularExpressionValue, value)
    return RegexRecord(group_id, regex, tuple(parsed.topics), parsed.version, parsed.timestamp)


def _encode_headers(record: DurableRecord) -> RecordHeaders:
    if isinstance(record, EpochRecord | TargetEpochRecord) and record.begun is not None:
        return ((BEGUN_HEADER, record.begun),)
    return ()


def _decode_of_group(
    version: int, group_id: str, value: bytes | None, headers: RecordHeaders
) -> DurableRecord:
    begun = dict(headers).get(BEGUN_HEADER)
    if version == EPOCH:
        if value is None:
            return EpochTombstone(group_id)
        epoch, _ = decode_versioned(ConsumerGroupMetadataValue, value)
        return EpochRecord(group_id, epoch.epoch, epoch.metadata_hash, begun)
    if version == TARGET_EPOCH:
        if value is None:
            return TargetEpochTombstone(group_id)
        target, _ = decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, value)
        return TargetEpochRecord(
            group_id, target.assignment_epoch, target.assignment_timestamp, begun
        )
    return OldMetadataTombstone(group_id)  # Its content is not needed.


def _decode_of_member(
    version: int, group_id: str, member_id: str, value: bytes | None
) -> DurableRecord:
    if version == MEMBER:
        if value is None:
            return ConsumerMemberTombstone(group_id, member_id)
        return _decode_member(group_id, member_id, value)
    if version == TARGET:
        if value is None:
            return TargetTombstone(group_id, member_id)
        target, _ = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)
        partitions = {
            listed.topic_id: tuple(listed.partitions) for listed in target.topic_partitions
        }
        return TargetRecord(group_id, member_id, partitions)
    if value is None:
        return CurrentTombstone(group_id, member_id)
    current, _ = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)
    epoch = current.member_epoch
    return CurrentRecord(
        group_id,
        member_id,
        epoch,
        current.previous_member_epoch,
        current.state,
        _epochs(current.assigned_partitions, epoch),
        _epochs(current.partitions_pending_revocation, epoch),
    )


def _epochs(
    listed: Iterable[TopicPartitions], member_epoch: int
) -> Mapping[bytes, Mapping[int, int]]:
    result: dict[bytes, Mapping[int, int]] = {}
    for topic in listed:
        epochs = topic.assignment_epochs
        if not epochs:
            epochs = [member_epoch] * len(topic.partitions)
        elif len(epochs) != len(topic.partitions):
            raise DecodeError(f"{len(epochs)} epochs for {len(topic.partitions)} partitions")
        result[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return result


def _decode_member(group_id: str, member_id: str, value: bytes) -> ConsumerMemberRecord:
    parsed, _ = decode_versioned(ConsumerGroupMemberMetadataValue, value)
    classic = _classic_part(parsed.classic_member_metadata)
    return ConsumerMemberRecord(
        group_id,
        member_id,
        parsed.instance_id,
        parsed.rack_id,
        parsed.client_id,
        parsed.client_host,
        tuple(parsed.subscribed_topic_names),
        parsed.subscribed_topic_regex,
        parsed.rebalance_timeout_ms,
        parsed.server_assignor,
        classic,
    )


def _classic_part(metadata: ClassicMemberMetadata | None) -> ClassicPart | None:
    # Without the tag, the value is the default, which has no protocols. Classic members have some.
    if metadata is None or metadata == ClassicMemberMetadata():
        return None
    offers = [(offer.name, offer.metadata) for offer in metadata.supported_protocols]
    return ClassicPart(metadata.session_timeout_ms, tuple(offers))


CONSUMER_CODEC: Final = RecordCodec(
    record_types=(
        ConsumerMemberRecord,
        EpochRecord,
        TargetEpochRecord,
        TargetRecord,
        CurrentRecord,
        RegexRecord,
    ),
    tombstone_types=(
        ConsumerMemberTombstone,
        EpochTombstone,
        TargetEpochTombstone,
        TargetTombstone,
        CurrentTombstone,
        RegexTombstone,
        OldMetadataTombstone,
    ),
    key_versions=(EPOCH, OLD_METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX),
    encode_key=_encode_key,
    encode_value=_encode_value,
    decode=_decode,
    encode_headers=_encode_headers,
    kind=GroupKind.CONSUMER,
    is_large=_is_large,
)
