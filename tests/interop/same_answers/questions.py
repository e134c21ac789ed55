"""Questions to every API that looks at rights, about names that a test chooses.

Each is asked in versions among which are the lowest and the highest that are served.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from kohort.broker.handlers import load_handlers
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.scenes import TIME_MS, Topic

NOBODYS_ID: Final = 1 << 40
"""No producer has it."""


NEW_TOPIC: Final = "new-topic"
"""A topic that requests would create, which they only have validated."""


class Question(NamedTuple):
    """A request in some of its versions."""

    name: str
    request: Struct
    versions: tuple[int, ...]
    form: str = ""
    """Which of the requests of this API it is; a form asks for the same rights in all versions."""
    is_of_all: bool = False
    """Names nothing: what the client may not see is left out, and no error says so."""

    @property
    def title(self) -> str:
        return f"{self.name} {self.form}".rstrip()


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


@cache
def _requests() -> Mapping[str, type]:
    return {api.name: api.request for api in load_handlers().values()}


def questions(
    topics: Sequence[Topic], groups: Sequence[str], txns: Sequence[str], user: str = "a"
) -> Iterator[Question]:
    """About these topics, groups and transactional ids: all of them where a request takes several,
    otherwise the first.

    None of them changes what there is, unless the principal may do it; topics are deleted at the
    end.
    """
    for api, versions, values in (
        *_about_topics(topics),
        *_about_configs(topics, groups),
        *_about_groups(topics, groups),
        *_about_share_groups(topics, groups),
        *_about_transactions(topics, groups, txns),
        *_about_the_cluster(topics),
        *_about_access(user),
    ):
        yield _question(api, versions, values)
    for api, versions, values in _about_all():
        yield _question(api, versions, values)._replace(is_of_all=True)
    for api, versions, values in _deletions(topics):
        yield _question(api, versions, values)


def _question(api_and_form: str, versions: tuple[int, ...], values: dict[str, Any]) -> Question:
    api, _, form = api_and_form.partition(" ")
    return Question(api, made(_requests()[api], values), versions, form)


_Rows = Iterator[tuple[str, tuple[int, ...], dict[str, Any]]]


def _of_names(topics: Sequence[Topic], key: str, **values: object) -> list[dict[str, Any]]:
    return [{key: topic.name, **values} for topic in topics]


def _of_ids(topics: Sequence[Topic], **values: object) -> list[dict[str, Any]]:
    return [{"topic_id": topic.id, **values} for topic in topics]


def _about_topics(topics: Sequence[Topic]) -> _Rows:
    data = {"partition_data": [{"index": 0, "records": batch()}]}
    produce = {"transactional_id": None, "acks": -1, "timeout_ms": 5_000}
    yield "Produce", (3, 12), {**produce, "topic_data": _of_names(topics, "name", **data)}
    yield "Produce by id", (13,), {**produce, "topic_data": _of_ids(topics, **data)}
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    fetch = {"max_wait_ms": 5_000, "min_bytes": 1, "session_epoch": -1, "forgotten_topics_data": []}
    by_name = _of_names(topics, "topic", partitions=partitions)
    yield "Fetch", (4, 12), {**fetch, "topics": by_name}
    yield "Fetch by id", (13, 18), {**fetch, "topics": _of_ids(topics, partitions=partitions)}
    last = [{"partition_index": 0, "timestamp": -1}]
    offsets = _of_names(topics, "name", partitions=last)
    yield "ListOffsets", (1, 11), {"replica_id": -1, "topics": offsets}
    epochs = _of_names(topics, "topic", partitions=[{"partition": 0, "leader_epoch": 0}])
    yield "OffsetForLeaderEpoch", (2, 4), {"topics": epochs}
    names = _of_names(topics, "name")
    # Up to v3 it asks for topics to be created that there are not.
    yield "Metadata", (0, 3), {"topics": names}
    asked: dict[str, Any] = {"topics": names, "allow_auto_topic_creation": False}
    yield "Metadata without creation", (4, 7), asked
    with_topics = {**asked, "include_topic_authorized_operations": True}
    with_cluster = {**with_topics, "include_cluster_authorized_operations": True}
    yield "Metadata with operations of the cluster", (8, 10), with_cluster
    yield "Metadata with operations", (13,), with_topics
    yield "Metadata by id", (12, 13), {**with_topics, "topics": _of_ids(topics, name=None)}
    yield "DescribeTopicPartitions", (0,), {"topics": names}
    counts = _of_names(topics, "name", count=1, assignments=None)
    partitions_wanted = {"topics": counts, "timeout_ms": 5_000, "validate_only": True}
    yield "CreatePartitions", (0, 3), partitions_wanted
    records = _of_names(topics, "name", partitions=[{"partition_index": 0, "offset": 0}])
    yield "DeleteRecords", (0, 2), {"topics": records, "timeout_ms": 5_000}
    yield "DescribeProducers", (0,), {"topics": _of_names(topics, "name", partition_indexes=[0])}
    shape = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    for form, new in (
        ("of known topics", _of_names(topics, "name", **shape)),
        ("of a new topic", [{"name": NEW_TOPIC, **shape}]),
    ):
        yield (
            f"CreateTopics {form}",
            (2, 7),
            {"topics": new, "timeout_ms": 5_000, "validate_only": True},
        )


def _about_configs(topics: Sequence[Topic], groups: Sequence[str]) -> _Rows:
    of_topics = _of_names(topics, "resource_name", resource_type=2)
    of_others = [
        *({"resource_type": 32, "resource_name": group} for group in groups),
        _BROKER,
        {"resource_type": 8, "resource_name": "1"},
        {"resource_type": 16, "resource_name": "x"},
        {"resource_type": 99, "resource_name": "x"},
    ]
    everything = [*of_topics, *of_others]
    for form, resources in (
        ("of topics", of_topics),
        *((_KINDS.get(one["resource_type"], "of an unknown kind"), [one]) for one in of_others),
        ("of all known kinds", everything[:-1]),
        ("of all kinds", everything),
    ):
        keyed = [{**one, "configuration_keys": [_key_of(one)]} for one in resources]
        yield f"DescribeConfigs {form}", (1, 4), {"resources": keyed}
    for form, resources in (
        ("of topics", of_topics),
        ("of topics and a broker", [*of_topics, _BROKER]),
    ):
        plain = {"value": "1000000"}
        old = [{**one, "configs": [{"name": _key_of(one), **plain}]} for one in resources]
        yield f"AlterConfigs {form}", (0, 2), {"resources": old, "validate_only": True}
        new = [
            {**one, "configs": [{"name": _key_of(one), "config_operation": 0, **plain}]}
            for one in resources
        ]
        yield f"IncrementalAlterConfigs {form}", (0, 1), {"resources": new, "validate_only": True}


_BROKER: Final = {"resource_type": 4, "resource_name": "1"}
_KINDS: Final[Mapping[object, str]] = {
    4: "of a broker",
    8: "of the log levels of a broker",
    16: "of client metrics",
    32: "of a group",
}


def _key_of(resource: dict[str, Any]) -> str:
    return "retention.ms" if resource["resource_type"] == 2 else "log.retention.ms"


def _about_groups(topics: Sequence[Topic], groups: Sequence[str]) -> _Rows:
    group = groups[0]
    yield "FindCoordinator of a group", (0, 3), {"key": group}
    yield "FindCoordinator of groups", (4, 6), {"coordinator_keys": list(groups)}
    keys = [f"{one}:J5pNjea5RtCNOIzm0jR7vg:0" for one in groups]
    yield "FindCoordinator of share-partitions", (6,), {"coordinator_keys": keys, "key_type": 2}
    member = {"group_id": group, "member_id": "nobody"}
    protocol = {"name": "range", "metadata": b"\0\1" + bytes(8)}
    join = {**member, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    yield "JoinGroup", (0, 6, 7, 9), {**join, "protocol_type": "consumer", "protocols": [protocol]}
    sync = {**member, "generation_id": 1, "assignments": []}
    yield "SyncGroup", (0, 5), {**sync, "protocol_type": "consumer", "protocol_name": "range"}
    yield "Heartbeat", (0, 4), {**member, "generation_id": 1}
    yield "LeaveGroup", (0, 2), member
    yield "LeaveGroup of several", (3, 5), {"group_id": group, "members": [{"member_id": "nobody"}]}
    commit = {"group_id": group, "member_id": "", "generation_id_or_member_epoch": -1}
    by_name = _of_names(topics, "name", partitions=_COMMITTED)
    yield "OffsetCommit", (2, 9), {**commit, "topics": by_name}
    yield "OffsetCommit by id", (10,), {**commit, "topics": _of_ids(topics, partitions=_COMMITTED)}
    names = _of_names(topics, "name", partition_indexes=[0])
    yield "OffsetFetch", (1, 2, 7), {"group_id": group, "topics": names}
    yield "OffsetFetch of all topics", (7,), {"group_id": group, "topics": None}
    for form, wanted in (("of groups", names), ("of all topics of groups", None)):
        of_groups = [{"group_id": one, "topics": wanted} for one in groups]
        yield f"OffsetFetch {form}", (8, 9), {"groups": of_groups}
    ids = _of_ids(topics, partition_indexes=[0])
    yield (
        "OffsetFetch by id",
        (10,),
        {"groups": [{"group_id": one, "topics": ids} for one in groups]},
    )
    removed = _of_names(topics, "name", partitions=[{"partition_index": 0}])
    yield "OffsetDelete", (0,), {"group_id": group, "topics": removed}
    yield "DescribeGroups", (0, 2), {"groups": list(groups)}
    of_groups_too = {"groups": list(groups), "include_authorized_operations": True}
    yield "DescribeGroups with operations", (3, 6), of_groups_too
    heartbeat = {"group_id": group, "member_id": "stranger", "member_epoch": 5}
    subscribed = {**heartbeat, "subscribed_topic_names": [topic.name for topic in topics]}
    yield "ConsumerGroupHeartbeat", (0, 1), subscribed
    yield "ConsumerGroupDescribe", (0, 1), {"group_ids": list(groups)}
    yield "DeleteGroups", (0, 3), {"groups_names": list(groups)}


def _about_share_groups(topics: Sequence[Topic], groups: Sequence[str]) -> _Rows:
    member = {"group_id": groups[0], "member_id": "nobody"}
    names = [topic.name for topic in topics]
    heartbeat = {**member, "member_epoch": 5, "subscribed_topic_names": names}
    yield "ShareGroupHeartbeat", (1,), heartbeat
    yield "ShareGroupDescribe", (1,), {"group_ids": list(groups)}
    partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
    opening = {**member, "share_session_epoch": 0, "forgotten_topics_data": []}
    at_once = {"max_wait_ms": 0, "min_bytes": 0, "max_records": 1, "batch_size": 1}
    yield (
        "ShareFetch",
        (1, 2),
        {**opening, **at_once, "topics": _of_ids(topics, partitions=partitions)},
    )
    accepted = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    partitions = [{"partition_index": 0, "acknowledgement_batches": [accepted]}]
    # Sent by another member: Kafka may close the share session above later than its connection.
    closing = {**member, "member_id": "stranger", "share_session_epoch": -1}
    yield "ShareAcknowledge", (1, 2), {**closing, "topics": _of_ids(topics, partitions=partitions)}
    offsets = [
        {"group_id": group, "topics": _of_names(topics, "topic_name", partitions=[0])}
        for group in groups
    ]
    yield "DescribeShareGroupOffsets", (0, 1), {"groups": offsets}
    altered = [{"partition_index": 0, "start_offset": 0}]
    of_topics = _of_names(topics, "topic_name", partitions=altered)
    yield "AlterShareGroupOffsets", (0,), {"group_id": groups[0], "topics": of_topics}
    of_topics = _of_names(topics, "topic_name")
    yield "DeleteShareGroupOffsets", (0,), {"group_id": groups[0], "topics": of_topics}


_COMMITTED: Final = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]


def _about_transactions(
    topics: Sequence[Topic], groups: Sequence[str], txns: Sequence[str]
) -> _Rows:
    txn = txns[0]
    yield "FindCoordinator of a transactional id", (1, 3), {"key": txn, "key_type": 1}
    yield (
        "FindCoordinator of transactional ids",
        (4, 6),
        {"coordinator_keys": list(txns), "key_type": 1},
    )
    of_topics = _of_names(topics, "name", partitions=[0])
    yield (
        "AddPartitionsToTxn", (0, 3),
        {"v3_and_below_transactional_id": txn, "v3_and_below_producer_id": NOBODYS_ID,
         "v3_and_below_topics": of_topics},
    )  # fmt: skip
    nobody = {"producer_id": NOBODYS_ID, "producer_epoch": 0}
    producer = {"transactional_id": txn, **nobody}
    of_txns = [{"transactional_id": one, **nobody, "topics": of_topics} for one in txns]
    yield "AddPartitionsToTxn by brokers", (4, 5), {"transactions": of_txns}
    yield "AddOffsetsToTxn", (0, 4), {**producer, "group_id": groups[0]}
    yield "EndTxn", (0, 5), {**producer, "committed": True}
    commit = {**producer, "group_id": groups[0]}
    by_name = _of_names(topics, "name", partitions=_COMMITTED)
    yield "TxnOffsetCommit", (0, 5), {**commit, "topics": by_name}
    yield (
        "TxnOffsetCommit by id",
        (6,),
        {**commit, "topics": _of_ids(topics, partitions=_COMMITTED)},
    )
    yield "DescribeTransactions", (0,), {"transactional_ids": list(txns)}
    for one in (*txns, None):
        form = "without a transactional id" if one is None else "with a transactional id"
        yield (
            f"InitProducerId {form}",
            (0, 5),
            {"transactional_id": one, "transaction_timeout_ms": 1_000},
        )


def _about_all() -> _Rows:
    yield "Metadata of all", (0,), {"topics": []}
    yield "Metadata of all", (1, 7, 10, 13), {"topics": None}
    yield "DescribeTopicPartitions of all", (0,), {"topics": []}
    yield "ListGroups", (0, 5), {}
    yield "ListTransactions", (0, 2), {"state_filters": [], "producer_id_filters": []}


def _deletions(topics: Sequence[Topic]) -> _Rows:
    # Once by id, and then by the name of what is gone.
    ids = {"topics": _of_ids(topics, name=None), "timeout_ms": 5_000}
    yield "DeleteTopics by id", (6,), ids
    names = {"topic_names": [topic.name for topic in topics], "timeout_ms": 5_000}
    yield "DeleteTopics", (1, 5), names
    yield "DeleteTopics", (6,), {"topics": _of_names(topics, "name"), "timeout_ms": 5_000}


def _about_the_cluster(topics: Sequence[Topic]) -> _Rows:
    markers = {"producer_id": NOBODYS_ID, "producer_epoch": 0, "transaction_result": True,
               "topics": _of_names(topics, "name", partition_indexes=[0]),
               "coordinator_epoch": 0}  # fmt: skip
    yield "WriteTxnMarkers", (1, 2), {"markers": [markers]}
    in_logs = _of_names(topics, "topic", partitions=[0])
    yield "DescribeLogDirs", (1, 2, 3, 5), {"topics": in_logs}
    yield (
        "DescribeCluster", (0, 2),
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    )  # fmt: skip
    yield "ListConfigResources", (0, 1), {"resource_types": []}
    yield "ElectLeaders", (0, 1, 2), {"topic_partitions": in_logs, "timeout_ms": 5_000}
    moved = _of_names(topics, "name", partitions=[{"partition_index": 0, "replicas": [1]}])
    yield "AlterPartitionReassignments", (0, 1), {"topics": moved, "timeout_ms": 5_000}
    yield "ListPartitionReassignments", (0,), {"topics": None, "timeout_ms": 5_000}
    feature = {"feature": "metadata.version", "max_version_level": 1}
    yield "UpdateFeatures", (0, 1, 2), {"feature_updates": [feature], "timeout_ms": 5_000}
    quorum = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    yield "DescribeQuorum", (0, 2), {"topics": [quorum]}
    directory = {"path": "/nowhere", "topics": _of_names(topics, "name", partitions=[0])}
    yield "AlterReplicaLogDirs", (1, 2), {"dirs": [directory]}


def _about_access(user: str) -> _Rows:
    yield "CreateDelegationToken", (1, 3), {"renewers": [], "max_lifetime_ms": -1}
    yield "RenewDelegationToken", (1, 2), {"hmac": b"x", "renew_period_ms": 1}
    yield "ExpireDelegationToken", (1, 2), {"hmac": b"x", "expiry_time_period_ms": 1}
    yield "DescribeDelegationToken", (1, 3), {"owners": None}
    yield "DescribeUserScramCredentials", (0,), {"users": [{"name": user}]}
    removed = {"name": user, "mechanism": 1}
    yield "AlterUserScramCredentials", (0,), {"deletions": [removed], "upsertions": []}
    component = {"entity_type": "user", "match_type": 2, "match": None}
    yield "DescribeClientQuotas", (0, 1), {"components": [component], "strict": False}
    entity = {"entity_type": "user", "entity_name": user}
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
