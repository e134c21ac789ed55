"""A coordinator that says what a test wants it to, and a member of its group, on virtual time.

All messages go through their codecs.
"""

import asyncio
from collections import deque
from typing import Any, cast

from kohort.client.config import config_from
from kohort.client.core.errors import ConsumerError
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.topics import TopicInfo
from kohort.client.group.coordinator import Coordinator
from kohort.client.group.member import MembershipShell
from kohort.client.group.offsets import GroupOffsets
from kohort.client.group.rebalance import Rebalance
from kohort.client.net.address import Address
from kohort.client.net.cluster import Cluster, ClusterConfig
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.metadata import MetadataConfig, MetadataKeeper
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from tests.support import messages as m
from tests.unit.client.scripted_brokers import TOPIC, TOPIC_ID, partition, travelled

A, B = partition(0), partition(1)
ME = Identity(5, "me", "cooperative-sticky")
HANGS_UP = "hangs up"


class ScriptedCoordinator:
    """Stores offsets, unless it was told to say something else."""

    def __init__(self) -> None:
        self.versions = ApiVersionTable({8: (2, 10), 9: (1, 10), 10: (0, 6)})
        self.faults: deque[ErrorCode | str] = deque()
        """What to say to the next requests, of their first partition."""
        self.search_faults: deque[ErrorCode] = deque()
        self.stored: dict[int, tuple[int, str, int]] = {}
        self.commits: list[m.OffsetCommitRequest] = []
        self.fetches: list[m.OffsetFetchRequest] = []
        self.request_versions: list[int] = []
        self.searches = 0

    async def call(self, request: Any, *, version: int, timeout_ms: int = 0) -> Any:  # noqa: ANN401
        """In place of BrokerConnection.call."""
        del timeout_ms
        await asyncio.sleep(0.001)
        request = travelled(request, version)
        if isinstance(request, m.FindCoordinatorRequest):
            self.searches += 1
            code = self.search_faults.popleft() if self.search_faults else ErrorCode.NONE
            found = FoundCoordinator(
                key="g", node_id=1, host="one", port=1, error_code=code, error_message=None
            )
            return travelled(m.FindCoordinatorResponse(coordinators=[found]), version)
        self.request_versions.append(version)
        fault = self.faults.popleft() if self.faults else ErrorCode.NONE
        if fault is HANGS_UP:
            raise DisconnectedError("it hung up")
        assert isinstance(fault, ErrorCode)
        if isinstance(request, m.OffsetCommitRequest):
            return travelled(self._commit(request, version, fault), version)
        return travelled(self._fetch(request, version, fault), version)

    def _commit(
        self, request: m.OffsetCommitRequest, version: int, fault: ErrorCode
    ) -> m.OffsetCommitResponse:
        self.commits.append(request)
        (topic,) = request.topics
        answers = []
        for one in topic.partitions:
            code, fault = fault, ErrorCode.NONE
            if not code:
                self.stored[one.partition_index] = (
                    one.committed_offset,
                    one.committed_metadata or "",
                    one.committed_leader_epoch,
                )
            answers.append(
                m.OffsetCommitResponsePartition(
                    partition_index=one.partition_index, error_code=code
                )
            )
        name: dict[str, Any] = {"name": TOPIC} if version < 10 else {"topic_id": TOPIC_ID}
        return m.OffsetCommitResponse(
            topics=[m.OffsetCommitResponseTopic(**name, partitions=answers)]
        )

    def _fetch(
        self, request: m.OffsetFetchRequest, version: int, fault: ErrorCode
    ) -> m.OffsetFetchResponse:
        self.fetches.append(request)
        grouped = version >= 8
        is_of_group = fault in {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        is_of_group = is_of_group or fault is ErrorCode.GROUP_AUTHORIZATION_FAILED
        group_code = fault if is_of_group and version >= 2 else ErrorCode.NONE
        topics: Any = request.groups[0].topics if grouped else request.topics
        found = []
        for index in topics[0].partition_indexes if not group_code else ():
            code, fault = fault, ErrorCode.NONE
            offset, text, epoch = self.stored.get(index, (-1, "", -1))
            found.append(
                m.OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=-1 if code else offset,
                    committed_leader_epoch=epoch,
                    metadata=text,
                    error_code=code,
                )
            )
        name: dict[str, Any] = {"name": TOPIC} if version < 10 else {"topic_id": TOPIC_ID}
        if not grouped:
            topic = m.OffsetFetchResponseTopic(name=TOPIC, partitions=found)
            return m.OffsetFetchResponse(topics=[topic], error_code=group_code)
        answer = m.OffsetFetchResponseTopic(**name, partitions=found)
        group = m.OffsetFetchResponseGroup(group_id="g", topics=[answer], error_code=group_code)
        return m.OffsetFetchResponse(groups=[group])


class ScriptedCluster(Cluster):
    """A cluster of one broker, which is the coordinator."""

    def __init__(self, broker: ScriptedCoordinator) -> None:
        super().__init__(ClusterConfig([Address("one", 1)], ConnectionConfig()))
        self._broker = broker
        self.purposes: list[str] = []
        self.learn_topic(TOPIC_ID)

    def learn_topic(self, topic_id: bytes | None) -> None:
        """Apply metadata in which the topic has this id, or does not exist."""
        info = TopicInfo(TOPIC, topic_id or b"", False, ErrorCode.NONE, {}, 2, {}, {})
        self.learn([info] if topic_id else [], is_complete=True)

    async def connection(self, address: Address, purpose: str = "") -> BrokerConnection:
        self.purposes.append(purpose)
        return cast("BrokerConnection", self._broker)

    async def any_connection(self) -> BrokerConnection:
        return cast("BrokerConnection", self._broker)


class RecordingObserver:
    """Records commits, and makes the coordinator be searched for again when it is lost."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.seconds: list[float] = []
        """The duration of each successful commit."""
        self.failures: list[ErrorCode] = []
        self.stale_count = 0
        """How often the metadata was reported to be stale."""

    def coordinator_lost(self) -> None:
        self._coordinator.lost()

    def metadata_stale(self) -> None:
        self.stale_count += 1

    def committed(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def commit_failed(self, error: ConsumerError) -> None:
        self.failures.append(error.code)

    def callback_due(self) -> None:
        """Pass: tests call the callbacks themselves."""


class Scene:
    """A member of a settled group, and what it commits with."""

    def __init__(self, *, instance_id: str | None = None) -> None:
        self.broker = ScriptedCoordinator()
        self.cluster = ScriptedCluster(self.broker)
        self.coordinator = Coordinator(self.cluster, "g")
        self.observer = RecordingObserver(self.coordinator)
        self.offsets = GroupOffsets(
            self.cluster,
            self.coordinator,
            group_instance_id=instance_id,
            backoff_ms=(100, 1000),
            observer=self.observer,
        )
        subscription = Subscription()
        subscription.subscribe([TOPIC])
        self.member = MembershipShell(
            config_from(
                {
                    "group_id": "g",
                    "group_instance_id": instance_id,
                    "partition_assignment_strategy": "cooperative-sticky",
                }
            ),
            coordinator=self.coordinator,
            metadata=MetadataKeeper(
                self.cluster,
                MetadataConfig(),
                wanted_topics=lambda: [TOPIC],
                on_updated=lambda: None,
            ),
            subscription=subscription,
            rebalance=cast("Rebalance", None),
            on_progress=lambda: None,
        )
        self.membership = self.member.membership
        self.settle()
        self.offsets.committer = self.member.commits

    def settle(self) -> None:
        self.membership.identity = ME
        self.membership.state = MemberState.STABLE
        self.membership._rejoin = None
        self.membership.coordinator_found()

    async def commit(self, offset: int = 1) -> None:
        await self.offsets.commit({A: OffsetAndMetadata(offset)}, 10)
