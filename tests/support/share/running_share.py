"""ShareFetch and ShareAcknowledge in front of real topics, without members and a network."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kohort.broker.assembly.share import make_share_delivery
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.share.delivery import ShareDelivery
from kohort.broker.share.maintenance import InitializedGroup
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.groups.events import SharePartitionsForgotten, SharePartitionsInitialized
from kohort.groups.requests import Now
from kohort.groups.share.records import StoredTopic
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import share_acknowledge as acks
from kohort.protocol.messages import share_fetch as fetches
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record
from kohort.testing.inline_executor import InlineExecutor
from tests.support.brokers.running_topics import running_topics
from tests.support.groups.coordinators import group_coordinator
from tests.support.groups.running_groups import RunningGroups, answered
from tests.support.transactions.running_transactions import DIRECTORY, Disk

GROUP = "g"
TOPIC = "t"


class Acquired(NamedTuple):
    """A range of acquired records in partition 0."""

    first: int
    last: int
    delivery_count: int


class RunningShare(RunningGroups):
    """A broker as far as ShareFetch and ShareAcknowledge need one, with a topic of two partitions
    that the group has initialized.
    """

    def __init__(
        self, topics: TopicManager, delivery: ShareDelivery, purgatory: Purgatory, clock: Clock
    ) -> None:
        super().__init__(topics, group_coordinator(purgatory, clock))
        self.delivery = delivery
        self.clock = clock
        self.services.share_delivery = delivery
        self.services.clock = clock
        self.services.purgatory = purgatory
        self.connection = ConnectionInfo("/127.0.0.1")
        self.epochs: dict[str, int] = {}

    @property
    def topic_id(self) -> bytes:
        topic = self.topics.get(TOPIC)
        assert topic is not None
        return topic.topic_id

    def initialize(self, partitions: Sequence[int] = (0, 1), *, grown: bool = False) -> None:
        """Report partitions as initialized, as a group does."""
        event = SharePartitionsInitialized(
            2,
            {self.topic_id: (TOPIC, tuple(partitions))},
            frozenset([self.topic_id]) if grown else frozenset(),
        )
        self.delivery.partitions.observe(GROUP, event, Now(0, 0))

    def forget(self, *partitions: int) -> None:
        event = SharePartitionsForgotten(tuple((self.topic_id, number) for number in partitions))
        self.delivery.partitions.observe(GROUP, event, Now(0, 0))

    @property
    def log(self) -> Partition:
        """Partition 0."""
        log = self.topics.partition(TOPIC, 0)
        assert log is not None
        return log

    def abort(self, producer_id: int) -> None:
        """Abort the transaction of a producer in partition 0."""
        self.log.append_marker(
            producer_id,
            0,
            ControlType.ABORT,
            coordinator_epoch=0,
            transaction_version=1,
            wall_ms=self.clock.wall_ms(),
        )

    def produce(self, count: int = 1, *, partition: int = 0, **batch: Any) -> None:  # noqa: ANN401
        """Append one batch of records."""
        log = self.topics.partition(TOPIC, partition)
        assert log is not None
        now = self.clock.wall_ms()
        encoded = encode_batch([Record(b"v", timestamp=now) for _ in range(count)], **batch)
        log.append(encoded, read_header(encoded), wall_ms=now, is_numbered=False)

    def fetch(
        self,
        member: str = "m",
        *,
        epoch: int | None = None,
        acknowledge: Iterable[tuple[int, int, int]] = (),
        partitions: Sequence[int] | None = None,
        version: int = 2,
        connection: ConnectionInfo | None = None,
        **changes: Any,  # noqa: ANN401
    ) -> asyncio.Future[fetches.ShareFetchResponse]:
        """Send a ShareFetch; it names partition 0 if it opens the session.

        Args:
            member: its id.
            epoch: that of the session; the next one of this member if None.
            acknowledge: (first offset, last offset, type) in partition 0.
            partitions: those to name.
            version: of the request.
            connection: on which it is sent; the common one if None.
            **changes: of other fields.
        """
        if epoch is None:
            epoch = self.epochs.get(member, 0)
        self.epochs[member] = epoch + 1
        batches = _batches(acknowledge)
        if partitions is None:
            partitions = [0] if epoch == 0 or batches else []
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member,
            "share_session_epoch": epoch,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "topics": [
                fetches.FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        fetches.FetchPartition(
                            partition_index=number,
                            acknowledgement_batches=[] if number else batches,
                        )
                        for number in partitions
                    ],
                )
            ],
            "forgotten_topics_data": [],
        }
        request = fetches.ShareFetchRequest(**fields | changes)
        return asyncio.ensure_future(
            answered(self.services, request, version, connection or self.connection)
        )

    async def acquire(self, member: str = "m", **arguments: Any) -> list[Acquired]:  # noqa: ANN401
        """Send a ShareFetch and return what it acquires in partition 0."""
        return acquired(await self.fetch(member, **arguments))

    def acknowledge(
        self,
        batches: Iterable[tuple[int, int, int]],
        member: str = "m",
        *,
        epoch: int | None = None,
        version: int = 2,
        **changes: Any,  # noqa: ANN401
    ) -> asyncio.Future[acks.ShareAcknowledgeResponse]:
        """Send a ShareAcknowledge; its arguments are those of `fetch`."""
        if epoch is None:
            epoch = self.epochs.get(member, 0)
        self.epochs[member] = epoch + 1
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member,
            "share_session_epoch": epoch,
            "topics": [
                acks.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        acks.AcknowledgePartition(
                            partition_index=0, acknowledgement_batches=_batches(batches)
                        )
                    ],
                )
            ],
        }
        request = acks.ShareAcknowledgeRequest(**fields | changes)
        return asyncio.ensure_future(answered(self.services, request, version, self.connection))

    async def accept(self, first: int, last: int, member: str = "m") -> ErrorCode:
        """Accept records of partition 0; return the error."""
        response = await self.acknowledge([(first, last, 1)], member)
        (partition,) = response.responses[0].partitions
        return ErrorCode(partition.error_code)


def _batches(batches: Iterable[tuple[int, int, int]]) -> list[acks.AcknowledgementBatch]:
    return [
        acks.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in batches
    ]


def acquired(response: fetches.ShareFetchResponse) -> list[Acquired]:
    """Return what a response acquires in partition 0."""
    assert not response.error_code, ErrorCode(response.error_code)
    return [
        Acquired(records.first_offset, records.last_offset, records.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        if partition.partition_index == 0
        for records in partition.acquired_records
    ]


@asynccontextmanager
async def running_share(
    clock: Clock,
    *overrides: str,
    disk: Disk | None = None,
    stop_cleanly: bool = True,
    policy: str = "earliest",
    initialized: Sequence[int] = (0, 1),
    **group: str,
) -> AsyncIterator[RunningShare]:
    """Started at the beginning, closed at the end.

    Args:
        clock: of everything.
        *overrides: of settings.
        disk: what another has left, or a new one.
        stop_cleanly: else it ends as if the process were killed.
        policy: where the group begins.
        initialized: partitions that the group has initialized, as it knows after a restart.
        **group: other configs of the group, with underscores for dots.
    """
    disk = disk or Disk()
    async with running_topics(
        DIRECTORY,
        *overrides,
        clock=clock,
        files=disk.files,
        store=disk.store,
        stop_cleanly=stop_cleanly,
        # The disk is nothing for several threads at once.
        executor=InlineExecutor(),
    ) as topics:
        is_new = topics.get(TOPIC) is None
        if is_new:
            await topics.changes.create_topic(TOPIC, partition_count=2)
            configs = {name.replace("_", "."): value for name, value in group.items()}
            configs["share.auto.offset.reset"] = policy
            await topics.changes.alter_group(GROUP, lambda _: configs)
        purgatory = topics._purgatory
        shell = PurgatoryShell(purgatory, clock)
        delivery = make_share_delivery(topics, purgatory, clock, BackgroundTasks(clock))
        running = RunningShare(topics, delivery, purgatory, clock)
        if is_new:
            preparing = delivery.prepare()
            assert preparing is not None
            await preparing
            running.initialize(initialized)
        else:
            stored = {running.topic_id: StoredTopic(TOPIC, tuple(initialized))}
            await delivery.maintenance.load([InitializedGroup(GROUP, 2, stored)])
        try:
            yield running
        finally:
            if stop_cleanly:
                await delivery.close()
            shell.close()
