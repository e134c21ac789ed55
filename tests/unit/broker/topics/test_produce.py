"""acks=all waits for every partition of the request, and tells each its own outcome."""

from pathlib import Path

from kohort.broker.core.purgatory import Purgatory
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.produce import DelayedProduce, PendingAppend
from kohort.protocol.errors import ErrorCode
from tests.support.brokers.running_topics import append, running_topics


class AppendOutcome:
    """What an acks=all request was told."""

    def __init__(self, partitions: list[Partition], next_offset: int) -> None:
        self.operation = DelayedProduce(
            [PendingAppend(partition, next_offset) for partition in partitions], owner="connection"
        )

    def is_answered(self) -> bool:
        return self.operation.errors.is_done

    @property
    def told(self) -> dict[int, ErrorCode]:
        """The errors by partition."""
        errors = self.operation.errors.result()
        return {index: error for index, error in enumerate(errors) if error}


async def half_appended(
    topics: TopicManager,
) -> tuple[list[Partition], AppendOutcome, Purgatory]:
    """A request waits for two partitions, of which the first has been appended to."""
    partitions = list((await topics.changes.create_topic("t", partition_count=2)).partitions)
    outcome = AppendOutcome(partitions, next_offset=1)
    purgatory = topics._purgatory
    purgatory.try_complete_else_watch(outcome.operation, outcome.operation.keys, 1_000)
    append(partitions[0])
    return partitions, outcome, purgatory


async def test_a_request_is_answered_when_its_last_partition_is_durable(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partitions, outcome, purgatory = await half_appended(topics)
        purgatory.drain()
        assert not outcome.is_answered()
        append(partitions[1])
        purgatory.drain()
        assert outcome.is_answered()
        assert outcome.told == {}


async def test_at_the_deadline_only_the_partitions_that_are_late_time_out(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        _, outcome, purgatory = await half_appended(topics)
        purgatory.drain()
        purgatory.expire(1_000)
        assert outcome.is_answered()
        assert outcome.told == {1: ErrorCode.REQUEST_TIMED_OUT}


async def test_a_partition_that_goes_offline_fails_alone(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partitions, outcome, purgatory = await half_appended(topics)
        partitions[1].take_offline("the disk failed")
        purgatory.drain()
        assert outcome.is_answered()
        assert outcome.told == {1: ErrorCode.KAFKA_STORAGE_ERROR}
