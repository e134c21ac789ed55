"""Two brokers that say what a test wants them to, to a fetcher on virtual time.

For what real brokers say only in trouble that cannot be made here: leaders that move, epochs that
do not fit. All messages go through their codecs.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Coroutine
from typing import Any, Final, cast

from kohort.client.config import ConsumerConfig
from kohort.client.core.fetch.deserialisers import NO_DESERIALISERS, Deserialisers
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.core.topics import Leader, TopicInfo
from kohort.client.fetch.fetcher import Fetcher
from kohort.client.net.address import Address
from kohort.client.net.cluster import Cluster, ClusterConfig
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import PartitionData
from kohort.protocol.messages.offset_for_leader_epoch import EpochEndOffset
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop
from tests.support import messages as m

TOPIC: Final = "t"
TOPIC_ID: Final = b"i" * 16
FETCH: Final = 1
LIST_OFFSETS: Final = 2
EPOCHS: Final = 23
SILENCE_MS: Final = 30_000
EARLIEST: Final = ConsumerConfig(auto_offset_reset="earliest")


def partition(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)


def run(test: Coroutine[Any, Any, None]) -> None:
    """On virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(VirtualClock())) as runner:
        runner.run(test)


class ScriptedBroker:
    """Holds logs of one-record batches, and tells what it is asked, or what it was told to."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.versions = ApiVersionTable({FETCH: (4, 18), LIST_OFFSETS: (1, 11), EPOCHS: (2, 4)})
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.faults: dict[int, deque[ErrorCode]] = defaultdict(deque)
        """What to say of a partition, once each."""
        self.epoch_faults: deque[ErrorCode] = deque()
        """What to say to questions about epochs."""
        self.epoch_ends: dict[int, tuple[int, int]] = {}
        """By partition: the epoch and its end; that of the log if nothing is given."""
        self.asked_epochs: list[tuple[int, int]] = []
        """The epochs of our leader and of the position."""
        self.named: dict[int, int] = {}
        """By partition the follower that it names to a client that says in which rack it is."""
        self.names_always = False
        """Also to who does not say it."""
        self.throttle_ms = 0
        self.is_down = False
        self.is_silent = False
        """Takes what it is sent, and does not answer."""
        self.requests: list[m.FetchRequest] = []
        self.request_versions: list[int] = []
        self.sent_count = 0
        """Count of all that were sent, also of those that are not here yet."""
        self._appended = asyncio.Event()

    def append(self, index: int, *values: bytes) -> None:
        self.logs[index] += values
        self._appended.set()
        self._appended = asyncio.Event()

    def send(self, request: Any, *, version: int) -> asyncio.Future[Any]:  # noqa: ANN401
        """In place of BrokerConnection.send, and so on."""
        self.sent_count += 1
        return asyncio.ensure_future(self.call(request, version=version, timeout_ms=0))

    async def answer(self, future: asyncio.Future[Any], request: type, timeout_ms: int) -> Any:  # noqa: ANN401
        del request, timeout_ms
        return await future

    async def call(self, request: Any, *, version: int, timeout_ms: int) -> Any:  # noqa: ANN401
        if self.is_down:
            raise DisconnectedError(f"broker {self.node_id} is down")
        if self.is_silent:
            await asyncio.sleep((timeout_ms or SILENCE_MS) / 1000)
            raise DisconnectedError(f"broker {self.node_id} does not answer")
        if isinstance(request, m.ListOffsetsRequest):
            return self._offsets(travelled(request, version))
        if isinstance(request, m.OffsetForLeaderEpochRequest):
            return travelled(self._epochs(travelled(request, version)), version)
        request = travelled(request, version)
        self.requests.append(request)
        self.request_versions.append(version)
        while True:
            appended = self._appended
            answer = self._answer(request, version)
            if answer is not None or not request.max_wait_ms:
                break
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await appended.wait()
            except TimeoutError:
                break
        found = answer or self._answer(request, version, is_late=True)
        return travelled(found, version)

    def _answer(
        self, request: m.FetchRequest, version: int, *, is_late: bool = False
    ) -> m.FetchResponse | None:
        """The answer; None while there is nothing to say yet."""
        data = [
            self._named(asked.partition)
            if (request.rack_id or self.names_always) and asked.partition in self.named
            else self._partition(asked.partition, asked.fetch_offset)
            for topic in request.topics
            for asked in topic.partitions
        ]
        is_news = any(
            one.records or one.error_code or one.preferred_read_replica >= 0 for one in data
        )
        if not is_news and request.max_wait_ms and not is_late:
            return None
        name: dict[str, Any] = (
            {"topic": TOPIC} if version < 13 else {"topic_id": request.topics[0].topic_id}
        )
        throttle_ms, self.throttle_ms = self.throttle_ms, 0
        return m.FetchResponse(
            throttle_time_ms=throttle_ms,
            responses=[m.FetchableTopicResponse(**name, partitions=data)],
        )

    def _named(self, index: int) -> PartitionData:
        return PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=len(self.logs[index]),
            aborted_transactions=None,
            preferred_read_replica=self.named[index],
            records=b"",
        )

    def _partition(self, index: int, offset: int) -> PartitionData:
        log, faults = self.logs[index], self.faults[index]
        code = faults.popleft() if faults else ErrorCode.NONE
        if code is ErrorCode.NONE and offset > len(log):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b""
        if code is ErrorCode.NONE:
            batches = enumerate(log[offset:], offset)
            records = b"".join(
                encode_batch([Record(value)], base_offset=at) for at, value in batches
            )
        return PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=len(log),
            aborted_transactions=None,
            records=records,
        )

    def _epochs(self, request: m.OffsetForLeaderEpochRequest) -> m.OffsetForLeaderEpochResponse:
        found = []
        for one in (one for topic in request.topics for one in topic.partitions):
            self.asked_epochs.append((one.current_leader_epoch, one.leader_epoch))
            code = self.epoch_faults.popleft() if self.epoch_faults else ErrorCode.NONE
            whole = one.leader_epoch, len(self.logs[one.partition])
            epoch, end = self.epoch_ends.get(one.partition, whole)
            found.append(
                EpochEndOffset(
                    partition=one.partition,
                    error_code=code,
                    leader_epoch=-1 if code else epoch,
                    end_offset=-1 if code else end,
                )
            )
        topic = m.OffsetForLeaderTopicResult(topic=TOPIC, partitions=found)
        return m.OffsetForLeaderEpochResponse(topics=[topic])

    def _offsets(self, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
        found = [
            m.ListOffsetsPartitionResponse(
                partition_index=one.partition_index,
                error_code=0,
                offset=0 if one.timestamp == -2 else len(self.logs[one.partition_index]),
            )
            for topic in request.topics
            for one in topic.partitions
        ]
        return m.ListOffsetsResponse(
            topics=[m.ListOffsetsTopicResponse(name=TOPIC, partitions=found)]
        )


def travelled(message: Any, version: int) -> Any:  # noqa: ANN401 - the same kind.
    """The message as it is after having been written and read."""
    coder = codec(type(message), version)
    out = bytearray()
    return coder.decode(b"".join(coder.encode_into(message, out)))[0]


class ScriptedCluster(Cluster):
    """Knows two brokers, who leads, and what a refresh will find."""

    def __init__(self, *leaders: int) -> None:
        super().__init__(ClusterConfig([Address("one", 1)], ConnectionConfig()))
        self.nodes = {1: ScriptedBroker(1), 2: ScriptedBroker(2)}
        self.is_connected = False
        self.online = [1, 2]
        """Nodes that have all partitions, as the metadata of the next `lead` says."""
        self.to_come = 0
        self.leaders_to_come: tuple[int, ...] | None = None
        """What the next refresh finds; None: nothing new."""
        for node_id in self.nodes:
            self._brokers[node_id] = Address("broker", node_id)
        self.lead(*leaders)

    def lead(self, *leaders: int, topic_id: bytes = TOPIC_ID, epoch: int = 5) -> None:
        """Set the leaders by partition, -1 for none."""
        known = {
            index: Leader(node_id, epoch) for index, node_id in enumerate(leaders) if node_id >= 0
        }
        info = TopicInfo(
            name=TOPIC,
            topic_id=topic_id,
            is_internal=False,
            error=ErrorCode.NONE,
            leaders=known,
            partition_count=len(leaders),
            replicas=dict.fromkeys(range(len(leaders)), self.online),
            epochs=dict.fromkeys(range(len(leaders)), epoch),
        )
        self.learn([info])

    async def refresh(self, topics: Collection[str] | None) -> None:
        del topics
        if self.leaders_to_come is not None:
            self.lead(*self.leaders_to_come)

    async def connection(self, address: Address, purpose: str = "") -> BrokerConnection:
        del purpose
        return cast("BrokerConnection", self.nodes[address.port])

    def connected(self, address: Address, purpose: str = "") -> BrokerConnection | None:
        del purpose
        return cast("BrokerConnection", self.nodes[address.port]) if self.is_connected else None

    @property
    def received_bytes(self) -> int:
        """A count as if something had come at each question, while there is something to come."""
        self.to_come = max(0, self.to_come - 1)
        return -self.to_come

    @received_bytes.setter
    def received_bytes(self, _: int) -> None:
        """There is nothing that it could count."""


class Scene:
    """A fetcher of some partitions, all at offset 0, led by the given brokers."""

    def __init__(
        self,
        *leaders: int,
        config: ConsumerConfig = EARLIEST,
        deserialisers: Deserialisers = NO_DESERIALISERS,
    ) -> None:
        self.cluster = ScriptedCluster(*leaders)
        self.one, self.two = self.cluster.nodes[1], self.cluster.nodes[2]
        self.positions = Positions()
        self.metadata_wanted = 0
        self.fetcher = Fetcher(
            self.cluster,
            self.positions,
            config,
            deserialisers,
            on_metadata_wanted=self._on_metadata_wanted,
        )
        self.fetcher.start()
        self.positions.set_assigned([partition(index) for index in range(len(leaders))])
        for index in range(len(leaders)):
            self.positions.seek(partition(index), 0)
        self.fetcher.assignment_changed()

    def _on_metadata_wanted(self) -> None:
        self.metadata_wanted += 1

    async def read(self, count: int) -> list[AnyRecord]:
        records: list[AnyRecord] = []
        async with asyncio.timeout(60):
            while len(records) < count:
                await self.fetcher.wait(1)
                for some in self.fetcher.take(count - len(records)).values():
                    records += some
        return records

    async def values(self, count: int) -> list[bytes]:
        return [record.value for record in await self.read(count)]
