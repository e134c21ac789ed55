"""A client that creates, fills, empties, enlarges and deletes one topic again and again, and knows
what must be true of it: nothing acknowledged is lost, and nothing that was deleted comes back.

It has no I/O: its generators yield requests with their versions and are sent the answers. If a
connection is lost, `NoAnswerError` is thrown into them; then the outcome of the request is unknown
until `look` has seen the topic.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.types import ZERO_UUID
from tests.support import messages as m
from tests.support.network.requests import creation, fetch_request

Asking: TypeAlias = Generator[tuple[Any, int], Any]
"""Yields a request and its version; is sent the answer."""

PARTITIONS_MAX: Final = 4
EARLIEST, LATEST = -2, -1
TIMEOUT_MS: Final = 30_000


class NoAnswerError(Exception):
    """The connection was lost before the answer came."""


@dataclass
class OwnedPartition:
    """The expected content of a partition of the existing topic."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Values by offset, from the log start on."""
    unknown: set[bytes] = field(default_factory=set)
    """Values that were sent but not acknowledged; they may be stored."""
    start: int = 0
    """The log start offset, as acknowledged."""
    requested_start: int = 0
    """That of a DeleteRecords without an answer, which may have deleted some of the segments before
    it; else the same as `start`."""
    end: int = 0
    """The log end offset, as last seen."""


class TopicOwner:
    """`fail` is called with a description of an error. No other client may change the topic."""

    def __init__(self, name: str, chance: Random, fail: Callable[[str], None]) -> None:
        self.name = name
        self.partitions: list[OwnedPartition] = []
        """Partitions by index; empty if the topic does not exist."""
        self.is_uncertain = False
        """Whether the last request has no answer, so that `look` comes next."""
        self.acknowledged = dict.fromkeys(("create", "grow", "delete", "truncate", "produce"), 0)
        """The number of requests of each kind."""
        self._chance = chance
        self._fail = fail
        self._topic_id = ZERO_UUID
        self._requested_count = 0
        """The number of partitions if the last request took effect; else that of `partitions`."""
        self._sent = 0

    def act(self) -> Asking:
        """Call `look` if the last outcome is unknown; otherwise send one request that changes
        something.
        """
        if self.is_uncertain:
            yield from self.look()
            return
        actions: list[tuple[int, Callable[[], Asking]]] = [
            (60, self._produce),
            (15, self._truncate),
            (8, self._grow),
            (6, self._delete),
            (11, self.look),
        ]
        if not self.partitions:
            actions = [(9, self._create), (1, self.look)]
        ((_, action),) = self._chance.choices(actions, [weight for weight, _ in actions])
        self.is_uncertain = True
        self._requested_count = len(self.partitions)
        yield from action()
        self.is_uncertain = False

    # Requests that change something; each first records what is known if no response arrives.

    def _create(self) -> Asking:
        count = self._requested_count = self._chance.randint(1, PARTITIONS_MAX - 1)
        answer = yield creation(self.name, partitions=count), 7
        (result,) = answer.topics
        if self._is_done("create", result.error_code):
            self._begin(result.topic_id, count)

    def _grow(self) -> Asking:
        count = len(self.partitions) + 1
        if count > PARTITIONS_MAX:
            return
        self._requested_count = count
        topic = m.CreatePartitionsTopic(name=self.name, count=count, assignments=None)
        answer = yield (
            m.CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False),
            3,
        )
        if self._is_done("grow", answer.results[0].error_code):
            self.partitions.append(OwnedPartition())

    def _delete(self) -> Asking:
        self._requested_count = 0
        if self._chance.random() < 0.5:
            state = m.DeleteTopicState(name=None, topic_id=self._topic_id)
            request = m.DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS), 6
        else:
            request = m.DeleteTopicsRequest(topic_names=[self.name], timeout_ms=TIMEOUT_MS), 5
        answer = yield request
        if self._is_done("delete", answer.responses[0].error_code):
            self.partitions = []

    def _truncate(self) -> Asking:
        index, partition = self._pick()
        offset = self._chance.randint(partition.start, partition.end)
        partition.requested_start = offset
        of_all = offset == partition.end and self._chance.random() < 0.5
        wanted = m.DeleteRecordsPartition(partition_index=index, offset=-1 if of_all else offset)
        topic = m.DeleteRecordsTopic(name=self.name, partitions=[wanted])
        answer = yield m.DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 2
        (result,) = answer.topics[0].partitions
        if self._is_done("truncate", result.error_code):
            if result.low_watermark != offset:
                self._fail(f"{self.name}-{index} begins at {result.low_watermark}, not {offset}")
            self._set_start(partition, offset)

    def _produce(self) -> Asking:
        index, partition = self._pick()
        values = [self._new_value() for _ in range(self._chance.randint(1, 4))]
        partition.unknown.update(values)
        records = memoryview(encode_batch([Record(value) for value in values]))
        data = m.PartitionProduceData(index=index, records=records)
        topic = m.TopicProduceData(name=self.name, partition_data=[data])
        answer = yield (
            m.ProduceRequest(
                transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic]
            ),
            9,
        )
        (result,) = answer.responses[0].partition_responses
        if self._is_done("produce", result.error_code):
            partition.acknowledged.update(enumerate(values, result.base_offset))
            partition.unknown.difference_update(values)
            partition.end = result.base_offset + len(values)

    def _new_value(self) -> bytes:
        """A value that is sent once."""
        self._sent += 1
        size = self._chance.choice((10, 10, 500, 20_000))
        return f"{self.name}:{self._sent}:".encode().ljust(size, b".")

    def _pick(self) -> tuple[int, OwnedPartition]:
        return self._chance.choice(list(enumerate(self.partitions)))

    def _is_done(self, action: str, error: int) -> bool:
        if error:
            self._fail(f"{action} of {self.name} is answered {ErrorCode(error).name}")
            return False
        self.acknowledged[action] += 1
        return True

    def _begin(self, topic_id: bytes, count: int) -> None:
        self._topic_id = topic_id
        self.partitions = [OwnedPartition() for _ in range(count)]

    def _set_start(self, partition: OwnedPartition, start: int) -> None:
        partition.start = partition.requested_start = start
        for offset in [offset for offset in partition.acknowledged if offset < start]:
            del partition.acknowledged[offset]

    # Comparing.

    def look(self) -> Asking:
        """Compare the topic with the acknowledged changes; after that, no outcome is unknown."""
        request = m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=False
        )
        answer = yield request, 12
        (topic,) = answer.topics
        count = len(topic.partitions)
        counts = {len(self.partitions)}
        if self.is_uncertain:
            counts.add(self._requested_count)
        if count not in counts:
            self._fail(f"{self.name} has {count} partitions, not {counts}")
            return
        if count and not self.partitions:
            self._begin(topic.topic_id, count)
        elif count and topic.topic_id != self._topic_id:
            self._fail(f"{self.name} is another topic: {topic.topic_id.hex()}")
        elif not count:
            self.partitions = []
        while len(self.partitions) < count:
            self.partitions.append(OwnedPartition())
        for index, partition in enumerate(self.partitions):
            yield from self._look_into(index, partition)
        self._requested_count = count
        self.is_uncertain = False

    def _look_into(self, index: int, partition: OwnedPartition) -> Asking:
        place = f"{self.name}-{index}"
        start = yield from self._offset(index, EARLIEST)
        if not partition.start <= start <= partition.requested_start:
            self._fail(
                f"{place} begins at {start}, not {partition.start} to {partition.requested_start}"
            )
        self._set_start(partition, start)
        partition.end = yield from self._offset(index, LATEST)
        found: dict[int, bytes] = {}
        position = start
        while position < partition.end:
            answer = yield fetch_request(self.name, position, partition=index), 11
            (result,) = answer.responses[0].partitions
            records = [
                record
                for header, batch in split_batches(result.records or b"")
                for record in decode_records(batch, header)
            ]
            if result.error_code or not records:
                self._fail(f"{place} cannot be read at {position}: {result.error_code}")
                return
            found |= {record.offset: record.value or b"" for record in records}
            position = records[-1].offset + 1
        found = {offset: value for offset, value in found.items() if offset >= start}
        for offset, value in partition.acknowledged.items():
            if found.get(offset) != value:
                self._fail(f"{place} lost {value[:20]!r} at {offset}: {found.get(offset)!r:.30}")
        for offset, value in found.items():
            if offset not in partition.acknowledged and value not in partition.unknown:
                self._fail(f"{place} has {value[:20]!r} at {offset}, which nobody sent to it")

    def _offset(self, index: int, timestamp: int) -> Generator[tuple[Any, int], Any, int]:
        wanted = m.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topic = m.ListOffsetsTopic(name=self.name, partitions=[wanted])
        answer = yield m.ListOffsetsRequest(replica_id=-1, topics=[topic]), 5
        (result,) = answer.topics[0].partitions
        if result.error_code:
            error = ErrorCode(result.error_code).name
            self._fail(f"offsets of {self.name}-{index} are answered {error}")
        offset: int = result.offset
        return offset
