"""Random walks through transactions of both flows, step by step the same at Kafka and here.

Two ids, three partitions and two groups, with plain producers and readers beside them. No step is
taken that leads to a deliberate difference: a Kafka adds the partitions of batches that it goes on
to refuse, and remembers sequences of refused ones, so sequences are only wrong in a partition in
which the transaction is open.
"""

import itertools
import random
from collections import deque
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.transactions import ListTransactionsRequest
from tests.interop.same_answers import offsets
from tests.interop.same_answers.each import Value, for_broker
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.pair import Answers, Pair
from tests.interop.same_answers.scenes import (
    END,
    NOWHERE,
    START,
    TIME_MS,
    Topic,
    batch,
    create_topic,
    offsets_request,
    produce_request,
)
from tests.interop.same_answers.transactions import (
    VERSIONS,
    describe_producers,
    producer,
    read,
    write_markers,
)

PARTITIONS: Final = 3
STEPS_OF_A_WALK: Final = 150
TOLD_MAX: Final = 30
BACK: Final = 30
"""How many offsets a reader goes back."""
IMPLIED_SINCE: Final = {"produce": 12, "commit_offsets": 5}
"""From these versions on a request adds to the transaction by itself."""
plain_producers = itertools.count(6_000_000_000)


class Transactional:
    """A producer, and what is known of its batches."""

    def __init__(self, pair: Pair) -> None:
        self.producer = producer(pair)
        self.next: dict[tuple[int, object], int] = {}
        """By partition and epoch."""
        self.open: set[int] = set()
        """Partitions in which its transaction has a batch."""
        self.added: dict[str, set[int]] = {}
        """By topic, at Kafka."""
        self.state = "Empty"
        self.is_current = True
        """Else it was fenced by a request of its own that was refused afterwards."""

    def look(self) -> None:
        """Compare how the id is described, and remember it."""
        found = self.producer.describe()
        self.state = found.transaction_state
        known = self.producer.pid, self.producer.epoch
        self.is_current = tuple(for_broker(one, "kafka") for one in known) == (
            found.producer_id,
            found.producer_epoch,
        )
        self.added = {one.topic: set(one.partitions) for one in found.topics}
        if self.state != "Ongoing":
            self.open.clear()


class Walk:
    """One seed."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.random = random.Random(seed)
        self.topic = create_topic(pair, partitions=PARTITIONS)
        self.ids = [Transactional(pair), Transactional(pair)]
        self.groups = [Group(pair), Group(pair)]
        self.plain = next(plain_producers)
        self.plain_next = dict.fromkeys(range(PARTITIONS), 0)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.done: deque[str] = deque(maxlen=TOLD_MAX)
        self.steps = (
            *[self.produce] * 8,
            *[self.end] * 4,
            *[self.add] * 3,
            *[self.commit_offsets] * 3,
            *[self.fetch] * 4,
            *[self.add_offsets, self.fetch_offsets, self.fetch_offsets, self.list_offsets],
            *[self.init, self.own_init, self.produce_plainly, self.produce_of_both],
            *[self.commit_plainly, self.delete_offsets, self.mark, self.describe, self.verify],
        )

    def step(self) -> None:
        one = self.random.choice(self.ids)
        self.random.choice(self.steps)(one)
        one.look()

    def version(self, of: str) -> int:
        version = self.random.choice(VERSIONS[of])
        self.done.append(f"{of} v{version}")
        return version

    def epoch(self, one: Transactional) -> Value:
        """The right one, or one beside it."""
        off = self.random.choice([0] * 12 + [-1, 1, -2])
        self.done[-1] += f" of {self.ids.index(one)}, epoch {off:+}"
        return one.producer.off(off)

    def pid(self, one: Transactional) -> Value:
        is_right = self.random.random() < 0.97
        return one.producer.pid if is_right else one.producer.strange_pid

    # What producers do.

    def init(self, one: Transactional) -> None:
        one.producer.init(self.version("init"))

    def own_init(self, one: Transactional) -> None:
        version = max(3, self.version("init"))
        one.producer.init(version, producer_id=self.pid(one), producer_epoch=self.epoch(one))

    def add(self, one: Transactional) -> None:
        version = self.version("add")
        partitions = {self.topic: self.random.sample(range(PARTITIONS), self.random.randrange(4))}
        if version < 4 and self.random.random() < 0.1:
            partitions[NOWHERE] = [0]
        one.producer.add(partitions, version, pid=self.pid(one), epoch=self.epoch(one))

    def verify(self, one: Transactional) -> None:
        version = 4 + self.version("add") % 2
        partitions = {self.topic: list(range(PARTITIONS))}
        epoch = self.epoch(one)
        one.producer.add(partitions, version, verify_only=True, pid=self.pid(one), epoch=epoch)

    def add_offsets(self, one: Transactional) -> None:
        version = self.version("add_offsets")
        group = self.random.choice(self.groups)
        one.producer.add_offsets(group.id, version, pid=self.pid(one), epoch=self.epoch(one))

    def end(self, one: Transactional) -> None:
        version, commit = self.version("end"), self.random.random() < 0.6
        epoch = self.epoch(one)
        one.producer.end(version, commit=commit, pid=self.pid(one), epoch=epoch)

    def sequence(self, one: Transactional, partition: int, *, may_be_wrong: bool) -> int:
        expected = one.next.get((partition, for_broker(one.producer.epoch, "kafka")), 0)
        if may_be_wrong and partition in one.open and self.random.random() < 0.15:
            return max(0, expected + self.random.choice([-2, -1, 1]))
        return expected

    def produce(self, one: Transactional) -> None:
        version, pid = self.version("produce"), self.pid(one)
        # By chance a wrong epoch could be the right one.
        epoch = self.epoch(one) if one.is_current else one.producer.epoch
        count = self.random.choice([1, 1, 2])
        chosen = self.random.sample(range(PARTITIONS), self.random.choice([1, 1, 2]))
        batches, sequences = {}, {}
        is_right = all(
            for_broker(sent, "kafka") == for_broker(own, "kafka")
            for sent, own in ((epoch, one.producer.epoch), (pid, one.producer.pid))
        )
        for partition in chosen:
            sequences[partition] = self.sequence(one, partition, may_be_wrong=is_right)
            batches[partition] = one.producer.batch(
                sequences[partition], count=count, pid=pid, epoch=epoch
            )
        self.done[-1] += f", {sequences} + {count}"
        answers = one.producer.produce(self.topic, batches, version)
        known = for_broker(one.producer.epoch, "kafka")
        for partition, offset in appended(answers).items():
            expected = one.next.get((partition, known), 0)
            one.next[partition, known] = max(expected, sequences[partition] + count)
            one.open.add(partition)
            self.ends[partition] = max(self.ends[partition], offset + count)

    def produce_of_both(self, one: Transactional) -> None:
        """Batches of two producers in one request, which both refuse; or one plain one."""
        version, other = self.version("produce"), self.ids[0 if one is self.ids[1] else 1]
        batches = {0: one.producer.batch(0), 1: other.producer.batch(0)}
        if self.random.random() < 0.5:
            one.producer.produce(self.topic, batches, version)
        elif one.open:
            (partition, *_) = one.open
            plain = one.producer.batch(0, is_transactional=False)
            one.producer.produce(self.topic, {partition: plain}, version)

    def commit_offsets(self, one: Transactional) -> None:
        version, group = self.version("commit_offsets"), self.random.choice(self.groups)
        positions = {
            index: self.random.randrange(100)
            for index in self.random.sample(range(PARTITIONS), self.random.randrange(1, 4))
        }
        if self.random.random() < 0.1:
            positions[7] = 1
        claim: dict[str, Value] = {}
        if 3 <= version < IMPLIED_SINCE["commit_offsets"] and self.random.random() < 0.1:
            claim = {"generation_id_or_member_epoch": self.random.randrange(-1, 2)}
            claim["member_id"] = self.random.choice(["", "nobody"])
        pid, epoch = self.pid(one), self.epoch(one)
        one.producer.commit_offsets(
            group.id, self.topic, positions, version, pid=pid, epoch=epoch, **claim
        )

    def mark(self, one: Transactional) -> None:
        """End it in one partition, past the coordinator, as an operator may."""
        if one.open:
            self.done.append("mark")
            partition = self.random.choice(sorted(one.open))
            commit = self.random.random() < 0.5
            for version in (2, 0) if self.random.random() < 0.5 else (0,):
                marker = one.producer.marker(
                    {self.topic: [partition]}, commit=commit, transaction_version=version
                )
                self.pair.ask(write_markers(marker), self.random.choice([1, 2]))
            one.open.discard(partition)

    # What others do.

    def produce_plainly(self, one: Transactional) -> None:
        del one
        self.done.append("plain")
        partition = self.random.randrange(PARTITIONS)
        numbered = self.random.random() < 0.5
        data = (
            batch(
                producer_id=self.plain,
                producer_epoch=0,
                base_sequence=self.plain_next[partition],
            )
            if numbered
            else batch()
        )
        version = self.random.choice(VERSIONS["produce"])
        answers = self.pair.ask(produce_request(self.topic, {partition: data}), version)
        self.plain_next[partition] += numbered
        self.ends |= {index: offset + 1 for index, offset in appended(answers).items()}

    def commit_plainly(self, one: Transactional) -> None:
        del one
        self.done.append("commit plainly")
        group = self.random.choice(self.groups)
        positions = {self.random.randrange(PARTITIONS): self.random.randrange(100)}
        request = offsets.commit_request(group, offsets.commit_topic(self.topic, positions))
        self.pair.ask(request, self.random.randrange(2, 11))

    def delete_offsets(self, one: Transactional) -> None:
        del one
        self.done.append("delete offsets")
        group = self.random.choice(self.groups)
        partitions = [self.random.randrange(PARTITIONS)]
        self.pair.ask(offsets.delete_request(group, {self.topic.name: partitions}), 0)

    def fetch_offsets(self, one: Transactional) -> None:
        del one
        version, group = self.random.randrange(1, 11), self.random.choice(self.groups)
        asks_all = version > 1 and self.random.random() < 0.5
        asked = None if asks_all else {self.topic: range(PARTITIONS + 1)}
        request = offsets.fetch_request(group, version, asked)
        request.require_stable = version >= 7 and self.random.random() < 0.7
        self.pair.ask(request, version)

    def fetch(self, one: Transactional) -> None:
        del one
        version, isolation_level = self.random.randrange(4, 19), self.random.randrange(2)
        begins = {
            partition: self.random.randint(max(0, end - BACK), end + 1)
            for partition, end in self.ends.items()
        }
        answers = read(self.pair, self.topic, begins, version, isolation_level=isolation_level)
        for partition in answers.kafka.responses[0].partitions:
            self.ends[partition.partition_index] = max(partition.high_watermark, 0)

    def list_offsets(self, one: Transactional) -> None:
        del one
        timestamp = self.random.choice([END, START, END, 0, TIME_MS, TIME_MS + 1000])
        request = offsets_request(self.topic, timestamp, *range(PARTITIONS))
        version = self.random.randrange(1, 12)
        request.isolation_level = self.random.randrange(2) if version > 1 else 0
        self.pair.ask(request, version)

    def describe(self, one: Transactional) -> None:
        describe_producers(self.pair, self.topic, *range(PARTITIONS))
        filters = self.random.choice([[], [one.state], ["Ongoing", "Nonsense"]])
        self.pair.ask(
            ListTransactionsRequest(state_filters=filters, producer_id_filters=[]),
            self.random.randrange(3),
            about=[one.producer.id for one in self.ids],
        )


def appended(answers: Answers) -> dict[int, int]:
    """The first offset by partition, where the batch was taken."""
    return {
        partition.index: partition.base_offset
        for partition in answers.kafka.responses[0].partition_responses
        if partition.error_code == ErrorCode.NONE
    }


ROUNDS: Final = [
    pytest.param(number, marks=() if number == 0 else pytest.mark.long) for number in range(10)
]


@pytest.mark.parametrize("number", ROUNDS)
def test_random_walks(
    pair: Pair,
    transaction_topic: Topic,
    transaction_steps: int,
    subtests: pytest.Subtests,
    number: int,
) -> None:
    del transaction_topic  # It has waited for the coordinators.
    told: list[str] = []
    pair.report = lambda name, text: told.append(f"{name}: {text}")
    seeds = itertools.count(1000 * number)
    for done in range(0, transaction_steps, STEPS_OF_A_WALK):
        seed = next(seeds)
        with subtests.test(seed=seed):
            walk = Walk(pair, seed)
            for step in range(min(STEPS_OF_A_WALK, transaction_steps - done)):
                walk.step()
                if told:
                    text = "\n".join([*walk.done, *told])
                    told.clear()
                    pytest.fail(f"step {step} of seed {seed}, after\n{text}", pytrace=False)
