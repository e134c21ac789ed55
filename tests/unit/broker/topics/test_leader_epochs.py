"""Logs that a cluster wrote go on in their newest leader epoch, here and for clients."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.config.topic import TopicConfig
from kohort.broker.handlers.metadata import metadata
from kohort.broker.storage.checkpoints.leader_epochs import FILE_NAME, read_leader_epochs
from kohort.broker.storage.checkpoints.offset_checkpoint import NEWEST_EPOCH_FILE
from kohort.broker.storage.filesystem import OS_FILES
from kohort.broker.storage.layout import partition_directory
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.log.opening import OpeningTerms
from kohort.broker.topics.manager import TopicManager
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_topic_partitions import TopicRequest
from kohort.protocol.records.batch import read_header, split_batches
from tests.support import messages as m
from tests.support.brokers.running_topics import append, ask, context, running_topics
from tests.support.records.storage_tools import WALL_MS, batch_of

EPOCHS = (0, 1, 1, 3)
"""Epochs of the batches, each with two records, that the cluster left."""
FIRST, LATEST, TIME_MS = -2, -1, WALL_MS + 4
ASKED = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="orders")])


async def leave_log_of_a_cluster(root: Path, *, epochs: Sequence[int] = EPOCHS) -> Path:
    """A data directory, cleanly stopped, with a partition as Kafka leaves it; its directory."""
    async with running_topics(root) as topics:
        await topics.changes.create_topic("orders", partition_count=2)
    directory = root / partition_directory("orders", 1)
    log = PartitionLog.open(
        directory, TopicConfig(), OpeningTerms(wall_ms=WALL_MS, clean_shutdown=True)
    )
    for number, epoch in enumerate(epochs):
        batch = batch_of(b"one", b"two", timestamp=WALL_MS + 2 * number)
        log.append(batch, read_header(batch), leader_epoch=epoch, wall_ms=WALL_MS)
    log.close()
    (directory / f"{FILE_NAME}.crc").unlink()
    (root / NEWEST_EPOCH_FILE).unlink()
    return directory


def batch_epochs(topics: TopicManager) -> list[int]:
    partition = topics.partition("orders", 1)
    assert partition is not None
    data = partition.reads.read(0, 1 << 20, min_one=True)
    return [header.partition_leader_epoch for header, _ in split_batches(data)]


async def told_epochs(topics: TopicManager) -> list[int]:
    """What clients are told of both partitions, which all ways to ask agree on."""
    (described,) = (await ask(topics, ASKED)).topics
    epochs = [one.leader_epoch for one in described.partitions]
    request = m.DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")])
    (described,) = (await ask(topics, request)).topics
    assert [one.leader_epoch for one in described.partitions] == epochs
    return epochs


async def fetched(topics: TopicManager, epoch: int) -> Any:  # noqa: ANN401
    asked = m.FetchPartition(
        partition=1, fetch_offset=0, current_leader_epoch=epoch, partition_max_bytes=1 << 20
    )
    topic = topics.get("orders")
    assert topic is not None
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[m.FetchTopic(topic_id=topic.topic_id, partitions=[asked])],
    )
    return (await ask(topics, request)).responses[0].partitions[0]


async def listed(topics: TopicManager, timestamp: int, epoch: int = -1) -> Any:  # noqa: ANN401
    asked = m.ListOffsetsPartition(
        partition_index=1, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = m.ListOffsetsRequest(
        replica_id=-1, topics=[m.ListOffsetsTopic(name="orders", partitions=[asked])]
    )
    return (await ask(topics, request)).topics[0].partitions[0]


async def ended(topics: TopicManager, epoch: int, current_epoch: int = -1) -> Any:  # noqa: ANN401
    asked = m.OffsetForLeaderPartition(
        partition=1, current_leader_epoch=current_epoch, leader_epoch=epoch
    )
    request = m.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[m.OffsetForLeaderTopic(topic="orders", partitions=[asked])]
    )
    return (await ask(topics, request)).topics[0].partitions[0]


@pytest.mark.parametrize("stop_cleanly", [True, False])
async def test_appends_go_on_in_the_newest_epoch(tmp_path: Path, stop_cleanly: bool) -> None:
    directory = await leave_log_of_a_cluster(tmp_path)
    expected = list(EPOCHS)
    for _ in range(3):
        async with running_topics(tmp_path, stop_cleanly=stop_cleanly) as topics:
            partition = topics.partition("orders", 1)
            assert partition is not None
            append(partition)
            expected.append(3)
            assert batch_epochs(topics) == expected
    assert read_leader_epochs(OS_FILES, str(directory)) == [(0, 0), (1, 2), (3, 6)]


async def test_clients_are_told_the_epoch_before_anybody_opens_the_partition(
    tmp_path: Path,
) -> None:
    await leave_log_of_a_cluster(tmp_path)
    for _ in range(2):  # The second start has it from the note of the first stop.
        async with running_topics(tmp_path) as topics:
            assert await told_epochs(topics) == [0, 3]
            topic = topics.get("orders")
            assert topic is not None
            assert list(topic.partitions.opened()) == []
        assert (tmp_path / NEWEST_EPOCH_FILE).exists()
    async with running_topics(tmp_path) as topics:
        topic = topics.get("orders")
        assert topic is not None
        assert len(topic.partitions[:]) == 2
        assert await told_epochs(topics) == [0, 3]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_clients_epochs_are_compared_with_the_one_they_are_told(
    tmp_path: Path, epoch: int, code: ErrorCode
) -> None:
    await leave_log_of_a_cluster(tmp_path)
    async with running_topics(tmp_path) as topics:
        assert (await fetched(topics, epoch)).error_code == code
        assert (await listed(topics, LATEST, epoch)).error_code == code
        assert (await ended(topics, 3, epoch)).error_code == code


async def test_positions_of_earlier_epochs_are_where_the_cluster_left_them(tmp_path: Path) -> None:
    await leave_log_of_a_cluster(tmp_path)
    async with running_topics(tmp_path) as topics:
        ends = {epoch: await ended(topics, epoch) for epoch in (0, 1, 2, 3, 4, -1)}
        assert {epoch: (end.leader_epoch, end.end_offset) for epoch, end in ends.items()} == {
            0: (0, 2),
            1: (1, 6),
            2: (1, 6),
            3: (3, 8),
            4: (-1, -1),
            -1: (-1, -1),
        }
        found = [await listed(topics, timestamp) for timestamp in (FIRST, TIME_MS, LATEST)]
        assert [(one.offset, one.leader_epoch) for one in found] == [(0, 0), (4, 1), (8, 3)]


async def test_an_epoch_is_not_taken_back_when_its_batches_are_cut_off(tmp_path: Path) -> None:
    directory = await leave_log_of_a_cluster(tmp_path)
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        assert await told_epochs(topics) == [0, 3]
    log = directory / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])
    for name in ("recovery-point-offset-checkpoint", "recovery-point-offset-checkpoint.crc"):
        (tmp_path / name).unlink()
    async with running_topics(tmp_path) as topics:
        assert await told_epochs(topics) == [0, 3]
        end = await ended(topics, 3)
        assert (end.leader_epoch, end.end_offset) == (3, 6)
        partition = topics.partition("orders", 1)
        assert partition is not None
        append(partition)
        assert batch_epochs(topics) == [0, 1, 1, 3]


async def test_a_kept_answer_is_not_given_again_when_a_log_turns_out_to_have_a_later_epoch(
    tmp_path: Path,
) -> None:
    await leave_log_of_a_cluster(tmp_path)
    note = f"0\n1\norders 1 {2}\n"
    (tmp_path / NEWEST_EPOCH_FILE).write_text(note)
    (tmp_path / f"{NEWEST_EPOCH_FILE}.crc").unlink()
    async with running_topics(tmp_path) as topics:
        ctx = context(topics, ASKED)
        kept = metadata(ctx, ASKED)
        assert metadata(ctx, ASKED) is kept
        assert await told_epochs(topics) == [0, 2]
        assert (await fetched(topics, 2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert metadata(ctx, ASKED) is not kept
        assert await told_epochs(topics) == [0, 3]


async def test_a_new_topic_of_the_name_begins_with_the_first_epoch(tmp_path: Path) -> None:
    await leave_log_of_a_cluster(tmp_path)
    async with running_topics(tmp_path) as topics:
        topic = topics.get("orders")
        assert topic is not None
        assert await topics.changes.delete_topics([topic]) == [None]
        await topics.changes.create_topic("orders", partition_count=2)
        assert await told_epochs(topics) == [0, 0]
    async with running_topics(tmp_path) as topics:
        assert await told_epochs(topics) == [0, 0]


async def test_a_damaged_epoch_file_does_not_keep_the_broker_from_starting(tmp_path: Path) -> None:
    directory = await leave_log_of_a_cluster(tmp_path)
    (directory / FILE_NAME).write_text("0\n2\n0 0\n")
    async with running_topics(tmp_path) as topics:
        partition = topics.partition("orders", 1)
        assert partition is not None
        append(partition)
        # The batches say the same.
        assert await told_epochs(topics) == [0, 3]
