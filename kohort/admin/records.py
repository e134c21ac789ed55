"""Reads the records of a partition."""

from collections.abc import Iterator
from typing import Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kohort.protocol.records.batch import crc_matches, split_batches
from kohort.protocol.records.record import Record, decode_records

ANSWER_BYTES: Final = 8 << 20
"""Maximum size of a response, unless a single batch is larger."""

_FETCH_MAX: Final = 12
"""Last version with topic names; later ones have topic ids."""
_MAX_WAIT_MS: Final = 500


def read_records(
    cluster: Cluster, topic: str, partition: int, start: int, stop: int
) -> Iterator[Record]:
    """The records from offset `start` to before `stop`, in order.

    Raises:
        RefusedError: the partition cannot be read.
        DecodeError: a batch is damaged.
        DisconnectedError
    """
    leader = cluster.leader(topic, partition)
    while leader is not None and start < stop:
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=ANSWER_BYTES,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=start,
                            partition_max_bytes=ANSWER_BYTES,
                        )
                    ],
                )
            ],
        )
        answer: FetchResponse = cluster.ask(leader, request, at_most=_FETCH_MAX)
        data = answer.responses[0].partitions[0]
        if data.error_code:
            raise RefusedError(data.error_code, f"{topic}-{partition} cannot be read")
        before = start
        for header, batch in split_batches(data.records or b"", partial_tail=True):
            if not crc_matches(batch, header):
                raise DecodeError(f"{topic}-{partition}: the batch at {start} is damaged")
            if not header.is_control:
                for record in decode_records(batch, header):
                    if start <= record.offset < stop:
                        yield record
            start = max(start, header.next_offset)
        if start == before:
            return  # The rest was deleted meanwhile.
