"""Requests about the offsets of a group."""

from collections.abc import Iterable, Mapping
from typing import Final

from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group, Member
from tests.interop.same_answers.scenes import Topic
from tests.support import messages as m

SEVERAL_GROUPS_SINCE: Final = 8
INSTANCES_SINCE: Final = 7

Positions = int | Mapping[int, int]


def commit_topic(
    topic: Topic, positions: Positions, metadata: str | None = ""
) -> m.OffsetCommitRequestTopic:
    """A position in partition 0, or those of a mapping."""
    by_partition = positions if isinstance(positions, Mapping) else {0: positions}
    return m.OffsetCommitRequestTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=[
            m.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            for index, offset in by_partition.items()
        ],
    )


def commit_request(
    group: Group,
    *topics: m.OffsetCommitRequestTopic,
    member: Member | None = None,
    **changes: Value,
) -> m.OffsetCommitRequest:
    """From a member, or else from outside of any membership."""
    request = m.OffsetCommitRequest(group_id=group.id, member_id="", topics=list(topics))
    if member is not None:
        request.member_id = member.id
        request.generation_id_or_member_epoch = member.generation
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def commit(
    group: Group,
    topic: Topic,
    positions: Positions,
    *,
    version: int | None = None,
    member: Member | None = None,
    **changes: Value,
) -> None:
    """Ask, and compare."""
    version = group.age.commit if version is None else version
    request = commit_request(group, commit_topic(topic, positions), member=member, **changes)
    group.pair.ask(request, version)


def fetch_request(
    group: Group, version: int, topics: Mapping[Topic, Iterable[int]] | None
) -> m.OffsetFetchRequest:
    """Positions of these partitions; None for all there are."""
    if version < SEVERAL_GROUPS_SINCE:
        return m.OffsetFetchRequest(
            group_id=group.id,
            topics=topics
            if topics is None
            else [
                m.OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(partitions))
                for topic, partitions in topics.items()
            ],
        )
    asked = None
    if topics is not None:
        asked = [
            m.OffsetFetchRequestTopic(
                name=topic.name, topic_id=topic.id, partition_indexes=list(partitions)
            )
            for topic, partitions in topics.items()
        ]
    return m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id=group.id, topics=asked)])


def fetch_all(group: Group, topic: Topic, *, versions: Iterable[int] = range(1, 11)) -> None:
    """Compare the group's positions in `topic`, and all that it has."""
    for version in versions:
        group.pair.ask(fetch_request(group, version, {topic: range(4)}), version)
        if version > 1:
            group.pair.ask(fetch_request(group, version, None), version)


def delete_request(group: Group, topics: Mapping[str, Iterable[int]]) -> m.OffsetDeleteRequest:
    return m.OffsetDeleteRequest(
        group_id=group.id,
        topics=[
            m.OffsetDeleteRequestTopic(
                name=name,
                partitions=[m.OffsetDeleteRequestPartition(partition_index=i) for i in partitions],
            )
            for name, partitions in topics.items()
        ],
    )
