"""OffsetFetch by version."""

import pytest

from kohort.groups.records import PendingOffset
from kohort.groups.requests import CommitRequest, OffsetToCommit
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from tests.support import messages as m
from tests.support.groups.running_groups import RunningGroups, running_groups

A_TOPIC_ID = bytes(range(16))
old_versions = pytest.mark.parametrize("version", range(1, 8))
new_versions = pytest.mark.parametrize("version", range(8, 11))


async def with_offsets(g: RunningGroups) -> bytes:
    """Group "g" has 42 for t-0, and 7 for t-1 in an open transaction; returns the topic id."""
    offsets = (OffsetToCommit("t", 0, 42, 5, "note"),)
    await g.groups.commit("g", CommitRequest(offsets), may_answer_group_not_found=True)
    group = g.groups.host.group("g")
    topic = g.topics.get("t")
    assert group is not None
    assert topic is not None
    committed = group.committed("t", 0)
    assert committed is not None
    group.offsets.apply(PendingOffset("g", "t", 1, committed, 9, 0))
    return topic.topic_id


def partition(
    index: int, offset: int = -1, epoch: int = -1, metadata: str = "", error: int = 0
) -> m.OffsetFetchResponsePartition:
    return m.OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        metadata=metadata,
        error_code=error,
    )


def partitions(
    index: int, offset: int = -1, epoch: int = -1, metadata: str = "", error: int = 0
) -> m.OffsetFetchResponsePartitions:
    return m.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        metadata=metadata,
        error_code=error,
    )


@pytest.mark.parametrize("version", range(1, 11))
async def test_a_position_of_another_topic_of_the_name_is_not_told(version: int) -> None:
    async with running_groups() as g:
        offsets = (OffsetToCommit("t", 0, 42, topic_id=A_TOPIC_ID),)
        await g.groups.commit("g", CommitRequest(offsets), may_answer_group_not_found=True)
        topic = g.topics.get("t")
        assert topic is not None
        if version < 8:
            old = [m.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            response: m.OffsetFetchResponse = await g.ask(
                m.OffsetFetchRequest(group_id="g", topics=old), version
            )
            assert response.topics[0].partitions == [partition(0)]
            return
        name, topic_id = ("t", ZERO_UUID) if version < 10 else ("", topic.topic_id)
        wanted = m.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0])
        for topics, told in (([wanted], [partitions(0)]), (None, [])):
            asked = m.OffsetFetchRequestGroup(group_id="g", topics=topics)
            response = await g.ask(m.OffsetFetchRequest(groups=[asked]), version)
            found = response.groups[0].topics
            assert [one for topic in found for one in topic.partitions] == told


@old_versions
async def test_one_group_is_told_what_it_asks_for(version: int) -> None:
    async with running_groups() as g:
        await with_offsets(g)
        topics = [
            m.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 99]),
            m.OffsetFetchRequestTopic(name="nobody's", partition_indexes=[0]),
        ]
        answer = await g.ask(m.OffsetFetchRequest(group_id="g", topics=topics), version)
        epoch = 5 if version >= 5 else -1
        assert answer == m.OffsetFetchResponse(
            topics=[
                m.OffsetFetchResponseTopic(
                    name="t",
                    partitions=[partition(0, 42, epoch, "note"), partition(1), partition(99)],
                ),
                m.OffsetFetchResponseTopic(name="nobody's", partitions=[partition(0)]),
            ]
        )


@old_versions
async def test_an_error_of_the_group_is_at_the_top_from_version_2_on(version: int) -> None:
    async with running_groups() as g:
        await g.groups.host.close()
        topics = [m.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        answer = await g.ask(m.OffsetFetchRequest(group_id="g", topics=topics), version)
        error = ErrorCode.NOT_COORDINATOR
        if version >= 2:
            assert answer == m.OffsetFetchResponse(topics=[], error_code=error)
        else:
            expected = m.OffsetFetchResponseTopic(name="t", partitions=[partition(0, error=error)])
            assert answer == m.OffsetFetchResponse(topics=[expected])


@new_versions
async def test_several_groups_are_told_each_its_own(version: int) -> None:
    async with running_groups() as g:
        topic_id = await with_offsets(g)
        by_id = version >= 10
        name, topic_id = ("", topic_id) if by_id else ("t", ZERO_UUID)
        asked = m.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0, 1])
        groups = [
            m.OffsetFetchRequestGroup(group_id="g", topics=[asked]),
            m.OffsetFetchRequestGroup(group_id="g", topics=None),
            m.OffsetFetchRequestGroup(group_id="g", topics=[]),
            m.OffsetFetchRequestGroup(group_id="", topics=[asked]),
        ]
        answer = await g.ask(m.OffsetFetchRequest(groups=groups), version)
        stored = partitions(0, 42, 5, "note")

        def told(*found: m.OffsetFetchResponsePartitions) -> m.OffsetFetchResponseTopics:
            return m.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=list(found))

        assert answer == m.OffsetFetchResponse(
            groups=[
                m.OffsetFetchResponseGroup(group_id="g", topics=[told(stored, partitions(1))]),
                m.OffsetFetchResponseGroup(group_id="g", topics=[told(stored)]),
                m.OffsetFetchResponseGroup(group_id="g", topics=[]),
                m.OffsetFetchResponseGroup(
                    group_id="", topics=[told(partitions(0), partitions(1))]
                ),
            ]
        )


@new_versions
async def test_an_error_is_told_per_group(version: int) -> None:
    async with running_groups() as g:
        await g.groups.host.close()
        groups = [m.OffsetFetchRequestGroup(group_id="g", topics=None)]
        answer = await g.ask(m.OffsetFetchRequest(groups=groups), version)
        assert [group.error_code for group in answer.groups] == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("version", [7, 8])
async def test_who_wants_stable_offsets_is_told_of_open_transactions(version: int) -> None:
    async with running_groups() as g:
        await with_offsets(g)
        request = m.OffsetFetchRequest(require_stable=True)
        if version == 7:
            request.group_id = "g"
            request.topics = [m.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            found = (await g.ask(request, version)).topics[0].partitions
        else:
            topics = [m.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
            request.groups = [m.OffsetFetchRequestGroup(group_id="g", topics=topics)]
            found = (await g.ask(request, version)).groups[0].topics[0].partitions
        assert [(one.committed_offset, one.error_code) for one in found] == [
            (42, ErrorCode.NONE),
            (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        ]
