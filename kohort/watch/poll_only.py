"""``kohort watch`` on a cluster that hides __consumer_offsets: polls the
descriptions of all groups.
"""

from collections.abc import Container, Iterator, Sequence
from time import time

from kohort.admin.cluster import Cluster
from kohort.client.net.blocking import BlockingConnection
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
from kohort.watch.follow import POLL_S, AnyFollower
from kohort.watch.log_files import LogFiles
from kohort.watch.poller import DENIALS, GROUPS_AT_ONCE, described, listed
from kohort.watch.reader import Report


class PollFollower(AnyFollower):
    """Polls all groups that the user may see."""

    lag = 0

    def __init__(
        self,
        cluster: Cluster,
        left_out: Container[str],
        logs: LogFiles | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(poll_s, logs)
        self._cluster = cluster
        self._left_out = left_out
        self.watcher = PolledGroups(GROUPS_MAX)
        self.is_blind = False

    @property
    def group_count(self) -> int:
        return len(self.watcher)

    def catch_up(self, report: Report) -> Iterator[Json]:
        """Poll for the first time: there is no history to read. Raises DisconnectedError."""
        del report
        yield from self._step()

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
            # After the poll: the lines of all changes that it shows are written by now.
            self._logs.read_new(self.watcher.logs)
        for snapshot in snapshots:
            yield from self.watcher.take(snapshot)
        self.is_blind = not present
        self.watcher.forget(present, _now_ms())

    def _snapshots(
        self, broker: BlockingConnection, groups: Sequence[ListedGroup]
    ) -> Iterator[Snapshot]:
        by_type: dict[str, list[str]] = {}
        for entry in groups:
            # Before Kafka 3.8, the type is missing, and all groups are classic.
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
        """Whether the group was described: not removed, moved or denied. Records a denial."""
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
    kind, protocol = group.protocol_type, group.protocol_data
    return _snapshot(group, GroupKind.CLASSIC, kind, UNKNOWN_GENERATION, protocol, members)


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
    epoch, assignor = group.group_epoch, group.assignor_name
    return _snapshot(group, GroupKind.CONSUMER, CONSUMER, epoch, assignor, members)


def _snapshot(
    group: DescribedGroup | consumer_groups.DescribedGroup,
    kind: GroupKind,
    protocol_type: str,
    generation: int,
    protocol: str,
    members: list[StoredMember],
) -> Snapshot:
    # Sort the members, because brokers list them in any order.
    ordered = tuple(sorted(members, key=lambda member: member.member_id))
    record = GroupRecord(
        group.group_id, protocol_type or None, generation, protocol or None, None, -1, ordered
    )
    return Snapshot(_now_ms(), kind, group.group_state, record)


def _subscription(member: consumer_groups.Member) -> bytes:
    """Encode a subscription as classic members do; a regular expression becomes the user data."""
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
