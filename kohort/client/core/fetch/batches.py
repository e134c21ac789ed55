"""The batches of one partition in one response; records are decoded when they are taken.

A batch that is partly read can be restarted (`rewind`), because it is kept until a record of the
next batch is requested. Its decompressed form can be dropped meanwhile (`deflate`), and is
recreated when needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from kohort.client.core.errors import (
    ConsumerError,
    CorruptRecordError,
    DeserialisationError,
    RecordTooLargeError,
)
from kohort.client.core.fetch.batch_context import BatchContext
from kohort.client.core.fetch.deserialisers import (
    NO_DESERIALISERS,
    BackgroundDeserialiser,
    Deserialisers,
    refused,
)
from kohort.client.core.fetch.unpack import unpack
from kohort.client.core.offsets import UNKNOWN_EPOCH
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.protocol.errors import DecodeError, ErrorCode, InflatedTooLargeError
from kohort.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import inflate, log_append_timestamp

_EXTENT: Final = Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta of a batch."""
_OFFSET_MAX: Final = (1 << 63) - 2


class ReadOptions(NamedTuple):
    check_crcs: bool
    inflated_bytes_limit: int
    deserialisers: Deserialisers = NO_DESERIALISERS
    background: BackgroundDeserialiser | None = None
    """Runs the deserialisers that are coroutine functions."""


class Aborted(NamedTuple):
    """An aborted transaction: the producer's records from `first_offset` to its marker are void."""

    first_offset: int
    producer_id: int


class _Open(NamedTuple):
    header: BatchHeader
    view: memoryview
    source: BatchContext


class Fetched:
    """Fetched batches. If the last batch in `data` is truncated, it is dropped."""

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        options: ReadOptions,
        aborted: Sequence[Aborted] = (),
        *,
        offset: int = 0,
    ) -> None:
        """`aborted`: as listed by the broker; empty with read_uncommitted. `offset`: the requested
        offset, which may be within the first batch.

        Raises:
            CorruptRecordError, RecordTooLargeError: the data contains no whole batch.
        """
        self._partition = partition
        self._options = options
        self._stop, self.next_offset = _extent(partition, data, offset)
        # A small slice should not keep the whole response in memory.
        data = data[: self._stop]
        whole = data.obj
        is_small_part = len(data) * 2 < len(whole) if isinstance(whole, bytes | bytearray) else True
        self._data = memoryview(bytes(data)) if is_small_part else data
        self._cursor = 0
        self._aborted = sorted(aborted, reverse=True)
        self._aborted_producers: set[int] = set()
        self._open: _Open | None = None
        self._block: bytes | None = None
        """The batch being read, decompressed; None if that form is not kept."""
        self._position = 0
        self._left = 0
        self.leader_epoch = UNKNOWN_EPOCH
        """The leader epoch of the batch that was read last."""

    @property
    def byte_count(self) -> int:
        begun = len(self._open.view) if self._open else 0
        return self._stop - self._cursor + begun

    @property
    def inflated_bytes(self) -> int:
        """Decompressed size of the batch being read, which `byte_count` does not include."""
        return 0 if self._block is None else len(self._block)

    def deflate(self) -> None:
        """Keep the partly read batch only in compressed form until it is read again."""
        self._block = None

    def read(self, floor: int, wanted: int) -> list[AnyRecord]:
        """Return at most `wanted` records of one batch, none below offset `floor`.

        An empty list means that no records are left; the offset after them is `next_offset`.

        Raises:
            CorruptRecordError, RecordTooLargeError, DeserialisationError: the next record from
                `floor` on cannot be returned. The next call starts with it again.
            NotMadeYet: coroutine functions are still deserialising that record.
        """
        return self._deserialised(self._unpacked(floor, wanted))

    def read_on(self, floor: int, wanted: int) -> list[AnyRecord]:
        """Like `read`, but spans batches if there are no deserialisers: with many small batches, a
        call for each would cost more than the records. `rewind` undoes only the last batch.
        """
        records = self.read(floor, wanted)
        if not records or self._options.deserialisers.are_there:
            return records
        while not self._left and len(records) < wanted:
            try:
                more = self._unpacked(records[-1].offset + 1, wanted - len(records))
            except ConsumerError:
                break  # The next call starts with that record, and raises.
            if not more:
                break
            records += more
        return records

    def _unpacked(self, floor: int, wanted: int) -> list[AnyRecord]:
        while True:
            if not self._left and not self._begin_batch(floor):
                return []
            assert self._open is not None
            block = self._block
            if block is None:
                block = self._block = self._inflate(self._open.header, self._open.view, floor)
            try:
                records, self._position, self._left = unpack(
                    block, self._position, self._left, self._open.source, floor, wanted
                )
                if not self._left and self._position != len(block):
                    if not records:
                        raise DecodeError("data follows the last record")
                    self.rewind()
            except DecodeError as error:
                self.rewind()
                raise self._corrupt(self._open.header, floor, str(error)) from error
            if records:
                return records

    def rewind(self) -> None:
        """Start the current batch over: the next `read` returns its records from `floor` on."""
        if self._open is not None:
            self._position = 0
            self._left = self._open.header.record_count

    def _begin_batch(self, floor: int) -> bool:
        """Move on to the next batch with records to return: neither control nor aborted ones. False
        if there is none.
        """
        self._open = self._block = None
        while self._cursor < self._stop:
            header = read_header(self._data, self._cursor)
            view = self._data[self._cursor : self._cursor + header.size_bytes]
            if self._options.check_crcs and not crc_matches(view, header):
                raise self._corrupt(header, floor, "its checksum is wrong")
            if header.record_count < 0:
                raise self._corrupt(header, floor, f"it has {header.record_count} records")
            if self._is_for_users(header, view, floor):
                self._block = self._inflate(header, view, floor)
                self._open = _Open(header, view, self._source(header))
                self.rewind()
            self._cursor += header.size_bytes
            self.leader_epoch = header.partition_leader_epoch
            if self._open is not None and self._left:
                return True
        self._open = self._block = None
        return False

    def _is_for_users(self, header: BatchHeader, view: memoryview, floor: int) -> bool:
        while self._aborted and self._aborted[-1].first_offset <= header.last_offset:
            self._aborted_producers.add(self._aborted.pop().producer_id)
        if not header.is_control:
            return not (header.is_transactional and header.producer_id in self._aborted_producers)
        # Compaction leaves empty batches, which do not end a transaction.
        if header.producer_id in self._aborted_producers and header.record_count:
            try:
                marker = decode_marker(view, header)
            except DecodeError as error:
                raise self._corrupt(header, floor, str(error)) from error
            if marker is not None and marker.control_type is ControlType.ABORT:
                self._aborted_producers.discard(header.producer_id)
        return False

    def _inflate(self, header: BatchHeader, view: memoryview, floor: int) -> bytes:
        limit = self._options.inflated_bytes_limit
        try:
            return bytes(inflate(view, header, limit))
        except InflatedTooLargeError as error:
            name = _name(self._partition)
            raise RecordTooLargeError(
                f"{name}: the batch at offset {header.base_offset} decompresses to more than"
                f" {limit} bytes; raise inflated_bytes_limit, or seek to {header.next_offset}",
                self._partition,
                max(floor, header.base_offset),
                header.next_offset,
                code=ErrorCode.MESSAGE_TOO_LARGE,
            ) from error
        except DecodeError as error:
            raise self._corrupt(header, floor, str(error)) from error

    def _source(self, header: BatchHeader) -> BatchContext:
        return BatchContext(
            *self._partition,
            header.base_offset,
            header.last_offset,
            header.base_timestamp,
            log_append_timestamp(header),
            header.timestamp_type,
            header.partition_leader_epoch,
        )

    def _deserialised(self, records: list[AnyRecord]) -> list[AnyRecord]:
        read_key, read_value = self._options.deserialisers.key, self._options.deserialisers.value
        if not records or (read_key is None and read_value is None):
            return records
        if self._options.background is not None:
            return self._made(self._options.background, records)
        done: list[AnyRecord] = []
        for record in records:
            what, key, value = "key", record.key, record.value
            try:
                if read_key is not None:
                    key = read_key(key)
                what = "value"
                if read_value is not None:
                    value = read_value(value)
            except Exception as error:
                self.rewind()
                if done:
                    break
                raise _with_hint(refused(record, what, error)) from error
            done.append(record._replace(key=key, value=value))
        return done

    def _made(
        self, background: BackgroundDeserialiser, records: list[AnyRecord]
    ) -> list[AnyRecord]:
        done: list[AnyRecord] = []
        try:
            done = background.take(self._partition, records)
        except DeserialisationError as error:
            raise _with_hint(error) from error.__cause__
        finally:
            if len(done) < len(records):
                self.rewind()
        return done

    def _corrupt(self, header: BatchHeader, floor: int, why: str) -> CorruptRecordError:
        next_offset = self._behind(header)
        return CorruptRecordError(
            f"{_name(self._partition)}: the batch at offset {header.base_offset} cannot be read:"
            f" {why}; seek to {next_offset} to continue",
            self._partition,
            max(floor, header.base_offset),
            next_offset,
            code=ErrorCode.CORRUPT_MESSAGE,
        )

    def _behind(self, header: BatchHeader) -> int:
        """Return the offset after a batch: by `header`, or the next batch's base offset if lower.
        A damaged header may give too high an offset; the broker validates base offsets.
        """
        cursor = self._cursor if self._open is not None else self._cursor + header.size_bytes
        if cursor < self._stop:
            base, *_ = _EXTENT.unpack_from(self._data, cursor)
            if header.base_offset < base < header.next_offset:
                return int(base)
        return header.next_offset


def _with_hint(error: DeserialisationError) -> DeserialisationError:
    return DeserialisationError(f"{error}; seek to {error.next_offset} to skip it", error.record)


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _extent(partition: TopicPartition, data: memoryview, offset: int) -> tuple[int, int]:
    """Return the end of the last whole batch, and the offset after it.

    Invalid data after a whole batch is ignored: the next response begins with it, and then it is an
    error.
    """
    cursor = next_offset = 0
    problem: ConsumerError | None = None
    while len(data) - cursor >= HEADER_BYTES:
        base, length, magic, delta = _EXTENT.unpack_from(data, cursor)
        stop = cursor + length + LENGTH_OVERHEAD_BYTES
        if (
            magic != MAGIC
            or length < LENGTH_MIN
            or delta < 0
            or not 0 <= base < _OFFSET_MAX - delta
        ):
            problem = _not_a_batch(partition, base, magic, offset)
            break
        if stop > len(data):
            problem = _too_large(partition, max(offset, base), base + delta + 1)
            break
        cursor, next_offset = stop, base + delta + 1
    if cursor:
        return cursor, next_offset
    raise problem or _too_large(partition, offset, None)


def _too_large(
    partition: TopicPartition, offset: int, next_offset: int | None
) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"{_name(partition)}: the batch at offset {offset} does not fit in a response; raise"
        " max_partition_fetch_bytes and fetch_max_bytes above the broker's message.max.bytes",
        partition,
        offset,
        next_offset,
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )


def _not_a_batch(
    partition: TopicPartition, base: int, magic: int, offset: int
) -> CorruptRecordError:
    why = "its header is invalid"
    if magic != MAGIC:
        why = f"it has format {magic}, and only format {MAGIC} (Kafka 0.11 and later) is supported"
    return CorruptRecordError(
        f"{_name(partition)}: the batch at offset {base} cannot be read: {why}; seek past it to"
        " continue",
        partition,
        offset,
        code=ErrorCode.CORRUPT_MESSAGE,
    )
