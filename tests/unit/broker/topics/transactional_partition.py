"""What tests of transactions in one partition send, read and damage."""

from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Appended, Partition
from kohort.protocol.messages.fetch import PartitionData
from kohort.protocol.records.batch import iter_headers, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.brokers.running_topics import ask

TIME = 1_700_000_000_000
MIB = 1 << 20
COMMITTED = 1


async def one_partition(topics: TopicManager, **configs: str) -> Partition:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    topic = await topics.changes.create_topic("t", partition_count=1, configs=named)
    return topic.partitions[0]


def partition_of(topics: TopicManager) -> Partition:
    partition = topics.partition("t", 0)
    assert partition is not None
    return partition


def send(
    partition: Partition,
    producer_id: int,
    sequence: int = 0,
    *,
    epoch: int = 0,
    count: int = 1,
    size: int = 5,
    timestamp: int = TIME,
    transactional: bool = True,
) -> Appended:
    batch = encode_batch(
        [Record(b"v" * size, timestamp=timestamp)] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return partition.append(batch, read_header(batch), wall_ms=TIME)


def mark(
    partition: Partition, producer_id: int, epoch: int, *, commit: bool, version: int = 1
) -> Appended:
    return partition.append_marker(
        producer_id,
        epoch,
        ControlType.COMMIT if commit else ControlType.ABORT,
        coordinator_epoch=0,
        transaction_version=version,
        wall_ms=TIME,
    )


async def fetched(
    topics: TopicManager, offset: int, *, isolation: int = COMMITTED, max_bytes: int = MIB
) -> PartitionData:
    partition = m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 * MIB,
        isolation_level=isolation,
        topics=[m.FetchTopic(topic="t", partitions=[partition])],
    )
    response = await ask(topics, request, 11)
    (found,) = response.responses[0].partitions
    assert isinstance(found, PartitionData)
    return found


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


def offsets(data: PartitionData) -> list[int]:
    """Base offsets of the batches in an answer."""
    return [header.base_offset for _, header in iter_headers(data.records or b"")]
