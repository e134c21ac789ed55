"""Answers as plain values that are equal where two brokers mean the same.

What is replaced: ids that a broker draws (of topics, producers, members) become Identities, which
are compared by whether they always come together; ports, the cluster's id, times of the broker's
clock and sizes of its disk become words. Lists in the order of a hash table are sorted. Records are
taken apart into their batches; a last batch that was cut off at a byte limit is dropped, as every
client does.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from kohort.protocol.layout import to_plain
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.messages.fetch import FetchResponse
from kohort.protocol.records.batch import HEADER_BYTES, read_header
from kohort.protocol.types import ZERO_UUID
from tests.interop.same_answers.each import Value

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BROKERS_CLOCK: Final = frozenset(
    {
        *("log_append_time_ms", "timestamp", "last_fetch_timestamp", "last_caught_up_timestamp"),
        *("last_timestamp", "transaction_start_time_ms"),
    }
)
_OF_THE_DISK: Final = frozenset({"log_dir", "total_bytes", "usable_bytes"})
_UNORDERED: Final[Mapping[str, frozenset[str]]] = {
    "MetadataResponse": frozenset({"topics"}),
    "ProduceResponse": frozenset({"responses", "partition_responses"}),
    "FetchResponse": frozenset({"responses", "partitions"}),
    "CreateTopicsResponse": frozenset({"topics"}),
    "CreatePartitionsResponse": frozenset({"results"}),
    "DeleteTopicsResponse": frozenset({"responses"}),
    "DeleteRecordsResponse": frozenset({"topics", "partitions"}),
    "DescribeLogDirsResponse": frozenset({"topics", "partitions"}),
    "ListOffsetsResponse": frozenset({"topics", "partitions"}),
    "JoinGroupResponse": frozenset({"members"}),
    "DescribeGroupsResponse": frozenset({"groups", "members"}),
    "ConsumerGroupDescribeResponse": frozenset({"groups", "members"}),
    "ShareGroupHeartbeatResponse": frozenset({"topic_partitions"}),
    "ShareGroupDescribeResponse": frozenset(
        {"groups", "members", "topic_partitions", "subscribed_topic_names"}
    ),
    "ShareFetchResponse": frozenset({"responses", "partitions"}),
    "ShareAcknowledgeResponse": frozenset({"responses", "partitions"}),
    "DescribeShareGroupOffsetsResponse": frozenset({"topics", "partitions"}),
    "AlterShareGroupOffsetsResponse": frozenset({"responses", "partitions"}),
    "DeleteShareGroupOffsetsResponse": frozenset({"responses"}),
    "ListGroupsResponse": frozenset({"groups"}),
    "DeleteGroupsResponse": frozenset({"results"}),
    "OffsetCommitResponse": frozenset({"topics", "partitions"}),
    "OffsetFetchResponse": frozenset({"topics", "partitions"}),
    "OffsetDeleteResponse": frozenset({"topics", "partitions"}),
    "AlterReplicaLogDirsResponse": frozenset({"results", "partitions"}),
    "ElectLeadersResponse": frozenset({"replica_election_results"}),
    "ListConfigResourcesResponse": frozenset({"config_resources"}),
    "DescribeConfigsResponse": frozenset({"results"}),
    "OffsetForLeaderEpochResponse": frozenset({"topics", "partitions"}),
    "AlterClientQuotasResponse": frozenset({"entity"}),
    "DescribeClientQuotasResponse": frozenset({"entries", "entity"}),
    "AlterUserScramCredentialsResponse": frozenset({"results"}),
    "DescribeUserScramCredentialsResponse": frozenset({"results", "credential_infos"}),
    "DescribeAclsResponse": frozenset({"resources", "acls"}),
    "AddPartitionsToTxnResponse": frozenset(
        {
            *("results_by_topic_v3_and_below", "results_by_partition"),
            *("results_by_transaction", "topic_results"),
        }
    ),
    "TxnOffsetCommitResponse": frozenset({"topics", "partitions"}),
    "WriteTxnMarkersResponse": frozenset({"markers", "topics", "partitions"}),
    "DescribeProducersResponse": frozenset({"topics", "partitions", "active_producers"}),
    "DescribeTransactionsResponse": frozenset({"topics", "partitions"}),
    "ListTransactionsResponse": frozenset({"unknown_state_filters", "transaction_states"}),
}
"""Lists that Kafka fills from a hash table."""
_BY_NAME: Final = {
    "configs": "name",
    "api_keys": "api_key",
    "supported_features": "name",
    "finalized_features": "name",
}
"""Long lists that are easier to compare, and to be told about, by what names their elements."""


class Facts(NamedTuple):
    """What is known of one broker before its answers are read."""

    ports: frozenset[int]
    cluster_id: str
    started_ms: int
    """By the wall clock. Records sent by tests are older than that."""
    topic_names: dict[bytes, str]
    """By id, as far as they are known; topics of one answer are told apart by them."""


class Identity(NamedTuple):
    """An id that a broker drew."""

    kind: str
    value: Any

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def normalised(answer: Struct, version: int, facts: Facts, about: Collection[str] = ()) -> Value:
    """`answer` as nested dicts and lists; the result does not depend on which broker gave it.

    With names in `about`, topics and groups of other names are left out.
    """
    unordered = _UNORDERED.get(schema_of(type(answer)).name, frozenset())
    masked = _masked("", _only(about, to_plain(answer, version)), facts)
    if isinstance(answer, FetchResponse):
        masked["responses"] = _by_topic(masked["responses"])
    return _sorted("", masked, unordered)


def _only(about: Collection[str], value: Value) -> Value:
    if not about:
        return value
    if isinstance(value, dict):
        return {name: _only(about, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [
            _only(about, element)
            for element in value
            if not isinstance(element, dict) or _name_of(element) in {None, *about}
        ]
    return value


def _name_of(element: dict[str, str]) -> str | None:
    names = ("name", "group_id", "topic", "resource_name", "transactional_id")
    return next((element[name] for name in names if name in element), None)


def _by_topic(responses: list[Value]) -> list[Value]:
    """Kafka tells of a topic in several places when some of its partitions fail."""
    topics: dict[str, Value] = {}
    for one in responses:
        partitions = one.pop("partitions")
        topics.setdefault(repr(one), one | {"partitions": []})["partitions"] += partitions
    return list(topics.values())


def _masked(field: str, value: Value, facts: Facts) -> Value:
    if isinstance(value, dict):
        return {name: _masked(name, inner, facts) for name, inner in value.items()}
    if isinstance(value, list):
        return [_masked(field, element, facts) for element in value]
    mask = _MASKS.get(field)
    if mask is not None:
        return mask(value, facts)
    if isinstance(value, str) and _UUID.search(value):
        return Identity(_UUID.sub("uuid", value), value)
    return value


def _if(condition: bool, mask: object, value: object) -> object:
    return mask if condition else value


def _topic_id(value: Value, facts: Facts) -> object:
    known = facts.topic_names.get(value)
    if known is not None:
        return f"<id of {known}>"
    return value if value == ZERO_UUID else Identity("topic id", value)


_MASKS: Final[Mapping[str, Callable[[Value, Facts], object]]] = {
    "port": lambda value, facts: _if(value in facts.ports, "<port>", value),
    "cluster_id": lambda value, facts: _if(value == facts.cluster_id, "<cluster id>", value),
    "topic_id": _topic_id,
    "producer_id": lambda value, _: _if(value >= 0, Identity("producer id", value), value),
    "records": lambda value, facts: value if value is None else batches(value, facts),
    **dict.fromkeys(
        _BROKERS_CLOCK, lambda value, facts: _if(value >= facts.started_ms, "<now>", value)
    ),
    **dict.fromkeys(
        _OF_THE_DISK, lambda value, _: _if(value not in {-1, ""}, "<of the disk>", value)
    ),
}


def batches(records: bytes, facts: Facts) -> list[dict[str, Value]]:
    """The batches in the records of a Fetch answer, each with its header's fields."""
    found = []
    position = 0
    while len(records) - position >= HEADER_BYTES:
        header = read_header(records, position)
        end = position + header.size_bytes
        if end > len(records):
            break
        fields: dict[str, Value] = header._asdict()
        if header.has_producer_id:
            fields["producer_id"] = Identity("producer id", header.producer_id)
        for name in ("base_timestamp", "max_timestamp"):
            if fields[name] >= facts.started_ms:
                fields[name] = "<now>"
        if header.has_producer_id or header.max_timestamp >= facts.started_ms:
            fields["crc"] = "<of the above>"
        found.append(fields | {"payload": records[position + HEADER_BYTES : end]})
        position = end
    return found


def _sorted(field: str, value: Value, unordered: frozenset[str]) -> Value:
    if isinstance(value, dict):
        return {name: _sorted(name, inner, unordered) for name, inner in value.items()}
    if isinstance(value, list):
        inner = [_sorted("", element, unordered) for element in value]
        if field in _BY_NAME:
            if not inner:
                return inner
            named = {element[_BY_NAME[field]]: element for element in inner}
            assert len(named) == len(inner), f"something is named twice in {field}"
            return named
        return sorted(inner, key=_rank) if field in unordered else inner
    return value


def _rank(element: Value) -> tuple[int, str]:
    """Producers in the order in which they got their ids: what is told of them may differ."""
    producer = element.get("producer_id") if isinstance(element, dict) else None
    return producer.value if isinstance(producer, Identity) else 0, repr(element)
