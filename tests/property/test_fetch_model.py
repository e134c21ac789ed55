"""The fetch side of a consumer without a loop, against a model that knows what is in the logs.

Brokers answer, refuse or are lost, the user takes, pauses, seeks and gets other partitions, in any
order. Every record comes once and in order, as far as positions say, no broker is asked twice at a
time, what waits is bounded, and whatever can be read is read in the end, by a shell that asks for
the next fetches only when an effect or a deadline tells it to.
"""

from collections.abc import Iterable
from enum import Enum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.client.config import ConsumerConfig
from kohort.client.core.fetch.buffers import CHUNK_OVERHEAD_BYTES
from kohort.client.core.fetch.plan import LEFTOVER_MS, PlannedFetch
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.state import Effect, FetchState
from kohort.client.core.fetch.wire import SentFetch
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.known_cluster import TOPIC_ID, OneTopic
from tests.support.suites.examples import examples

PARTITIONS = [TopicPartition("t", index) for index in range(5)]
BROKERS = (0, 1)
LOG_RECORDS = 200
PER_BATCH = 5
BATCHES = {
    at: encode_batch(
        [Record(b"%03d" % (at + n) + bytes(1_000)) for n in range(PER_BATCH)],
        base_offset=at,
        codec=CompressionType.GZIP,
    )
    for at in range(0, LOG_RECORDS, PER_BATCH)
}
"""By offset; two that are inflated are more than may be kept."""
BATCH_BYTES = max(map(len, BATCHES.values()))
CONFIG = ConsumerConfig(
    fetch_max_bytes=4_000,
    max_partition_fetch_bytes=2 * (BATCH_BYTES + CHUNK_OVERHEAD_BYTES),
    prefetch_bytes_limit=8_000,
)
WALL_MS = 0
VERSION = 17
partitions = st.sampled_from(PARTITIONS)


class RequestEnd(Enum):
    ANSWERED = "answered"
    REFUSED = "refused"
    LOST = "lost"


class FetchModel(RuleBasedStateMachine):
    """The shell's part is played by the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()
        self.state = FetchState(
            self.positions,
            OneTopic(*(one.partition % len(BROKERS) for one in PARTITIONS)),
            CONFIG,
            random=lambda: 0.5,
        )
        self.under_way: dict[int, tuple[PlannedFetch, SentFetch]] = {}
        self.expected: dict[TopicPartition, int] = {}
        """The next offset that a user has to get."""
        self.now_ms = 0
        self.assign(PARTITIONS[:3])

    # The user.

    @rule(wanted=st.lists(partitions, unique=True, min_size=2))
    def assign(self, wanted: list[TopicPartition]) -> None:
        self.positions.set_assigned(wanted)
        self.state.set_assigned()
        self.expected = {one: self.expected.get(one, 0) for one in wanted}
        for one in self.positions.missing_position():
            self.positions.seek(one, 0)
            self.expected[one] = 0
        self.ask(0)

    @rule(one=partitions, offset=st.integers(0, LOG_RECORDS))
    def seek(self, one: TopicPartition, offset: int) -> None:
        if one in self.expected:
            self.positions.seek(one, offset)
            self.state.drop_outdated()
            self.expected[one] = offset
            self.ask(0)

    @rule(one=partitions, is_paused=st.booleans())
    def pause_or_resume(self, one: TopicPartition, is_paused: bool) -> None:
        if one in self.expected:
            (self.positions.pause if is_paused else self.positions.resume)([one])
            self.ask(0)

    @rule(one=partitions)
    def hold(self, one: TopicPartition) -> None:
        self.positions.hold([one])

    @rule(count=st.integers(1, 40), only=st.none() | st.sets(partitions))
    def take(self, count: int, only: set[TopicPartition] | None) -> None:
        taken = self.state.take(count, only)
        assert only is None or taken.keys() <= only
        assert sum(map(len, taken.values())) <= count
        for one, records in taken.items():
            self._got(one, [record.offset for record in records])

    @rule(count=st.integers(1, 40))
    def take_one_by_one(self, count: int) -> None:
        for _ in range(count):
            record = self.state.next_made() or self.state.next_record()
            if record is not None:
                assert record.value[:3] == b"%03d" % record.offset
                self._got(TopicPartition(record.topic, record.partition), [record.offset])

    def _got(self, one: TopicPartition, offsets: Iterable[int]) -> None:
        assert self.positions.state(one).is_readable
        for offset in offsets:
            assert offset == self.expected[one], "neither lost, nor twice, nor out of order"
            self.expected[one] += 1

    # The brokers.

    @rule(passed_ms=st.integers(0, 200))
    def ask(self, passed_ms: int) -> None:
        """Whether or not there is a reason to."""
        self.now_ms += passed_ms
        for fetch in self.state.next_fetches(self.now_ms):
            assert fetch.node_id not in self.under_way, "one request at a time"
            assert 0 < fetch.bytes_max <= CONFIG.prefetch_bytes_limit // len({
                one.partition % len(BROKERS) for one in self.expected
            })  # fmt: skip
            sent = self.state.build_request(fetch, VERSION, self.now_ms)
            assert sent is not None, "it was planned just now"
            assert all(self.positions.state(one).is_readable for one in sent.requested)
            self.under_way[fetch.node_id] = fetch, sent

    def _ask_if_told(self, passed_ms: int) -> None:
        deadline_ms = self.state.next_deadline_ms
        is_late = deadline_ms is not None and deadline_ms <= self.now_ms + passed_ms
        if is_late or Effect.FETCH in self.state.effects:
            self.ask(passed_ms)
        else:
            self.now_ms += passed_ms

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 1), batches=st.integers(0, 4), fate=st.sampled_from(RequestEnd))
    def answer(self, which: int, batches: int, fate: RequestEnd) -> None:
        node_id = sorted(self.under_way)[which % len(self.under_way)]
        fetch, sent = self.under_way.pop(node_id)
        if fate is RequestEnd.LOST:
            self.state.on_broker_unreachable(fetch, self.now_ms, self.now_ms)
        else:
            parts = []
            for one, asked in sent.requested.items():
                records = b""
                if fate is RequestEnd.ANSWERED and batches and asked.offset < LOG_RECORDS:
                    records = _log(asked.offset, batches)
                    # As a broker that fills an answer in the order of the request.
                    batches -= 1
                parts.append(_part(one, fate, records))
            topic = FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=parts)
            answer = FetchResponse(responses=[topic])
            self.state.on_response(sent, answer, self.now_ms, WALL_MS)
        self.state.on_request_finished(fetch)

    @rule(counts=st.lists(st.integers(0, 12), min_size=1, max_size=5), batches=st.integers(1, 4))
    def flow(self, counts: list[int], batches: int) -> None:
        for count in counts:
            self.ask(LEFTOVER_MS)
            while self.under_way:
                self.answer(0, batches, RequestEnd.ANSWERED)
            if count % 2:
                self.take(count, None)
            else:
                self.take_one_by_one(count)

    # What holds.

    @invariant()
    def positions_are_what_was_returned(self) -> None:
        for one, offset in self.expected.items():
            assert self.positions.position(one) == offset

    @invariant()
    def what_waits_is_bounded(self) -> None:
        # Each partition is asked for only while it has less than half of what one answer may have.
        most = 4 * (BATCH_BYTES + CHUNK_OVERHEAD_BYTES) + CONFIG.max_partition_fetch_bytes // 2
        assert self.state.waiting_bytes <= most * len(self.expected)

    @invariant()
    def what_is_inflated_is_bounded(self) -> None:
        assert self.state._buffers.inflated_bytes <= CONFIG.prefetch_bytes_limit

    def teardown(self) -> None:
        """Everything that may be read is read, if brokers answer and the user takes."""
        self.positions.set_assigned(list(self.expected))
        self.state.set_assigned()
        while self.under_way:
            self.answer(0, 2, RequestEnd.ANSWERED)
        self.ask(0)
        wanted = {one for one in self.expected if self.positions.state(one).is_readable}
        for _ in range(3_000):
            if all(self.expected[one] == LOG_RECORDS for one in wanted):
                return
            while self.under_way:
                self.answer(0, 2, RequestEnd.ANSWERED)
            self.take(40, None)
            self._ask_if_told(10)
        raise AssertionError(f"left unread: {self.expected}")


def _part(one: TopicPartition, fate: RequestEnd, records: bytes) -> PartitionData:
    code = ErrorCode.REQUEST_TIMED_OUT if fate is RequestEnd.REFUSED else ErrorCode.NONE
    return PartitionData(
        partition_index=one.partition,
        error_code=code,
        high_watermark=LOG_RECORDS,
        aborted_transactions=None,
        records=records,
    )


def _log(offset: int, batches: int) -> bytes:
    """From the batch on that the offset is in."""
    first = offset - offset % PER_BATCH
    last = min(LOG_RECORDS, first + batches * PER_BATCH)
    return b"".join(BATCHES[at] for at in range(first, last, PER_BATCH))


TestFetchModel = FetchModel.TestCase
TestFetchModel.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
