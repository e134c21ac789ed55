"""``kohort watch`` on a cluster that hides __consumer_offsets: it describes all groups, again and
again.
"""

from collections.abc import Container, Iterator, Sequence
from time import sleep, time

from kohort.admin.cluster import Cluster
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.errors import DisconnectedError
from kohort.groups.history.names import UNKNOWN_GENERATION
from kohort.groups.kinds import DEAD, GroupKind
from kohort.groups.records import GroupRecord, StoredMember
from kohort.groups.requests import CONSUMER
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages import consumer_group_describe as consumer_groups
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kohort.protocol.messages.groups import DescribedGroup, ListedGroup
from kohort.watch.core.polled import Json, PolledGroups, Snapshot
from kohort.watch.core.watcher import GROUPS_MAX
from kohort.watch.follow import POLL_S
from kohort.watch.log_files import LogFiles
from kohort.watch.poller import DENIALS, GROUPS_AT_ONCE, described, listed
from kohort.watch.reader import Report


class NoGroups:
    """Stands for a follower while the cluster has no groups."""

    lag = 0
    trouble: str | None = None

    def __init__(self) -> None:
        self.watcher = PolledGroups(0)


class PollFollower:
    """Polls all groups that the user may see, and yields each rebalance when it is known."""

    def __init__(
        self,
        cluster: Cluster,
        left_out: Container[str],
        logs: LogFiles | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """Args:
        cluster: whose groups to poll.
        left_out: groups not to follow.
        logs: of the brokers.
        poll_s: how often to poll.
        """
        self._poll_s = poll_s
        self._logs = logs
        self._cluster = cluster
        self._left_out = left_out
        self._groups = PolledGroups(GROUPS_MAX)
        self.denials: set[int] = set()
        """Errors of groups that may not be described."""
        self.is_blind = False
        """Whether the last poll showed no group at all."""
        self.trouble: str | None = None
        """Why the cluster cannot be asked at present."""

    lag = 0

    @property
    def watcher(self) -> PolledGroups:
        """The groups."""
        return self._groups

    @property
    def group_count(self) -> int:
        """Number of groups that are followed."""
        return len(self._groups)

    def catch_up(self, report: Report) -> Iterator[Json]:
        """Poll for the first time, which shows no past. Raises DisconnectedError."""
        del report
        yield from self._step()

    def follow(self) -> Iterator[Json | None]:
        """Yield the records of rebalances as they are known, and None after each poll; never
        ends. While no broker answers, it tries again.
        """
        while True:
            try:
                yield from self._step()
                self.trouble = None
            except DisconnectedError as error:
                self.trouble = str(error)
            yield None
            sleep(self._poll_s)

    def _step(self) -> Iterator[Json]:
        present: set[str] = set()
        snapshots: list[Snapshot] = []
        for broker in self._cluster.brokers():
            groups = [
                group
                for group in listed(self._cluster, broker) or ()
                if group.group_id not in self._left_out
            ]
            present.update(group.group_id for group in groups)
            snapshots += self._snapshots(broker, groups)
        if self._logs is not None:
            # What a poll shows was logged before.
            self._logs.read_new(self._groups.logs)
        for snapshot in snapshots:
            yield from self._groups.take(snapshot)
        self.is_blind = not present
        self._groups.forget(present, _now_ms())

    def _snapshots(
        self, broker: BlockingConnection, groups: Sequence[ListedGroup]
    ) -> Iterator[Snapshot]:
        by_type: dict[str, list[str]] = {}
        for entry in groups:
            # Before Kafka 3.8, without a type, all groups were classic.
            kind = entry.group_type.lower() or GroupKind.CLASSIC.value
            by_type.setdefault(kind, []).append(entry.group_id)
        for group in described(self._cluster, broker, by_type.get(GroupKind.CLASSIC.value, ())):
            if self._is_whole(group):
                yield _of_classic(group)
        for consumers in self._consumers(broker, by_type.get(GroupKind.CONSUMER.value, ())):
            if self._is_whole(consumers):
                yield _of_consumers(consumers)

    def _consumers(
        self, broker: BlockingConnection, ids: Sequence[str]
    ) -> Iterator[consumer_groups.DescribedGroup]:
        for begin in range(0, len(ids), GROUPS_AT_ONCE):
            asked = list(ids[begin : begin + GROUPS_AT_ONCE])
            request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=asked)
            yield from self._cluster.ask(broker, request).groups

    def _is_whole(self, group: DescribedGroup | consumer_groups.DescribedGroup) -> bool:
        """Whether it was described: it may just have been removed, or have another coordinator."""
        if group.error_code in DENIALS:
            self.denials.add(group.error_code)
        return not group.error_code and group.group_state != DEAD


def _now_ms() -> int:
    return int(time() * 1000)


def _of_classic(group: DescribedGroup) -> Snapshot:
    members = [
        StoredMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            0,
            0,
            bytes(member.member_metadata),
            bytes(member.member_assignment),
        )
        for member in group.members
    ]
    record = GroupRecord(
        group.group_id,
        group.protocol_type or None,
        UNKNOWN_GENERATION,
        group.protocol_data or None,
        None,
        -1,
        _sorted(members),
    )
    return Snapshot(_now_ms(), GroupKind.CLASSIC, group.group_state, record)


def _of_consumers(group: consumer_groups.DescribedGroup) -> Snapshot:
    members = [
        StoredMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            0,
            0,
            _subscription(member),
            _assignment(member.assignment),
        )
        for member in group.members
    ]
    record = GroupRecord(
        group.group_id,
        CONSUMER,
        group.group_epoch,
        group.assignor_name or None,
        None,
        -1,
        _sorted(members),
    )
    return Snapshot(_now_ms(), GroupKind.CONSUMER, group.group_state, record)


def _sorted(members: list[StoredMember]) -> tuple[StoredMember, ...]:
    """Brokers list them in any order."""
    return tuple(sorted(members, key=lambda member: member.member_id))


def _subscription(member: consumer_groups.Member) -> bytes:
    """Encode it as classic members state theirs; with a regular expression as user data."""
    regex = member.subscribed_topic_regex
    subscription = ConsumerProtocolSubscription(
        topics=sorted(member.subscribed_topic_names),
        user_data=None if regex is None else regex.encode(),
    )
    return encode_versioned(subscription, 1)


def _assignment(assignment: consumer_groups.Assignment) -> bytes:
    partitions = [
        TopicPartition(topic=topic.topic_name, partitions=sorted(topic.partitions))
        for topic in sorted(assignment.topic_partitions, key=lambda topic: topic.topic_name)
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=partitions), 0)
