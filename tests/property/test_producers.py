"""The rules of idempotence against a model that keeps all and looks at it again each time."""

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kohort.broker.core.partition.producers import ProducerState
from kohort.protocol.errors import ErrorCode, KafkaError
from tests.support.records.batches import sequenced
from tests.support.suites.examples import examples

TOP = 2147483647
EXPIRATION_MS = 100


@dataclass(frozen=True)
class Kept:
    epoch: int
    sequences: tuple[int, ...]
    """Sequence of every record."""
    offset: int


def run_of(first: int, count: int) -> tuple[int, ...]:
    sequences = [first]
    while len(sequences) < count:
        sequences.append(0 if sequences[-1] == TOP else sequences[-1] + 1)
    return tuple(sequences)


def expected(history: list[Kept], epoch: int, sequences: tuple[int, ...]) -> int | ErrorCode | None:
    """An offset for a repetition, a code for a refusal, None for what is to be appended."""
    if not history:
        return None
    current = history[-1].epoch
    if epoch < current:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    of_epoch = [kept for kept in history if kept.epoch == epoch]
    for kept in of_epoch[-5:]:
        if kept.sequences == sequences:
            return kept.offset
    follows = 0 if not of_epoch else run_of(of_epoch[-1].sequences[-1], 2)[1]
    return None if sequences[0] == follows else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Idempotence(RuleBasedStateMachine):
    """Three producers and a partition that is snapshot and restored now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerState()
        self.histories: dict[int, list[Kept]] = {1: [], 2: [], 3: []}
        self.last_ms = dict.fromkeys(self.histories, 0)
        self.end_offset = 0
        self.now_ms = 0

    @initialize(first=st.sampled_from([0, 5, TOP - 3, TOP]))
    def start_somewhere(self, first: int) -> None:
        self.send(1, 0, first, 2)

    @rule(producer_id=st.sampled_from([1, 2, 3]), count=st.integers(1, 4))
    def send_next(self, producer_id: int, count: int) -> None:
        history = self.histories[producer_id]
        epoch = history[-1].epoch if history else 0
        first = run_of(history[-1].sequences[-1], 2)[1] if history else 0
        self.send(producer_id, epoch, first, count)

    @rule(producer_id=st.sampled_from([1, 2, 3]), back=st.integers(1, 8), shift=st.data())
    def send_again(self, producer_id: int, back: int, shift: st.DataObject) -> None:
        """A batch of the past, perhaps a little off."""
        history = self.histories[producer_id]
        if len(history) >= back:
            kept = history[-back]
            first = kept.sequences[0] + shift.draw(st.sampled_from([0, 0, 0, 1, -1]))
            count = len(kept.sequences) + shift.draw(st.sampled_from([0, 0, 0, 1, -1]))
            epoch = kept.epoch + shift.draw(st.sampled_from([0, 0, 0, 1, -1]))
            if 0 <= first <= TOP and count > 0 and epoch >= 0:
                self.send(producer_id, epoch, first, count)

    @rule(
        producer_id=st.sampled_from([1, 2, 3]),
        epoch=st.integers(0, 4),
        first=st.sampled_from([0, 1, 2, 7, TOP - 1, TOP]),
        count=st.integers(1, 3),
    )
    def send_anything(self, producer_id: int, epoch: int, first: int, count: int) -> None:
        self.send(producer_id, epoch, first, count)

    @rule()
    def restart(self) -> None:
        """Only the last batch of each producer survives."""
        restored = ProducerState()
        restored.restore(self.state.snapshot())
        self.state = restored
        self.histories = {key: history[-1:] for key, history in self.histories.items()}

    @rule(passed=st.integers(1, EXPIRATION_MS))
    def time_passes(self, passed: int) -> None:
        self.now_ms += passed
        self.state.expire(self.now_ms, EXPIRATION_MS)
        for producer_id, last_ms in self.last_ms.items():
            if self.now_ms - last_ms >= EXPIRATION_MS:
                self.histories[producer_id] = []

    @invariant()
    def only_producers_with_batches_are_known(self) -> None:
        known = sum(1 for history in self.histories.values() if history)
        assert len(self.state) == known

    def send(self, producer_id: int, epoch: int, first: int, count: int) -> None:
        header = sequenced(producer_id, epoch, first, count)
        history = self.histories[producer_id]
        sequences = run_of(first, count)
        answer: Any
        try:
            repeated = self.state.check(header)
            answer = None if repeated is None else repeated.base_offset
        except KafkaError as error:
            answer = error.code
        assert answer == expected(history, epoch, sequences)
        if answer is None:
            self.state.note_appended(header, base_offset=self.end_offset, timestamp=self.now_ms)
            history.append(Kept(epoch, sequences, self.end_offset))
            self.last_ms[producer_id] = self.now_ms
            self.end_offset += count


Idempotence.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestIdempotence = Idempotence.TestCase
