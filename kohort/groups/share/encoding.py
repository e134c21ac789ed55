"""Encodes and decodes share groups' records in __consumer_offsets, in Kafka's format."""

from collections.abc import Mapping
from typing import Any, Final

from kohort.groups.kinds import GroupKind
from kohort.groups.records import DurableRecord, RecordCodec, RecordHeaders
from kohort.groups.share.records import (
    CURRENT,
    EPOCH,
    MEMBER,
    PARTITIONS,
    TARGET,
    TARGET_EPOCH,
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    SharePartitionsRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    ShareTombstone,
    StoredTopic,
)
from kohort.groups.steps import LARGE
from kohort.protocol.codec import decode_versioned, encode_versioned
from kohort.protocol.messages.share_groups_log import (
    ShareGroupAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)

_VALUE_VERSION: Final = 0

_STABLE: Final = 0
"""The only state of a member."""

_TYPES: Final[Mapping[type[Any], int]] = {
    ShareMemberRecord: MEMBER,
    ShareEpochRecord: EPOCH,
    ShareTargetEpochRecord: TARGET_EPOCH,
    ShareTargetRecord: TARGET,
    ShareCurrentRecord: CURRENT,
    SharePartitionsRecord: PARTITIONS,
}


def _encode_key(record: Any) -> bytes:  # noqa: ANN401 - any of the records.
    is_tombstone = isinstance(record, ShareTombstone)
    record_type = record.record_type if is_tombstone else _TYPES[record.__class__]
    key: object
    if record_type == MEMBER:
        key = ShareGroupMemberMetadataKey(group_id=record.group_id, member_id=record.member_id)
    elif record_type in {TARGET, CURRENT}:
        key = ShareGroupAssignmentKey(group_id=record.group_id, member_id=record.member_id)
    elif record_type == PARTITIONS:
        key = ShareGroupStatePartitionMetadataKey(group_id=record.group_id)
    else:
        key = ShareGroupMetadataKey(group_id=record.group_id)
    return encode_versioned(key, record_type)


def _is_large(record: DurableRecord) -> bool:
    """Whether encoding the record takes several milliseconds."""
    match record:
        case ShareMemberRecord():
            return len(record.topic_names) > LARGE
        case ShareCurrentRecord() | ShareTargetRecord():
            return len(record.partitions) > LARGE
        case SharePartitionsRecord():
            return len(record.initialized) > LARGE
    return False


def _encode_value(record: DurableRecord) -> bytes | None:
    value: object
    match record:
        case ShareMemberRecord():
            value = ShareGroupMemberMetadataValue(
                rack_id=record.rack_id,
                client_id=record.client_id,
                client_host=record.client_host,
                subscribed_topic_names=list(record.topic_names),
            )
        case ShareCurrentRecord():
            value = ShareGroupCurrentMemberAssignmentValue(
                member_epoch=record.epoch,
                previous_member_epoch=record.previous_epoch,
                state=_STABLE,
                assigned_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                    for topic_id, numbers in record.partitions.items()
                ],
            )
        case ShareTargetRecord():
            value = ShareGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    TopicPartition(topic_id=topic_id, partitions=list(numbers))
                    for topic_id, numbers in record.partitions.items()
                ]
            )
        case ShareEpochRecord():
            value = ShareGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
        case ShareTargetEpochRecord():
            value = ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=record.epoch, assignment_timestamp=record.computed_at_ms
            )
        case SharePartitionsRecord():
            value = ShareGroupStatePartitionMetadataValue(
                initializing_topics=[],
                initialized_topics=[
                    TopicPartitionsInfo(
                        topic_id=topic_id, topic_name=topic.name, partitions=list(topic.partitions)
                    )
                    for topic_id, topic in record.initialized.items()
                ],
                deleting_topics=[],
            )
        case _:
            return None
    return encode_versioned(value, _VALUE_VERSION)


def _decode(key: bytes, value: bytes | None, headers: RecordHeaders) -> DurableRecord:
    """Decode a record. Raises DecodeError, also for a value of a later version."""
    del headers
    record_type = int.from_bytes(key[:2], "big")
    if record_type in {EPOCH, TARGET_EPOCH}:
        of_group, _ = decode_versioned(ShareGroupMetadataKey, key)
        return _decode_of_group(record_type, of_group.group_id, value)
    if record_type == PARTITIONS:
        stored, _ = decode_versioned(ShareGroupStatePartitionMetadataKey, key)
        return _decode_of_group(record_type, stored.group_id, value)
    if record_type == MEMBER:
        stated, _ = decode_versioned(ShareGroupMemberMetadataKey, key)
        return _decode_of_member(record_type, stated.group_id, stated.member_id, value)
    assigned, _ = decode_versioned(ShareGroupAssignmentKey, key)
    return _decode_of_member(record_type, assigned.group_id, assigned.member_id, value)


def _decode_of_group(record_type: int, group_id: str, value: bytes | None) -> DurableRecord:
    if value is None:
        return ShareTombstone(group_id, record_type)
    if record_type == EPOCH:
        epoch, _ = decode_versioned(ShareGroupMetadataValue, value)
        return ShareEpochRecord(group_id, epoch.epoch, epoch.metadata_hash)
    if record_type == TARGET_EPOCH:
        target, _ = decode_versioned(ShareGroupTargetAssignmentMetadataValue, value)
        return ShareTargetEpochRecord(
            group_id, target.assignment_epoch, target.assignment_timestamp
        )
    stored, _ = decode_versioned(ShareGroupStatePartitionMetadataValue, value)
    return SharePartitionsRecord(
        group_id,
        _stored(stored.initialized_topics),
        _stored(stored.initializing_topics),
    )


def _stored(topics: list[TopicPartitionsInfo]) -> dict[bytes, StoredTopic]:
    return {
        topic.topic_id: StoredTopic(topic.topic_name, tuple(sorted(topic.partitions)))
        for topic in topics
    }


def _decode_of_member(
    record_type: int, group_id: str, member_id: str, value: bytes | None
) -> DurableRecord:
    if value is None:
        return ShareTombstone(group_id, record_type, member_id)
    if record_type == MEMBER:
        member, _ = decode_versioned(ShareGroupMemberMetadataValue, value)
        return ShareMemberRecord(
            group_id,
            member_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            tuple(member.subscribed_topic_names),
        )
    if record_type == TARGET:
        target, _ = decode_versioned(ShareGroupTargetAssignmentMemberValue, value)
        return ShareTargetRecord(group_id, member_id, _partitions(target.topic_partitions))
    current, _ = decode_versioned(ShareGroupCurrentMemberAssignmentValue, value)
    return ShareCurrentRecord(
        group_id,
        member_id,
        current.member_epoch,
        current.previous_member_epoch,
        _partitions(current.assigned_partitions),
    )


def _partitions(
    topics: list[TopicPartition] | list[TopicPartitions],
) -> dict[bytes, tuple[int, ...]]:
    return {topic.topic_id: tuple(topic.partitions) for topic in topics}


SHARE_CODEC: Final = RecordCodec(
    record_types=tuple(_TYPES),
    tombstone_types=(ShareTombstone,),
    key_versions=tuple(_TYPES.values()),
    encode_key=_encode_key,
    encode_value=_encode_value,
    decode=_decode,
    kind=GroupKind.SHARE,
    is_large=_is_large,
)
