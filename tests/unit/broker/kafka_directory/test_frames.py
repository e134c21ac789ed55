from collections.abc import Sequence

import pytest

from kohort.broker.core.security.acls import rule_of
from kohort.broker.core.security.sasl import Credential
from kohort.broker.kafka_directory.image import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ClusterImage,
    MetadataRecord,
    PartitionImage,
    Replay,
    TopicImage,
    records_of,
)
from kohort.broker.kafka_directory.metadata_files import (
    MetadataReader,
    decode_record,
    encode_record,
    encode_snapshot,
)
from kohort.broker.kafka_directory.releases import KAFKA_3_9, KAFKA_4_4, RELEASES, Release
from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.cluster_metadata import EntityData, TopicRecord
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.protocol.scram import Keys
from tests.support import messages as m

ORDERS = bytes(range(16))
DIRECTORY = bytes(range(16, 32))

FORMATTED = bytes.fromhex(
    "0000000000000000000000470000000002dffe453d002000000000000001a2074f2cdd000001a2074f2cdd"
    "ffffffffffffffffffffffffffff000000012a0000000800000003160000000001a2074f2cc30000000000"
    "0000000001000000f10000000002147da6b7000000000005000001a2074f2cfd000001a2074f2cfdffffff"
    "ffffffffffffffffffffff000000063a000000012e010c00116d657461646174612e76657273696f6e0021"
    "00005a000002014e010c0021656c696769626c652e6c65616465722e7265706c696361732e76657273696f"
    "6e00010000340000040128010c000e67726f75702e76657273696f6e00010000340000060128010c000e73"
    "686172652e76657273696f6e0002000038000008012c010c001073747265616d732e76657273696f6e0001"
    "00004000000a0134010c00147472616e73616374696f6e2e76657273696f6e000200000000000000000007"
    "0000003f0000000002ddc14a46002000000000000001a2074f2d00000001a2074f2d00ffffffffffffffff"
    "ffffffffffff000000011a00000008000000040600000000"
)
"""The snapshot that `kafka-storage format` of Kafka 4.4.0 has made."""


def read(content: bytes) -> list[MetadataRecord]:
    reader = MetadataReader()
    found = list(reader.read(content))
    assert reader.is_whole
    return found


def replayed(records: Sequence[MetadataRecord]) -> ClusterImage:
    replay = Replay()
    for record in records:
        replay.apply(record)
    return replay.image


def an_image() -> ClusterImage:
    partitions = {index: PartitionImage([1], [1], 1, index, [DIRECTORY]) for index in range(3)}
    return ClusterImage(
        topics={ORDERS: TopicImage("orders", ORDERS, partitions)},
        configs={
            (TOPIC_CONFIGS, "orders"): {"retention.ms": "1000", "cleanup.policy": "compact"},
            (BROKER_CONFIGS, ""): {"message.max.bytes": "99"},
        },
        credentials={("zoë", 1): Credential(b"salt", Keys(b"stored", b"server"), 4096)},
        rules={DIRECTORY: rule_of(2, "orders", 3, "User:a", "*", 3, 3)},
        quotas={(("user", None), ("client-id", "x")): {"producer_byte_rate": 1000.5}},
        next_producer_id=7000,
    )


def test_what_kafka_itself_begins_with_is_read() -> None:
    levels = {
        record.name: record.feature_level
        for record in read(FORMATTED)
        if isinstance(record, m.FeatureLevelRecord)
    }
    assert levels == KAFKA_4_4.features


def test_of_the_same_records_the_same_snapshot_is_made_as_kafka_makes() -> None:
    """But for the times, and what follows from them: the CRCs."""
    ours = b"".join(encode_snapshot(records_of(ClusterImage()), now_ms=0x01A2074F2CFD))
    assert len(ours) == len(FORMATTED)
    differing = {at for at in range(len(ours)) if ours[at] != FORMATTED[at]}
    allowed: set[int] = set()
    for start in (0, 83, 336):
        allowed |= {*range(start + 17, start + 21), *range(start + 27, start + 43)}
    allowed |= set(range(70, 81))  # The header's own time.
    assert differing <= allowed


def test_an_image_comes_back_as_it_was() -> None:
    content = b"".join(encode_snapshot(records_of(an_image()), now_ms=1))
    assert replayed(read(content)) == an_image()


def test_many_records_are_several_batches() -> None:
    image = ClusterImage()
    for number in range(6000):
        topic_id = number.to_bytes(16, "big")
        image.topics[topic_id] = TopicImage(f"topic-{number}", topic_id)
    pieces = list(encode_snapshot(records_of(image), now_ms=1))
    assert len(pieces) > 2
    assert max(map(len, pieces)) < 400_000
    assert replayed(read(b"".join(pieces))) == image


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_a_snapshot_for_a_release_has_its_levels_and_its_forms_of_records(release: Release) -> None:
    records = records_of(an_image(), release)
    content = b"".join(encode_snapshot(records, now_ms=1, release=release))
    found = list(read(content))
    levels = {one.name: one.feature_level for one in found if isinstance(one, m.FeatureLevelRecord)}
    assert levels == release.features
    assert replayed(found) == an_image()


def test_kafka_3_9_gets_partitions_without_what_came_later() -> None:
    partition = m.PartitionRecord(
        topic_id=ORDERS, replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[]
    )
    frame = encode_record(partition, KAFKA_3_9)
    # The frame's version, the type and its version.
    assert frame[:3] == b"\x01\x03\x01"
    assert encode_record(partition)[:3] == b"\x01\x03\x02"


def test_a_record_in_part_before_an_offset_is_left_out() -> None:
    content = b"".join(encode_snapshot(records_of(an_image()), now_ms=1))
    features = len(KAFKA_4_4.features)
    reader = MetadataReader()
    assert isinstance(next(reader.read(content, from_offset=1 + features)), TopicRecord)


def registered(broker: int) -> m.RegisterBrokerRecord:
    return m.RegisterBrokerRecord(
        broker_id=broker,
        incarnation_id=ORDERS,
        broker_epoch=broker,
        end_points=[],
        features=[],
        rack=None,
    )


def log(*frames: bytes) -> bytes:
    return encode_batch([Record(frame) for frame in frames])


BEGIN, END, ABORT = bytes((1, 23, 0, 0)), bytes((1, 24, 0, 0)), bytes((1, 25, 0, 0))


def test_a_transaction_counts_as_a_whole_or_not_at_all() -> None:
    one, two, three = (
        encode_record(TopicRecord(name=name, topic_id=name.encode() * 16)) for name in "abc"
    )
    reader = MetadataReader()
    committed = log(BEGIN, one) + log(two, END)
    aborted = log(BEGIN, three, ABORT)
    unfinished = log(BEGIN, three)
    names = [
        record.name
        for record in reader.read(committed + aborted + unfinished)
        if isinstance(record, TopicRecord)
    ]
    assert names == ["a", "b"]


def test_a_delegation_token_is_noticed() -> None:
    reader = MetadataReader()
    assert list(reader.read(log(bytes((1, 10, 0))))) == []
    assert reader.has_tokens


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "varint"),
        (bytes((0, 2, 0)), "a frame of version 0"),
        (bytes((1, 99, 0)), "type 99"),
        (bytes((1, 2, 9)), "TopicRecord of the unknown version 9"),
        (encode_record(TopicRecord(name="a", topic_id=ORDERS)) + b"\0", "1 bytes after"),
    ],
)
def test_a_record_that_is_not_known_is_an_error(frame: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_record(frame)


def test_what_a_cluster_of_the_first_feature_level_has_written_is_read() -> None:
    """Partitions without directories, and marks of what there is no more (metadata.version 7)."""
    topic = TopicRecord(name="orders", topic_id=ORDERS)
    partition = m.PartitionRecord(
        partition_id=0,
        topic_id=ORDERS,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=4,
    )
    change = m.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1)
    content = log(
        encode_record(m.FeatureLevelRecord(name="metadata.version", feature_level=7)),
        bytes((1, 20, 0, 0)),  # NoOpRecord
        bytes((1, 21, 0, 0, 0)),  # ZkMigrationStateRecord
        encode_record(topic),
        bytes((1, 3, 0)) + codec(m.PartitionRecord, 0).encode(partition),
        bytes((1, 5, 0)) + codec(m.PartitionChangeRecord, 0).encode(change),
    )
    image = replayed(list(MetadataReader().read(content)))
    assert image.topics[ORDERS].partitions == {0: PartitionImage([1], [1], 1, 5, [])}


def test_a_damaged_batch_is_an_error() -> None:
    content = bytearray(log(encode_record(TopicRecord(name="a", topic_id=ORDERS))))
    content[-3] ^= 1
    with pytest.raises(DecodeError, match="offset 0 is damaged"):
        list(MetadataReader().read(content))


def test_changes_are_made_in_their_order() -> None:
    image = replayed(
        [
            *records_of(an_image()),
            m.PartitionChangeRecord(partition_id=1, topic_id=ORDERS, leader=1, isr=[1, 2]),
            m.PartitionChangeRecord(
                partition_id=1, topic_id=ORDERS, replicas=[1, 2], directories=[ORDERS, DIRECTORY]
            ),
            m.ConfigRecord(
                resource_type=TOPIC_CONFIGS, resource_name="orders", name="retention.ms", value=None
            ),
            m.ConfigRecord(
                resource_type=BROKER_CONFIGS,
                resource_name="",
                name="message.max.bytes",
                value=None,
            ),
            m.RemoveUserScramCredentialRecord(name="zoë", mechanism=1),
            m.RemoveAccessControlEntryRecord(id=DIRECTORY),
            m.ClientQuotaRecord(
                entity=[
                    EntityData(entity_type="user", entity_name=None),
                    EntityData(entity_type="client-id", entity_name="x"),
                ],
                key="producer_byte_rate",
                value=0.0,
                remove=True,
            ),
            m.RegisterBrokerRecord(
                broker_id=1,
                incarnation_id=ORDERS,
                broker_epoch=1,
                end_points=[],
                features=[],
                rack=None,
            ),
            m.RegisterBrokerRecord(
                broker_id=2,
                incarnation_id=ORDERS,
                broker_epoch=2,
                end_points=[],
                features=[],
                rack=None,
            ),
            m.UnregisterBrokerRecord(broker_id=2, broker_epoch=2),
        ]
    )
    changed = image.topics[ORDERS].partitions[1]
    assert changed == PartitionImage([1, 2], [1, 2], 1, 2, [ORDERS, DIRECTORY])
    assert image.configs == {(TOPIC_CONFIGS, "orders"): {"cleanup.policy": "compact"}}
    assert (image.credentials, image.rules, image.quotas) == ({}, {}, {})
    assert image.brokers == {1}


def test_a_deleted_topic_takes_its_configs_along() -> None:
    image = replayed([*records_of(an_image()), m.RemoveTopicRecord(topic_id=ORDERS)])
    assert image.topics == {}
    assert (TOPIC_CONFIGS, "orders") not in image.configs


def test_a_rule_that_is_none_of_ours_is_told() -> None:
    image = replayed(
        [
            m.AccessControlEntryRecord(
                id=ORDERS,
                resource_type=99,
                resource_name="x",
                pattern_type=3,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    )
    assert image.rules == {}
    assert len(image.strange_rules) == 1


def test_records_of_a_log_without_its_start_are_an_error() -> None:
    with pytest.raises(ValueError, match="which does not exist"):
        replayed([m.RemoveTopicRecord(topic_id=ORDERS)])
    with pytest.raises(ValueError, match="partition 7"):
        replayed(
            [*records_of(an_image()), m.PartitionChangeRecord(partition_id=7, topic_id=ORDERS)]
        )
