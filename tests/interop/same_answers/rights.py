"""The rights that each form of each request asks for, of a client without rights and of one that
may do everything.

The table holds for Kafka, whose authorizer logs each right that it is asked for
(tests/interop/test_rights_of_kafka.py), and for Kohort (tests/integration/test_rights_asked.py).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from kohort.broker.core.security.acls import OPERATIONS, Operation, ResourceType
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.questions import Question, questions
from tests.interop.same_answers.scenes import Topic
from tests.support import messages as m
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

Right: TypeAlias = tuple[Operation, ResourceType]
Place: TypeAlias = tuple[str, int, str]
"""The API and form of a request, its version, and the principal: "nobody" or "admin"."""


class Rights(NamedTuple):
    """Each a list such as "READ TOPIC, DESCRIBE GROUP", in any order."""

    nobody: str
    admin: str


def _alike(rights: str) -> Rights:
    return Rights(rights, rights)


def _every_operation_on(kind: ResourceType) -> str:
    return ", ".join(f"{operation.name} {kind.name}" for operation in OPERATIONS[kind])


_ON_TOPIC: Final = _every_operation_on(ResourceType.TOPIC)
_ON_GROUP: Final = _every_operation_on(ResourceType.GROUP)
_ON_CLUSTER: Final = _every_operation_on(ResourceType.CLUSTER)

RIGHTS: Final[Mapping[str, Rights]] = {
    "Fetch by a replica": _alike("CLUSTER_ACTION CLUSTER"),
    "Produce in a transaction": Rights(
        "WRITE TRANSACTIONAL_ID", "WRITE TOPIC, WRITE TRANSACTIONAL_ID"
    ),
    "Produce": _alike("WRITE TOPIC"),
    "Produce by id": _alike("WRITE TOPIC"),
    "Fetch": _alike("READ TOPIC"),
    "Fetch by id": _alike("READ TOPIC"),
    "ListOffsets": _alike("DESCRIBE TOPIC"),
    "OffsetForLeaderEpoch": Rights(
        "DESCRIBE TOPIC, CLUSTER_ACTION CLUSTER", "CLUSTER_ACTION CLUSTER"
    ),
    "Metadata": _alike("DESCRIBE TOPIC"),
    "Metadata without creation": _alike("DESCRIBE TOPIC"),
    "Metadata with operations of the cluster": Rights(
        "DESCRIBE TOPIC, DESCRIBE CLUSTER", f"{_ON_TOPIC}, {_ON_CLUSTER}"
    ),
    "Metadata with operations": Rights("DESCRIBE TOPIC", _ON_TOPIC),
    "Metadata by id": Rights("DESCRIBE TOPIC", _ON_TOPIC),
    "DescribeTopicPartitions": Rights("DESCRIBE TOPIC", _ON_TOPIC),
    "CreatePartitions": _alike("ALTER TOPIC"),
    "DeleteRecords": _alike("DELETE TOPIC"),
    "DescribeProducers": _alike("READ TOPIC"),
    "CreateTopics of known topics": Rights(
        "CREATE TOPIC, DESCRIBE_CONFIGS TOPIC, CREATE CLUSTER",
        "DESCRIBE_CONFIGS TOPIC, CREATE CLUSTER",
    ),
    "CreateTopics of a new topic": Rights(
        "CREATE TOPIC, DESCRIBE_CONFIGS TOPIC, CREATE CLUSTER",
        "DESCRIBE_CONFIGS TOPIC, CREATE CLUSTER",
    ),
    "DescribeConfigs of topics": _alike("DESCRIBE_CONFIGS TOPIC"),
    "DescribeConfigs of a group": _alike("DESCRIBE_CONFIGS GROUP"),
    "DescribeConfigs of a broker": _alike("DESCRIBE_CONFIGS CLUSTER"),
    "DescribeConfigs of the log levels of a broker": _alike("DESCRIBE_CONFIGS CLUSTER"),
    "DescribeConfigs of client metrics": _alike("DESCRIBE_CONFIGS CLUSTER"),
    "DescribeConfigs of an unknown kind": _alike(""),
    "DescribeConfigs of all known kinds": _alike(
        "DESCRIBE_CONFIGS TOPIC, DESCRIBE_CONFIGS GROUP, DESCRIBE_CONFIGS CLUSTER"
    ),
    "DescribeConfigs of all kinds": _alike(
        "DESCRIBE_CONFIGS TOPIC, DESCRIBE_CONFIGS GROUP, DESCRIBE_CONFIGS CLUSTER"
    ),
    "AlterConfigs of topics": _alike("ALTER_CONFIGS TOPIC"),
    "IncrementalAlterConfigs of topics": _alike("ALTER_CONFIGS TOPIC"),
    "AlterConfigs of topics and a broker": _alike("ALTER_CONFIGS TOPIC, ALTER_CONFIGS CLUSTER"),
    "IncrementalAlterConfigs of topics and a broker": _alike(
        "ALTER_CONFIGS TOPIC, ALTER_CONFIGS CLUSTER"
    ),
    "FindCoordinator of a group": _alike("DESCRIBE GROUP"),
    "FindCoordinator of groups": _alike("DESCRIBE GROUP"),
    "FindCoordinator of share-partitions": _alike("CLUSTER_ACTION CLUSTER"),
    "JoinGroup": _alike("READ GROUP"),
    "SyncGroup": _alike("READ GROUP"),
    "Heartbeat": _alike("READ GROUP"),
    "LeaveGroup": _alike("READ GROUP"),
    "LeaveGroup of several": _alike("READ GROUP"),
    "OffsetCommit": Rights("READ GROUP", "READ TOPIC, READ GROUP"),
    "OffsetCommit by id": Rights("READ GROUP", "READ TOPIC, READ GROUP"),
    "OffsetFetch": Rights("DESCRIBE GROUP", "DESCRIBE TOPIC, DESCRIBE GROUP"),
    "OffsetFetch of all topics": Rights("DESCRIBE GROUP", "DESCRIBE TOPIC, DESCRIBE GROUP"),
    "OffsetFetch of groups": Rights("DESCRIBE GROUP", "DESCRIBE TOPIC, DESCRIBE GROUP"),
    "OffsetFetch of all topics of groups": Rights(
        "DESCRIBE GROUP", "DESCRIBE TOPIC, DESCRIBE GROUP"
    ),
    "OffsetFetch by id": Rights("DESCRIBE GROUP", "DESCRIBE TOPIC, DESCRIBE GROUP"),
    "OffsetDelete": Rights("DELETE GROUP", "READ TOPIC, DELETE GROUP"),
    "DescribeGroups": _alike("DESCRIBE GROUP"),
    "DescribeGroups with operations": Rights("DESCRIBE GROUP", _ON_GROUP),
    "ConsumerGroupHeartbeat": Rights("READ GROUP", "READ GROUP, DESCRIBE TOPIC"),
    "ConsumerGroupDescribe": _alike("DESCRIBE GROUP"),
    "ShareGroupHeartbeat": Rights("READ GROUP", "READ GROUP, DESCRIBE TOPIC"),
    "ShareGroupDescribe": _alike("DESCRIBE GROUP"),
    "ShareFetch": Rights("READ GROUP", "READ TOPIC, READ GROUP"),
    "ShareAcknowledge": _alike("READ GROUP"),
    "DescribeShareGroupOffsets": Rights("DESCRIBE GROUP", "DESCRIBE TOPIC, DESCRIBE GROUP"),
    "AlterShareGroupOffsets": Rights("READ GROUP", "READ TOPIC, READ GROUP"),
    "DeleteShareGroupOffsets": Rights("DELETE GROUP", "READ TOPIC, DELETE GROUP"),
    "DeleteGroups": _alike("DELETE GROUP"),
    "FindCoordinator of a transactional id": _alike("DESCRIBE TRANSACTIONAL_ID"),
    "FindCoordinator of transactional ids": _alike("DESCRIBE TRANSACTIONAL_ID"),
    "AddPartitionsToTxn": Rights("WRITE TRANSACTIONAL_ID", "WRITE TOPIC, WRITE TRANSACTIONAL_ID"),
    "AddPartitionsToTxn by brokers": _alike("CLUSTER_ACTION CLUSTER"),
    "AddOffsetsToTxn": Rights("WRITE TRANSACTIONAL_ID", "READ GROUP, WRITE TRANSACTIONAL_ID"),
    "EndTxn": _alike("WRITE TRANSACTIONAL_ID"),
    "TxnOffsetCommit": Rights(
        "WRITE TRANSACTIONAL_ID", "READ TOPIC, READ GROUP, WRITE TRANSACTIONAL_ID"
    ),
    "TxnOffsetCommit by id": Rights(
        "WRITE TRANSACTIONAL_ID", "READ TOPIC, READ GROUP, WRITE TRANSACTIONAL_ID"
    ),
    "DescribeTransactions": Rights(
        "DESCRIBE TRANSACTIONAL_ID", "DESCRIBE TOPIC, DESCRIBE TRANSACTIONAL_ID"
    ),
    "InitProducerId with a transactional id": _alike("WRITE TRANSACTIONAL_ID"),
    "InitProducerId without a transactional id": Rights(
        "WRITE TOPIC, IDEMPOTENT_WRITE CLUSTER", "IDEMPOTENT_WRITE CLUSTER"
    ),
    "WriteTxnMarkers": Rights("ALTER CLUSTER, CLUSTER_ACTION CLUSTER", "ALTER CLUSTER"),
    "DescribeLogDirs": _alike("DESCRIBE CLUSTER"),
    "DescribeCluster": Rights("DESCRIBE CLUSTER", _ON_CLUSTER),
    "ListConfigResources": _alike("DESCRIBE_CONFIGS CLUSTER"),
    "ElectLeaders": _alike("ALTER CLUSTER"),
    "AlterPartitionReassignments": _alike("ALTER CLUSTER"),
    "ListPartitionReassignments": _alike("DESCRIBE CLUSTER"),
    "UpdateFeatures": _alike("ALTER CLUSTER"),
    "DescribeQuorum": _alike("DESCRIBE CLUSTER"),
    "AlterReplicaLogDirs": _alike("ALTER CLUSTER"),
    "CreateDelegationToken": _alike(""),
    "RenewDelegationToken": _alike(""),
    "ExpireDelegationToken": _alike(""),
    "DescribeDelegationToken": _alike(""),
    "DescribeUserScramCredentials": _alike("DESCRIBE CLUSTER"),
    "AlterUserScramCredentials": _alike("ALTER CLUSTER"),
    "DescribeClientQuotas": _alike("DESCRIBE_CONFIGS CLUSTER"),
    "AlterClientQuotas": _alike("ALTER_CONFIGS CLUSTER"),
    "DescribeAcls": _alike("DESCRIBE CLUSTER"),
    "CreateAcls": _alike("ALTER CLUSTER"),
    "DeleteAcls": _alike("ALTER CLUSTER"),
    "Metadata of all": _alike("DESCRIBE TOPIC"),
    "DescribeTopicPartitions of all": Rights("DESCRIBE TOPIC", _ON_TOPIC),
    "ListGroups": Rights("DESCRIBE GROUP, DESCRIBE CLUSTER", "DESCRIBE CLUSTER"),
    "ListTransactions": _alike("DESCRIBE TRANSACTIONAL_ID"),
    "DeleteTopics by id": Rights("DELETE TOPIC, DESCRIBE TOPIC, DELETE CLUSTER", "DELETE CLUSTER"),
    "DeleteTopics": Rights("DELETE TOPIC, DESCRIBE TOPIC, DELETE CLUSTER", "DELETE CLUSTER"),
    "Metadata that creates": Rights(
        "CREATE TOPIC, DESCRIBE TOPIC, CREATE CLUSTER", "DESCRIBE TOPIC, CREATE CLUSTER"
    ),
}
"""By API and form; an answer with permitted operations asks for each operation."""

OF_KOHORT: Final[Mapping[str, Rights]] = {
    "Metadata with operations of the cluster": Rights(
        f"DESCRIBE TOPIC, {_ON_CLUSTER}", f"{_ON_TOPIC}, {_ON_CLUSTER}"
    ),
    "CreateTopics of known topics": Rights("CREATE TOPIC, CREATE CLUSTER", "CREATE CLUSTER"),
    "CreateTopics of a new topic": Rights(
        "CREATE TOPIC, CREATE CLUSTER", "DESCRIBE_CONFIGS TOPIC, CREATE CLUSTER"
    ),
    "DescribeConfigs of all kinds": _alike(""),
    "DescribeCluster": _alike(_ON_CLUSTER),
    "DeleteTopics": Rights("DESCRIBE TOPIC, DELETE CLUSTER", "DELETE CLUSTER"),
}
"""Where Kohort asks for more or fewer rights than Kafka, with the same answer: operations on the
cluster before it knows whether they may be shown, configs of a topic only if they are returned, and
nothing more once a request is invalid or a topic must not be seen."""


def forms(topic: Topic, group: str, txn: str) -> Iterator[Question]:
    """The requests of the table, in an order that deletes nothing that later ones need."""
    of_replica: Value = fetch_request(topic.name)
    of_replica.replica_id = 1
    yield Question("Fetch", of_replica, (11,), "by a replica")
    produce: Value = _transactional_produce(topic.name, txn)
    yield Question("Produce", produce, (9,), "in a transaction")
    yield from questions([topic], [group], [txn])


def _transactional_produce(topic: str, txn: str) -> m.ProduceRequest:
    batch = encode_batch(
        [Record(b"v", None, (), 0)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    data = m.PartitionProduceData(index=0, records=memoryview(batch))
    of_topic = m.TopicProduceData(name=topic, partition_data=[data])
    return m.ProduceRequest(transactional_id=txn, acks=-1, timeout_ms=30_000, topic_data=[of_topic])


def make_scene(admin: RawClient, topic: str, group: str, txn: str) -> bytes:
    """Make a topic, a group with an offset of it and a transaction in it. Returns the topic's id.

    The coordinators must be ready.
    """
    metadata = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)])
    wait_until(
        lambda: not admin.call(metadata, 10, m.MetadataResponse).topics[0].error_code,
        "the topic is created",
    )
    place = m.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    commit = m.OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[m.OffsetCommitRequestTopic(name=topic, partitions=[place])],
    )
    committed = admin.call(commit, 2, m.OffsetCommitResponse)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    begin = m.InitProducerIdRequest(transactional_id=txn, transaction_timeout_ms=60_000)
    producer = admin.call(begin, 4, m.InitProducerIdResponse)
    add = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=txn,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[m.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    added = admin.call(add, 3, m.AddPartitionsToTxnResponse)
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return admin.call(metadata, 10, m.MetadataResponse).topics[0].topic_id


def creation(name: str) -> Question:
    """Metadata that creates a topic for a client that may describe it."""
    request: Value = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name)])
    return Question("Metadata", request, (4,), "that creates")


def rights_in(text: str) -> frozenset[Right]:
    """The rights of one of the texts above."""
    return frozenset(
        (Operation[operation], ResourceType[kind])
        for operation, kind in (right.split() for right in text.split(", ") if right)
    )


def expected(table: Mapping[str, Rights] = RIGHTS) -> dict[Place, frozenset[Right]]:
    """The table, by version too."""
    topic = Topic("t", bytes(16))
    places = {}
    for question in [*forms(topic, "g", "x"), creation("new")]:
        for version in question.versions:
            for principal, text in table[question.title]._asdict().items():
                places[question.title, version, principal] = rights_in(text)
    return places
