"""What can be asked about consumer groups over Kafka's own protocol, of Kohort and of Kafka."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kohort.admin.cluster import Cluster, CoordinatorKind, RefusedError
from kohort.admin.offsets import END, TopicPartition, known_offsets, starts_of_lagging
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.codec import decode_versioned
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.messages import consumer_group_describe as new_groups
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from kohort.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from kohort.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kohort.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"

OFFSET_FETCH_MAX: Final = 9
"""The last version that names topics; from 10 on they are ids."""
GROUPS_SINCE: Final = 8
"""OffsetFetch before it asks for one group."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member; `partitions` is None where its assignment is not a consumer's."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition] | None


@dataclass(frozen=True, slots=True)
class Position:
    """How far a group is in a partition; None for what is not known."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    start: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of unread records; deleted ones, below `start`, do not count."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - max(self.committed, self.start or 0), 0)


@dataclass(frozen=True, slots=True)
class Group:
    """One group with all that the protocol tells."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: str
    members: list[Member]
    positions: list[Position]
    epoch: int | None = None
    """What the new protocol (KIP-848) has in the place of generations; None in classic groups."""

    @property
    def kind(self) -> str:
        """Which protocol its members speak, as ListGroups says it."""
        return CLASSIC if self.epoch is None else CONSUMER


def groups_of(cluster: Cluster, broker: BlockingConnection) -> list[ListedGroup]:
    """The groups that one broker looks after. Raises RefusedError, DisconnectedError."""

    def ask() -> list[ListedGroup]:
        answer: ListGroupsResponse = cluster.ask(broker, ListGroupsRequest())
        if answer.error_code:
            raise RefusedError(answer.error_code, f"{broker.address} does not list its groups")
        return answer.groups

    return cluster.retrying(ask)


def describe_group(cluster: Cluster, group_id: str) -> Group | None:
    """One group, None if there is none of that name.

    Raises:
        RefusedError, DisconnectedError: it could not be asked.
    """
    coordinator, described = _describe(cluster, group_id)
    if described is None:
        return _describe_new(cluster, group_id)
    members = [
        _member(member, is_consumer=described.protocol_type == CONSUMER)
        for member in described.members
    ]
    return Group(
        group_id=group_id,
        state=described.group_state,
        protocol_type=described.protocol_type,
        protocol=described.protocol_data,
        coordinator=str(coordinator.address),
        members=members,
        positions=_positions(cluster, coordinator, group_id, members),
    )


def _describe_new(cluster: Cluster, group_id: str) -> Group | None:
    """One group of the new protocol, None if there is none, or the broker knows of no such groups.

    Raises RefusedError, DisconnectedError.
    """

    def ask() -> tuple[BlockingConnection, new_groups.DescribedGroup | None]:
        coordinator = cluster.coordinator(group_id, CoordinatorKind.GROUP)
        request = new_groups.ConsumerGroupDescribeRequest(group_ids=[group_id])
        try:
            answer: new_groups.ConsumerGroupDescribeResponse = cluster.ask(coordinator, request)
        except UnsupportedVersionError:
            return coordinator, None
        described = answer.groups[0]
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return coordinator, None
        if described.error_code:
            what = "the group cannot be described"
            raise RefusedError(described.error_code, what, described.error_message)
        return coordinator, described

    coordinator, described = cluster.retrying(ask)
    if described is None:
        return None
    members = [
        Member(
            member_id=one.member_id,
            instance_id=one.instance_id,
            client_id=one.client_id,
            host=one.client_host.removeprefix("/"),
            partitions=sorted(
                (listed.topic_name, index)
                for listed in one.assignment.topic_partitions
                for index in listed.partitions
            ),
        )
        for one in described.members
    ]
    return Group(
        group_id=group_id,
        state=described.group_state,
        protocol_type=CONSUMER,
        protocol=described.assignor_name,
        coordinator=str(coordinator.address),
        members=members,
        positions=_positions(cluster, coordinator, group_id, members),
        epoch=described.group_epoch,
    )


def describe_state(cluster: Cluster, group_id: str) -> str | None:
    """Stable, Empty...; None if there is no such group. Raises RefusedError, DisconnectedError."""
    _, described = _describe(cluster, group_id)
    return None if described is None else described.group_state


def _describe(cluster: Cluster, group_id: str) -> tuple[BlockingConnection, DescribedGroup | None]:
    """A group's coordinator, and what that says of it."""

    def ask() -> tuple[BlockingConnection, DescribedGroup]:
        coordinator = cluster.coordinator(group_id, CoordinatorKind.GROUP)
        request = DescribeGroupsRequest(groups=[group_id])
        described: DescribedGroup = cluster.ask(coordinator, request).groups[0]
        if described.error_code not in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}:
            raise RefusedError(described.error_code, "the group cannot be described")
        return coordinator, described

    coordinator, described = cluster.retrying(ask)
    # Up to version 5, DescribeGroups shows a group that is not there as Dead.
    is_gone = described.error_code or described.group_state == "Dead"
    return coordinator, None if is_gone else described


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    """All offsets that a group has committed; none of a group that there is not.

    Raises RefusedError, DisconnectedError.
    """

    def ask() -> dict[TopicPartition, int]:
        coordinator = cluster.coordinator(group_id, CoordinatorKind.GROUP)
        return _committed(cluster, coordinator, group_id)

    return cluster.retrying(ask)


def _member(member: DescribedGroupMember, *, is_consumer: bool) -> Member:
    assignment = bytes(member.member_assignment)
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        partitions=partitions_in(assignment) if is_consumer else None,
    )


def partitions_in(assignment: bytes) -> list[TopicPartition] | None:
    if not assignment:
        return []
    try:
        parsed, _ = decode_versioned(ConsumerProtocolAssignment, assignment, newer_is_readable=True)
    except DecodeError:
        return None
    return sorted(
        (listed.topic, index)
        for listed in parsed.assigned_partitions
        for index in listed.partitions
    )


def _positions(
    cluster: Cluster, coordinator: BlockingConnection, group_id: str, members: list[Member]
) -> list[Position]:
    """Positions in all partitions that a member has or that the group has committed."""
    assigned = {one for member in members for one in member.partitions or ()}
    committed = cluster.retrying(lambda: _committed(cluster, coordinator, group_id))
    partitions = sorted(assigned | committed.keys())
    ends = known_offsets(cluster, dict.fromkeys(partitions, END))
    starts = starts_of_lagging(cluster, committed, ends)
    return [
        Position(one[0], one[1], committed.get(one), ends.get(one), starts.get(one))
        for one in partitions
    ]


def offsets_in(
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics],
) -> dict[TopicPartition, int]:
    """The offsets that an answer to OffsetFetch has, without partitions that have none."""
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


def _committed(
    cluster: Cluster, coordinator: BlockingConnection, group_id: str
) -> dict[TopicPartition, int]:
    """All that the group has committed."""
    what = "the offsets cannot be read"
    version = coordinator.versions.best(OffsetFetchRequest, OFFSET_FETCH_MAX)
    if version >= GROUPS_SINCE:
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        request = OffsetFetchRequest(groups=[asked])
        answer: OffsetFetchResponse = cluster.ask(coordinator, request, at_most=version)
        group = answer.groups[0]
        if group.error_code:
            raise RefusedError(group.error_code, what)
        return offsets_in(group.topics)
    request = OffsetFetchRequest(group_id=group_id, topics=None)
    answer = cluster.ask(coordinator, request, at_most=version)
    if answer.error_code:
        raise RefusedError(answer.error_code, what)
    return offsets_in(answer.topics)
