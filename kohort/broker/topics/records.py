"""Reading the records of a partition, for data that the broker itself keeps in topics."""

from bisect import bisect
from collections.abc import Iterator
from typing import Final

from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import DecodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import BatchHeader, split_batches
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.records.varint import Buffer

READ_BYTES: Final = 1 << 20


def read_records(partition: Partition, offset: int) -> Iterator[Record]:
    """Yield all visible records from `offset` on, except control records.

    For topics that this broker does not write in transactions. Files written by Kafka may have
    some: a transactional record is yielded at its own place if its transaction was committed, and
    skipped if it was aborted or is open.

    Raises:
        KafkaError: the rest cannot be read.
    """
    ends: _TransactionEnds | None = None
    for header, batch in read_batches(partition, offset):
        if header.is_control:
            continue
        if header.is_transactional:
            if ends is None:
                ends = _TransactionEnds(partition, header.base_offset)
            if not ends.is_committed(header):
                continue
        try:
            records = decode_records(batch)
        except DecodeError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        yield from records


class _TransactionEnds:
    """Outcomes of the transactions of a partition, by producer: two parallel lists, as bisect
    needs.

    Made only if there is a transaction, because it reads the log to its end.
    """

    def __init__(self, partition: Partition, offset: int) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._committed: dict[int, list[bool]] = {}
        for header, batch in read_batches(partition, offset):
            # Compaction leaves empty control batches, which end nothing.
            if not header.is_control or not header.record_count:
                continue
            try:
                marker = decode_marker(batch, header)
            except DecodeError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            if marker is not None:
                is_commit = marker.control_type is ControlType.COMMIT
                self._offsets.setdefault(header.producer_id, []).append(header.base_offset)
                self._committed.setdefault(header.producer_id, []).append(is_commit)

    def is_committed(self, header: BatchHeader) -> bool:
        offsets = self._offsets.get(header.producer_id, [])
        place = bisect(offsets, header.base_offset)
        return place < len(offsets) and self._committed[header.producer_id][place]


def read_batches(partition: Partition, offset: int) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yield all batches up to the high watermark. Raises KafkaError at unreadable ones."""
    offset = max(offset, partition.log.log_start_offset)
    while offset < partition.high_watermark:
        data = partition.reads.read(offset, READ_BYTES, min_one=True)
        if not data:
            return
        for header, batch in split_batches(data, partial_tail=True):
            offset = header.next_offset
            yield header, batch
