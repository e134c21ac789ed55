"""The fetch side of a consumer without a loop: what it asks, what answers mean, what is told."""

from dataclasses import replace
from typing import Any, Final

import pytest

from kohort.client.config import ConsumerConfig
from kohort.client.core.errors import (
    AuthorizationError,
    ConsumerError,
    CorruptRecordError,
    DeserialisationError,
    OffsetOutOfRangeError,
    UnexpectedResponseError,
)
from kohort.client.core.fetch.deserialisers import NO_DESERIALISERS, Deserialisers
from kohort.client.core.fetch.plan import PlannedFetch
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.state import Effect, FetchState, Note
from kohort.client.core.fetch.wire import FIRST_BY_ID, SentFetch
from kohort.client.core.offsets import EARLIEST
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.known_cluster import TOPIC_ID, OneTopic

A, B, C = (TopicPartition("t", index) for index in range(3))
WALL_MS: Final = 1_000_000
CONFIG: Final = ConsumerConfig(auto_offset_reset="earliest")
VERSION: Final = 17


class Scene:
    """A state of some partitions, all at offset 0; time moves by hand, backoffs do not jitter."""

    def __init__(
        self,
        *leaders: int,
        config: ConsumerConfig = CONFIG,
        deserialisers: Deserialisers = NO_DESERIALISERS,
    ) -> None:
        self.now_ms = 0
        self.cluster = OneTopic(*leaders)
        self.positions = Positions()
        self.state = FetchState(
            self.positions,
            self.cluster,
            config,
            random=lambda: 0.5,
            deserialisers=deserialisers,
        )
        partitions = [TopicPartition("t", index) for index in range(len(leaders))]
        self.positions.set_assigned(partitions)
        for one in partitions:
            self.positions.seek(one, 0)
        self.state.set_assigned()
        self.state.notice_new_topics(0, WALL_MS)

    def fetches(self, passed_ms: int = 0) -> list[PlannedFetch]:
        """What is to be sent after so long."""
        self.now_ms += passed_ms
        return list(self.state.next_fetches(self.now_ms))

    def send(self, passed_ms: int = 0) -> SentFetch:
        """The one request that is to be sent."""
        (fetch,) = self.fetches(passed_ms)
        sent = self.state.build_request(fetch, VERSION, self.now_ms)
        assert sent is not None
        return sent

    def answer(self, sent: SentFetch, *parts: PartitionData, throttle_ms: int = 0) -> set[Effect]:
        """What the shell is to do about it."""
        self.state.effects.clear()
        topic = FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=list(parts))
        answer = FetchResponse(throttle_time_ms=throttle_ms, responses=[topic])
        self.state.on_response(sent, answer, self.now_ms, WALL_MS)
        self.state.on_request_finished(
            PlannedFetch(sent.node_id, [*sent.requested], 1, may_wait=True)
        )
        return set(self.state.effects)

    def error(self) -> BaseException | None:
        return self.state.take_error(None, self.now_ms)

    def offsets(self, max_records: int = 100) -> dict[TopicPartition, list[int]]:
        taken = self.state.take(max_records)
        return {one: [record.offset for record in some] for one, some in taken.items()}


def part(
    partition: TopicPartition,
    *batches: bytes,
    code: ErrorCode = ErrorCode.NONE,
    **fields: Any,  # noqa: ANN401 - of the message.
) -> PartitionData:
    return PartitionData(
        partition_index=partition.partition,
        error_code=code,
        high_watermark=100,
        aborted_transactions=None,
        records=b"".join(batches),
        **fields,
    )


def batch(offset: int, count: int = 1, value: bytes = b"v") -> bytes:
    return encode_batch([Record(value)] * count, base_offset=offset)


# Asking.


def test_a_request_says_where_to_read_on_and_under_which_epoch() -> None:
    scene = Scene(1, 1)
    scene.positions.seek(B, 7)
    scene.state.drop_outdated()
    request = scene.send().request
    asked = [
        (one.partition, one.fetch_offset, one.current_leader_epoch)
        for one in request.topics[0].partitions
    ]
    assert asked == [(0, 0, 5), (1, 7, 5)]
    assert (request.topics[0].topic, request.topics[0].topic_id) == ("t", TOPIC_ID)
    assert (request.min_bytes, request.max_wait_ms) == (1, 500)


def test_what_has_changed_since_the_plan_is_not_asked_for() -> None:
    scene = Scene(1, 1, 1)
    (fetch,) = scene.fetches()
    scene.positions.pause([A])
    scene.cluster.lead(1, 2, 1)
    sent = scene.state.build_request(fetch, VERSION, 0)
    assert sent is not None
    assert list(sent.requested) == [C]
    scene.positions.set_assigned([A, B])
    assert scene.state.build_request(fetch, VERSION, 0) is None


def test_topics_without_an_id_are_asked_for_by_name() -> None:
    scene = Scene(1)
    assert scene.send().version == VERSION
    scene = Scene(1)
    scene.cluster.lead(1, topic_id=bytes(16))
    assert scene.send().version == FIRST_BY_ID - 1


def test_partitions_without_a_leader_are_tried_again_while_metadata_are_asked_for() -> None:
    scene = Scene(-1)
    assert scene.fetches() == []
    assert scene.state.effects == {Effect.REFRESH}
    assert scene.state.next_deadline_ms == 100
    scene.state.effects.clear()
    assert scene.fetches(50) == []
    assert scene.state.effects == set()
    scene.cluster.lead(1)
    assert len(scene.fetches()) == 1
    assert scene.state.unanswered(3_050) == {A: 3.05}


def test_a_broker_that_throttles_is_left_alone_for_as_long_as_it_says() -> None:
    scene = Scene(1)
    scene.answer(scene.send(), part(A), throttle_ms=700)
    assert scene.fetches(699) == []
    assert scene.state.next_deadline_ms == 700
    assert len(scene.fetches(1)) == 1


# Answers.


STALE = {Effect.REFRESH, Effect.FETCH}
WAIT = {Effect.FETCH}
TELL = {Effect.WAKE_READERS, Effect.FETCH}


@pytest.mark.parametrize(
    ("code", "effects", "error"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, STALE, None),
        (ErrorCode.LEADER_NOT_AVAILABLE, STALE, None),
        (ErrorCode.REPLICA_NOT_AVAILABLE, STALE, None),
        (ErrorCode.KAFKA_STORAGE_ERROR, STALE, None),
        (ErrorCode.FENCED_LEADER_EPOCH, STALE, None),
        (ErrorCode.OFFSET_NOT_AVAILABLE, STALE, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, STALE, None),
        (ErrorCode.UNKNOWN_TOPIC_ID, STALE, None),
        (ErrorCode.INCONSISTENT_TOPIC_ID, STALE, None),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, WAIT, None),
        (ErrorCode.UNKNOWN_SERVER_ERROR, WAIT, None),
        (ErrorCode.REQUEST_TIMED_OUT, WAIT, None),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TELL, AuthorizationError),
        (ErrorCode.CORRUPT_MESSAGE, TELL, CorruptRecordError),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, TELL, UnexpectedResponseError),
    ],
)
def test_what_a_refusal_means(
    code: ErrorCode, effects: set[Effect], error: type[ConsumerError] | None
) -> None:
    scene = Scene(1)
    assert scene.answer(scene.send(), part(A, code=code)) == effects
    assert scene.state.notes == [Note(f"fetching t-0 from offset 0: {code.name}")]
    assert scene.fetches(99) == []
    assert scene.state.next_deadline_ms == 100
    found = scene.error()
    assert found is None if error is None else isinstance(found, error)
    assert scene.error() is None
    assert scene.answer(scene.send(1), part(A, code=code)) == effects
    assert scene.fetches(199) == []
    assert len(scene.fetches(1)) == 1


def test_a_success_makes_the_next_failure_a_first_one() -> None:
    scene = Scene(1)
    for wait_ms in (0, 100):
        scene.answer(scene.send(wait_ms), part(A, code=ErrorCode.REQUEST_TIMED_OUT))
    scene.answer(scene.send(200), part(A))
    scene.answer(scene.send(), part(A, code=ErrorCode.REQUEST_TIMED_OUT))
    assert scene.fetches(99) == []
    assert len(scene.fetches(1)) == 1


def test_what_an_answer_leaves_out_is_asked_for_again_after_a_while() -> None:
    scene = Scene(1, 1)
    scene.answer(scene.send(), part(A, batch(0)))
    assert list(scene.state.unanswered(1_000)) == [B]
    assert [[*one.partitions] for one in scene.fetches()] == [[A]]


def test_an_offset_out_of_range_is_reset_or_an_error_if_nothing_says_how() -> None:
    scene = Scene(1)
    gone = part(A, code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert scene.answer(scene.send(), gone) == {Effect.FETCH}
    assert scene.positions.awaiting_reset() == {A: EARLIEST}
    assert [one.is_warning for one in scene.state.notes] == [False, True]
    scene = Scene(1, config=replace(CONFIG, auto_offset_reset="none"))
    assert scene.answer(scene.send(), gone) == TELL
    assert isinstance(scene.error(), OffsetOutOfRangeError)


@pytest.mark.parametrize("offset", [0, 7])
def test_an_answer_to_a_request_from_before_a_seek_says_nothing_of_the_position(
    offset: int,
) -> None:
    scene = Scene(1)
    sent = scene.send()
    scene.positions.seek(A, offset)
    scene.answer(sent, part(A, code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert (scene.positions.position(A), scene.positions.awaiting_reset()) == (offset, {})


def test_an_error_waits_until_what_is_before_it_is_taken() -> None:
    scene = Scene(1)
    refused = part(A, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    scene.answer(scene.send(), part(A, batch(0)))
    scene.answer(scene.send(), refused)
    assert scene.error() is None
    assert scene.offsets() == {A: [0]}
    scene.answer(scene.send(100), refused)
    assert isinstance(scene.error(), AuthorizationError)


def test_what_is_neither_records_nor_an_offset_further_is_not_asked_for_at_once() -> None:
    scene = Scene(1)
    scene.positions.seek(A, 5)
    scene.state.drop_outdated()
    scene.answer(scene.send(), part(A, batch(0)))
    assert not scene.state.has_something()
    assert scene.fetches(99) == []


# What goes wrong otherwise.


def test_a_broker_that_cannot_be_reached_is_tried_again_with_newer_metadata() -> None:
    scene = Scene(1, 1)
    (fetch,) = scene.fetches()
    scene.now_ms = 4_000
    scene.state.on_broker_unreachable(fetch, 0, scene.now_ms)
    scene.state.on_request_finished(fetch)
    assert scene.state.effects == STALE
    assert scene.fetches() == []
    assert scene.state.next_deadline_ms == 4_100
    assert scene.state.unanswered(scene.now_ms) == {A: 4.0, B: 4.0}


def test_what_breaks_is_raised_whatever_is_read() -> None:
    scene = Scene(1)
    (fetch,) = scene.fetches()
    failure = LookupError("not expected")
    scene.state.on_fetch_error(fetch, failure, 0, 10)
    scene.state.on_request_finished(fetch)
    assert scene.state.effects == TELL
    assert scene.state.take_error({B}, 10) is failure
    assert scene.state.take_error(None, 10) is None


def test_a_record_that_cannot_be_given_out_is_an_error_and_fetched_again_after_a_while() -> None:
    scene = Scene(1, 1, deserialisers=Deserialisers(value=int))
    scene.answer(scene.send(), part(A, batch(0, value=b"x")), part(B, batch(0, value=b"1")))
    scene.send()
    scene.state.effects.clear()
    assert scene.offsets() == {B: [0]}
    assert scene.state.effects == TELL
    assert scene.fetches() == []
    error = scene.error()
    assert isinstance(error, DeserialisationError)
    assert error.partition == A
    assert list(scene.state.failures.unread(scene.now_ms)) == [A]


def test_errors_are_told_to_who_reads_the_partition_and_dropped_if_it_moves() -> None:
    scene = Scene(1, 1)
    for one in (A, B):
        scene.state.report(one, AuthorizationError(str(one), ErrorCode.NONE), 0)
    assert scene.state.has_something({B})
    error = scene.state.take_error({B}, 0)
    assert str(B) in str(error)
    assert not scene.state.has_something({B})
    scene.positions.seek(A, 1)
    assert scene.error() is None


def test_a_topic_that_was_created_again_starts_again() -> None:
    scene = Scene(1)
    scene.cluster.lead(1, topic_id=b"j" * 16)
    scene.state.notice_new_topics(0, WALL_MS)
    assert scene.positions.awaiting_reset() == {A: EARLIEST}
    assert scene.state.notes[-1].is_warning


# Room.


def test_taking_makes_room_which_is_told_once_all_of_it_is_taken() -> None:
    size = len(batch(0, 10))
    config = replace(CONFIG, max_partition_fetch_bytes=size, prefetch_bytes_limit=4 * size)
    scene = Scene(1, config=config)
    scene.answer(scene.send(), part(A, batch(0, 10), batch(10, 10)))
    assert scene.fetches() == []
    scene.state.effects.clear()
    assert scene.offsets(5) == {A: list(range(5))}
    assert scene.state.effects == set()
    assert scene.offsets(10) == {A: list(range(5, 15))}
    assert scene.offsets() == {A: list(range(15, 20))}
    assert scene.state.effects == {Effect.FETCH}
    assert scene.send(100).requested[A].offset == 20
