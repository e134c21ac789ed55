"""What most scripts begin with: topics that both brokers have, and records in them."""

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import SESSION_STARTED_MS, Pair
from tests.support import messages as m

TIME_MS = SESSION_STARTED_MS - 3_600_000
"""Time of every batch's first record: safely within retention, and before the session began."""

END, START = -1, -2


class Topic(NamedTuple):
    """A topic that both brokers have."""

    name: str
    id: Value
    """Each broker's own."""


NOWHERE = Topic("no-such-topic", b"\x77" * 16)
"""A topic that neither has."""


def fresh_name(what: str = "topic") -> str:
    return f"{what}-{uuid.uuid4().hex[:12]}"


def create_topic(
    pair: Pair,
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Topic:
    """Create it in both and wait until Kafka's broker leads its partitions."""
    asked = m.CreatableTopic(
        name=name or fresh_name(),
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            m.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    answers = pair.ask(m.CreateTopicsRequest(topics=[asked]), 7)
    for answer in answers:
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
    topic = Topic(asked.name, answers.each(lambda answer: answer.topics[0].topic_id))
    wait_led(pair, topic, range(partitions))
    return topic


def delete_topic(pair: Pair, topic: Topic) -> None:
    """Delete it in both and wait until Kafka's broker, too, serves it no more."""
    pair.ask(m.DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=30_000), 5)
    pair.ask_until_equal(offsets_request(topic, END), 1)


def wait_led(pair: Pair, topic: Topic, partitions: Sequence[int]) -> None:
    """Until Kafka's broker, too, serves these partitions."""
    pair.ask_until_equal(offsets_request(topic, END, *partitions), 1)


def offsets_request(
    topic: Topic, timestamp: int, *partitions: int, **of_partition: int
) -> m.ListOffsetsRequest:
    return m.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            m.ListOffsetsTopic(
                name=topic.name,
                partitions=[
                    m.ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp, **of_partition
                    )
                    for index in partitions or (0,)
                ],
            )
        ],
    )


def batch(
    *values: bytes | Record | None, codec: CompressionType = CompressionType.NONE, **others: Value
) -> bytes:
    """Records a second apart from TIME_MS on; those given as a Record keep all that is theirs."""
    records = [
        value
        if isinstance(value, Record)
        else Record(value, key=b"key", timestamp=TIME_MS + 1000 * index)
        for index, value in enumerate(values or (b"value",))
    ]
    return encode_batch(records, codec=codec, **others)


def produce_request(
    topic: Topic,
    records: bytes | Mapping[int, bytes | None] | None,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> m.ProduceRequest:
    """To partition 0, or to those of a mapping."""
    by_partition = records if isinstance(records, Mapping) else {0: records}
    return m.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            m.TopicProduceData(
                name=topic.name,
                topic_id=topic.id,
                partition_data=[
                    m.PartitionProduceData(index=index, records=data)
                    for index, data in by_partition.items()
                ],
            )
        ],
    )


def produce(pair: Pair, topic: Topic, *batches: bytes, partition: int = 0) -> None:
    """Batches that both have to take, one request each."""
    for one in batches:
        for answer in pair.ask(produce_request(topic, {partition: one}), 9):
            assert _error_of(answer) == ErrorCode.NONE, answer


def _error_of(answer: m.ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def fetch_request(
    topic: Topic,
    offset: int | Mapping[int, int] = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 24,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    **of_partition: Value,
) -> m.FetchRequest:
    """From an offset of partition 0, or from those of a mapping; without a session."""
    offsets = offset if isinstance(offset, Mapping) else {0: offset}
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[
            m.FetchTopic(
                topic=topic.name,
                topic_id=topic.id,
                partitions=[
                    m.FetchPartition(
                        partition=index,
                        fetch_offset=one,
                        partition_max_bytes=partition_max_bytes,
                        **of_partition,
                    )
                    for index, one in offsets.items()
                ],
            )
        ],
    )
