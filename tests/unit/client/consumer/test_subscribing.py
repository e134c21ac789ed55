"""What a consumer is told to read, before it is started."""

import re

import pytest

from kohort import Consumer
from kohort.client.core.errors import ConsumerClosedError, IllegalStateError
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.listener import RebalanceListener

A, B, C = (TopicPartition("t", number) for number in range(3))


@pytest.mark.parametrize("topics", ["t", ["t"]])
def test_a_topic_may_be_given_alone(topics: list[str] | str) -> None:
    consumer = Consumer(group_id="g")
    consumer.subscribe(topics)
    assert consumer.subscription() == {"t"}


def test_topics_are_named_by_text() -> None:
    with pytest.raises(TypeError, match="b't' is not a topic name"):
        Consumer().subscribe([b"t"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("topics", "pattern", "words"),
    [
        ((), None, "no topics and no pattern"),
        ([], None, "no topics and no pattern"),
        (["t"], "t.*", "takes either topics or a pattern"),
    ],
)
def test_topics_or_a_pattern_are_given(topics: list[str], pattern: str | None, words: str) -> None:
    consumer = Consumer(group_id="g")
    with pytest.raises(ValueError, match=words):
        consumer.subscribe(topics, pattern)
    consumer.assign([A])


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_pattern_goes_with_no_topics_and_no_partitions(is_compiled: bool) -> None:
    consumer = Consumer(group_id="g")
    consumer.subscribe(pattern=re.compile("t.*") if is_compiled else "t.*")
    with pytest.raises(IllegalStateError, match="present subscription by pattern"):
        consumer.subscribe("t")
    with pytest.raises(IllegalStateError, match="present subscription by pattern"):
        consumer.assign([A])


def test_a_listener_without_a_group_is_refused_and_nothing_is_subscribed_to() -> None:
    consumer = Consumer()
    with pytest.raises(IllegalStateError, match="no rebalances to listen to"):
        consumer.subscribe("t", listener=RebalanceListener())
    assert consumer.subscription() == frozenset()
    consumer.subscribe("t")


async def test_a_closed_consumer_reads_nothing_else() -> None:
    consumer = Consumer("t")
    await consumer.stop()
    with pytest.raises(ConsumerClosedError):
        consumer.subscribe("u")
    for change in (consumer.assign, consumer.incremental_assign, consumer.incremental_unassign):
        with pytest.raises(ConsumerClosedError):
            change([A])
