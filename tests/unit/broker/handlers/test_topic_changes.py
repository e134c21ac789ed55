"""CreateTopics, DeleteTopics and CreatePartitions answer as a Kafka of one broker."""

from pathlib import Path

import pytest

from kohort.broker.runtime.slices import CHECKS_MAX
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from tests.support import messages as m
from tests.support.brokers.running_topics import ask, running_topics
from tests.support.measures.bytecodes import metered
from tests.support.waiting import counted_turns


def topic(name: str, partitions: int = 1, **configs: str | None) -> m.CreatableTopic:
    return m.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[
            m.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def codes(response: m.CreateTopicsResponse) -> dict[str, int]:
    return {one.name: one.error_code for one in response.topics}


async def test_internal_topics_are_not_created_enlarged_or_emptied(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        names = (CONSUMER_OFFSETS, "__cluster_metadata")
        response = await ask(topics, m.CreateTopicsRequest(topics=[*map(topic, names), topic("t")]))
        refused = dict.fromkeys(names, ErrorCode.INVALID_REQUEST)
        assert codes(response) == refused | {"t": ErrorCode.NONE}
        assert [one.name for one in topics.all()] == ["t"]
        await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=1)
        larger = m.CreatePartitionsTopic(name=CONSUMER_OFFSETS, count=2, assignments=None)
        enlarge = m.CreatePartitionsRequest(topics=[larger], timeout_ms=1_000, validate_only=False)
        (result,) = (await ask(topics, enlarge)).results
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        start = m.DeleteRecordsPartition(partition_index=0, offset=0)
        emptied = m.DeleteRecordsTopic(name=CONSUMER_OFFSETS, partitions=[start])
        delete = m.DeleteRecordsRequest(topics=[emptied], timeout_ms=1_000)
        (answer,) = (await ask(topics, delete)).topics
        assert answer.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(2, 8))
async def test_what_a_refusal_repeats_fits_into_the_answer(tmp_path: Path, version: int) -> None:
    async with running_topics(tmp_path) as topics:
        configs = [m.CreatableTopicConfig(name="x" * 32_000, value="y" * 32_000)]
        wanted = topic("orders")
        wanted.configs = configs
        request = m.CreateTopicsRequest(topics=[topic("z" * 32_700), wanted])
        response = await ask(topics, request, version)
        assert set(codes(response).values()) == {
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_CONFIG,
        }


async def test_a_request_for_too_much_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        request = m.CreateTopicsRequest(topics=[topic("small"), topic("huge", 10_000)])
        assert set(codes(await ask(topics, request)).values()) == {ErrorCode.POLICY_VIOLATION}
        assert topics.all() == []


def by_name(name: str) -> m.DeleteTopicState:
    return m.DeleteTopicState(name=name, topic_id=ZERO_UUID)


async def test_deletion_can_be_turned_off_and_internal_topics_stay(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=1)
        request = m.DeleteTopicsRequest(topics=[by_name(CONSUMER_OFFSETS)], timeout_ms=1000)
        (refused,) = (await ask(topics, request)).responses
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    async with running_topics(tmp_path, "delete.topic.enable=false") as topics:
        await topics.changes.create_topic("orders", partition_count=1)
        request = m.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000)
        for version, code in (
            (2, ErrorCode.INVALID_REQUEST),
            (3, ErrorCode.TOPIC_DELETION_DISABLED),
        ):
            assert (await ask(topics, request, version)).responses[0].error_code == code
        assert topics.get("orders") is not None


async def test_others_have_the_loop_while_many_deletions_are_too_late(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(3 * CHECKS_MAX)]
    async with running_topics(tmp_path) as topics:
        async with counted_turns() as turns:
            await ask(topics, m.DeleteTopicsRequest(topic_names=names[:1], timeout_ms=-1), 5)
            few = turns.count
            late = await ask(topics, m.DeleteTopicsRequest(topic_names=names, timeout_ms=-1), 5)
        assert {one.error_code for one in late.responses} == {ErrorCode.REQUEST_TIMED_OUT}
        assert turns.count - few >= few + 3


async def test_what_else_a_deletion_names_is_looked_through_once(tmp_path: Path) -> None:
    """Not once for each topic that may not be deleted: a second of the loop for 50,000 names."""
    async with running_topics(tmp_path, "delete.topic.enable=false") as topics:
        names = [f"t{number}" for number in range(20)]
        for name in names:
            await topics.changes.create_topic(name, partition_count=1)
        others = [by_name(f"none{number}") for number in range(500)]
        with metered() as few:
            await ask(
                topics, m.DeleteTopicsRequest(topics=[by_name(names[0]), *others], timeout_ms=9)
            )
        with metered() as many:
            answer = await ask(
                topics, m.DeleteTopicsRequest(topics=[*map(by_name, names), *others], timeout_ms=9)
            )
        assert len(answer.responses) == len(names) + len(others)
        assert many.count < 1.5 * few.count


async def test_configs_that_are_the_same_are_put_together_once(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        same = [topic(f"t{number}") for number in range(30)]
        other = [topic(f"t{number}", retention_ms=str(number)) for number in range(30)]
        requests = [m.CreateTopicsRequest(topics=one, validate_only=True) for one in (same, other)]
        for request in requests:
            await ask(topics, request)
        with metered() as of_same:
            answer = await ask(topics, requests[0])
        with metered() as of_other:
            others = await ask(topics, requests[1])
        assert of_same.count < of_other.count / 4
        assert {len(one.configs) for one in (*answer.topics, *others.topics)} == {37}
