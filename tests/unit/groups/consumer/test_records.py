"""Records of consumer groups have Kafka's bytes: those below were read from the
__consumer_offsets of an Apache Kafka 4.4.0 after the first member had joined a group.
"""

import pytest

from kohort.groups.consumer.encoding import encode_key_by_codec
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
from kohort.groups.encoding import decode, encode_key, encode_value
from kohort.groups.records import DurableRecord
from kohort.protocol.errors import DecodeError, EncodeError

TOPIC = bytes(range(16))
MEMBER = ConsumerMemberRecord(
    "g", "m", None, None, "probe", "/127.0.0.1", ("t3",), "", 300_000, None
)
CLASSIC = MEMBER._replace(classic=ClassicPart(45_000, (("range", b"metadata"), ("sticky", b""))))

GOLDEN: list[tuple[DurableRecord, str]] = [
    (MEMBER, "0000 00 00 0670726f6265 0b2f3132372e302e302e31 02 037433 01 000493e0 00 01 00 01 00"),
    (EpochRecord("g", 2, -0x5DA8AC45FEF5078C), "0000 00000002 01 00 08 a25753ba010af874"),
    (
        TargetRecord("g", "m", {TOPIC: (0, 1, 2)}),
        f"0000 02 {TOPIC.hex()} 04 00000000 00000001 00000002 00 00",
    ),
    (TargetEpochRecord("g", 2, 0x1A20289F67F), "0000 00000002 01 00 08 000001a20289f67f"),
    (
        CurrentRecord("g", "m", 2, 0, 0, {TOPIC: {0: 2, 1: 2, 2: 2}}, {}),
        (
            f"0000 00000002 00000000 00 02 {TOPIC.hex()} 04 00000000 00000001 00000002"
            " 01 00 0d 04 00000002 00000002 00000002 01 00"
        ),
    ),
]
RECORDS: list[DurableRecord] = [
    *[record for record, _ in GOLDEN],
    CLASSIC,
    CLASSIC._replace(classic=ClassicPart(1, ()), instance_id="i", rack_id="r"),
    CurrentRecord("g", "m", 3, 2, 1, {TOPIC: {7: 1}}, {TOPIC: {0: 2, 1: 3}}),
    RegexRecord("g", "a.*", ("aa", "ab"), 17, 99),
    ConsumerMemberTombstone("g", "m"),
    CurrentTombstone("g", "m"),
    EpochTombstone("g"),
    OldMetadataTombstone("g"),
    RegexTombstone("g", "a.*"),
    TargetEpochTombstone("g"),
    TargetTombstone("g", "m"),
]


@pytest.mark.parametrize("member_id", ["", "m", "é€", "\ud800", "m" * 32_767, "m" * 32_768])
@pytest.mark.parametrize("group_id", ["", "g", "é€", "g" * 255, "é" * 256, "\ud800"])
def test_a_key_of_a_member_is_what_its_codec_makes(group_id: str, member_id: str) -> None:
    for record in (CurrentTombstone, TargetTombstone, ConsumerMemberTombstone):
        try:
            expected: bytes | None = encode_key_by_codec(record(group_id, member_id))
        except EncodeError:
            expected = None
        if expected is None:
            with pytest.raises(EncodeError):
                encode_key(record(group_id, member_id))
        else:
            assert encode_key(record(group_id, member_id)) == expected


@pytest.mark.parametrize(("record", "value"), GOLDEN)
def test_a_value_has_the_bytes_of_kafka(record: DurableRecord, value: str) -> None:
    assert encode_value(record) == bytes.fromhex(value)


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (GOLDEN[1][0], b"\0\3\0\1g"),
        (OldMetadataTombstone("g"), b"\0\4\0\1g"),
        (MEMBER, b"\0\5\0\1g\0\1m"),
        (GOLDEN[3][0], b"\0\6\0\1g"),
        (GOLDEN[2][0], b"\0\7\0\1g\0\1m"),
        (GOLDEN[4][0], b"\0\x08\0\1g\0\1m"),
        (RegexTombstone("g", "r"), b"\0\x10\0\1g\0\1r"),
    ],
)
def test_a_key_has_the_bytes_of_kafka(record: DurableRecord, key: bytes) -> None:
    assert encode_key(record) == key


@pytest.mark.parametrize("record", RECORDS)
def test_what_is_written_can_be_read(record: DurableRecord) -> None:
    assert decode(encode_key(record), encode_value(record)) == record


def test_partitions_without_epochs_were_assigned_at_the_epoch_of_the_member() -> None:
    value = bytes.fromhex(f"0000 00000005 00000004 00 02 {TOPIC.hex()} 02 00000003 00 01 00")
    current = CurrentRecord("g", "m", 5, 4, 0, {TOPIC: {3: 5}}, {})
    assert decode(encode_key(current), value) == current


def test_a_member_without_the_tag_is_not_a_classic_one() -> None:
    value = encode_value(MEMBER)
    assert value is not None
    assert decode(encode_key(MEMBER), value[:-4] + b"\0") == MEMBER


def test_unknown_tags_are_skipped() -> None:
    value = encode_value(MEMBER)
    assert value is not None
    assert decode(encode_key(MEMBER), value[:-4] + b"\2\0\1\0\5\1?") == MEMBER


def test_a_record_with_an_epoch_too_few_is_refused() -> None:
    value = bytes.fromhex(
        f"0000 00000005 00000004 00 02 {TOPIC.hex()} 03 00000003 00000004"
        " 01 00 05 02 00000001 01 00"
    )
    with pytest.raises(DecodeError):
        decode(encode_key(CurrentTombstone("g", "m")), value)
