"""Records of share groups in __consumer_offsets have Kafka's bytes: those below were read from the
log of an Apache Kafka 4.4.0.
"""

import pytest

from kohort.groups.encoding import decode, encode_key, encode_value
from kohort.groups.records import DurableRecord
from kohort.groups.share.data import ShareState
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

GROUP = "gstsjpo"
TOPIC = bytes.fromhex("1227af34ea3a4d59bbb65f6b9ed1d20d")
NAME = "toxgbut"
GOLDEN: list[tuple[DurableRecord, str]] = [
    (
        ShareMemberRecord(GROUP, "member-2", "r1", "frames", "/127.0.0.1", (NAME,)),
        "0000037231076672616d65730b2f3132372e302e302e310208746f786762757400",
    ),
    (ShareEpochRecord(GROUP, 2, -857188553905467900), "000000000002f41aa78d42ef0e0400"),
    (ShareTargetEpochRecord(GROUP, 2, 1795815865462), "000000000002010008000001a21ef77c76"),
    (ShareTargetRecord(GROUP, "member-1", {}), "00000100"),
    (
        ShareTargetRecord(GROUP, "member-1", {TOPIC: (0,)}),
        "0000021227af34ea3a4d59bbb65f6b9ed1d20d02000000000000",
    ),
    (
        ShareCurrentRecord(GROUP, "member-1", 3, 2, {TOPIC: (0,)}),
        "0000000000030000000200021227af34ea3a4d59bbb65f6b9ed1d20d02000000000000",
    ),
    (
        SharePartitionsRecord(GROUP, {TOPIC: StoredTopic(NAME, (0, 1))}),
        "000001021227af34ea3a4d59bbb65f6b9ed1d20d08746f7867627574030000000000000001000100",
    ),
]


@pytest.mark.parametrize(("record", "value"), GOLDEN)
def test_values_are_those_of_kafka(record: DurableRecord, value: str) -> None:
    encoded = encode_value(record)
    assert encoded is not None
    assert encoded.hex() == value
    assert decode(encode_key(record), encoded) == record


@pytest.mark.parametrize(
    ("record_type", "member_id", "key"),
    [
        (MEMBER, "member-1", "000a0007677374736a706f00086d656d6265722d31"),
        (EPOCH, "", "000b0007677374736a706f"),
        (TARGET_EPOCH, "", "000c0007677374736a706f"),
        (TARGET, "member-1", "000d0007677374736a706f00086d656d6265722d31"),
        (CURRENT, "member-1", "000e0007677374736a706f00086d656d6265722d31"),
        (PARTITIONS, "", "000f0007677374736a706f"),
    ],
)
def test_keys_are_those_of_kafka(record_type: int, member_id: str, key: str) -> None:
    tombstone = ShareTombstone(GROUP, record_type, member_id)
    assert encode_key(tombstone).hex() == key
    assert decode(bytes.fromhex(key), None) == tombstone


@pytest.mark.parametrize(
    ("value", "partitions"),
    [
        # Partition 1 is being initialized.
        (
            (
                "0000021227af34ea3a4d59bbb65f6b9ed1d20d08746f786762757402000000010002"
                "1227af34ea3a4d59bbb65f6b9ed1d20d08746f78676275740200000000000100"
            ),
            (0, 1),
        ),
        # The topic is being deleted.
        ("00000101021227af34ea3a4d59bbb65f6b9ed1d20d08746f78676275740000", None),
    ],
)
def test_what_kafka_was_about_to_do_is_done(value: str, partitions: tuple[int, ...] | None) -> None:
    record = decode(encode_key(ShareTombstone(GROUP, PARTITIONS)), bytes.fromhex(value))
    assert record is not None
    state = ShareState()
    state.apply(record)
    expected = {} if partitions is None else {TOPIC: StoredTopic(NAME, partitions)}
    assert state.initialized == expected
