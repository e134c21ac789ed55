"""Dead-letter queues of share groups (KIP-1191): records that members reject, or do not accept
within the delivery count limit, are appended to the group's dead-letter topic, and then archived.

One task serves all groups, in order of acknowledgement, and exists while there is something to
append. Records that wait keep the start of their window from advancing, so the windows' size limits
their number. After a crash the state topic still has the records as Archiving, and they are
appended again: at least once.

As in Kafka, a dead letter has headers about its record, and only key and value are copied; records
that cannot be appended are logged and archived.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from kohort.broker.core.partition.validation import validation_steps
from kohort.broker.core.partition.verdict import ProduceTerms, RejectedBatch
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.share.partition import SharePartition
from kohort.broker.share.reports import Outcome
from kohort.broker.share.settings import GroupSettings
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import dead_letter_topic_problem
from kohort.broker.topics.partition import Partition
from kohort.formats.text import shown
from kohort.groups.share.window import AcknowledgeType, DeadLetters
from kohort.protocol.errors import DecodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import payload_of, read_header
from kohort.protocol.records.builder import make_batch_steps
from kohort.protocol.records.compression import open_steps
from kohort.protocol.records.record import Headers, Record, field_of, iter_spans, write_record
from kohort.protocol.records.walk import RecordSpan

logger = logging.getLogger(__name__)

RECORDS_MAX: Final = 500
"""Dead letters in one batch, which is encoded in about a millisecond."""
BATCH_BYTES_MAX: Final = 1 << 20
"""Maximum size of a batch, unless the topic's limit is lower."""
_BATCH_HEADER_BYTES: Final = 61
_TERMS: Final = ProduceTerms(api_version=13, acks=-1, has_transactional_id=False, wall_ms=0)


OnDone: TypeAlias = Callable[[Sequence[tuple[DeadLetters, Outcome]]], None]
"""Called with ranges of records to archive now, each with the result for its dead letters."""


class _Work(NamedTuple):
    share: SharePartition
    dead_letters: Sequence[DeadLetters]
    on_done: OnDone


class DeadLetterQueue:
    """All share groups' records that wait until their dead letters are appended."""

    def __init__(
        self, topics: TopicManager, settings: Callable[[str], GroupSettings], clock: Clock
    ) -> None:
        """`settings` returns the settings of a group."""
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._queue: deque[_Work] = deque()
        self._task: asyncio.Task[None] | None = None
        self._log = PeerLog(logger, clock)

    def put(
        self, share: SharePartition, dead_letters: Sequence[DeadLetters], on_done: OnDone
    ) -> None:
        """Append the dead letters later; `on_done` is called batch by batch."""
        self._queue.append(_Work(share, dead_letters, on_done))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name="dead letters of share groups"
            )

    async def close(self) -> None:
        """Stop; the waiting dead letters are appended after the next start."""
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        time_slice = Slice(self._clock)
        while self._queue:
            work = self._queue.popleft()
            left = list(work.dead_letters)
            try:
                await self._append_all(work, left, time_slice)
            except KafkaError as error:
                self._give_up(work, left, error)
            except Exception as error:
                logger.exception("Internal error in a dead-letter queue")
                self._give_up(work, left, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            await time_slice.pause()

    def _give_up(self, work: _Work, left: Sequence[DeadLetters], error: KafkaError) -> None:
        """Log and archive records that cannot get a dead letter."""
        if not left:
            return
        key = work.share.key
        count = sum(each.last_offset - each.first_offset + 1 for each in left)
        self._log.fault(
            "dead-letters",
            "%d records of %s-%d from offset %d on, for which group %s has a dead-letter queue, "
            "are archived without dead letters: %s",
            count,
            shown(self._topic_name(key.topic_id)),
            key.partition,
            left[0].first_offset,
            shown(key.group_id),
            error,
        )
        outcome = Outcome("", -1, 0, str(error))
        work.on_done([(each, outcome) for each in left])

    async def _append_all(self, work: _Work, left: list[DeadLetters], time_slice: Slice) -> None:
        """Append dead letters, archive their records and remove them from `left`. Raises
        KafkaError.
        """
        key = work.share.key
        settings = self._settings(key.group_id)
        target = await self._target(settings.dead_letter_topic, key.partition)
        source = self._source(work.share) if settings.copies_records else None
        name = self._topic_name(key.topic_id)
        config = target.config
        batch = _Batch(min(config.max_message_bytes, config.segment_bytes, BATCH_BYTES_MAX))
        # One timestamp for all dead letters: `_encoded_bytes` assumes a timestamp delta of 0.
        wall_ms = self._clock.wall_ms()
        for each in work.dead_letters:
            for offset in range(each.first_offset, each.last_offset + 1):
                headers = _headers(name, key.partition, offset, key.group_id, each)
                record = Record(None, None, headers, timestamp=wall_ms)
                if source is not None:
                    value, content_key = await source.content(offset, time_slice)
                    copied = record._replace(value=value, key=content_key)
                    if _BATCH_HEADER_BYTES + _encoded_bytes(copied, 0) <= batch.bytes_max:
                        record = copied
                if not batch.add(record, each, offset):
                    await self._append(work, target, batch, time_slice)
                    _remove_first(left, batch.parts)
                    batch = _Batch(batch.bytes_max)
                    batch.add(record, each, offset)
                await time_slice.pause()
        await self._append(work, target, batch, time_slice)
        left.clear()

    async def _append(
        self, work: _Work, target: Partition, batch: "_Batch", time_slice: Slice
    ) -> None:
        """Append a batch of dead letters, and archive the original records. Raises KafkaError."""
        counts = work.share.counts
        counts.dead_letter_batches += 1
        try:
            base_offset = await self._append_batch(target, batch.records, time_slice)
        except KafkaError:
            counts.dead_letter_batches_failed += 1
            raise
        counts.dead_letters += len(batch.records)
        outcomes = []
        for part in batch.parts:
            distance = base_offset - part.first_offset
            outcomes.append((part, Outcome(target.topic_name, target.index, distance)))
            base_offset += part.last_offset - part.first_offset + 1
        work.on_done(outcomes)

    async def _append_batch(
        self, target: Partition, records: Sequence[Record], time_slice: Slice
    ) -> int:
        made, _ = await run(make_batch_steps(records), time_slice)
        wall_ms = self._clock.wall_ms()
        verdict = await run(
            validation_steps(made, target.config, _TERMS._replace(wall_ms=wall_ms)), time_slice
        )
        if isinstance(verdict, RejectedBatch):
            raise KafkaError(verdict.code, verdict.message)
        await time_slice.pause()
        appended = target.append(verdict.batch, verdict.header, wall_ms=wall_ms)
        if target.high_watermark < appended.next_offset:
            await target.wait_committed(appended.next_offset)
        return appended.base_offset

    async def _target(self, name: str, source_partition: int) -> Partition:
        """Return the partition of the dead-letter topic for dead letters of a source partition;
        create the topic if auto-creation is enabled. Raises KafkaError.
        """
        config = self._topics.settings.config
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "the group has no dead-letter topic any more"
            )
        problem = dead_letter_topic_problem(name, config)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
        topic = self._topics.get(name)
        if topic is None and config.errors_deadletterqueue_auto_create_topics_enable:
            configs = {
                "errors.deadletterqueue.group.enable": "true",
                "message.timestamp.type": "CreateTime",
            }
            topic = await self._topics.changes.create_topic(
                name, partition_count=config.num_partitions, configs=configs
            )
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name} does not exist "
                "(errors.deadletterqueue.auto.create.topics.enable=false)",
            )
        if not topic.config.errors_deadletterqueue_group_enable:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"topic {name} is not a dead-letter topic "
                "(errors.deadletterqueue.group.enable=false)",
            )
        return topic.partitions[source_partition % len(topic.partitions)]

    def _source(self, share: SharePartition) -> "_Source | None":
        """Return a reader of a share-partition's log; None if the topic does not exist any more."""
        topic = self._topics.get_by_id(share.key.topic_id)
        if topic is None:
            return None
        limit = self._topics.settings.config.kohort_inflated_batch_bytes_max
        return _Source(topic.partitions[share.key.partition], limit, self._log)

    def _topic_name(self, topic_id: bytes) -> str:
        topic = self._topics.get_by_id(topic_id)
        if topic is None:  # Deleted meanwhile.
            return urlsafe_b64encode(topic_id).rstrip(b"=").decode()
        return topic.name


class _Batch:
    """Dead letters that are appended as one record batch."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.records: list[Record] = []
        self.parts: list[DeadLetters] = []
        """The ranges of source offsets whose dead letters are in `records`, in the same order."""
        self._size = _BATCH_HEADER_BYTES

    def add(self, record: Record, dead_letters: DeadLetters, offset: int) -> bool:
        """Add a record if the batch has room for it, and return whether it had. The first record is
        always added.
        """
        count = len(self.records)
        size = self._size + _encoded_bytes(record, count)
        if count and (count == RECORDS_MAX or size > self.bytes_max):
            return False
        self._size = size
        self.records.append(record)
        parts = self.parts
        if parts and offset > dead_letters.first_offset:
            parts[-1] = parts[-1]._replace(last_offset=offset)
        else:
            parts.append(dead_letters._replace(first_offset=offset, last_offset=offset))
        return True


def _encoded_bytes(record: Record, index: int) -> int:
    encoded = bytearray()
    write_record(encoded, record, 0, index)
    return len(encoded)


def _remove_first(left: list[DeadLetters], parts: Iterable[DeadLetters]) -> None:
    """Remove `parts` from the beginning of `left`."""
    for part in parts:
        if part.last_offset == left[0].last_offset:
            del left[0]
        else:
            left[0] = left[0]._replace(first_offset=part.last_offset + 1)


def _headers(
    topic: str, partition: int, offset: int, group_id: str, dead_letters: DeadLetters
) -> Headers:
    is_rejected = dead_letters.cause == AcknowledgeType.REJECT
    message = (
        "Offset rejected by client."
        if is_rejected
        else "Offset delivery count exceeded the threshold."
    )
    texts = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": str(dead_letters.delivery_count),
        "message": message,
    }
    return tuple((f"__dlq.errors.{name}", text.encode()) for name, text in texts.items())


class _Source:
    """Reads values and keys from a log. With ascending offsets, each batch is read once."""

    def __init__(self, log: Partition, inflated_bytes_max: int, peer_log: PeerLog) -> None:
        self._log = log
        self._inflated_bytes_max = inflated_bytes_max
        self._peer_log = peer_log
        self._is_readable = True
        self._asked = 0
        """The last requested offset."""
        self._base = self._end = 0
        """First offset of the open batch, and the offset after its last one."""
        self._block: bytes | memoryview = b""
        self._spans: Iterator[RecordSpan] = iter(())
        self._at = -1
        """Offset of the record `_span`; -1 before a batch's first record, `_end` after its last."""
        self._span: RecordSpan | None = None

    async def content(self, offset: int, time_slice: Slice) -> tuple[bytes | None, bytes | None]:
        """Return value and key of a record; None for both if it cannot be read."""
        if not self._is_readable:
            return None, None
        try:
            await self._go_to(offset, time_slice)
        except (KafkaError, DecodeError) as error:
            self._is_readable = False
            self._peer_log.note(
                "unreadable", "Dead letters of %r have no key and value: %s", self._log, error
            )
        span = self._span
        if self._at != offset or span is None or not self._is_readable:
            return None, None
        return (
            field_of(self._block, span.value_start, span.value_length),
            field_of(self._block, span.key_start, span.key_length),
        )

    async def _go_to(self, offset: int, time_slice: Slice) -> None:
        if offset < self._asked or offset >= self._end:
            await self._open(offset, time_slice)
        self._asked = offset
        while self._at < offset:
            self._span = next(self._spans, None)
            self._at = self._end if self._span is None else self._base + self._span.offset_delta
            await time_slice.pause()

    async def _open(self, offset: int, time_slice: Slice) -> None:
        """Open the batch that contains an offset, or the first batch after it."""
        data = self._log.reads.read_cached(offset, 1, min_one=True)
        if data is None:
            data = await self._log.reads.read_in_thread(offset, 1, min_one=True)
        if not data:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no record at {offset}")
        assert isinstance(data, bytes | memoryview)
        header = read_header(data)
        self._base, self._end, self._at = header.base_offset, header.next_offset, -1
        if header.is_control:
            self._spans = iter(())
            return
        payload = payload_of(data, header)
        opened = await run(open_steps(header.codec, payload, self._inflated_bytes_max), time_slice)
        self._block = opened.block
        self._spans = iter_spans(opened.block, header.record_count)
