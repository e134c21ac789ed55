"""The cluster as the client knows it: its brokers and topics, and the connections to them.

Connections are made when they are needed. Requests whose response a broker may delay have
connections of their own, because a broker answers one connection in order: fetches (`FETCHING`),
and requests to the group coordinator. All other requests share one connection per broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kohort.client.core.backoff import Backoffs
from kohort.client.core.errors import (
    BrokerUnreachableError,
    ConsumerError,
    UnknownTopicError,
    error_for,
)
from kohort.client.core.partitions import Node, PartitionInfo, TopicPartition
from kohort.client.core.topics import KnownTopics, Leader, TopicInfo
from kohort.client.net.address import Address
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kohort.protocol.types import ZERO_UUID

logger = logging.getLogger(__name__)

_UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

FETCHING: Final = "fetch"
"""Purpose of connections for fetches, which the broker delays while there is no data."""


class ClusterConfig(NamedTuple):
    bootstrap: Sequence[Address]
    connection: ConnectionConfig
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    creates_topics: bool = False
    """Whether requests for metadata may create missing topics (allow.auto.create.topics)."""


class Cluster:
    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._known = KnownTopics()
        self.topics: Mapping[str, TopicInfo] = self._known.infos
        self.cluster_id: str | None = None
        self.version = 0
        """Changes with every metadata response."""
        self.received_bytes = 0
        """Bytes received over all connections, without their handshakes."""
        self._brokers: dict[int, Address] = {}
        self._connections: dict[tuple[Address, str], asyncio.Task[BrokerConnection]] = {}
        self._backoffs: Backoffs[Address] = Backoffs(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random.random
        )
        self._may_connect_s: dict[Address, float] = {}
        self._is_closed = False

    # Connections.

    def broker(self, node_id: int) -> Address | None:
        """Return a broker's address; None if the latest metadata does not contain it."""
        return self._brokers.get(node_id)

    @property
    def addresses(self) -> list[Address]:
        """Addresses of all known brokers and of the bootstrap servers."""
        return list(dict.fromkeys((*self._brokers.values(), *self.config.bootstrap)))

    async def connection(self, address: Address, purpose: str = "") -> BrokerConnection:
        """Return an open connection, shared by all callers with the same purpose.

        Raises:
            DisconnectedError: connecting failed, or this client is closed.
            AuthenticationError, TokenError: see `open_connection`.
        """
        key = (address, purpose)
        task = self._connections.get(key)
        if task is not None and task.done() and _is_useless(task):
            task = None
        if task is None:
            if self._is_closed:
                raise DisconnectedError("this client is closed")
            task = asyncio.create_task(self._open(address), name=f"connect to {address}")
            self._connections[key] = task
        # If one caller is cancelled, the attempt continues for the others.
        return await asyncio.shield(task)

    def connected(self, address: Address, purpose: str = "") -> BrokerConnection | None:
        """Return the connection that `connection` would, if it is already open; else None."""
        task = self._connections.get((address, purpose))
        if task is None or not task.done() or _is_useless(task):
            return None
        return task.result()

    async def any_connection(self) -> BrokerConnection:
        """Connect to any broker that answers, preferring open connections.

        Raises:
            BrokerUnreachableError: no broker answers.
        """
        addresses = self.addresses
        connected = [address for address in addresses if self.connected(address) is not None]
        others = [address for address in addresses if address not in connected]
        random.shuffle(others)
        failures: list[str] = []
        for address in (*connected, *others):
            try:
                return await self.connection(address)
            except DisconnectedError as error:
                failures.append(str(error))
        raise BrokerUnreachableError(
            f"no broker can be reached: {'; '.join(failures)}; check bootstrap_servers, and that"
            " the broker's advertised.listeners name addresses that can be reached from here",
            ErrorCode.NETWORK_EXCEPTION,
        )

    async def close(self) -> None:
        self._is_closed = True
        tasks = [task for task in self._connections.values() if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in self._connections.values():
            if not task.cancelled() and task.exception() is None:
                task.result().close()
                await task.result().wait_closed()

    async def _open(self, address: Address) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        wait_s = self._may_connect_s.get(address, 0) - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        try:
            connection = await open_connection(*address, self.config.connection)
        except ConsumerError:
            # Back off after failed authentication, too: repeated attempts could lock the user out.
            self._may_connect_s[address] = loop.time() + self._backoffs.fail(address) / 1000
            raise
        self._backoffs.succeed(address)
        connection.on_received = self._received
        return connection

    def _received(self, byte_count: int) -> None:
        self.received_bytes += byte_count

    # Metadata.

    async def refresh(self, topics: Collection[str] | None) -> None:
        """Fetch metadata of these topics, or of all; other known topics are kept.

        Raises:
            BrokerUnreachableError, DisconnectedError: no broker answers.
        """
        self._take(await self._ask(topics), is_complete=topics is None)

    async def partitions(self, topic: str) -> list[PartitionInfo]:
        """Fetch all partitions of a topic, in order.

        Raises:
            BrokerUnreachableError, DisconnectedError: no broker answers.
            UnknownTopicError, AuthorizationError: the topic does not exist, or access is denied.
        """
        answer = await self._ask([topic])
        code = ErrorCode(answer.topics[0].error_code) if answer.topics else _UNKNOWN_TOPIC
        if code in {_UNKNOWN_TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION}:
            raise UnknownTopicError(f"no such topic: {topic}", code)
        if code is not ErrorCode.NONE:
            raise error_for(code, f"requesting the partitions of {topic}")
        self._take(answer, is_complete=False)
        return _partitions(topic, answer)

    async def _ask(self, topics: Collection[str] | None) -> MetadataResponse:
        connection = await self.any_connection()
        # Topics are requested by name; from version 10 on the response includes their ids.
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=self.config.creates_topics,
        )
        answer: MetadataResponse = await connection.call(request)
        return answer

    def _take(self, answer: MetadataResponse, *, is_complete: bool) -> None:
        self.cluster_id = answer.cluster_id
        self._brokers = {
            broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers
        }
        self.learn(
            [_info(topic) for topic in answer.topics if topic.name is not None],
            is_complete=is_complete,
        )

    def learn(self, topics: Iterable[TopicInfo], *, is_complete: bool = False) -> None:
        """Apply the topics of a response; with `is_complete` all others are dropped."""
        self.version += 1
        self._known.learn(topics, is_complete=is_complete)

    def topic_ids(self) -> dict[str, bytes]:
        """Return the ids of the known topics, by name; brokers before Kafka 2.8 send none."""
        return {
            name: info.topic_id for name, info in self.topics.items() if info.topic_id != ZERO_UUID
        }

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition counts of those topics that are known to exist."""
        known = ((topic, self.topics.get(topic)) for topic in topics)
        return {
            topic: info.partition_count
            for topic, info in known
            if info is not None and info.partition_count
        }

    def is_online(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether this broker has a replica of the partition, and the broker's address is known."""
        info = self.topics.get(partition.topic)
        replicas = () if info is None else info.replicas.get(partition.partition, ())
        return node_id in replicas and node_id in self._brokers

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition, None if it is unknown."""
        info = self.topics.get(partition.topic)
        return None if info is None else info.leaders.get(partition.partition)


def _partitions(topic: str, answer: MetadataResponse) -> list[PartitionInfo]:
    nodes = {
        broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in answer.brokers
    }

    def named(ids: Iterable[int]) -> list[Node]:
        # An offline broker is not in the list of brokers.
        return [nodes.get(node_id) or Node(node_id, "", -1) for node_id in ids]

    return [
        PartitionInfo(
            topic,
            partition.partition_index,
            nodes.get(partition.leader_id),
            named(partition.replica_nodes),
            named(partition.isr_nodes),
            named(partition.offline_replicas),
        )
        for partition in sorted(
            answer.topics[0].partitions, key=lambda partition: partition.partition_index
        )
    ]


def _info(topic: MetadataResponseTopic) -> TopicInfo:
    partitions = topic.partitions
    return TopicInfo(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        error=ErrorCode(topic.error_code),
        leaders={
            partition.partition_index: Leader(partition.leader_id, partition.leader_epoch)
            for partition in partitions
            if partition.leader_id >= 0
        },
        partition_count=len(partitions),
        replicas={
            partition.partition_index: [
                node for node in partition.replica_nodes if node not in offline
            ]
            if (offline := partition.offline_replicas)
            else partition.replica_nodes
            for partition in partitions
        },
        epochs={partition.partition_index: partition.leader_epoch for partition in partitions},
    )


def _is_useless(task: asyncio.Task[BrokerConnection]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().is_closed
