"""A request is answered the same whether it is executed as a whole or in parts."""

import sys
from collections.abc import Callable
from copy import copy
from random import Random
from typing import Any, Final

import pytest

from kohort.broker.app import Broker
from kohort.broker.dispatch.dispatcher import Dispatcher
from kohort.broker.dispatch.registry import Api, Router
from kohort.broker.handlers import load_handlers
from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
)
from kohort.protocol.schema import Field
from kohort.protocol.types import ZERO_UUID
from kohort.testing.virtual_kafka import VirtualKafka
from tests.support import messages as m
from tests.support.network.wire import request_body, response_in

REQUESTS: Final = (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    m.AlterPartitionReassignmentsRequest,
    m.CreateAclsRequest,
    m.DeleteAclsRequest,
    m.DeleteGroupsRequest,
    m.DescribeGroupsRequest,
    m.DescribeProducersRequest,
    m.DescribeQuorumRequest,
    m.DescribeTransactionsRequest,
    m.ElectLeadersRequest,
    m.FindCoordinatorRequest,
    m.LeaveGroupRequest,
    m.MetadataRequest,
    m.OffsetCommitRequest,
    m.OffsetDeleteRequest,
    m.OffsetForLeaderEpochRequest,
    m.TxnOffsetCommitRequest,
)
"""The APIs with long requests of many elements that are answered one by one."""

APIS: Final = {api.request: api for api in load_handlers().values()}
ROUNDS: Final = 100
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "group.coordinator.rebalance.protocols": "classic",
}
START_MS: Final = 1_800_000_000_000
"""Wall clock time at the start."""
TOPICS: Final = ("t", "u")
DENIED: Final = "denied"
IDS: Final = ("id", "other")


class Chance:
    """Generates requests whose values often exist in the broker, and often repeat."""

    def __init__(self, seed: int, broker: Broker) -> None:
        self.random = Random(seed)
        ids = [topic.topic_id for name in TOPICS if (topic := broker.services.topics.get(name))]
        topics = (*TOPICS, DENIED, "unknown", "not/valid", "__cluster_metadata")
        groups = ("a", "b", "none", "")
        rules = ("r", "s")
        self.values: dict[str, tuple[Any, ...]] = {
            "name": topics,
            "topic": topics,
            "topic_name": topics,
            "topic_id": (ZERO_UUID, b"\7" * 16, *ids),
            "partition_index": (-1, 0, 0, 1, 2, 3),
            "partition": (-1, 0, 0, 1, 2, 3),
            "partitions": (-1, 0, 0, 1, 2, 3),
            "partition_indexes": (-1, 0, 0, 1, 2, 3),
            "replicas": (1, 1, 2),
            "election_type": (0, 1, 2),
            "group_id": groups,
            "group_instance_id": ("x", "y", "z", None),
            "groups": groups,
            "groups_names": groups,
            "transactional_id": IDS,
            "transactional_ids": (*IDS, "none"),
            "coordinator_keys": groups,
            "key": groups,
            "key_type": (0, 0, 1, 2),
            "start_offset": (-2, -1, 0, 1, 2),
            "committed_offset": (0, 1, 2, 3),
            "committed_metadata": ("", "m", "m" * 4_097),
            "generation_id_or_member_epoch": (-1, -1, -1, 0),
            "resource_name": rules,
            "resource_name_filter": (*rules, None),
            "resource_type": (2, 3, 99),
            "resource_type_filter": (1, 1, 2, 3, 99),
            "resource_pattern_type": (3, 4),
            "pattern_type_filter": (1, 3),
            "operation": (3, 4, 8),
            "permission_type": (2, 3),
            "principal": ("User:p",),
            "principal_filter": ("User:p",),
            "host": ("*",),
            "host_filter": ("*", None),
        }

    def message(self, kind: type[Any], version: int) -> Any:  # noqa: ANN401
        fields = [field for field in schema_of(kind).fields if version in field.versions]
        return kind(**{field.name: self._value(field, version) for field in fields})

    def _value(self, field: Field, version: int) -> Any:  # noqa: ANN401
        if not field.is_array:
            return self._element(field, version)
        if version in field.nullable and not self.random.randrange(10):
            return None
        return [self._element(field, version) for _ in range(self.random.choice((0, 1, 2, 3, 9)))]

    def _element(self, field: Field, version: int) -> Any:  # noqa: ANN401
        if isinstance(field.kind, type):
            return self.message(field.kind, version)
        if field.name in self.values:
            return self.random.choice(self.values[field.name])
        return field.make_default()


class Client:
    def __init__(self, broker: Broker, api_of: Callable[[Api], Api]) -> None:
        self._router = Router({key: api_of(api) for key, api in load_handlers().items()})
        log = broker.services.log
        assert isinstance(log, PeerLog)
        self._dispatcher = Dispatcher(self._router, broker.services, EdgeMetrics(), log)
        self._connection = ConnectionInfo("/127.0.0.1")

    def begin(self, request: Any, version: int) -> None:  # noqa: ANN401
        self._dispatcher.serve(self._connection, request_body(request, version))

    async def send(self, request: Any, version: int) -> Any:  # noqa: ANN401
        answer: Any = self._dispatcher.serve(self._connection, request_body(request, version))
        if isinstance(answer, Deferred):
            answer = await answer
        key = schema_of(type(request)).key
        assert key is not None
        response: Any = response_in(b"".join(answer)[4:], RESPONSES[key], version)
        _clear_times(response)
        return response


def _clear_times(message: Any) -> None:  # noqa: ANN401
    """Parts may take a few milliseconds longer, so times may differ."""
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name.endswith(("_timestamp", "_time_ms")):
            setattr(message, field.name, 0)
        elif isinstance(field.kind, type) and field.is_array:
            for element in value or ():
                _clear_times(element)


def as_a_whole(api: Api) -> Api:
    return _changed(api, long_bytes=sys.maxsize)


def in_parts(part_max: int) -> Callable[[Api], Api]:
    return lambda api: _changed(api, long_bytes=0, part_max=part_max)


def _changed(api: Api, **attributes: int) -> Api:
    changed = copy(api)
    for name, value in attributes.items():
        setattr(changed, name, value)
    return changed


async def prepare(chance: Chance, client: Client) -> None:
    for instance_id in "xyz":
        join = m.JoinGroupRequest(
            group_id="members",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            member_id="",
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client.begin(join, 9)
    deny = m.AclCreation(
        resource_type=2,
        resource_name=DENIED,
        resource_pattern_type=3,
        principal="User:*",
        host="*",
        operation=2,
        permission_type=2,
    )
    await client.send(m.CreateAclsRequest(creations=[deny]), 3)
    producer = await client.send(
        m.InitProducerIdRequest(transactional_id=IDS[0], transaction_timeout_ms=60_000), 5
    )
    chance.values["producer_id"] = (producer.producer_id,)
    chance.values["producer_epoch"] = (producer.producer_epoch,)


def answers(seed: int, api_of: Callable[[Api], Api]) -> list[tuple[Any, int, Any]]:
    """The responses of a new broker to the random requests of this seed."""
    kafka = VirtualKafka(SETTINGS, seed=seed)
    kafka.clock.jump_wall(START_MS - kafka.clock.wall_ms())

    async def work() -> list[tuple[Any, int, Any]]:
        for name in (*TOPICS, DENIED):
            await kafka.create_topic(name, partitions=2)
        broker = kafka._kit.broker
        chance, client = Chance(seed, broker), Client(broker, api_of)
        await prepare(chance, client)
        told = []
        for _ in range(ROUNDS):
            kind = chance.random.choice(REQUESTS)
            api = APIS[kind]
            version = chance.random.randint(api.versions.low, api.versions.high)
            request = chance.message(kind, version)
            if isinstance(request, m.LeaveGroupRequest):
                # Each part starts a rebalance, so other requests to this group may differ.
                request.group_id = "members"
            if isinstance(request, AlterShareGroupOffsetsRequest | DeleteShareGroupOffsetsRequest):
                # Entries of a topic are merged in the response, but not across parts.
                named: Any = request.topics
                request.topics = list({topic.topic_name: topic for topic in named}.values())
            told.append((request, version, await client.send(request, version)))
        return told

    try:
        return kafka.run(work())
    finally:
        kafka.close()


@pytest.mark.parametrize("seed", range(25))
def test_a_split_request_is_answered_like_a_whole_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answers(seed, as_a_whole)
    part_max = 1 + seed % 5
    monkeypatch.setattr("kohort.broker.handlers.txn_offset_commit.PART_MAX", part_max)
    split = answers(seed, in_parts(part_max))
    for (request, version, expected), (repeated, _, given) in zip(whole, split, strict=True):
        assert repeated == request
        assert given == expected, f"v{version} of {request}"


def test_all_split_apis_are_compared() -> None:
    assert {api.request for api in APIS.values() if api.parts} <= set(REQUESTS)
