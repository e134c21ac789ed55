"""What the brokers hold: one topic, all partitions of which have the same records."""

from functools import cache
from typing import Final

from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record

TOPIC: Final = "t"
TOPIC_ID: Final = b"t" * 16
PARTITIONS: Final = 5
BATCHES: Final = 2_000


@cache
def log() -> tuple[list[int], list[bytes]]:
    """The offsets at which batches begin, and the batches: the same in all partitions."""
    begins, batches, offset = [0], [], 0
    for number in range(BATCHES):
        count = 1 + number * 7 % 4
        records = [Record(b"%d" % (offset + index)) for index in range(count)]
        batches.append(encode_batch(records, base_offset=offset, leader_epoch=0))
        offset += count
        begins.append(offset)
    return begins, batches
