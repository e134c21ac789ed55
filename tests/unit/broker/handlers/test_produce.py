"""What the response to a Produce with acks=all says of each partition."""

from pathlib import Path

from kohort.broker.handlers.produce import ACKS_ALL, produce
from kohort.broker.runtime.later import Later
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.brokers.running_topics import context, running_topics

TIMEOUT_MS = 1_000


def request_for(**partitions: int) -> ProduceRequest:
    """One record for each partition of these topics."""
    batch = encode_batch([Record(b"value", timestamp=1_700_000_000_000)])
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[
                PartitionProduceData(index=index, records=memoryview(batch))
                for index in range(count)
            ],
        )
        for name, count in partitions.items()
    ]
    return ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=topics)


async def test_what_is_not_forced_to_disk_in_time_or_at_all_is_answered_for_itself(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        configs = {"flush.messages": "1"}
        slow = await topics.changes.create_topic("slow", partition_count=2, configs=configs)
        await topics.changes.create_topic("fast", partition_count=1)
        request = request_for(slow=2, fast=1)
        ctx = context(topics, request, 12)
        purgatory = ctx.broker.purgatory = topics._purgatory

        # The loop gets no turn meanwhile, so that no flush ends.
        answer = produce(ctx, request)
        assert isinstance(answer, Later)
        slow.partitions[1].take_offline("the disk failed")
        purgatory.drain()
        assert not answer.is_done
        purgatory.expire(ctx.broker.clock.monotonic_ms() + TIMEOUT_MS)

        response = answer.result()
        assert response is not None
        told = {
            (topic.name, one.index): (one.error_code, one.base_offset, one.log_start_offset)
            for topic in response.responses
            for one in topic.partition_responses
        }
        assert told == {
            ("slow", 0): (ErrorCode.REQUEST_TIMED_OUT, -1, -1),
            ("slow", 1): (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1),
            ("fast", 0): (ErrorCode.NONE, 0, 0),
        }


async def test_what_is_forced_to_disk_in_time_has_no_error(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        configs = {"flush.messages": "1"}
        slow = await topics.changes.create_topic("slow", partition_count=2, configs=configs)
        request = request_for(slow=2)
        ctx = context(topics, request, 12)
        purgatory = ctx.broker.purgatory = topics._purgatory
        answer = produce(ctx, request)
        assert isinstance(answer, Later)
        for partition in slow.partitions:
            await partition.wait_flushed()
        purgatory.drain()

        response = await answer
        assert response is not None
        (topic,) = response.responses
        found = [(one.error_code, one.base_offset) for one in topic.partition_responses]
        assert found == [(ErrorCode.NONE, 0)] * 2
