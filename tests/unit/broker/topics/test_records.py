"""Reading what the broker keeps in topics, which a Kafka may have written in transactions."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kohort.broker.topics.internal_log import read_records
from kohort.broker.topics.partition import Partition
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from kohort.protocol.records.record import Record
from tests.support.brokers.running_topics import append, running_topics
from tests.support.records.storage_tools import append as append_to_log

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class Log:
    """Batches of several producers, put where they would be after a Kafka had written them."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def plain(self, value: bytes) -> None:
        self._append(encode_batch([Record(value)]))

    def in_transaction(self, producer_id: int, value: bytes) -> None:
        self._append(
            encode_batch(
                [Record(value)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )

    def end(self, producer_id: int, control_type: ControlType) -> None:
        marker = EndTransactionMarker(control_type, coordinator_epoch=0)
        self._append(make_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=0)[0])

    def empty_marker(self, producer_id: int) -> None:
        marker = EndTransactionMarker(ABORT, coordinator_epoch=0)
        batch = make_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=0)[0]
        self._append(assemble(read_header(batch)._replace(record_count=0), b""))

    def _append(self, batch: bytes) -> None:
        append_to_log(self.partition.log, batch)

    def read(self, offset: int = 0) -> list[bytes | None]:
        append(self.partition, b"the end")  # Which raises the high watermark.
        values = [record.value for record in read_records(self.partition, offset)]
        assert values[-1] == b"the end"
        return [value for value in values if value != b"the end"]


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    async with running_topics(tmp_path) as topics:
        yield Log((await topics.changes.create_topic("t", partition_count=1)).partitions[0])


def test_a_committed_record_counts_where_it_lies_and_not_where_its_transaction_ends(
    log: Log,
) -> None:
    log.in_transaction(1, b"committed")
    log.plain(b"later")
    log.end(1, COMMIT)
    assert log.read() == [b"committed", b"later"]


def test_records_of_aborted_and_of_open_transactions_are_left_out(log: Log) -> None:
    log.in_transaction(1, b"aborted")
    log.in_transaction(2, b"open")
    log.plain(b"plain")
    log.end(1, ABORT)
    assert log.read() == [b"plain"]


def test_a_marker_that_compaction_has_emptied_ends_nothing(log: Log) -> None:
    log.in_transaction(1, b"committed")
    log.empty_marker(1)
    log.end(1, COMMIT)
    log.empty_marker(2)
    assert log.read() == [b"committed"]
