"""The rules of records that are handled side by side, against a model that remembers everything.

Records come in, handlers end in any order, fail and rest, partitions go and come back, somebody
seeks back. Each lane keeps its order, no position passes a record that is not done, and what is
held is counted to the byte.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.client.core.lanes import Item
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.client.core.work import Work
from kohort.client.core.work_limits import RECORD_OVERHEAD_BYTES, WorkLimits
from kohort.protocol.records.batch import TimestampType
from tests.support.suites.examples import examples

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
LANES = 3
OVERHEAD = RECORD_OVERHEAD_BYTES
LIMITS = WorkLimits(records=12, byte_count=12 * OVERHEAD + 400, uncommitted=9)
partitions = st.sampled_from(PARTITIONS)
places = st.integers(0, 1_000)


def _record(place: TopicPartition, offset: int, size: int) -> AnyRecord:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord(*place, offset, 0, kind, offset % LANES, b"", 0, size, (), 0)


class WorkModel(RuleBasedStateMachine):
    """Model of the work, in which the rules play the readers and the handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.work = Work(LIMITS, by_key=True)
        self.now_ms = 0
        self.running: list[Item] = []
        self.position = dict.fromkeys(PARTITIONS, 0)
        self.done: dict[TopicPartition, set[int]] = {one: set() for one in PARTITIONS}
        """Since the partition came, or somebody sought."""
        self.begins_at = dict.fromkeys(PARTITIONS, 0)
        self.held: set[TopicPartition] = set()
        self.started_to = dict.fromkeys(PARTITIONS, -1)
        self.given_up: set[TopicPartition] = set()
        self.drained: dict[TopicPartition, int] = {}
        """Partitions being drained, and their last record that was started before."""
        self.last_begun: dict[tuple[TopicPartition, int], int] = {}

    # Those who read.

    @rule(one=partitions, count=st.integers(1, 6), skip=st.integers(0, 3))
    def feed(self, one: TopicPartition, count: int, skip: int) -> None:
        room = self.work.room()
        if not room or not self.work.has_room(one):
            return
        first = self.position[one] + skip
        offsets = range(first, first + min(count, room))
        self.work.feed(one, [_record(one, at, 10 + at % 40) for at in offsets], self.now_ms)
        self.done[one].update(range(self.position[one], first))  # There were no records there.
        self.position[one] = offsets.stop

    @rule(one=partitions, back=st.integers(1, 5))
    def seek_back(self, one: TopicPartition, back: int) -> None:
        if self.position[one] < back or not self.work.has_room(one) or not self.work.room():
            return
        if one not in self.work.partitions:
            return
        at = self.position[one] - back
        known = self.begins_at[one]
        if at < known:
            return
        self._forget(one, at)
        self.work.feed(one, [_record(one, at, 10)], self.now_ms)
        self.position[one] = at + 1

    # Those who handle.

    @rule()
    def begin(self) -> None:
        item = self.work.next(self.now_ms)
        if item is None:
            return
        one = item.partition
        assert one not in self.held
        assert item.offset <= self.drained.get(one, item.offset)
        self.started_to[one] = max(self.started_to[one], item.offset)
        lane = one, item.offset % LANES
        others = [each for each in self.running if each.lane is item.lane]
        assert not others, "two of one lane at a time"
        assert item.offset >= self.last_begun.get(lane, -1), "out of order"
        self.last_begun[lane] = item.offset
        self.running.append(item)

    @precondition(lambda self: self.running)
    @rule(place=places)
    def finish(self, place: int) -> None:
        item = self._give_back(place)
        self.work.finish(item)
        if not item.is_void:
            self.done[item.partition].add(item.offset)

    @precondition(lambda self: self.running)
    @rule(place=places, wait_ms=st.integers(0, 30))
    def rest(self, place: int, wait_ms: int) -> None:
        item = self._give_back(place)
        self.work.rest(item, self.now_ms + wait_ms)
        if item.partition in self.drained and not item.is_void:
            self.given_up.add(item.partition)  # Perhaps: if the drain ends before.

    @rule(step_ms=st.integers(1, 50))
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms

    # The group.

    @rule(one=partitions)
    def hold(self, one: TopicPartition) -> None:
        self.work.hold([one])
        self.held.add(one)

    @rule(one=partitions, within_ms=st.integers(0, 100))
    def drain(self, one: TopicPartition, within_ms: int) -> None:
        self.work.drain([one], self.now_ms + within_ms)
        self.drained.setdefault(one, self.started_to[one])

    @rule(one=partitions)
    def lose(self, one: TopicPartition) -> None:
        position = self._committable().get(one, self.begins_at[one])
        self.work.drop([one])
        assert one not in self._committable()
        self.work.take_over([one])
        self.position[one] = max(self.begins_at[one], min(position, self._first_open(one)))
        self._forget(one, self.position[one])

    @invariant()
    def positions_pass_nothing_that_is_not_done(self) -> None:
        for one, offset in self._committable().items():
            assert offset <= self._first_open(one)

    @invariant()
    def what_is_held_is_counted_and_bounded(self) -> None:
        work = self.work
        assert 0 <= work.held_records <= LIMITS.records + 6
        assert 0 <= work.held_bytes <= LIMITS.byte_count + 6 * (OVERHEAD + 50)
        assert work.is_busy(PARTITIONS) or not [one for one in self.running if not one.is_void]
        assert work.begun_count >= sum(not item.is_void for item in self.running)

    def teardown(self) -> None:
        """Whatever is left can be done, and then all may be committed."""
        for item in self.running:
            self.work.finish(item)
            if not item.is_void:
                self.done[item.partition].add(item.offset)
        self._finish_all()
        for one in self.drained.keys() - self.held - self.given_up:
            # What is done is before what is committed, so that it does not come again.
            assert not self.work.is_busy([one])
            assert self.started_to[one] < self._committable().get(one, 0) or not self.done[one]
        unfinished = self.held | self.drained.keys()
        self.work.drop(unfinished)
        self.work.take_over(unfinished)
        assert self.work.held_records == self.work.held_bytes == self.work.begun_count == 0
        left = {one: at for one, at in self.position.items() if one not in unfinished}
        assert {one: at for one, at in self._committable().items() if one in left} == left

    def _finish_all(self) -> None:
        while (due_ms := self.work.due_ms()) is not None or self.work.ready_count:
            left_over = self.work.next(due_ms or self.now_ms)
            if left_over is not None:
                self.work.finish(left_over)
                self.done[left_over.partition].add(left_over.offset)

    def _give_back(self, place: int) -> Item:
        return self.running.pop(place % len(self.running))

    def _forget(self, one: TopicPartition, at: int) -> None:
        self.begins_at[one] = at
        self.done[one] = set()
        self.held.discard(one)
        self.drained.pop(one, None)
        self.given_up.discard(one)
        self.started_to[one] = -1
        for lane in range(LANES):
            self.last_begun.pop((one, lane), None)

    def _first_open(self, one: TopicPartition) -> int:
        at = self.begins_at[one]
        while at in self.done[one]:
            at += 1
        return at

    def _committable(self) -> dict[TopicPartition, int]:
        positions = {one: OffsetAndMetadata(at, "", 0) for one, at in self.position.items()}
        return {one: at.offset for one, at in self.work.committable(positions).items()}


TestWorkModel = WorkModel.TestCase
TestWorkModel.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)
