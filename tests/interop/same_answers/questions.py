"""One question to every API that looks at rights, about names that a test chooses."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple

from kohort.protocol.message import Struct, schema_of
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.scenes import TIME_MS, Topic

NOBODYS_ID: Final = 1 << 40
"""No producer has it."""


class Question(NamedTuple):
    """A request in two of its versions."""

    name: str
    request: Struct
    versions: tuple[int, ...]


def made(message: type, values: dict[str, Any]) -> Value:
    """A message of plain values; what is left out has its default."""
    fields = {}
    for field in schema_of(message).fields:
        value = values[field.name] if field.name in values else field.make_default()
        kind = field.kind
        if isinstance(kind, type) and isinstance(value, dict):
            value = made(kind, value)
        elif isinstance(kind, type) and isinstance(value, list):
            value = [made(kind, one) if isinstance(one, dict) else one for one in value]
        fields[field.name] = value
    unknown = values.keys() - fields.keys()
    assert not unknown, f"{message.__name__} has no {unknown}"
    return message(**fields)


def batch() -> memoryview:
    return memoryview(encode_batch([Record(b"v", b"k", (), TIME_MS)]))


def _message(api: str) -> type:
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in api).lstrip("_")
    found: type = getattr(import_module(f"kohort.protocol.messages.{snake}"), f"{api}Request")
    return found


def questions(topic: Topic, group: str, txn: str) -> Iterator[Question]:
    """About one topic, group and transactional id; none of them changes what there is, unless the
    principal may do everything.
    """
    name, topic_id = topic.name, topic.id
    for api, versions, values in (
        *_about_topics(name, topic_id),
        *_about_groups(name, topic_id, group),
        *_about_transactions(name, topic_id, group, txn),
        *_about_the_cluster(name),
    ):
        yield Question(api, made(_message(api), values), versions)


_Rows = Iterator[tuple[str, tuple[int, ...], dict[str, Any]]]


def _about_topics(name: str, topic_id: Value) -> _Rows:
    data = {"partition_data": [{"index": 0, "records": batch()}]}
    produce = {"transactional_id": None, "acks": -1, "timeout_ms": 5_000}
    yield "Produce", (3, 12), {**produce, "topic_data": [{"name": name, **data}]}
    yield "Produce", (13,), {**produce, "topic_data": [{"topic_id": topic_id, **data}]}
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    fetch = {"max_wait_ms": 5_000, "min_bytes": 1, "session_epoch": -1, "forgotten_topics_data": []}
    yield "Fetch", (4, 12), {**fetch, "topics": [{"topic": name, "partitions": [partition]}]}
    yield (
        "Fetch", (13, 18), {**fetch, "topics": [{"topic_id": topic_id, "partitions": [partition]}]}
    )  # fmt: skip
    offsets = {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    yield "ListOffsets", (1, 11), {"replica_id": -1, "topics": [offsets]}
    epochs = {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}
    yield "OffsetForLeaderEpoch", (2, 4), {"topics": [epochs]}
    asked: dict[str, Any] = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    yield "Metadata", (4, 7), asked
    with_topics = {**asked, "include_topic_authorized_operations": True}
    with_cluster = {**with_topics, "include_cluster_authorized_operations": True}
    yield "Metadata", (8, 10), with_cluster
    yield "Metadata", (13,), with_topics
    yield "Metadata", (12, 13), {**with_topics, "topics": [{"name": None, "topic_id": topic_id}]}
    yield "DescribeTopicPartitions", (0,), {"topics": [{"name": name}]}
    yield (
        "CreatePartitions", (0, 3),
        {"topics": [{"name": name, "count": 1, "assignments": None}], "timeout_ms": 5_000,
         "validate_only": True},
    )  # fmt: skip
    records = {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
    yield "DeleteRecords", (0, 2), {"topics": [records], "timeout_ms": 5_000}
    yield "DescribeProducers", (0,), {"topics": [{"name": name, "partition_indexes": [0]}]}
    keys = {"configuration_keys": ["retention.ms"]}
    resource = {"resource_type": 2, "resource_name": name}
    yield "DescribeConfigs", (1, 4), {"resources": [{**resource, **keys}]}
    change = {"name": "retention.ms", "config_operation": 0, "value": "1000000"}
    yield (
        "IncrementalAlterConfigs", (0, 1),
        {"resources": [{**resource, "configs": [change]}], "validate_only": True},
    )  # fmt: skip
    old = {"name": "retention.ms", "value": "1000000"}
    yield (
        "AlterConfigs", (0, 2),
        {"resources": [{**resource, "configs": [old]}], "validate_only": True},
    )  # fmt: skip


def _about_groups(name: str, topic_id: Value, group: str) -> _Rows:
    yield "FindCoordinator", (0, 3), {"key": group}
    yield "FindCoordinator", (4, 6), {"coordinator_keys": [group]}
    member = {"group_id": group, "member_id": "nobody"}
    protocol = {"name": "range", "metadata": b"\0\1" + bytes(8)}
    join = {**member, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    yield "JoinGroup", (0, 6, 7, 9), {**join, "protocol_type": "consumer", "protocols": [protocol]}
    sync = {**member, "generation_id": 1, "assignments": []}
    yield "SyncGroup", (0, 5), {**sync, "protocol_type": "consumer", "protocol_name": "range"}
    yield "Heartbeat", (0, 4), {**member, "generation_id": 1}
    yield "LeaveGroup", (0, 2), member
    yield "LeaveGroup", (3, 5), {"group_id": group, "members": [{"member_id": "nobody"}]}
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    commit = {"group_id": group, "member_id": "", "generation_id_or_member_epoch": -1}
    yield "OffsetCommit", (2, 9), {**commit, "topics": [{"name": name, "partitions": partitions}]}
    by_id = [{"topic_id": topic_id, "partitions": partitions}]
    yield "OffsetCommit", (10,), {**commit, "topics": by_id}
    one = [{"name": name, "partition_indexes": [0]}]
    yield "OffsetFetch", (1, 2, 7), {"group_id": group, "topics": one}
    yield "OffsetFetch", (7,), {"group_id": group, "topics": None}
    yield "OffsetFetch", (8, 9), {"groups": [{"group_id": group, "topics": one}]}
    ids = [{"topic_id": topic_id, "partition_indexes": [0]}]
    yield "OffsetFetch", (10,), {"groups": [{"group_id": group, "topics": ids}]}
    yield (
        "OffsetDelete", (0,),
        {"group_id": group, "topics": [{"name": name, "partitions": [{"partition_index": 0}]}]},
    )  # fmt: skip
    yield "DescribeGroups", (0, 2), {"groups": [group]}
    yield "DescribeGroups", (3, 6), {"groups": [group], "include_authorized_operations": True}
    yield "DeleteGroups", (0, 3), {"groups_names": [group + "-gone"]}


def _about_transactions(name: str, topic_id: Value, group: str, txn: str) -> _Rows:
    yield "FindCoordinator", (1, 3), {"key": txn, "key_type": 1}
    yield "FindCoordinator", (4, 6), {"coordinator_keys": [txn], "key_type": 1}
    topics = [{"name": name, "partitions": [0]}]
    yield (
        "AddPartitionsToTxn", (0, 3),
        {"v3_and_below_transactional_id": txn, "v3_and_below_producer_id": NOBODYS_ID,
         "v3_and_below_topics": topics},
    )  # fmt: skip
    producer = {"transactional_id": txn, "producer_id": NOBODYS_ID, "producer_epoch": 0}
    yield "AddPartitionsToTxn", (4, 5), {"transactions": [{**producer, "topics": topics}]}
    yield "AddOffsetsToTxn", (0, 4), {**producer, "group_id": group}
    yield "EndTxn", (0, 5), {**producer, "committed": True}
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    commit = {**producer, "group_id": group}
    by_name = [{"name": name, "partitions": partitions}]
    yield "TxnOffsetCommit", (0, 5), {**commit, "topics": by_name}
    by_id = [{"topic_id": topic_id, "partitions": partitions}]
    yield "TxnOffsetCommit", (6,), {**commit, "topics": by_id}
    yield "DescribeTransactions", (0,), {"transactional_ids": [txn]}


def _about_the_cluster(name: str) -> _Rows:
    yield "InitProducerId", (0, 5), {"transactional_id": "denied", "transaction_timeout_ms": 1_000}
    yield (
        "WriteTxnMarkers", (1, 2),
        {"markers": [{"producer_id": NOBODYS_ID, "producer_epoch": 0, "transaction_result": True,
                      "topics": [{"name": name, "partition_indexes": [0]}],
                      "coordinator_epoch": 0}]},
    )  # fmt: skip
    new = {"name": "denied-topic", "num_partitions": 1, "replication_factor": 1}
    create = {"topics": [{**new, "assignments": [], "configs": []}], "timeout_ms": 5_000}
    yield "CreateTopics", (2, 7), {**create, "validate_only": True}
    yield "DescribeLogDirs", (1, 2, 3, 5), {"topics": [{"topic": name, "partitions": [0]}]}
    yield (
        "DescribeCluster", (0, 2),
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    )  # fmt: skip
    yield "ListConfigResources", (0, 1), {"resource_types": []}
    for kind, of in ((4, "1"), (8, "1"), (16, "x"), (32, "g"), (99, "x")):
        resource = {"resource_type": kind, "resource_name": of}
        yield (
            "DescribeConfigs", (1, 4),
            {"resources": [{**resource, "configuration_keys": ["log.retention.ms"]}]},
        )  # fmt: skip
    wanted = [{"topic": name, "partitions": [0]}]
    yield "ElectLeaders", (0, 1, 2), {"topic_partitions": wanted, "timeout_ms": 5_000}
    moved = {"name": name, "partitions": [{"partition_index": 0, "replicas": [1]}]}
    yield "AlterPartitionReassignments", (0, 1), {"topics": [moved], "timeout_ms": 5_000}
    yield "ListPartitionReassignments", (0,), {"topics": None, "timeout_ms": 5_000}
    feature = {"feature": "metadata.version", "max_version_level": 1}
    yield "UpdateFeatures", (0, 1), {"feature_updates": [feature], "timeout_ms": 5_000}
    quorum = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    yield "DescribeQuorum", (0, 2), {"topics": [quorum]}
    directory = {"path": "/nowhere", "topics": [{"name": name, "partitions": [0]}]}
    yield "AlterReplicaLogDirs", (1, 2), {"dirs": [directory]}
    yield "CreateDelegationToken", (1, 3), {"renewers": [], "max_lifetime_ms": -1}
    yield "RenewDelegationToken", (1, 2), {"hmac": b"x", "renew_period_ms": 1}
    yield "ExpireDelegationToken", (1, 2), {"hmac": b"x", "expiry_time_period_ms": 1}
    yield "DescribeDelegationToken", (1, 3), {"owners": None}
    yield "DescribeUserScramCredentials", (0,), {"users": [{"name": "a"}]}
    removed = {"name": "a", "mechanism": 1}
    yield "AlterUserScramCredentials", (0,), {"deletions": [removed], "upsertions": []}
    component = {"entity_type": "user", "match_type": 2, "match": None}
    yield "DescribeClientQuotas", (0, 1), {"components": [component], "strict": False}
    entity = {"entity_type": "user", "entity_name": "a"}
    limit = {"key": "producer_byte_rate", "value": 0.0, "remove": True}
    yield (
        "AlterClientQuotas", (0, 1),
        {"entries": [{"entity": [entity], "ops": [limit]}], "validate_only": True},
    )  # fmt: skip
    rule_filter = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1}
    yield (
        "DescribeAcls", (1, 3),
        {**rule_filter, "resource_name_filter": None, "principal_filter": None,
         "host_filter": None, "permission_type": 1},
    )  # fmt: skip
    rule = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"}
    yield "CreateAcls", (1, 3), {"creations": [{**rule, "operation": 3, "permission_type": 3}]}
    yield (
        "DeleteAcls", (1, 3),
        {"filters": [{**rule_filter, "resource_name_filter": "none", "principal_filter": None,
                      "host_filter": None, "permission_type": 1}]},
    )  # fmt: skip
