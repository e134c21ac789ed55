"""OffsetCommit by version."""

from collections.abc import Sequence

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from tests.support import messages as m
from tests.support.groups.running_groups import RunningGroups, running_groups
from tests.support.measures.memory import traced_memory

VERSIONS = range(2, 11)
A_TOPIC_ID = bytes(range(16))


def a_topic(
    g: RunningGroups, version: int, name: str, *partitions: int, topic_id: bytes | None = None
) -> m.OffsetCommitRequestTopic:
    topic = g.topics.get(name)
    known_id = A_TOPIC_ID if topic is None else topic.topic_id
    return m.OffsetCommitRequestTopic(
        name=name if version < 10 else "",
        topic_id=ZERO_UUID if version < 10 else topic_id or known_id,
        partitions=[
            m.OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=42,
                committed_leader_epoch=5,
                committed_metadata=None,
            )
            for index in partitions
        ],
    )


async def commit(
    g: RunningGroups,
    version: int,
    topics: Sequence[m.OffsetCommitRequestTopic],
    *,
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
    retention_time_ms: int = -1,
) -> m.OffsetCommitResponse:
    request = m.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=retention_time_ms,
        topics=list(topics),
    )
    response: m.OffsetCommitResponse = await g.ask(request, version)
    return response


def errors(response: m.OffsetCommitResponse) -> list[list[int]]:
    return [[one.error_code for one in topic.partitions] for topic in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_in_several_places_is_answered_in_one(version: int) -> None:
    async with running_groups() as g:
        response = await commit(
            g,
            version,
            [
                a_topic(g, version, "t", 1),
                a_topic(g, version, "nobody's", 0),
                a_topic(g, version, "t", 9, 0),
                a_topic(g, version, "nobody's", 1),
            ],
        )
        no_partition = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        no_topic = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else no_partition
        none = ErrorCode.NONE
        assert errors(response) == [[none, no_partition, none], [no_topic, no_topic]]


async def test_if_nothing_is_left_the_group_is_not_asked() -> None:
    async with running_groups() as g:
        topics = [a_topic(g, 9, "nobody's", 0)]
        response = await commit(g, 9, topics, member_id="m", generation=3)
        assert errors(response) == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
        assert g.groups.host.group("g") is None


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_retention_time_counts_up_to_version_4(version: int) -> None:
    async with running_groups() as g:
        await commit(g, version, [a_topic(g, version, "t", 0)], retention_time_ms=5_000)
        stored = g.groups.committed("g", "t", 0)
        assert stored is not None
        expected = stored.commit_timestamp_ms + 5_000 if version <= 4 else -1
        assert stored.expire_timestamp_ms == expected


async def test_answers_that_are_kept_do_not_keep_what_a_client_adds_to_its_request() -> None:
    async with running_groups() as g:

        async def ask(number: int) -> None:
            padding = [a_topic(g, 9, f"{number} {index:0200}") for index in range(200)]
            answer = await commit(g, 9, [*padding, a_topic(g, 9, "t", 0)])
            assert [topic.name for topic in answer.topics] == ["t"]

        await ask(0)
        with traced_memory() as taken:
            for number in range(10):
                await ask(number)
            kept_bytes = taken()
        assert kept_bytes < 100_000
