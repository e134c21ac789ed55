"""What becomes of an answer to a fetch: records that wait, an error to be told, another try."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kohort.client.clock import now_ms
from kohort.client.core.errors import (
    ConsumerError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordError,
    error_for,
)
from kohort.client.core.fetch.batches import Aborted, Fetched, ReadOptions
from kohort.client.core.fetch.buffers import FetchBuffers
from kohort.client.core.fetch.plan import FetchPlan
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.wire import PASSING, STALE, Asked, SentFetch, answers_in
from kohort.client.core.offsets import OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.sources import FetchSources
from kohort.client.fetch.troubles import Troubles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import FetchResponse, PartitionData

logger = logging.getLogger(__name__)


class FetchAnswers:
    """Those of one fetcher."""

    def __init__(
        self,
        positions: Positions,
        plan: FetchPlan,
        buffers: FetchBuffers,
        troubles: Troubles,
        sources: FetchSources,
        options: ReadOptions,
        *,
        default_reset: Callable[[], OffsetSpec | None],
        on_metadata_wanted: Callable[[], None],
        on_readable: Callable[[], None],
    ) -> None:
        """`on_readable`: there are records to be taken."""
        self._positions = positions
        self._plan = plan
        self._buffers = buffers
        self._troubles = troubles
        self._sources = sources
        self._options = options
        self._default_reset = default_reset
        self._on_metadata_wanted = on_metadata_wanted
        self._on_readable = on_readable

    def take(self, node_id: int, sent: SentFetch, answer: FetchResponse) -> None:
        """Do what it says about partitions that are still read from where it was asked."""
        now = now_ms()
        if answer.throttle_time_ms > 0:
            self._plan.throttle(node_id, now + answer.throttle_time_ms)
        unanswered = set(sent.asked)
        is_stale = False
        for partition, asked, data in answers_in(sent, answer):
            unanswered.discard(partition)
            state = self._positions.find(partition)
            if state is None or state.fence != asked.fence:
                continue
            code = ErrorCode(data.error_code) if data.error_code else ErrorCode.NONE
            if self._buffers.fetch_offset(partition, state) != asked.offset:
                # It was asked twice, because its leader moved.
                continue
            if code is ErrorCode.NONE:
                if not self._is_sent_on(partition, node_id, asked, data):
                    self._store(partition, asked, data, now)
                continue
            is_stale |= code in STALE
            if not asked.is_leader:
                # Whatever it is, the leader knows better (Java: most errors, OFFSET_OUT_OF_RANGE
                # among them, which may only mean that this one lags behind).
                logger.debug("%s-%d: broker %d: %s", *partition, node_id, code.name)
                self._troubles.postpone(partition)
                self._sources.failed(partition, node_id)
            else:
                self._refused(partition, asked, code)
        self._troubles.unserved(unanswered, now)
        if is_stale:
            self._on_metadata_wanted()

    def _is_sent_on(
        self, partition: TopicPartition, node_id: int, asked: Asked, data: PartitionData
    ) -> bool:
        """Whether the leader has named a follower to be asked instead."""
        leader = node_id, asked.leader_epoch
        follower = data.preferred_read_replica
        if not asked.is_leader or not self._sources.leader_named(partition, follower, leader):
            return False
        if self._sources.is_doubtful(partition):
            # Else it would go back and forth without a pause.
            self._troubles.postpone(partition)
            self._on_metadata_wanted()
        return not data.records

    def _store(
        self, partition: TopicPartition, asked: Asked, data: PartitionData, now: int
    ) -> None:
        self._troubles.succeeded(partition, now)
        self._positions.learned(
            partition,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            wall_ms=time.time_ns() // 1_000_000,
        )
        if not data.records:
            return
        aborted = [
            Aborted(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()
        ]
        try:
            chunk = Fetched(
                partition, memoryview(data.records), self._options, aborted, offset=asked.offset
            )
        except RecordError as error:
            self._fail_in_turn(partition, error)
            return
        if chunk.next_offset <= asked.offset:
            # Nothing that was asked for, and the next answer would be the same.
            self._troubles.postpone(partition)
            return
        self._plan.set_waiting(partition, self._buffers.add(partition, asked.fence, chunk))
        self._plan.served(partition)
        state = self._positions.find(partition)
        if state is not None and state.is_readable:
            self._on_readable()

    def _refused(self, partition: TopicPartition, asked: Asked, code: ErrorCode) -> None:
        topic = f"{partition.topic}-{partition.partition}"
        logger.debug("fetching %s from offset %d: %s", topic, asked.offset, code.name)
        if code in STALE or code in PASSING:
            self._troubles.unserved([partition], now_ms())
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, asked.offset)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            error = CorruptRecordError(
                f"fetching {topic} from offset {asked.offset}: CORRUPT_MESSAGE: the broker finds"
                " its own log damaged there; seek past it to go on",
                partition,
                asked.offset,
                code=code,
            )
            self._fail_in_turn(partition, error)
        else:
            self._fail_in_turn(partition, error_for(code, f"fetching {topic}"))

    def _fail_in_turn(self, partition: TopicPartition, error: ConsumerError) -> None:
        """What comes before the error is to be returned before it; by then it will come again."""
        if self._buffers.next_offset(partition) is None:
            self._troubles.fail(partition, error)
        else:
            self._troubles.postpone(partition)

    def _out_of_range(self, partition: TopicPartition, offset: int) -> None:
        spec = self._default_reset()
        name = f"{partition.topic}-{partition.partition}"
        if self._buffers.next_offset(partition) is not None or spec is None:
            error = OffsetOutOfRangeError(
                f"{name}: offset {offset} is not in the log any more, or not yet, and"
                " auto_offset_reset is none: seek to another offset",
                partition,
                offset,
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
            self._fail_in_turn(partition, error)
            return
        logger.warning("%s: offset %d is not in the log; auto_offset_reset decides", name, offset)
        self._positions.seek_to(partition, spec)
