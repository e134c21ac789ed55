"""OffsetFetch by version."""

import pytest

from kohort.groups.requests import CommitRequest, OffsetToCommit
from kohort.protocol.types import ZERO_UUID
from tests.support import messages as m
from tests.support.groups.running_groups import running_groups

A_TOPIC_ID = bytes(range(16))


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
) -> m.OffsetFetchResponsePartition:
    return m.OffsetFetchResponsePartition(
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
        wanted = m.OffsetFetchRequestTopic(name=name, topic_id=topic_id, partition_indexes=[0])
        for topics, told in (([wanted], [partitions(0)]), (None, [])):
            asked = m.OffsetFetchRequestGroup(group_id="g", topics=topics)
            response = await g.ask(m.OffsetFetchRequest(groups=[asked]), version)
            found = response.groups[0].topics
            assert [one for topic in found for one in topic.partitions] == told
