"""Batches that cannot be read: a run stops, skips them, or stores one dead letter per batch."""

from __future__ import annotations

import logging
import time
from typing import Final, Literal, TypeAlias

from kohort.client.core.errors import RecordError
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.client.core.work import Work
from kohort.client.processing.figures import Counts
from kohort.client.processing.source import Source
from kohort.protocol.records.batch import TimestampType

logger = logging.getLogger(__name__)

OnUnreadable: TypeAlias = Literal["stop", "skip", "dead_letter"]

READS: Final = 3
"""How often a batch is fetched before it is skipped: it may have been damaged in transit."""


class Unreadable:
    def __init__(self, wanted: OnUnreadable, work: Work, source: Source, counts: Counts) -> None:
        self._wanted = wanted
        self._work = work
        self._source = source
        self._counts = counts
        self._reads: dict[TopicPartition, tuple[int, int]] = {}
        """By partition, the last offset that could not be read, and how often that failed."""

    def pass_over(self, error: RecordError, now_ms: int) -> None:
        """Skip the batch after its last read (see `READS`); before that, it is fetched again.

        Raises:
            RecordError: `error`, if the run is to stop, or the batch's end is not known.
        """
        partition, next_offset = error.partition, error.next_offset
        if self._wanted == "stop" or next_offset is None:
            raise error
        offset, count = self._reads.get(partition, (-1, 0))
        count = count + 1 if offset == error.offset else 1
        self._reads[partition] = error.offset, count
        if count < READS:
            return
        del self._reads[partition]
        if self._wanted == "skip":
            logger.error("offsets %d to %d are skipped: %s", error.offset, next_offset - 1, error)
            self._counts.skipped += 1
        else:
            logger.warning("a batch is sent to the dead letters: %s", error)
            failure = self._work.feed_final(partition, next_offset - 1, _empty(error), now_ms)
            failure.error, failure.attempts = error, READS
            failure.failed_at_ms = time.time_ns() // 1_000_000
        self._source.skip(partition, next_offset)


def _empty(error: RecordError) -> AnyRecord:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord(*error.partition, error.offset, -1, kind, None, None, -1, -1)
