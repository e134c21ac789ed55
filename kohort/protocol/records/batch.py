"""Record batch v2 from the outside: its 61-byte header, its CRC and its size.

The broker handles batches, not records: nothing here parses the payload, and only `seal` and
`restamped` copy it. Functions take any buffer and a position and raise only DecodeError.

Base offset, length and leader epoch come before the part that the CRC covers. A broker therefore
stores a batch at its own offset by writing `placement_prefix(...)` and the batch from
`PLACEMENT_BYTES` on, unchanged. The CRC covers log-append time, so `restamped` copies the batch.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.crc import crc32c
from kohort.protocol.records.varint import Buffer

MAGIC = 2
HEADER_BYTES = 61
LENGTH_OVERHEAD_BYTES = 12
"""Base offset and length, which the length field does not count."""
LENGTH_MIN = HEADER_BYTES - LENGTH_OVERHEAD_BYTES
PLACEMENT_BYTES = 16
"""Base offset, length and leader epoch: the part the broker sets."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

SEQUENCE_MODULUS = 1 << 31
"""Sequence numbers are modulo this: 0 follows 2147483647."""

_HEADER = Struct(">qiibIhiqqqhii")
_PLACEMENT = Struct(">qii")
MAGIC_AT = 16
_CRC_AT = 17
CRC_START = 21
"""The end of the CRC field. The CRC covers everything from here on."""
LOW_ATTRIBUTES_AT = 22
"""Position of the low byte of the attributes, which contains all bits in use."""

# Bits of a header's attributes, for callers that read several of them.
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40
_KNOWN_BITS = 0x7F


class CompressionType(IntEnum):
    """Ids of the compression codecs, as in the lowest three attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """The party that set the timestamps of a batch: the producer, or the broker at the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of one batch, fields in wire order.

    A named tuple because recovery builds one per batch of a segment: it costs a quarter of a frozen
    dataclass with as many fields and is as immutable.
    """

    base_offset: int
    length: int
    """Bytes of the batch after this field; see size_bytes."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """If `has_delete_horizon`, the time from which tombstones may be removed."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LENGTH_OVERHEAD_BYTES

    @property
    def codec_id(self) -> int:
        """The codec's number, 0 to 7; numbers above 4 have no codec."""
        return self.attributes & CODEC_MASK

    @property
    def codec(self) -> CompressionType:
        """The codec. Raises DecodeError for an unknown codec number."""
        try:
            return CompressionType(self.attributes & CODEC_MASK)
        except ValueError:
            raise DecodeError(f"unknown compression codec {self.codec_id}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        """With LOG_APPEND_TIME, `max_timestamp` is the timestamp of every record."""
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True for a batch with a marker instead of users' records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True once compaction has set when the batch's tombstones may be removed (KIP-534)."""
        return bool(self.attributes & _DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        """True for batches of idempotent and transactional producers."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch was written with; compaction may have removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The lowest possible base offset of the next batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped; NO_SEQUENCE if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch that starts at `position`; the records need not be in the
    buffer.

    Refuses bytes that cannot be a batch of version 2: fewer than 61 bytes, another magic, a length
    below that of the header. Everything else is for the caller to check.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise DecodeError(f"batch header at {position} ends with the buffer at {len(buffer)}")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise DecodeError(f"batch at {position} has magic {header.magic}, not {MAGIC}")
    if header.length < LENGTH_MIN:
        raise DecodeError(f"batch at {position} has length {header.length}, below {LENGTH_MIN}")
    return header


def encode_header(header: BatchHeader) -> bytes:
    """Encode the 61 bytes of a header, with its CRC field unchanged."""
    return _HEADER.pack(*header)


placement_prefix: Callable[[int, int, int], bytes] = _PLACEMENT.pack
"""Encode the first 16 bytes of a batch, which the CRC does not cover: base offset, length and
leader epoch."""


def crc_of(buffer: Buffer, header: BatchHeader, position: int = 0) -> int:
    """Compute the CRC-32C of the batch at `position`; the whole batch must be in the buffer."""
    stop = position + header.size_bytes
    if stop > len(buffer):
        raise DecodeError(f"batch of {header.size_bytes} bytes at {position} ends with the buffer")
    return crc32c(memoryview(buffer)[position + CRC_START : stop])


def crc_matches(buffer: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Whether the batch at `position` matches its CRC; False also if it is truncated."""
    if position + header.size_bytes > len(buffer):
        return False
    return crc_of(buffer, header, position) == header.crc


def payload_of(buffer: Buffer, header: BatchHeader, position: int = 0) -> memoryview:
    """Return the records block of the batch at `position`, compressed if the batch is."""
    stop = position + header.size_bytes
    if stop > len(buffer):
        raise DecodeError(f"batch of {header.size_bytes} bytes at {position} ends with the buffer")
    return memoryview(buffer)[position + HEADER_BYTES : stop]


def iter_headers(
    buffer: Buffer, *, partial_tail: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the consecutive batches in the buffer.

    With `partial_tail`, an incomplete last batch is skipped, for fetch responses and file reads,
    which are cut at a byte limit; otherwise it raises DecodeError.
    """
    position, stop = 0, len(buffer)
    while position < stop:
        if partial_tail and stop - position < HEADER_BYTES:
            return
        header = read_header(buffer, position)
        if position + header.size_bytes > stop:
            if partial_tail:
                return
            raise DecodeError(f"batch of {header.size_bytes} bytes at {position} ends at {stop}")
        yield position, header
        position += header.size_bytes


def split_batches(
    buffer: Buffer, *, partial_tail: bool = False
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield (header, whole batch) for each batch in the buffer; see iter_headers."""
    view = memoryview(buffer)
    for position, header in iter_headers(view, partial_tail=partial_tail):
        yield header, view[position : position + header.size_bytes]


SealedBatch: TypeAlias = tuple[bytes, BatchHeader]
"""A batch as it is sent and stored, and its header with the CRC."""


def seal(header: BatchHeader, payload: Buffer) -> SealedBatch:
    """Return the batch with this header and records block, and the header with the CRC of both."""
    packed = _HEADER.pack(*header)
    crc = crc32c(payload, crc32c(packed[CRC_START:]))
    batch = b"".join((packed[:_CRC_AT], crc.to_bytes(4, "big"), packed[CRC_START:], payload))
    return batch, header._replace(crc=crc)


def restamped(
    batch: Buffer, header: BatchHeader, kind: TimestampType, max_timestamp: int
) -> SealedBatch:
    """Return a copy of the batch with this timestamp type and maximum timestamp; with
    LOG_APPEND_TIME, `max_timestamp` is the timestamp of every record.
    """
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT | kind << 3
    # As in Kafka, unknown attributes are lost when the header is rewritten.
    changed = header._replace(attributes=attributes & _KNOWN_BITS, max_timestamp=max_timestamp)
    return seal(changed, payload_of(batch, header))
