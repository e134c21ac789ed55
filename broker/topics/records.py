"""The records of a partition, for what the broker itself keeps in topics."""

from collections.abc import Iterator
from typing import Final

from broker.topics.partition import Partition
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.records.batch import split_batches
from protocol.records.record import Record, decode_records

READ_BYTES: Final = 1 << 20
"""Read at a time."""


def read_records(partition: Partition, offset: int) -> Iterator[Record]:
    """All records from `offset` on that are there for readers, control records left out.

    Raises:
        KafkaError: what follows cannot be read.
    """
    offset = max(offset, partition.log.log_start_offset)
    while offset < partition.high_watermark:
        data = partition.read(offset, READ_BYTES, min_one=True)
        if not data:
            return
        for header, batch in split_batches(data, partial_tail=True):
            offset = header.next_offset
            if header.is_control:
                continue
            try:
                records = decode_records(batch)
            except DecodeError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            yield from records
