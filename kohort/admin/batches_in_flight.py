"""Batches on their way to brokers: several at a time, each appended exactly once (KIP-98).

A broker refuses a batch whose predecessor of the same producer and partition it does not have, and
recognises the last five of them when they come again. So up to five may be under way; when one
fails, the answers to the others are awaited, and those that failed are sent again in order, one
after another, until a broker has them or the time is over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kohort.admin.cluster import RETRY_S, RefusedError
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import ExpectedAnswer
from kohort.protocol.messages.produce import PartitionProduceResponse, ProduceRequest

UNDER_WAY_MAX: Final = 5
"""What a broker remembers of a producer in a partition."""

Failure: TypeAlias = RefusedError | DisconnectedError

_PRODUCE_MAX: Final = 12
"""The last version that names topics; from 13 on they are ids."""
_HAS_IT: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch that is to be appended."""

    partition: int
    request: ProduceRequest
    records: int
    byte_count: int
    """Keys and values."""
    deadline_s: float
    """The end of its attempts, as `time.monotonic` counts."""
    leader: BlockingConnection | None = None
    expected: ExpectedAnswer | None = None
    failure: Failure | None = None
    """Why it could not be sent."""


class Leaders(Protocol):
    """Where partitions are."""

    @property
    def leaders(self) -> Mapping[int, BlockingConnection | None]:
        """The leader of each partition, None where there is none now."""
        ...

    def refresh(self) -> None:
        """Look for them once more; without an answer they stay what they were."""
        ...


class BatchesInFlight:
    """Sends batches of one topic to the leaders of their partitions."""

    def __init__(self, topic: str, leaders: Leaders, timeout_s: float) -> None:
        """`timeout_s` is for each answer."""
        self.appended_records = 0
        self.appended_bytes = 0
        """Keys and values."""
        self._topic = topic
        self._leaders = leaders
        self._timeout_s = timeout_s
        self._batches: deque[SentBatch] = deque()
        """Batches in the order in which they were sent, and in which each connection answers."""
        self._begun: set[int] = set()
        """Partitions that have a batch of this producer."""

    def send(self, batch: SentBatch) -> None:
        """Send a batch; wait for an earlier one if too many are under way.

        Raises RefusedError, DisconnectedError: a batch is not appended.
        """
        while len(self._batches) >= UNDER_WAY_MAX:
            self._await_oldest()
        # Noted before: what an interruption finds here is sent again.
        self._batches.append(batch)
        self._try(batch)
        if batch.partition not in self._begun:
            # A broker takes any sequence number from a producer that it does not know yet: the
            # second batch would be appended where the first one is refused.
            self.settle()

    def settle(self) -> None:
        """Return when all batches are appended. Raises as `send` does."""
        while self._batches:
            self._await_oldest()

    def _await_oldest(self) -> None:
        batch = self._batches[0]
        failure = self._failure_of(batch)
        if failure is None:
            self._appended(self._batches.popleft())
        else:
            self._send_again(failure)

    def _send_again(self, failure: Failure) -> None:
        """The oldest batch has failed: send it again, and the others that fail after it."""
        failed = [self._batches[0]]
        for batch in list(self._batches)[1:]:
            if self._failure_of(batch) is None:
                self._batches.remove(batch)
                self._appended(batch)
            else:
                failed.append(batch)
        for batch in failed:
            if batch is failed[0]:
                self._insist(batch, failure)
            else:
                # It may have failed only because its predecessor had.
                self._try(batch)
                again = self._failure_of(batch)
                if again is not None:
                    self._insist(batch, again)
            self._appended(self._batches.popleft())

    def _insist(self, batch: SentBatch, failure: Failure) -> None:
        """Send a batch that has failed until it is appended. Raises its last failure."""
        found: Failure | None = failure
        while found is not None:
            if isinstance(found, RefusedError) and not ErrorCode(found.error).retriable:
                self._batches.clear()
                raise found
            if time.monotonic() + RETRY_S > batch.deadline_s:
                self._batches.clear()
                raise found
            time.sleep(RETRY_S)
            self._leaders.refresh()
            self._try(batch)
            found = self._failure_of(batch)

    def _appended(self, batch: SentBatch) -> None:
        self._begun.add(batch.partition)
        self.appended_records += batch.records
        self.appended_bytes += batch.byte_count

    def _try(self, batch: SentBatch) -> None:
        """Send a batch to the current leader of its partition."""
        batch.expected = batch.failure = None
        batch.leader = self._leaders.leaders.get(batch.partition)
        if batch.leader is None:
            what = self._what(batch)
            batch.failure = RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, what)
            return
        try:
            batch.expected = batch.leader.send(batch.request, self._timeout_s, at_most=_PRODUCE_MAX)
        except DisconnectedError as error:
            batch.failure = error

    def _failure_of(self, batch: SentBatch) -> Failure | None:
        """Wait for the answer to a batch; return why it is not appended, None if it is."""
        if batch.failure is not None:
            return batch.failure
        assert batch.leader is not None
        if batch.expected is None:  # Interrupted while it was sent.
            return DisconnectedError(f"{batch.leader.address}: interrupted")
        try:
            told = batch.leader.receive(batch.expected, self._timeout_s)
        except DisconnectedError as error:
            batch.failure = error
            return error
        answer: PartitionProduceResponse = told.responses[0].partition_responses[0]
        if answer.error_code in _HAS_IT:
            return None
        what = self._what(batch)
        if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            what += "; max.message.bytes of the topic is the limit"
        batch.failure = RefusedError(answer.error_code, what, answer.error_message)
        return batch.failure

    def _what(self, batch: SentBatch) -> str:
        return f"{self._topic}-{batch.partition} does not take a batch"
