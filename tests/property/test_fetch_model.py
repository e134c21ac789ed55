"""Positions, plan and buffers together, against a model that knows what is in the logs.

Brokers answer or fail, the user takes, pauses, seeks and gets other partitions, in any order. Every
record comes once and in order, as far as positions say, nobody is asked twice at a time, what waits
is bounded, and whatever can be read is read in the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.client.core.fetch.batches import Fetched
from kohort.client.core.fetch.buffers import CHUNK_OVERHEAD_BYTES, FetchBuffers
from kohort.client.core.fetch.plan import LEFTOVER_MS, FetchLimits, FetchPlan
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.batches import READ

PARTITIONS = [TopicPartition("t", index) for index in range(5)]
BROKERS = (0, 1)
LOG_RECORDS = 200
PER_BATCH = 5
BATCH_BYTES = len(encode_batch([Record(b"%03d" % 0)] * PER_BATCH))
LIMITS = FetchLimits(
    answer_bytes=4_000,
    partition_bytes=2 * (BATCH_BYTES + CHUNK_OVERHEAD_BYTES),
    prefetch_bytes=8_000,
)
partitions = st.sampled_from(PARTITIONS)


class FetchModel(RuleBasedStateMachine):
    """The fetcher's part is played by the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()
        self.plan = FetchPlan(LIMITS)
        self.buffers = FetchBuffers(
            self.positions,
            inflated_bytes_limit=2 * BATCH_BYTES,
            on_less=self._has_less,
            on_failed=lambda one, error: None,
        )
        self.under_way: dict[int, list[tuple[TopicPartition, int, int]]] = {}
        self.expected: dict[TopicPartition, int] = {}
        """The next offset that a user has to get."""
        self.now_ms = 0
        self.assign(PARTITIONS[:3])

    def _has_less(self, one: TopicPartition, byte_count: int) -> None:
        self.plan.set_waiting(one, byte_count)

    # The user.

    @rule(wanted=st.lists(partitions, unique=True, min_size=2))
    def assign(self, wanted: list[TopicPartition]) -> None:
        self.positions.set_assigned(wanted)
        self.plan.set_partitions(wanted)
        self.buffers.drop_outdated()
        self.expected = {one: self.expected.get(one, 0) for one in wanted}
        for one in self.positions.missing_position():
            self.positions.seek(one, 0)
            self.expected[one] = 0

    @rule(one=partitions, offset=st.integers(0, LOG_RECORDS))
    def seek(self, one: TopicPartition, offset: int) -> None:
        if one in self.expected:
            self.positions.seek(one, offset)
            self.buffers.drop_outdated()
            self.expected[one] = offset

    @rule(one=partitions, is_paused=st.booleans())
    def pause_or_resume(self, one: TopicPartition, is_paused: bool) -> None:
        if one in self.expected:
            (self.positions.pause if is_paused else self.positions.resume)([one])

    @rule(one=partitions)
    def hold(self, one: TopicPartition) -> None:
        self.positions.hold([one])

    @rule(count=st.integers(1, 40), only=st.none() | st.sets(partitions))
    def take(self, count: int, only: set[TopicPartition] | None) -> None:
        taken = self.buffers.take(count, only)
        assert only is None or taken.keys() <= only
        assert sum(map(len, taken.values())) <= count
        for one, records in taken.items():
            self._got(one, [record.offset for record in records])

    @rule(count=st.integers(1, 40))
    def take_one_by_one(self, count: int) -> None:
        for _ in range(count):
            record = self.buffers.next_record()
            if record is not None:
                assert record.value == b"%03d" % record.offset
                self._got(TopicPartition(record.topic, record.partition), [record.offset])

    def _got(self, one: TopicPartition, offsets: Iterable[int]) -> None:
        assert self.positions.state(one).is_readable
        for offset in offsets:
            assert offset == self.expected[one], "neither lost, nor twice, nor out of order"
            self.expected[one] += 1

    # The brokers.

    @rule(passed_ms=st.integers(0, 200))
    def ask(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        plan = self.plan.next(
            self.now_ms, lambda one: one.partition % len(BROKERS), self._is_readable
        )
        for fetch in plan.fetches:
            assert fetch.node_id not in self.under_way, "one request at a time"
            assert 0 < fetch.bytes_max <= LIMITS.prefetch_bytes // len({
                one.partition % len(BROKERS) for one in self.expected
            })  # fmt: skip
            self.plan.sent(fetch.node_id, self.now_ms)
            asked = []
            for one in fetch.partitions:
                state = self.positions.state(one)
                assert state.is_readable
                assert state.position is not None
                offset = self.buffers.next_offset(one)
                asked.append((one, state.position if offset is None else offset, state.fence))
            self.under_way[fetch.node_id] = asked

    def _is_readable(self, one: TopicPartition) -> bool:
        state = self.positions.find(one)
        return state is not None and state.is_readable

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 1), batches=st.integers(0, 4), fails=st.booleans())
    def answer(self, which: int, batches: int, fails: bool) -> None:
        node_id = sorted(self.under_way)[which % len(self.under_way)]
        asked = self.under_way.pop(node_id)
        self.plan.answered(node_id)
        for one, offset, fence in asked:
            state = self.positions.find(one)
            if state is None or state.fence != fence:
                continue
            if fails:
                self.plan.postpone(one, node_id, self.now_ms + 100)
            elif batches and offset < LOG_RECORDS:
                chunk = Fetched(one, memoryview(_log(offset, batches)), READ)
                self.plan.set_waiting(one, self.buffers.add(one, fence, chunk))
                self.plan.served(one)
                # As a broker that fills an answer in the order of the request.
                batches -= 1

    @rule(counts=st.lists(st.integers(0, 12), min_size=1, max_size=5), batches=st.integers(1, 4))
    def flow(self, counts: list[int], batches: int) -> None:
        """What mostly happens."""
        for count in counts:
            self.ask(LEFTOVER_MS)
            while self.under_way:
                self.answer(0, batches, fails=False)
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
        most = 4 * (BATCH_BYTES + CHUNK_OVERHEAD_BYTES) + LIMITS.partition_bytes // 2
        assert self.plan.waiting_bytes <= most * len(self.expected)

    @invariant()
    def what_is_inflated_is_bounded(self) -> None:
        assert self.buffers.inflated_bytes <= 2 * BATCH_BYTES

    def teardown(self) -> None:
        """Everything that may be read is read, if brokers answer and the user takes."""
        self.positions.set_assigned(list(self.expected))
        for node_id in list(self.under_way):
            self.under_way.pop(node_id)
            self.plan.answered(node_id)
        wanted = {one for one in self.expected if self.positions.state(one).is_readable}
        for _ in range(1_000):
            if all(self.expected[one] == LOG_RECORDS for one in wanted):
                return
            self.ask(10)
            while self.under_way:
                self.answer(0, 2, fails=False)
            self.take(40, None)
        raise AssertionError(f"left unread: {self.expected}")


def _log(offset: int, batches: int) -> bytes:
    """From the batch on that the offset is in."""
    first = offset - offset % PER_BATCH
    last = min(LOG_RECORDS, first + batches * PER_BATCH)
    return b"".join(
        encode_batch([Record(b"%03d" % (at + n)) for n in range(PER_BATCH)], base_offset=at)
        for at in range(first, last, PER_BATCH)
    )


TestFetchModel = FetchModel.TestCase
TestFetchModel.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
