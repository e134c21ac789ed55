"""One partition at run time: its log, the offsets visible to consumers, and the waiting requests.

The log itself is blocking file code (:mod:`kohort.broker.storage.log.log`). `Partition` decides
when its writes are flushed to disk, and when the high watermark advances:

- Appends go to the page cache in the loop's thread. If the configuration requires no fsync (Kafka's
  default), they are visible at once.
- When `flush.messages` is reached, an fsync is started in the executor, and the high watermark
  waits for it; so neither an acks=all producer nor any consumer learns of a record that a power
  failure could still lose. Appends that arrive meanwhile share the next fsync (group commit).
- A full segment is flushed in any case, so that the recovery point advances and a start after a
  crash has to verify only the last segment.

Consumers of committed records read up to the last stable offset: the start of the first transaction
without a marker below the high watermark, or else the high watermark
(:mod:`kohort.broker.core.partition.transactions`). Both offsets are stored, and advance together.

A failed write is undone and answered with an error; the next write may succeed. A failed fsync, or
a failed undo, takes the partition offline until the next start: the content of the disk is then
unknown, and acknowledging anything on top of it would be a guess.
"""

import asyncio
import logging
from collections import deque
from concurrent.futures import Executor
from typing import NamedTuple

from kohort.broker.config import TopicConfig
from kohort.broker.config.settings import LONG_MAX
from kohort.broker.core.partition.producers import ProducerSnapshot, UnendedTransactionError
from kohort.broker.core.partition.transactions import OpenTransaction, StableOffset
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.topics.directories import FIRST_LEADER_EPOCH
from kohort.broker.topics.partition_reads import PartitionReads
from kohort.broker.topics.tail_cache import TailCache
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import CONTROL_BIT, NO_PRODUCER_ID, BatchHeader
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker

logger = logging.getLogger(__name__)

REFUSALS_LOGGED_EVERY_MS = 10_000


class Appended(NamedTuple):
    """Offsets of an appended batch. The high watermark must reach ``next_offset`` for acks=all."""

    base_offset: int
    next_offset: int
    appended_ms: int
    """Wall time; in the past for a batch that was already in the log."""
    is_duplicate: bool = False
    """Whether this is an idempotent producer's retry of a batch that is already in the log."""


class Partition:
    """A partition of a topic; also the key under which operations on it wait in the purgatory."""

    def __init__(
        self,
        topic_name: str,
        index: int,
        log: PartitionLog,
        config: TopicConfig,
        *,
        purgatory: Purgatory,
        executor: Executor,
        tail_cache: TailCache,
        leader_epoch: int = FIRST_LEADER_EPOCH,
    ) -> None:
        """``leader_epoch`` is the highest that clients may have seen; it never decreases."""
        self.topic_name = topic_name
        self.index = index
        self.log = log
        self.config = config
        """The config in force; replaced together with `log.config` when the topic is altered."""
        self.leader_epoch = max(leader_epoch, log.newest_epoch)
        """The epoch written to every batch (KIP-101), and compared with that of clients
        (KIP-320)."""
        self.high_watermark = log.log_end_offset
        self.visible_bytes = 0
        """Bytes that became visible since the start; only differences are meaningful."""
        self.failure: KafkaError | None = None
        """The answer to every request once the partition is offline or deleted."""
        self._purgatory = purgatory
        self._executor = executor
        self.reads = PartitionReads(self, log, executor, tail_cache)
        self._behind_watermark: deque[tuple[int, int]] = deque()
        """(next offset, bytes) of appended batches above the high watermark."""
        self._stable: StableOffset | None = None
        """The last stable offset; None until its first request or the first append."""
        self.flush: asyncio.Task[None] | None = None
        """The running flush."""
        self._is_watermark_held = False
        """Whether a running flush delays the high watermark: one that the configuration requires
        before records are visible, not one for upkeep.
        """
        self._refusal_logged_ms = -REFUSALS_LOGGED_EVERY_MS
        """Wall time of the last log line about an append that was refused or undone."""
        self._committed: dict[asyncio.Future[None], int] = {}
        """Futures of internal writers, each with the offset that the high watermark must reach."""

    def __repr__(self) -> str:
        return f"Partition({self.topic_name}-{self.index})"

    def check_online(self) -> None:
        """Raise `failure` if the partition is offline or deleted."""
        if self.failure is not None:
            raise _copied(self.failure)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which all transactions have ended. Raises KAFKA_STORAGE_ERROR."""
        stable = self._stable or self._load_stable_offset()
        if stable.offset == self.high_watermark:
            return stable.offset
        return max(stable.offset, self.log.log_start_offset)

    @property
    def stable_bytes(self) -> int:
        """`visible_bytes` below the last stable offset. Raises KAFKA_STORAGE_ERROR."""
        stable = self._stable or self._load_stable_offset()
        return self.visible_bytes - stable.unstable_bytes

    @property
    def held_offsets(self) -> int:
        """Number of visible offsets at or above the last stable offset.

        Also 0 until the last stable offset is first requested after the start.
        """
        stable = self._stable
        if stable is None or stable.offset == self.high_watermark:
            return 0
        return self.high_watermark - max(stable.offset, self.log.log_start_offset)

    @property
    def may_wait(self) -> bool:
        """Whether appended records may have to be flushed to disk before they are visible."""
        return self._is_watermark_held or self.config.flush_messages < LONG_MAX

    def append(
        self,
        batch: bytes | memoryview,
        header: BatchHeader,
        *,
        wall_ms: int,
        is_first_of_epoch_zero: bool = False,
        is_numbered: bool = True,
    ) -> Appended:
        """Append a validated batch of records; its bytes are not kept.

        A transactional batch opens its producer's transaction in this partition, unless it is open.

        Args:
            is_first_of_epoch_zero: for batches of transactions of version 2, see
                :meth:`ProducerState.check`.
            is_numbered: see :meth:`ProducerState.check`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, or the error by which the rules of idempotence and of
                transactions refuse the batch.
        """
        if self.failure is not None:
            self.check_online()
        log = self.log
        duplicate = None
        if header.producer_id > NO_PRODUCER_ID and not header.attributes & CONTROL_BIT:
            try:
                duplicate = log.producers.check(
                    header, is_first_of_epoch_zero=is_first_of_epoch_zero, is_numbered=is_numbered
                )
            except UnendedTransactionError as error:
                self._log_refusal("rejected a batch for %r: %s", error, wall_ms)
                raise
        if duplicate is not None:
            return Appended(
                duplicate.base_offset,
                duplicate.last_offset + 1,
                duplicate.timestamp,
                is_duplicate=True,
            )
        try:
            written = log.append(batch, header, leader_epoch=self.leader_epoch, wall_ms=wall_ms)
        except StorageError as error:
            self._note_storage_error(error, wall_ms)
            raise
        if self._stable is None:
            self._load_stable_offset()
        next_offset = written.last_offset + 1
        self._behind_watermark.append((next_offset, len(batch)))
        flush_messages = self.config.flush_messages
        # The default of flush.messages exceeds the size of any log, so most appends skip the check.
        if next_offset >= flush_messages and next_offset - log.flushed_offset >= flush_messages:
            self._is_watermark_held = True
            self.start_flush()
        elif not self._is_watermark_held:
            self._raise_watermark(next_offset)
        if written.is_rolled:
            self.start_flush()
        return Appended(written.base_offset, next_offset, wall_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        result: ControlType,
        *,
        coordinator_epoch: int,
        transaction_version: int,
        wall_ms: int,
    ) -> Appended:
        """End a producer's transaction in this partition; without an open one, the marker changes
        nothing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; INVALID_PRODUCER_EPOCH or
                TRANSACTION_COORDINATOR_FENCED if a later marker is here already, see
                :meth:`ProducerState.check_marker`.
        """
        self.check_online()
        self.log.producers.check_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        batch, header = make_marker(
            EndTransactionMarker(result, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=wall_ms,
        )
        return self.append(batch, header, wall_ms=wall_ms)

    def producers_seen(self) -> list[ProducerSnapshot]:
        """Return the state of every known producer. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        self.check_online()
        return self.log.producers.snapshot()

    def open_transactions(self, at_most: int | None = None) -> list[OpenTransaction]:
        """Return the first `at_most` open transactions, by first offset. Raises
        KAFKA_STORAGE_ERROR.
        """
        self.check_online()
        return self.log.producers.open_transactions(at_most)

    @property
    def open_transaction_count(self) -> int:
        self.check_online()
        return len(self.log.producers.spans.open)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written, -1 if unknown."""
        if self.leader_epoch == FIRST_LEADER_EPOCH or offset >= self.log.log_end_offset:
            return self.leader_epoch
        return self.log.epochs.epoch_at(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return (largest epoch <= `epoch`, its end offset capped at the high watermark), or None
        if it is unknown. Raises KafkaError.
        """
        self.check_online()
        if epoch == self.leader_epoch:
            return epoch, self.high_watermark
        end = self.log.end_offset_for_epoch(epoch)
        return None if end is None else (end[0], min(end[1], self.high_watermark))

    async def wait_committed(self, next_offset: int) -> None:
        """Return once the high watermark covers everything below ``next_offset``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the partition went offline first.
        """
        self.check_online()
        if self.high_watermark >= next_offset:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committed[done] = next_offset
        try:
            await done
        finally:
            self._committed.pop(done, None)

    def start_flush(self) -> None:
        """Start flushing all records to disk, including those appended until the fsync begins."""
        if self.flush is None and self.failure is None:
            loop = asyncio.get_running_loop()
            self.flush = loop.create_task(self._flush_until_clean(), name=f"flush {self!r}")

    async def wait_flushed(self) -> None:
        """Return when no flush is running."""
        if self.flush is not None:
            await asyncio.wait([self.flush])

    def take_offline(self, reason: str) -> None:
        """Refuse all requests until the next start, because the disk cannot be trusted."""
        if self.failure is None:
            logger.error("%r is offline: %s", self, reason)
            self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))

    def mark_deleted(self) -> None:
        """Fail the requests that wait for the partition, because its topic is being deleted."""
        self._fail(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def _fail(self, failure: KafkaError) -> None:
        self.failure = failure
        self._wake()

    async def _flush_until_clean(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                # Later appends in this event loop iteration share the fsync.
                await asyncio.sleep(0)
                await loop.run_in_executor(self._executor, self.log.flush)
                unflushed = self.log.log_end_offset - self.log.flushed_offset
                if unflushed < self.config.flush_messages:
                    break
                self._raise_watermark(self.log.flushed_offset)
        except StorageError as error:
            self.flush = None
            self.take_offline(str(error))
        except Exception as error:
            # An unforeseen error: the content of the disk is unknown, so stop acknowledging.
            self.flush = None
            logger.exception("flush of %r", self)
            self.take_offline(f"flush failed: {error}")
        else:
            self.flush = None
            self._is_watermark_held = False
            self._raise_watermark(self.log.log_end_offset)

    def _raise_watermark(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        visible_before = self.visible_bytes
        behind = self._behind_watermark
        while behind and behind[0][0] <= offset:
            self.visible_bytes += behind.popleft()[1]
        stable = self._stable
        assert stable is not None, "something was appended"
        if stable.spans.open or stable.spans.ended or stable.unstable_bytes:
            stable.follow(offset, self.visible_bytes - visible_before)
        else:
            stable.offset = offset
        if self._committed:
            self._wake()
        elif self in self._purgatory.watched:
            self._purgatory.check_and_complete(self)

    def _load_stable_offset(self) -> StableOffset:
        """Compute the last stable offset when it is first needed; may read the log's files."""
        self.check_online()
        stable = self._stable = StableOffset(self.log.producers.spans, self.high_watermark)
        return stable

    def _wake(self) -> None:
        self._purgatory.check_and_complete(self)
        for done, next_offset in list(self._committed.items()):
            if done.done():
                continue
            if self.failure is not None:
                done.set_exception(_copied(self.failure))
            elif next_offset <= self.high_watermark:
                done.set_result(None)

    def _note_storage_error(self, error: StorageError, wall_ms: int) -> None:
        if self.log.failed:
            self.take_offline(str(error))
        else:
            self._log_refusal("append to %r was undone: %s", error, wall_ms)

    def _log_refusal(self, what: str, error: KafkaError, wall_ms: int) -> None:
        # Clients retry at once and for long; log lines must not fill a disk that is already full.
        if abs(wall_ms - self._refusal_logged_ms) >= REFUSALS_LOGGED_EVERY_MS:
            self._refusal_logged_ms = wall_ms
            logger.warning(what, self, error)


def _copied(failure: KafkaError) -> KafkaError:
    """Return a copy of the error, to be raised again.

    An exception keeps the frames it was raised in, and their local variables; raising the same one
    for every request would keep every request in memory.
    """
    return KafkaError(failure.code, failure.message)
