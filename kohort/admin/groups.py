"""Lists and describes groups, their members and their offsets."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kohort.admin.cluster import Cluster, check
from kohort.admin.offsets import END, TopicPartition, known_offsets, starts_of_lagging
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.codec import decode_versioned
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
)
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from kohort.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kohort.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)
from kohort.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kohort.protocol.messages.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)

CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"
SHARE: Final = "share"

_DESCRIBE_REQUESTS: Final[
    dict[str, type[ConsumerGroupDescribeRequest | ShareGroupDescribeRequest]]
] = {CONSUMER: ConsumerGroupDescribeRequest, SHARE: ShareGroupDescribeRequest}

OFFSET_FETCH_MAX: Final = 9
"""Last version with topic names; later ones have topic ids."""
GROUPS_SINCE: Final = 8
"""First version of OffsetFetch with several groups."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member; `partitions` is None if its assignment is not in the consumers' format."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition] | None
    epoch: int | None = None
    """The member epoch; None for a member of a classic group."""
    target: list[TopicPartition] | None = None
    """The member's target assignment, which is also the assignment in a share group; None in a
    classic group."""


@dataclass(frozen=True, slots=True)
class Position:
    """A group's offsets in a partition; unknown ones are None."""

    topic: str
    partition: int
    committed: int | None
    """The committed offset; of a share group its start offset, the first record whose delivery is
    not complete."""
    end: int | None
    start: int | None = None
    known_lag: int | None = None
    """The lag that the broker reports of a share group."""

    @property
    def lag(self) -> int | None:
        """The number of unread records; deleted records, below `start`, do not count."""
        if self.known_lag is not None:
            return self.known_lag
        if self.committed is None or self.end is None:
            return None
        return max(self.end - max(self.committed, self.start or 0), 0)


@dataclass(frozen=True, slots=True)
class Group:
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: str
    members: list[Member]
    positions: list[Position]
    epoch: int | None = None
    """Group epoch; None for a classic group."""

    @property
    def kind(self) -> str:
        if self.epoch is None:
            return CLASSIC
        return SHARE if self.protocol_type == SHARE else CONSUMER


def groups_of(cluster: Cluster, broker: BlockingConnection) -> list[ListedGroup]:
    def ask() -> list[ListedGroup]:
        answer: ListGroupsResponse = cluster.ask(broker, ListGroupsRequest())
        check(answer.error_code, f"{broker.address} does not list its groups")
        return answer.groups

    return cluster.retrying(ask)


def describe_group(cluster: Cluster, group_id: str) -> Group | None:
    coordinator, described = _describe(cluster, group_id)
    if described is None:
        found = (_describe_kind(cluster, group_id, kind) for kind in _DESCRIBE_REQUESTS)
        return next(filter(None, found), None)
    members = [
        _member(member, is_consumer=described.protocol_type == CONSUMER)
        for member in described.members
    ]
    return Group(
        group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        str(coordinator.address),
        members,
        _positions(cluster, coordinator, group_id, members),
    )


def _ask_kind(cluster: Cluster, group_id: str, kind: str) -> tuple[BlockingConnection, Any]:
    """A group's coordinator and description; no description unless it is a group of this kind."""
    request = _DESCRIBE_REQUESTS[kind](group_ids=[group_id])

    def ask(coordinator: BlockingConnection) -> tuple[BlockingConnection, Any]:
        try:
            described = cluster.ask(coordinator, request).groups[0]
        except UnsupportedVersionError:
            return coordinator, None
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return coordinator, None
        check(described.error_code, "the group cannot be described", described.error_message)
        return coordinator, described

    return cluster.at_coordinator(group_id, ask)


def _describe_kind(cluster: Cluster, group_id: str, kind: str) -> Group | None:
    coordinator, described = _ask_kind(cluster, group_id, kind)
    if described is None:
        return None
    is_share = kind == SHARE
    members = [
        Member(
            member_id=member.member_id,
            instance_id=None if is_share else member.instance_id,
            client_id=member.client_id,
            host=member.client_host.removeprefix("/"),
            partitions=_partitions(member.assignment),
            epoch=member.member_epoch,
            target=_partitions(member.assignment if is_share else member.target_assignment),
        )
        for member in described.members
    ]
    positions = (
        start_offsets(cluster, coordinator, [group_id]).get(group_id, [])
        if is_share
        else _positions(cluster, coordinator, group_id, members)
    )
    return Group(
        group_id,
        described.group_state,
        kind,
        described.assignor_name,
        str(coordinator.address),
        members,
        positions,
        described.group_epoch,
    )


def share_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int] | None:
    """Return the start offsets that a share group has; None if it is not a share group."""
    coordinator, described = _ask_kind(cluster, group_id, SHARE)
    if described is None:
        return None
    return {
        (position.topic, position.partition): position.committed
        for position in start_offsets(cluster, coordinator, [group_id]).get(group_id, [])
        if position.committed is not None
    }


def start_offsets(
    cluster: Cluster, coordinator: BlockingConnection, group_ids: Iterable[str]
) -> dict[str, list[Position]]:
    """The positions of share groups, without groups that cannot be described."""
    asked = [
        DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        for group_id in group_ids
    ]
    answer: DescribeShareGroupOffsetsResponse = cluster.ask(
        coordinator, DescribeShareGroupOffsetsRequest(groups=asked)
    )
    return {
        group.group_id: sorted(
            (
                Position(
                    topic.topic_name,
                    partition.partition_index,
                    None if partition.start_offset < 0 else partition.start_offset,
                    None,
                    known_lag=None if partition.lag < 0 else partition.lag,
                )
                for topic in group.topics
                for partition in topic.partitions
                if not partition.error_code
            ),
            key=lambda position: (position.topic, position.partition),
        )
        for group in answer.groups
        if not group.error_code
    }


def _partitions(assignment: Assignment) -> list[TopicPartition]:
    return sorted(
        (topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def describe_state(cluster: Cluster, group_id: str) -> str | None:
    _, described = _describe(cluster, group_id)
    if described is not None:
        return described.group_state
    for kind in _DESCRIBE_REQUESTS:
        _, of_kind = _ask_kind(cluster, group_id, kind)
        if of_kind is not None:
            return str(of_kind.group_state)
    return None


def _describe(cluster: Cluster, group_id: str) -> tuple[BlockingConnection, DescribedGroup | None]:
    """A group's coordinator and description; no description unless it is a classic group."""

    def ask(coordinator: BlockingConnection) -> tuple[BlockingConnection, DescribedGroup]:
        request = DescribeGroupsRequest(groups=[group_id])
        described: DescribedGroup = cluster.ask(coordinator, request).groups[0]
        if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(described.error_code, "the group cannot be described")
        return coordinator, described

    coordinator, described = cluster.at_coordinator(group_id, ask)
    # Up to version 5, DescribeGroups reports an unknown group as Dead.
    is_gone = described.error_code or described.group_state == "Dead"
    return coordinator, None if is_gone else described


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    """All committed offsets; empty if the group does not exist."""
    return cluster.at_coordinator(group_id, lambda broker: _committed(cluster, broker, group_id))


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
    """Decode the assignment of a consumer; None if the bytes are not in its format."""
    if not assignment:
        return []
    try:
        parsed, _ = decode_versioned(ConsumerProtocolAssignment, assignment, newer_is_readable=True)
    except DecodeError:
        return None
    return sorted(
        (topic.topic, index) for topic in parsed.assigned_partitions for index in topic.partitions
    )


def _positions(
    cluster: Cluster, coordinator: BlockingConnection, group_id: str, members: list[Member]
) -> list[Position]:
    """Positions in all partitions that are assigned or have a committed offset."""
    assigned = {partition for member in members for partition in member.partitions or ()}
    committed = cluster.retrying(lambda: _committed(cluster, coordinator, group_id))
    partitions = sorted(assigned | committed.keys())
    ends = known_offsets(cluster, dict.fromkeys(partitions, END))
    starts = starts_of_lagging(cluster, committed, ends)
    return [
        Position(*partition, committed.get(partition), ends.get(partition), starts.get(partition))
        for partition in partitions
    ]


def offsets_in(
    topics: Iterable[OffsetFetchResponseTopic],
) -> dict[TopicPartition, int]:
    """The offsets of an OffsetFetch response, without partitions that have none."""
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def _committed(
    cluster: Cluster, coordinator: BlockingConnection, group_id: str
) -> dict[TopicPartition, int]:
    what = "the offsets cannot be read"
    version = coordinator.versions.best(OffsetFetchRequest, OFFSET_FETCH_MAX)
    if version >= GROUPS_SINCE:
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        request = OffsetFetchRequest(groups=[asked])
        answer: OffsetFetchResponse = cluster.ask(coordinator, request, at_most=version)
        group = answer.groups[0]
        check(group.error_code, what)
        return offsets_in(group.topics)
    request = OffsetFetchRequest(group_id=group_id, topics=None)
    answer = cluster.ask(coordinator, request, at_most=version)
    check(answer.error_code, what)
    return offsets_in(answer.topics)
