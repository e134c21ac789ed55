"""The bytes of a group record in __consumer_offsets: key version 2, value version 3, and headers.

A group of five thousand members is written at every rebalance, so each member must cost little:
members have an encoder of their own, which takes half the time of the generic codec and works in
steps. The codec encodes the rest, and tests compare the results of both.
"""

import struct
from collections.abc import Sequence
from typing import Final

from kohort.groups.kinds import GroupKind
from kohort.groups.records import (
    GroupRecord,
    GroupTombstone,
    RecordCodec,
    RecordHeaders,
    StoredMember,
)
from kohort.groups.steps import FEW, Steps, at_once
from kohort.protocol.codec import codec, decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

TOPICS_HASH_HEADER: Final = "kohort.topics"
"""Header of a group record: the hash of its topics' partition counts."""

BEGUN_HEADER: Final = "kohort.rebalance"
"""Header of a group record: the cause of the rebalance; see `stored_cause`."""

MEMBERS_AT_ONCE: Final = 500
"""Maximum number of members of a group whose record is encoded in one event loop iteration, which
takes two milliseconds."""

BYTES_AT_ONCE: Final = 4 << 20
"""Maximum size of the metadata and assignments of a group whose record is encoded on the event
loop: encoding copies them several times, which takes some ten milliseconds."""

_KEY_VERSION: Final = 2
KEY_PREFIX: Final = _KEY_VERSION.to_bytes(2, "big")
"""The beginning of the key of a group record."""

_VERSION: Final = 3
_COUNT_BYTES: Final = 4

_LENGTH = struct.Struct(">h").pack
_TIMEOUTS = struct.Struct(">ii").pack
_BYTES_LENGTH = struct.Struct(">i").pack
_NULL = _LENGTH(-1)


def encode_group(record: GroupRecord) -> Steps[bytes]:
    """Encode the value of a group's record, in steps. Raises EncodeError."""
    try:
        members = yield from _encode_members(record.members)
    except struct.error:
        # A text or a number does not fit: the codec raises EncodeError for it.
        every = [_metadata(member) for member in record.members]
        return encode_versioned(_group_value(record, every), _VERSION)
    value = encode_versioned(_group_value(record, []), _VERSION)
    # The members come last, after their count.
    count = len(record.members).to_bytes(_COUNT_BYTES, "big")
    return b"".join((value[:-_COUNT_BYTES], count, members))


def _group_value(record: GroupRecord, members: list[MemberMetadata]) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=record.protocol_type or "",
        generation=record.generation,
        protocol=record.protocol_name,
        leader=record.leader_id,
        current_state_timestamp=record.state_timestamp_ms,
        members=members,
    )


def _metadata(member: StoredMember) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _encode_members(members: Sequence[StoredMember]) -> Steps[bytes]:
    """Encode the members of a GroupMetadataValue of version 3, without their count, in steps.

    Raises:
        struct.error: a text or a number does not fit.
    """
    parts: list[bytes] = []
    for start in range(0, len(members), FEW):
        if start:
            yield
        _write(members[start : start + FEW], parts)
    return b"".join(parts)


def _write(members: Sequence[StoredMember], parts: list[bytes]) -> None:
    # Most fields have the same values as those of the previous member.
    client_before: str | None = None
    place_before: tuple[str, int, int] | None = None
    metadata_before: bytes | None = None
    client = place = subscription = b""
    for one in members:
        member_id, instance_id, client_id, host, session_ms, rebalance_ms, metadata, share = one
        if client_id != client_before:
            client_before, client = client_id, _text(client_id)
        if place_before != (host, session_ms, rebalance_ms):
            place_before = host, session_ms, rebalance_ms
            place = _text(host) + _TIMEOUTS(rebalance_ms, session_ms)
        if metadata != metadata_before:
            metadata_before, subscription = metadata, _BYTES_LENGTH(len(metadata)) + metadata
        name = member_id.encode()
        parts += (
            _LENGTH(len(name)),
            name,
            _NULL if instance_id is None else _text(instance_id),
            client,
            place,
            subscription,
            _BYTES_LENGTH(len(share)),
            share,
        )


def _text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH(len(data)) + data


def decode_group(group_id: str, value: bytes, headers: RecordHeaders) -> GroupRecord:
    """Decode the value and the headers of a group's record. Raises DecodeError."""
    stored, _ = decode_versioned(GroupMetadataValue, value)
    if stored.generation < 0:
        raise DecodeError(f"group {group_id!r} has generation {stored.generation}")
    _check_unique(group_id, [member.member_id for member in stored.members])
    instances = [member.group_instance_id for member in stored.members]
    _check_unique(group_id, [instance for instance in instances if instance is not None])
    return GroupRecord(
        group_id=group_id,
        protocol_type=stored.protocol_type or None,
        generation=stored.generation,
        protocol_name=stored.protocol,
        leader_id=stored.leader,
        state_timestamp_ms=stored.current_state_timestamp,
        members=tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout,
                rebalance_timeout_ms=member.rebalance_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in stored.members
        ),
        topics_hash=dict(headers).get(TOPICS_HASH_HEADER),
        begun=dict(headers).get(BEGUN_HEADER),
    )


def _encode_key(record: GroupRecord | GroupTombstone) -> bytes:
    return encode_versioned(GroupMetadataKey(group=record.group_id), _KEY_VERSION)


def _encode_value(record: GroupRecord | GroupTombstone) -> bytes | None:
    return at_once(encode_group(record)) if isinstance(record, GroupRecord) else None


def _value_steps(record: GroupRecord | GroupTombstone) -> Steps[bytes | None]:
    return (yield from encode_group(record)) if isinstance(record, GroupRecord) else None


def _encode_headers(record: GroupRecord | GroupTombstone) -> RecordHeaders:
    if not isinstance(record, GroupRecord):
        return ()
    headers = ((TOPICS_HASH_HEADER, record.topics_hash), (BEGUN_HEADER, record.begun))
    return tuple([header for header in headers if header[1] is not None])


def _is_large(record: GroupRecord | GroupTombstone) -> bool:
    return isinstance(record, GroupRecord) and len(record.members) > MEMBERS_AT_ONCE


def _has_many_bytes(record: GroupRecord | GroupTombstone) -> bool:
    if not isinstance(record, GroupRecord):
        return False
    sizes = [len(member.subscription) + len(member.assignment) for member in record.members]
    return sum(sizes) > BYTES_AT_ONCE


def _decode(
    key: bytes, value: bytes | None, headers: RecordHeaders
) -> GroupRecord | GroupTombstone:
    group_id = codec(GroupMetadataKey, _KEY_VERSION).decode(key, 2)[0].group
    return GroupTombstone(group_id) if value is None else decode_group(group_id, value, headers)


def _check_unique(group_id: str, ids: list[str]) -> None:
    if len(set(ids)) != len(ids):
        raise DecodeError(f"group {group_id!r} has a member twice")


GROUP_CODEC: Final = RecordCodec(
    record_types=(GroupRecord,),
    tombstone_types=(GroupTombstone,),
    key_versions=(_KEY_VERSION,),
    encode_key=_encode_key,
    encode_value=_encode_value,
    decode=_decode,
    encode_headers=_encode_headers,
    kind=GroupKind.CLASSIC,
    is_large=_is_large,
    has_many_bytes=_has_many_bytes,
    value_steps=_value_steps,
)
