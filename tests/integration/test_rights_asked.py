"""What each API asks the authorizer, for clients that may do nothing and for one that may do
everything: a right that is too weak, or of another resource, shows here without a Kafka beside it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kohort.broker.core.security.acls import (
    OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from kohort.broker.dispatch.registry import load_handlers
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kohort.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.integration.test_access import (
    ABOUT_THE_CONNECTION,
    ADMIN,
    NOBODY,
    SETTINGS,
    authorizer,
    close_to_others,
)
from tests.interop.same_answers.questions import questions
from tests.interop.same_answers.scenes import Topic
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient

Right = tuple[Operation, ResourceType]

SEEING: Final = "127.0.0.4"
SEES_TOPICS: Final = Rule(
    ResourceType.TOPIC, "*", PatternType.LITERAL, "User:*", SEEING, Operation.DESCRIBE,
    Permission.ALLOW,
)  # fmt: skip
TELL_OPERATIONS: Final = {"DescribeGroups", "DescribeTopicPartitions", "Metadata"}
"""APIs that tell what a client may do with what it sees: they ask about every operation."""
OF_THE_CLUSTER: Final = ", ".join(f"{one.name} CLUSTER" for one in OPERATIONS[ResourceType.CLUSTER])

RIGHTS: Final[Mapping[str, str]] = {
    "Produce": "WRITE TOPIC, WRITE TRANSACTIONAL_ID",
    # The second by one who says that it is a replica.
    "Fetch": "READ TOPIC, CLUSTER_ACTION CLUSTER",
    "ListOffsets": "DESCRIBE TOPIC",
    "OffsetForLeaderEpoch": "DESCRIBE TOPIC, CLUSTER_ACTION CLUSTER",
    "Metadata": f"DESCRIBE TOPIC, {OF_THE_CLUSTER}",
    "Metadata that creates": "DESCRIBE TOPIC, CREATE TOPIC, CREATE CLUSTER",
    "DescribeTopicPartitions": "DESCRIBE TOPIC",
    "CreateTopics": "CREATE TOPIC, CREATE CLUSTER, DESCRIBE_CONFIGS TOPIC",
    "DeleteTopics": "DELETE TOPIC, DELETE CLUSTER, DESCRIBE TOPIC",
    "CreatePartitions": "ALTER TOPIC",
    "DeleteRecords": "DELETE TOPIC",
    "DescribeProducers": "READ TOPIC",
    "DescribeConfigs": "DESCRIBE_CONFIGS TOPIC, DESCRIBE_CONFIGS GROUP, DESCRIBE_CONFIGS CLUSTER",
    "AlterConfigs": "ALTER_CONFIGS TOPIC, ALTER_CONFIGS CLUSTER",
    "IncrementalAlterConfigs": "ALTER_CONFIGS TOPIC, ALTER_CONFIGS CLUSTER",
    "DescribeLogDirs": "DESCRIBE CLUSTER",
    "DescribeCluster": OF_THE_CLUSTER,
    "ListConfigResources": "DESCRIBE_CONFIGS CLUSTER",
    "FindCoordinator": "DESCRIBE GROUP, DESCRIBE TRANSACTIONAL_ID",
    "JoinGroup": "READ GROUP",
    "SyncGroup": "READ GROUP",
    "Heartbeat": "READ GROUP",
    "LeaveGroup": "READ GROUP",
    "OffsetCommit": "READ GROUP, READ TOPIC",
    "OffsetFetch": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "OffsetDelete": "DELETE GROUP, READ TOPIC",
    "DescribeGroups": "DESCRIBE GROUP",
    "ListGroups": "DESCRIBE CLUSTER, DESCRIBE GROUP",
    "DeleteGroups": "DELETE GROUP",
    "InitProducerId": "WRITE TRANSACTIONAL_ID, IDEMPOTENT_WRITE CLUSTER, WRITE TOPIC",
    "AddPartitionsToTxn": "WRITE TRANSACTIONAL_ID, WRITE TOPIC, CLUSTER_ACTION CLUSTER",
    "AddOffsetsToTxn": "WRITE TRANSACTIONAL_ID, READ GROUP",
    "EndTxn": "WRITE TRANSACTIONAL_ID",
    "TxnOffsetCommit": "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC",
    "WriteTxnMarkers": "ALTER CLUSTER, CLUSTER_ACTION CLUSTER",
    "DescribeTransactions": "DESCRIBE TRANSACTIONAL_ID, DESCRIBE TOPIC",
    "ListTransactions": "DESCRIBE TRANSACTIONAL_ID",
    "DescribeAcls": "DESCRIBE CLUSTER",
    "CreateAcls": "ALTER CLUSTER",
    "DeleteAcls": "ALTER CLUSTER",
    "DescribeUserScramCredentials": "DESCRIBE CLUSTER",
    "AlterUserScramCredentials": "ALTER CLUSTER",
    "DescribeClientQuotas": "DESCRIBE_CONFIGS CLUSTER",
    "AlterClientQuotas": "ALTER_CONFIGS CLUSTER",
    "AlterReplicaLogDirs": "ALTER CLUSTER",
    "ElectLeaders": "ALTER CLUSTER",
    "AlterPartitionReassignments": "ALTER CLUSTER",
    "ListPartitionReassignments": "DESCRIBE CLUSTER",
    "UpdateFeatures": "ALTER CLUSTER",
    "DescribeQuorum": "DESCRIBE CLUSTER",
    # Refused to all: a token would be another way to be a user.
    "CreateDelegationToken": "",
    "RenewDelegationToken": "",
    "ExpireDelegationToken": "",
    "DescribeDelegationToken": "",
}
"""The rights that are asked for, whether all or one of them are needed."""


def rights_in(text: str) -> set[Right]:
    """The rights of one of the texts above."""
    return {
        (Operation[operation], ResourceType[kind])
        for operation, kind in (one.split() for one in text.split(", ") if one)
    }


class Asked:
    """What has been asked of the authorizer of a broker, by API."""

    def __init__(self, broker: BrokerThread) -> None:
        self._broker = broker
        self._authorizer = authorizer(broker)
        self.rights: dict[str, set[Right]] = {}

    def ask(self, name: str, request: object, version: int, source: str) -> None:
        """Ask the broker, and note what it has asked for that."""
        # No rule changes, and all that is remembered is forgotten.
        self._broker.call(self._authorizer.change)
        with RawClient(self._broker.port, source=source) as client:
            client.ask(request, version)
        asked = self._broker.call(lambda: dict(self._authorizer._decisions))
        self.rights.setdefault(name, set()).update(
            right
            for (_, host), decisions in asked.items()
            if host == source
            for right in (*decisions.allowed, *decisions.denied)
        )


def made_by(admin: RawClient) -> bytes:
    """Make a topic t, a group g and a transaction of x in the topic. Returns the topic's id."""
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    (topic,) = admin.call(metadata, 10, MetadataResponse).topics
    place = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    commit = OffsetCommitRequest(
        group_id="g", member_id="", topics=[OffsetCommitRequestTopic(name="t", partitions=[place])]
    )
    committed = admin.call(commit, 2, OffsetCommitResponse)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    producer = admin.call(begin, 4, InitProducerIdResponse)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    added = admin.call(add, 3, AddPartitionsToTxnResponse)
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return topic.topic_id


def transactional_produce() -> ProduceRequest:
    batch = encode_batch(
        [Record(b"v", None, (), 0)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    data = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(transactional_id="x", acks=-1, timeout_ms=30_000, topic_data=[topic])


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[Right]]:
    directory: Path = tmp_path_factory.mktemp("rights")
    with BrokerThread(directory, overrides=SETTINGS) as broker:
        broker.call(lambda: close_to_others(authorizer(broker)))
        with RawClient(broker.port, source=ADMIN) as admin:
            topic_id = made_by(admin)
        found = Asked(broker)
        of_replica = fetch_request("t")
        of_replica.replica_id = 1
        found.ask("Fetch", of_replica, 11, NOBODY)
        found.ask("Produce", transactional_produce(), 9, NOBODY)
        of_x = DescribeTransactionsRequest(transactional_ids=["x"])
        found.ask("DescribeTransactions", of_x, 0, ADMIN)
        # Metadata makes a topic for one who may see it and make it.
        by_use = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        broker.call(lambda: authorizer(broker).change(added=[SEES_TOPICS]))
        found.ask("Metadata that creates", by_use, 4, SEEING)
        # First by the one that changes nothing.
        for source in (NOBODY, ADMIN):
            for question in questions([Topic("t", topic_id)], ["g"], ["x"]):
                if source == NOBODY or question.name not in TELL_OPERATIONS:
                    for version in question.versions:
                        found.ask(question.name, question.request, version, source)
        return found.rights


def test_every_api_is_in_the_table() -> None:
    served = {api.name for api in load_handlers().values()}
    assert {name.partition(" ")[0] for name in RIGHTS} == served - ABOUT_THE_CONNECTION


@pytest.mark.parametrize("name", RIGHTS)
def test_an_api_asks_for_the_rights_that_it_needs_and_for_no_others(
    asked: Mapping[str, set[Right]], name: str
) -> None:
    assert asked[name] == rights_in(RIGHTS[name])
