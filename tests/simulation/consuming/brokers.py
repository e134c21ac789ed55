"""A cluster of brokers that are not there: logs, leaders and one group, behind real requests.

The group is the broker's own, so that membership and permission to commit are decided as in
production. Brokers come back under other addresses, lead other partitions, and
look after the group in turn.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from kohort.client.net.address import Address
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import API_VERSIONS_KEY, read_request_prefix, skip_header_tags
from kohort.protocol.message import REQUESTS, schema_of
from kohort.protocol.messages.fetch import PartitionData
from kohort.protocol.messages.offset_for_leader_epoch import EpochEndOffset
from tests.simulation.consuming.coordination import Answer, Committed, Coordination
from tests.simulation.consuming.group_host import GroupHost
from tests.simulation.consuming.network import Host, Network, Wire
from tests.simulation.consuming.records import BATCHES, PARTITIONS, TOPIC, TOPIC_ID, log
from tests.support import messages as m

NODES: Final = 3
FETCHED_BATCHES: Final = 4
"""Batches of one partition in one answer."""

_VERSIONS: Final = {
    m.FetchRequest: (4, 12),
    m.ListOffsetsRequest: (1, 7),
    m.MetadataRequest: (0, 12),
    m.OffsetCommitRequest: (2, 9),
    m.OffsetFetchRequest: (8, 9),
    m.FindCoordinatorRequest: (4, 6),
    m.JoinGroupRequest: (5, 9),
    m.HeartbeatRequest: (3, 4),
    m.LeaveGroupRequest: (3, 5),
    m.SyncGroupRequest: (3, 5),
    m.ApiVersionsRequest: (0, 3),
    m.OffsetForLeaderEpochRequest: (2, 4),
}


class Cluster:
    def __init__(self, network: Network, on_committed: Committed) -> None:
        self.network = network
        self.on_committed = on_committed
        self.ends = [0] * PARTITIONS
        """In batches."""
        self.leaders = [number % NODES for number in range(PARTITIONS)]
        self.epochs = [0] * PARTITIONS
        self.coordinator = 0
        self.group = GroupHost(TOPIC, PARTITIONS)
        self.nodes = [Node(self, number) for number in range(NODES)]
        self.appended = asyncio.Event()

    @property
    def bootstrap(self) -> str:
        """The setting's value: addresses that every process knows from the beginning."""
        return ",".join(f"bootstrap{node.number}:9092" for node in self.nodes)

    def end(self, partition: int) -> int:
        """The offset behind the last record."""
        return log()[0][self.ends[partition]]

    def append(self, partition: int, batches: int) -> None:
        self.ends[partition] = min(self.ends[partition] + batches, BATCHES)
        self.appended.set()
        self.appended = asyncio.Event()

    def lead(self, partition: int, node: int) -> None:
        if self.leaders[partition] != node:
            self.leaders[partition] = node
            self.epochs[partition] += 1

    def coordinate(self, node: int) -> None:
        """Start the group's coordinator again, there; clients of the old one hear nothing."""
        before = self.nodes[self.coordinator].address
        self.coordinator = node
        self.group.restart()
        self.network.lose(lambda wire: wire.address == before)


class Node:
    """One broker: answers every request that it can."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.number = number
        self.cluster = cluster
        self._coordination = Coordination(
            cluster.group, lambda: cluster.coordinator == number, cluster.on_committed
        )
        self._moves = 0
        self.address = Address("", 0)
        network = cluster.network
        # A name in front of the brokers, as in Kubernetes: it leads to a running broker.
        network.set_host(Address(f"bootstrap{number}", 9092), Host.UP, self)
        self.move()

    def move(self) -> None:
        """The same broker, at another address; nothing answers at the old one."""
        if self._moves:
            self.cluster.network.set_host(self.address, Host.SILENT)
        self._moves += 1
        self.address = Address(f"broker{self.number}", self._moves)
        self.cluster.network.set_host(self.address, Host.UP, self)

    def set_state(self, state: Host) -> None:
        """Set the state of the broker, by whatever name it is reached."""
        for address in (self.address, Address(f"bootstrap{self.number}", 9092)):
            self.cluster.network.set_host(address, state)

    def received(self, wire: Wire, frame: bytes) -> None:
        key = int.from_bytes(frame[:2], "big")
        version = int.from_bytes(frame[2:4], "big")
        kind = REQUESTS[key]
        schema = schema_of(kind)
        is_flexible = schema.is_flexible(version)
        header, position = read_request_prefix(frame)
        if is_flexible:
            position = skip_header_tags(frame, position)
        request: Any = codec(kind, version).decode(frame, position)[0]
        has_tags = is_flexible and key != API_VERSIONS_KEY

        def answer(response: object) -> None:
            begin = header.correlation_id.to_bytes(4, "big") + (b"\x00" if has_tags else b"")
            wire.answer(begin + codec(type(response), version).encode(response))

        name = kind.__name__.removesuffix("Request")
        handler = getattr(self._coordination, name, None) or getattr(self, f"_{name}")
        handler(request, answer, wire)

    # The cluster.

    def _ApiVersions(self, _: m.ApiVersionsRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        keys = []
        for kind, (low, high) in _VERSIONS.items():
            key = schema_of(kind).key
            assert key is not None
            keys.append(m.ApiVersion(api_key=key, min_version=low, max_version=high))
        answer(m.ApiVersionsResponse(error_code=0, api_keys=keys))

    def _Metadata(self, _: m.MetadataRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        cluster = self.cluster
        partitions = [
            m.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=leader,
                leader_epoch=cluster.epochs[number],
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for number, leader in enumerate(cluster.leaders)
        ]
        topic = m.MetadataResponseTopic(
            error_code=0, name=TOPIC, topic_id=TOPIC_ID, partitions=partitions
        )
        brokers = [
            m.MetadataResponseBroker(
                node_id=one.number, host=one.address.host, port=one.address.port
            )
            for one in cluster.nodes
        ]
        answer(m.MetadataResponse(brokers=brokers, topics=[topic]))

    def _FindCoordinator(  # noqa: N802
        self, request: m.FindCoordinatorRequest, answer: Answer, wire: Wire
    ) -> None:
        node = self.cluster.nodes[self.cluster.coordinator]
        found = m.Coordinator(
            key=request.coordinator_keys[0],
            node_id=node.number,
            host=node.address.host,
            port=node.address.port,
            error_code=0,
            error_message=None,
        )
        answer(m.FindCoordinatorResponse(coordinators=[found]))

    # Logs.

    def _leads(self, partition: int) -> bool:
        return self.cluster.leaders[partition] == self.number

    def _ListOffsets(self, request: m.ListOffsetsRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        found = []
        for one in (one for topic in request.topics for one in topic.partitions):
            index = one.partition_index
            is_ours = self._leads(index)
            found.append(
                m.ListOffsetsPartitionResponse(
                    partition_index=index,
                    error_code=0 if is_ours else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    offset=0 if one.timestamp == -2 else self.cluster.end(index),
                )
            )
        answer(
            m.ListOffsetsResponse(topics=[m.ListOffsetsTopicResponse(name=TOPIC, partitions=found)])
        )

    def _OffsetForLeaderEpoch(  # noqa: N802
        self, request: m.OffsetForLeaderEpochRequest, answer: Answer, wire: Wire
    ) -> None:
        found = []
        for one in (one for topic in request.topics for one in topic.partitions):
            is_ours = self._leads(one.partition)
            found.append(
                EpochEndOffset(
                    partition=one.partition,
                    error_code=0 if is_ours else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    leader_epoch=one.leader_epoch,
                    end_offset=self.cluster.end(one.partition),
                )
            )
        topic = m.OffsetForLeaderTopicResult(topic=TOPIC, partitions=found)
        answer(m.OffsetForLeaderEpochResponse(topics=[topic]))

    def _Fetch(self, request: m.FetchRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        if (found := self._fetched(request)) is not None:
            answer(found)
            return

        async def wait() -> None:
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    while self._fetched(request) is None:
                        await self.cluster.appended.wait()
            except TimeoutError:
                pass
            answer(self._fetched(request) or m.FetchResponse(responses=[]))

        task = asyncio.ensure_future(wait())
        self.cluster.network.waiting.add(task)
        task.add_done_callback(self.cluster.network.waiting.discard)

    def _fetched(self, request: m.FetchRequest) -> m.FetchResponse | None:
        """The answer; None while there is nothing to say yet."""
        data = list(self._partitions(request))
        if not any(one.records or one.error_code for one in data):
            return None
        return m.FetchResponse(responses=[m.FetchableTopicResponse(topic=TOPIC, partitions=data)])

    def _partitions(self, request: m.FetchRequest) -> Iterator[PartitionData]:
        begins, batches = log()
        for one in (one for topic in request.topics for one in topic.partitions):
            index = one.partition
            code, records = ErrorCode.NONE, b""
            if not self._leads(index):
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif one.fetch_offset > self.cluster.end(index):
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                first = bisect_right(begins, one.fetch_offset) - 1
                last = min(self.cluster.ends[index], first + FETCHED_BATCHES)
                records = b"".join(batches[first:last])
            yield PartitionData(
                partition_index=index,
                error_code=code,
                high_watermark=self.cluster.end(index),
                aborted_transactions=None,
                records=records,
            )
