"""Markers in a running partition, and the last stable offset that they move."""

from pathlib import Path

import pytest

from kohort.protocol.errors import ErrorCode, KafkaError
from tests.support.brokers.running_topics import running_topics
from tests.unit.broker.topics.transactional_partition import mark, one_partition, send

FLUSH_EACH = "log.flush.interval.messages=1"


async def test_the_stable_offset_waits_for_the_fsync_of_the_marker(tmp_path: Path) -> None:
    async with running_topics(tmp_path, FLUSH_EACH) as topics:
        partition = await one_partition(topics)
        await partition.wait_committed(send(partition, 1).next_offset)
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
        marked = mark(partition, 1, 0, commit=True)
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
        await partition.wait_committed(marked.next_offset)
        assert (partition.last_stable_offset, partition.high_watermark) == (2, 2)


async def test_a_transaction_that_would_span_two_epochs_is_refused_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        send(partition, 1)
        with pytest.raises(KafkaError) as refused:
            send(partition, 1, epoch=1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.failure is None
    assert "a transaction of producer 1 and epoch 0 is open from 0" in caplog.text
