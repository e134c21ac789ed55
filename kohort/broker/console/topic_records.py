"""GET /api/topics/{topic}/records: records of a topic, for a person to read.

Everything is bounded: records per answer, bytes read per partition, inflated bytes per batch, bytes
shown per field, and the time of an answer. Files are read on another thread; batches are
decompressed and parsed on the event loop, in slices.
"""

from base64 import b64encode
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.groups_seen import Readable
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.http.messages import BadRequestError
from kohort.broker.http.routes import Query
from kohort.broker.metrics.partitions import open_partition
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import DecodeError, KafkaError
from kohort.protocol.records.batch import BatchHeader, payload_of, split_batches
from kohort.protocol.records.compression import open_steps
from kohort.protocol.records.record import field_of, headers_of, iter_spans, log_append_timestamp
from kohort.protocol.records.varint import Buffer

Json: TypeAlias = dict[str, Any]

RECORDS_DEFAULT: Final = 50
RECORDS_MAX: Final = 200
PARTITIONS_MAX: Final = 64
"""Maximum number of partitions read for one answer: those with the lowest numbers."""
READ_BYTES: Final = 256 * 1024
READS_MAX: Final = 8
"""Maximum reads per partition and response; a read may return only transaction markers, so that
another read is needed."""
INFLATED_BYTES_MAX: Final = 16 << 20
"""A batch whose decompressed size exceeds this is not shown: joining its decompressed parts
would block the event loop."""
TIME_MS_MAX: Final = 10_000
"""No further partition or batch is read after this time."""

FIELD_BYTES: Final = 4 * 1024
"""Maximum bytes shown of a key, value or header in a list."""
WHOLE_BYTES: Final = 1 << 20
"""Maximum bytes shown of each field of a single record."""
HEADERS_MAX: Final = 50

STARTS: Final = ("newest", "oldest", "offset", "time")
OFFSET_MAX: Final = 2**63 - 1


class Wanted(NamedTuple):
    start: str
    """Where to start: one of `STARTS`."""
    at: int
    """If `start` is "offset": the first offset; if "time": the time in milliseconds."""
    partition: int | None
    """None for all partitions."""
    limit: int
    is_whole: bool
    """Whether fields are returned up to `WHOLE_BYTES` instead of `FIELD_BYTES`; allowed for one
    record only."""


def parse(query: Query) -> Wanted:
    """Parse the parameters from, at, partition, limit and whole. Raises BadRequestError."""
    start = query.text("from") or "newest"
    if start not in STARTS:
        raise BadRequestError(f"from must be one of {', '.join(STARTS)}")
    partition = _number(query, "partition")
    if start == "offset" and partition is None:
        raise BadRequestError("from=offset needs a partition")
    at = _number(query, "at")
    if at is None and start in {"offset", "time"}:
        raise BadRequestError(f"from={start} needs at=NUMBER")
    limit = query.number("limit", RECORDS_DEFAULT, at_most=RECORDS_MAX)
    is_whole = query.text("whole") == "yes"
    return Wanted(start, at or 0, partition, 1 if is_whole else limit, is_whole)


def _number(query: Query, name: str) -> int | None:
    text = query.text(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= OFFSET_MAX and len(text) < 20):
        raise BadRequestError(f"{name} must be a number")
    return int(text)


class _Found(NamedTuple):
    timestamp: int
    offset: int
    json: Json


class RecordReader:
    def __init__(self, topics: TopicManager, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    async def wait_records(self, topic: Topic, wanted: Wanted) -> Json:
        """Return the records: newest first if the newest records are wanted, otherwise oldest
        first.

        Raises:
            BadRequestError: the partition does not exist.
        """
        count = len(topic.partitions)
        if wanted.partition is not None and wanted.partition >= count:
            raise BadRequestError(f"the topic has the partitions 0 to {count - 1}")
        indexes = list(range(count)) if wanted.partition is None else [wanted.partition]
        ends_ms = self._clock.monotonic_ms() + TIME_MS_MAX
        time_slice = Slice(self._clock, SLICE_MS)
        is_newest = wanted.start == "newest"
        listed: list[_Found] = []
        problems: list[str] = []
        ranges: list[Json] = []
        for index in indexes[:PARTITIONS_MAX]:
            if self._clock.monotonic_ms() > ends_ms:
                problems.append("Reading took too long; choose one partition.")
                break
            partition = open_partition(self._topics, topic, index)
            if partition is None:
                continue
            try:
                visible = Readable(partition.log.log_start_offset, partition.high_watermark)
                ranges.append({"partition": index, "start": visible.start, "end": visible.end})
                first = await _first(partition, visible, wanted)
                found = [
                    record
                    async for record in self._read(partition, first, wanted, ends_ms, time_slice)
                ]
            except KafkaError as error:
                problems.append(f"Partition {index} cannot be read: {error}.")
                continue
            except DecodeError as error:
                problems.append(f"A batch of partition {index} cannot be read: {error}.")
                continue
            listed += found
            # Sort one partition's records by offset, those of several by timestamp, then by offset.
            listed.sort(key=lambda each: each.offset, reverse=is_newest)
            if wanted.partition is None:
                listed.sort(key=lambda each: each.timestamp, reverse=is_newest)
            del listed[wanted.limit :]
        if len(indexes) > PARTITIONS_MAX:
            problems.append(f"Only the first {PARTITIONS_MAX} partitions were read.")
        return {
            "at_ms": self._clock.wall_ms(),
            "topic": topic.name,
            "partition_count": count,
            "ranges": ranges,
            "problems": problems,
            "records": [each.json for each in listed],
        }

    async def _read(
        self,
        partition: Partition,
        first: int,
        wanted: Wanted,
        ends_ms: int,
        time_slice: Slice,
    ) -> AsyncIterator[_Found]:
        """Yield up to `limit` records from offset `first` on, without markers of transactions."""
        left, offset = wanted.limit, first
        field_bytes = WHOLE_BYTES if wanted.is_whole else FIELD_BYTES
        for _ in range(READS_MAX):
            if offset >= partition.high_watermark or self._clock.monotonic_ms() > ends_ms:
                return
            data = await partition.reads.read_in_thread(offset, READ_BYTES, min_one=True)
            assert isinstance(data, bytes | memoryview)
            if not data:
                return
            for header, batch in split_batches(data, partial_tail=True):
                offset = header.next_offset
                if header.is_control:
                    continue
                async for found in _records(
                    partition.index, header, batch, first, field_bytes, time_slice
                ):
                    yield found
                    left -= 1
                    if not left:
                        return


async def _first(partition: Partition, visible: Readable, wanted: Wanted) -> int:
    """Return the offset at which reading starts, clamped to the partition's existing offsets."""
    match wanted.start:
        case "newest":
            offset = visible.end - wanted.limit
        case "oldest":
            offset = visible.start
        case "offset":
            offset = wanted.at
        case _:
            found = await partition.reads.offset_for_timestamp(wanted.at)
            offset = visible.end if found is None else found[0]
    return min(max(offset, visible.start), visible.end)


async def _records(
    index: int,
    header: BatchHeader,
    batch: memoryview,
    first: int,
    field_bytes: int,
    time_slice: Slice,
) -> AsyncIterator[_Found]:
    opened = await run(
        open_steps(header.codec, payload_of(batch, header), INFLATED_BYTES_MAX), time_slice
    )
    block = opened.block
    appended_ms = log_append_timestamp(header)
    for span in iter_spans(block, header.record_count):
        offset = header.base_offset + span.offset_delta
        if offset >= first:
            timestamp = header.base_timestamp + span.timestamp_delta
            if appended_ms is not None:
                timestamp = appended_ms
            headers = [
                {
                    "name": name[:FIELD_BYTES].encode("utf-8", "replace").decode(),
                    "value": None if content is None else _field_json(content, 0, len(content)),
                }
                for name, content in islice(headers_of(block, span), HEADERS_MAX)
            ]
            json = {
                "partition": index,
                "offset": offset,
                "timestamp_ms": timestamp,
                "key": _field_json(block, span.key_start, span.key_length, field_bytes),
                "value": _field_json(block, span.value_start, span.value_length, field_bytes),
                "headers": headers,
                "header_count": span.header_count,
            }
            yield _Found(timestamp, offset, json)
        await time_slice.pause()


def _field_json(
    block: Buffer, start: int, length: int, bytes_max: int = FIELD_BYTES
) -> Json | None:
    """Return the beginning of a field in Base64, and the field's whole size; None for an absent
    field.
    """
    data = field_of(block, start, min(length, bytes_max))
    return None if data is None else {"size": length, "base64": b64encode(data).decode()}
