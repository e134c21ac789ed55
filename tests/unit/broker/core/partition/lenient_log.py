"""A log without files, for the rules of producers and their transactions."""

import pytest

from kohort.broker.core.partition.producers import ProducerState
from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import BatchHeader


class Log:
    """A partition that appends whatever the rules let through."""

    def __init__(self, state: ProducerState | None = None) -> None:
        self.state = ProducerState() if state is None else state
        self.end_offset = 0
        self.now_ms = 0

    def send(self, header: BatchHeader, *, version: int = 0) -> int:
        """The base offset that the producer is told."""
        duplicate = self.state.check(header, is_first_of_epoch_zero=version == 2)
        if duplicate is not None:
            return duplicate.base_offset
        base_offset = self.end_offset
        self.state.note_appended(header, base_offset=base_offset, timestamp=self.now_ms)
        self.end_offset += header.record_count
        return base_offset

    def refuse(self, header: BatchHeader, *, version: int = 0) -> ErrorCode:
        """The code that the producer is told."""
        before = self.state.snapshot()
        with pytest.raises(KafkaError) as refusal:
            self.state.check(header, is_first_of_epoch_zero=version == 2)
        assert self.state.snapshot() == before
        return refusal.value.code

    def mark(
        self, producer_id: int, epoch: int, *, commit: bool = True, coordinator: int = 0
    ) -> AbortedTransaction | None:
        offset = self.end_offset
        self.end_offset += 1
        return self.state.note_marker(
            producer_id,
            epoch,
            is_commit=commit,
            coordinator_epoch=coordinator,
            offset=offset,
            timestamp=self.now_ms,
        )

    def stable(self, high_watermark: int | None = None, start: int = 0) -> int:
        reached = self.end_offset if high_watermark is None else high_watermark
        self.state.spans.settle(reached)
        return self.state.spans.last_stable_offset(reached, start)
