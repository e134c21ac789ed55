"""Records as they lie in __consumer_offsets. The bytes below were written down by hand from Kafka's
definitions of the topic.
"""

import pytest

from kohort.groups.encoding import decode, encode_headers, encode_key, encode_value
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    StoredMember,
)
from kohort.groups.requests import CommittedOffset
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.types import ZERO_UUID
from tests.support import messages as m

A_TOPIC_ID = bytes(range(16))
MEMBER = StoredMember("m-1", "i", "c", "/h", 10_000, 60_000, b"sub", b"share")
GROUP = GroupRecord("g", "consumer", 3, "range", "m-1", 99, (MEMBER,), b"12345678")
OFFSET = OffsetRecord("g", "t", 5, CommittedOffset(42, 7, "note", 99, -1, A_TOPIC_ID))
EXPIRING = OffsetRecord("g", "t", 5, CommittedOffset(42, -1, "note", 99, 1_000))
GROUP_KEY = encode_key(GroupTombstone("g"))
OFFSET_KEY = encode_key(OffsetTombstone("g", "t", 0))
RECORDS: list[DurableRecord] = [
    GROUP,
    GROUP._replace(topics_hash=None),
    GroupRecord("g", None, 0, None, None, 99, ()),
    GroupTombstone("g"),
    OFFSET,
    EXPIRING,
    OffsetTombstone("g", "t", 5),
]


@pytest.mark.parametrize("record", RECORDS)
def test_what_is_written_can_be_read(record: DurableRecord) -> None:
    assert decode(encode_key(record), encode_value(record), encode_headers(record)) == record


def test_keys_are_of_kafkas_types() -> None:
    assert encode_key(OFFSET) == b"\0\1\0\1g\0\1t\0\0\0\5"
    assert encode_key(OffsetTombstone("g", "t", 5)) == encode_key(OFFSET)
    assert encode_key(GROUP) == encode_key(GroupTombstone("g")) == b"\0\2\0\1g"


def test_an_offset_is_written_in_version_4_with_the_topic_id_as_a_tag() -> None:
    assert encode_value(OFFSET) == (
        b"\0\4"
        + (42).to_bytes(8, "big")
        + (7).to_bytes(4, "big")
        + b"\5note"
        + (99).to_bytes(8, "big")
        + b"\1\0\x10"
        + A_TOPIC_ID
    )


@pytest.mark.parametrize("offset", [0, 42, 2**63 - 1])
@pytest.mark.parametrize("leader_epoch", [-1, 7])
@pytest.mark.parametrize("topic_id", [A_TOPIC_ID, ZERO_UUID])
def test_a_position_without_metadata_is_written_as_the_codec_does(
    offset: int, leader_epoch: int, topic_id: bytes
) -> None:
    record = OffsetRecord("g", "t", 5, CommittedOffset(offset, leader_epoch, "", 99, -1, topic_id))
    value = m.OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata="",
        commit_timestamp=99,
        topic_id=topic_id,
    )
    assert encode_value(record) == encode_versioned(value, 4)


def test_a_position_that_does_not_fit_is_refused() -> None:
    committed = CommittedOffset(2**63, -1, "", 99, -1, A_TOPIC_ID)
    with pytest.raises(EncodeError):
        encode_value(OffsetRecord("g", "t", 5, committed))


def test_an_offset_with_an_expiry_is_written_in_version_1() -> None:
    assert encode_value(EXPIRING) == (
        b"\0\1"
        + (42).to_bytes(8, "big")
        + b"\0\4note"
        + (99).to_bytes(8, "big")
        + (1_000).to_bytes(8, "big")
    )


def test_a_group_is_written_in_version_3() -> None:
    value = encode_value(GROUP)
    assert value == (
        b"\0\3"
        b"\0\x08consumer" + (3).to_bytes(4, "big") + b"\0\5range\0\3m-1"
        + (99).to_bytes(8, "big")
        + b"\0\0\0\1"
        b"\0\3m-1\0\1i\0\1c\0\2/h"
        + (60_000).to_bytes(4, "big")
        + (10_000).to_bytes(4, "big")
        + b"\0\0\0\3sub\0\0\0\5share"
    )  # fmt: skip


def test_the_fingerprint_of_the_topics_travels_in_a_header() -> None:
    assert encode_headers(GROUP) == (("kohort.topics", b"12345678"),)
    assert encode_headers(OFFSET) == ()


def test_an_offset_key_of_the_first_version_is_read_as_well() -> None:
    assert decode(b"\0\0\0\1g\0\1t\0\0\0\5", None) == OffsetTombstone("g", "t", 5)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\x12\0\1g", b"\0\x11", b"\xff\xff"])
def test_keys_of_other_types_are_left_alone(key: bytes) -> None:
    assert decode(key, b"") is None


@pytest.mark.parametrize("key", [b"\0\1", b"\0\1\0\5g", b"\0\2", b"\0\2\xff\xff"])
def test_a_key_that_is_cut_short_is_refused(key: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(key, None)


@pytest.mark.parametrize("value", [b"", b"\0\3", b"\0\x63\0", b"\xff\xff\0\0"])
def test_a_value_that_cannot_be_read_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(GROUP_KEY, value)
    with pytest.raises(DecodeError):
        decode(OFFSET_KEY, value)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_groups_of_every_version_are_read(version: int) -> None:
    member = m.MemberMetadata(
        member_id="m-1",
        client_id="c",
        client_host="/h",
        session_timeout=10_000,
        subscription=b"sub",
        assignment=b"share",
    )
    value = m.GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m-1", members=[member]
    )
    read = decode(GROUP_KEY, encode_versioned(value, version))
    assert read == GroupRecord(
        "g",
        "consumer",
        3,
        "range",
        "m-1",
        -1,
        (StoredMember("m-1", None, "c", "/h", 10_000, -1, b"sub", b"share"),),
    )


@pytest.mark.parametrize("twice", ["member_id", "group_instance_id"])
def test_a_group_with_a_member_twice_is_refused(twice: str) -> None:
    ids = {"member_id": "m-1", "group_instance_id": "i"}
    others = {"member_id": "m-2", "group_instance_id": "j"}
    others[twice] = ids[twice]
    members = [
        m.MemberMetadata(
            client_id="c",
            client_host="/h",
            session_timeout=1,
            subscription=b"",
            assignment=b"",
            member_id=names["member_id"],
            group_instance_id=names["group_instance_id"],
        )
        for names in (ids, others)
    ]
    value = m.GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m-1", members=members
    )
    with pytest.raises(DecodeError):
        decode(GROUP_KEY, encode_versioned(value, 3))


def test_a_group_of_a_negative_generation_is_refused() -> None:
    value = m.GroupMetadataValue(
        protocol_type="consumer", generation=-1, protocol=None, leader=None, members=[]
    )
    with pytest.raises(DecodeError):
        decode(GROUP_KEY, encode_versioned(value, 3))
