"""Random scripts of share groups (KIP-932): both brokers answer each step alike.

Three members fetch from two partitions and acknowledge, of ranges that are theirs, of others and of
nobody, in both versions, with right and with wrong epochs, while batches and transactions are
appended, records are deleted and the group's configs change.

No answer depends on time: locks outlive a script. Whether a new partition without records is in
the answer is decided by chance in Kafka, and not compared. A step that leads to a deliberate
difference is not taken: no release rides on a fetch, which wakes nobody in Kafka, and of two
partitions all records are fetched at once, because in Kafka the order of a hash table decides which
is first.
"""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Answers, Pair, Pending, Twins
from tests.interop.same_answers.share import (
    ACCEPT,
    CLOSE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    SHORT_MS,
    Acks,
    Batch,
    Place,
    Session,
    ShareGroup,
    acquired,
    create_topic,
    delete_records,
    errors,
    produce,
)
from tests.interop.same_answers.share_differences import (
    BEYOND_AN_EMPTY_WINDOW,
    FINISHED_BEHIND_START,
    READ_BELOW_LOG_START,
)
from tests.interop.same_answers.transactions import Producer, producer

SEEDS: Final = 2_000
SEEDS_SHORT: Final = 5
BATCH: Final = 50
"""Scripts of one test."""
AT_ONCE: Final = 8
STEPS: Final = 60
MEMBERS: Final = 3
PARTITIONS: Final = 2
WAIT_MS: Final = 400
"""Of a fetch: a Kafka on a busy machine may need that long to see what is there."""
ALL: Final = 100_000
"""More records, or bytes, than a script writes."""
CONFIGS: Final[dict[str, tuple[str, ...]]] = {
    "share.delivery.count.limit": ("2", "3", "5", "10"),
    "share.partition.max.record.locks": ("100", "2000"),
    "share.isolation.level": ("read_committed", "read_uncommitted"),
    "share.renew.acknowledge.enable": ("true", "false"),
}


class Diverged(Exception):  # noqa: N818 - it is no failure.
    """From here on the brokers differ on purpose."""


class Member:
    """Its session, and what it has in its hands as far as Kafka says."""

    def __init__(self, group: ShareGroup, name: str) -> None:
        self.session: Session = group.session(name)
        self.places: list[Place] = []
        """Partitions of the session."""
        self.held: list[tuple[int, int, int]] = []
        """Partition, first and last offset of what was acquired."""


class Script:
    """A group, and a topic whose partitions were loaded."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.chance = random.Random(seed)
        self.topic = create_topic(pair, partitions=PARTITIONS)
        self.group = ShareGroup(pair, self.topic)
        self.members = [Member(self.group, f"m{number}") for number in range(MEMBERS)]
        self.ends = [0] * PARTITIONS
        self.borders: list[list[int]] = [[0] for _ in self.ends]
        """Between batches."""
        self.open: dict[int, Producer] = {}
        """Of transactions, by partition."""
        self.sequences: dict[int, int] = {}
        self.producers: dict[int, Producer] = {}
        self.has_deleted = False
        self.has_archived = False
        """Whether records were deleted or aborted."""
        self.told: list[str] = []
        """What was done, and how Kafka answered."""
        # Kafka drops the windows of a group without sessions.
        self.keeper = self.group.session("keeper")
        self.keeper.peek(max_records=0, max_wait_ms=0)
        for number in range(PARTITIONS):
            self.append(number)
            self.accept_first(number)

    def accept_first(self, number: int) -> None:
        """Accept what is delivered first, when Kafka has loaded the state."""
        with self.group.session("first") as session:
            answers = session.fetch([(self.topic, number)], max_records=ALL, batch_size=ALL)
            (_, first, last, _) = acquired(answers.kafka)[0]
            session.acknowledge({(self.topic, number): [(first, last, [ACCEPT])]})
            session.close()
        self.wait_released()

    def step(self) -> None:
        chance = self.chance
        member = chance.choice(self.members)
        steps: dict[Callable[[Member], None], int] = {
            self.fetch: 30,
            self.acknowledge: 36,
            self.write: 12,
            self.use_wrong_epoch: 5,
            self.close: 4,
            self.disconnect: 2,
            self.configure: 4,
            self.transact: 4,
            self.delete: 2,
        }
        taken = chance.choices(list(steps), list(steps.values()))[0]
        self.told.append(taken.__name__)
        taken(member)

    # Fetches.

    def fetch(self, member: Member) -> None:
        chance = self.chance
        add = self.some_places() if not member.places or chance.random() < 0.2 else []
        forget: list[Place] = []
        if member.places and chance.random() < 0.1:
            forget = self.some_places()
        begins = member.session.epoch == 0 or chance.random() < 0.03
        acks = {} if begins or chance.random() < 0.7 else self.acks(member, ACCEPT, REJECT, GAP)
        places = {*([] if begins else member.places), *add, *acks} - {*forget}
        limits: dict[str, Value] = {"max_records": ALL, "max_bytes": ALL * 100, "batch_size": ALL}
        if len(places) == 1:
            limits = {
                "max_records": chance.choice([0, 1, 2, 5, 10, 30, ALL]),
                "max_bytes": chance.choice([1, 300, ALL * 100, ALL * 100]),
                "batch_size": chance.choice([1, 3, 10, ALL]),
            }
        answers = self.ask(
            member,
            add,
            epoch=0 if begins else None,
            version=chance.choice([1, 2, 2]),
            share_acquire_mode=chance.randint(0, 1),
            forget=forget,
            acks=acks,
            **limits,
        )
        member.places = list(places)
        member.held += [one[:3] for one in acquired(answers.kafka)]

    def ask(self, member: Member, add: Sequence[Place] = (), **fields: Value) -> Answers:
        """A fetch. Of the answers only what they acquire and refuse is compared."""
        pending = member.session.send(add, max_wait_ms=WAIT_MS, **fields)
        answers = pending.uncompared()
        acknowledged = {number for _, number in fields.get("acks") or ()}
        for answer in answers:
            for topic in answer.responses:
                topic.partitions = [
                    one
                    for one in topic.partitions
                    if one.partition_index in acknowledged or one.error_code or one.acquired_records
                ]
            answer.responses = [topic for topic in answer.responses if topic.partitions]
        self.tell(member, f"acquired {acquired(answers.kafka)}")
        if self.has_deleted and acquired(answers.kohort) and not acquired(answers.kafka):
            self.pair.compare(pending.request, pending.version, answers, READ_BELOW_LOG_START)
            raise Diverged
        self.compare(pending, answers)
        return answers

    def compare(self, pending: Pending, answers: Answers) -> None:
        kafka, kohort = answers
        differs = None
        if kafka.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            differs = BEYOND_AN_EMPTY_WINDOW
        elif self.has_archived and ErrorCode.INVALID_RECORD_STATE in errors(kafka):
            differs = FINISHED_BEHIND_START
        self.pair.compare(pending.request, pending.version, answers, differs)
        if differs is not None and (kafka.error_code or errors(kafka) != errors(kohort)):
            raise Diverged

    def tell(self, member: Member, what: str) -> None:
        self.told.append(f"  {member.session.member_id} {what}")

    def some_places(self) -> list[Place]:
        count = self.chance.choice([1, 1, PARTITIONS])
        numbers = self.chance.sample(range(PARTITIONS), count)
        return [(self.topic, number) for number in sorted(numbers)]

    # Acknowledgements.

    def acknowledge(self, member: Member) -> None:
        if not member.session.epoch:
            self.fetch(member)
            return
        renews = self.chance.random() < 0.15
        types = (RENEW, ACCEPT, RELEASE) if renews else (ACCEPT, RELEASE, RELEASE, REJECT, GAP)
        version = 2 if renews else self.chance.choice([1, 2, 2])
        acks = self.acks(member, *types)
        self.send(member, acks, version=version, is_renew_ack=renews)

    def send(self, member: Member, acks: Acks, **fields: Value) -> None:
        pending = member.session.send_acknowledge(acks, **fields)
        self.compare(pending, pending.uncompared())

    def acks(self, member: Member, *types: int) -> Acks:
        """Of what the member holds, mostly, as one range or as several."""
        chance = self.chance
        found: dict[Place, list[Batch]] = {}
        held = member.held
        if chance.random() < 0.15:
            held = chance.choice(self.members).held
        if not held or chance.random() < 0.05:
            number, end = chance.randrange(PARTITIONS), max(self.ends) + 2
            first = chance.randint(-1, end)
            held = [(number, first, first + chance.randint(-1, 2))]
        for number, *ends in sorted(chance.sample(held, min(len(held), chance.randint(1, 3)))):
            first, last = ends
            if chance.random() < 0.4:
                first, last = sorted(chance.randint(*sorted(ends)) for _ in ends)
            if chance.random() < 0.02:
                last += 2
            count = last - first + 1
            several = count > 0 and chance.random() < 0.4
            chosen = chance.choices(types, k=count if several else 1)
            found.setdefault((self.topic, number), []).append((first, last, chosen))
        self.tell(member, f"acknowledges {[(place[1], acks) for place, acks in found.items()]}")
        # What was acknowledged may be held by others soon.
        if chance.random() < 0.7:
            member.held = [one for one in member.held if chance.random() < 0.6]
        return found

    # The session.

    def use_wrong_epoch(self, member: Member) -> None:
        epoch = self.chance.choice([member.session.epoch + 1, member.session.epoch - 1, -2, 7])
        if epoch in {0, CLOSE, member.session.epoch}:
            epoch = -3
        if self.chance.random() < 0.5:
            self.ask(member, epoch=epoch)
        else:
            self.send(member, self.acks(member, ACCEPT), epoch=epoch)

    def close(self, member: Member) -> None:
        acks = self.acks(member, ACCEPT, RELEASE)
        if self.chance.random() < 0.5:
            self.send(member, acks, epoch=CLOSE)
        else:
            self.ask(member, acks=acks, epoch=CLOSE)
        member.places = []
        member.session.epoch = 0
        self.wait_released()

    def disconnect(self, member: Member) -> None:
        self.leave(member)
        self.wait_released()

    def leave(self, member: Member) -> None:
        member.session.line.close()
        member.places, member.held = [], []
        member.session.epoch = 0

    def wait_released(self) -> None:
        """Kafka answers before it has released what a session held."""
        time.sleep(WAIT_MS / 1000)
        self.pair.settle()

    # The log.

    def append(self, number: int) -> None:
        sizes = [self.chance.randint(1, 12) for _ in range(self.chance.randint(1, 3))]
        produce(self.pair, self.topic, *sizes, partition=number)
        self.told.append(f"  to {number} {sizes}")
        for size in sizes:
            self.grow(number, size)

    def grow(self, number: int, count: int) -> None:
        self.ends[number] += count
        self.borders[number].append(self.ends[number])

    def write(self, member: Member) -> None:
        del member
        self.append(self.chance.randrange(PARTITIONS))

    def transact(self, member: Member) -> None:
        """Begin a transaction of a partition, or end it."""
        del member
        number = self.chance.randrange(PARTITIONS)
        if number in self.open:
            commit = self.chance.random() < 0.5
            self.has_archived |= not commit
            self.open.pop(number).end(commit=commit)
            self.grow(number, 1)
            return
        if number not in self.producers:
            self.producers[number] = producer(self.pair)
        some = self.open[number] = self.producers[number]
        some.add({self.topic: [number]})
        count, sequence = self.chance.randint(1, 5), self.sequences.get(number, 0)
        some.send(self.topic, sequence, partition=number, count=count)
        self.sequences[number] = sequence + count
        self.grow(number, count)

    def delete(self, _: Member) -> None:
        """Delete records. Kafka notices it when it reads below the log's start, as it does if
        something there is available.
        """
        number = self.chance.randrange(PARTITIONS)
        if number in self.open:
            return
        for member in self.members:
            self.leave(member)
        self.wait_released()
        self.has_deleted = self.has_archived = True
        before = self.chance.choice(self.borders[number])
        self.told.append(f"  of {number} before {before}")
        delete_records(self.pair, self.topic, before, number)
        with self.group.session("notices") as session:
            session.peek([(self.topic, number)], max_records=-1, max_wait_ms=SHORT_MS)
        # The next acknowledgement moves Kafka's window beyond what is finished.
        self.append(number)
        self.accept_first(number)

    # The group.

    def configure(self, member: Member) -> None:
        del member
        name = self.chance.choice(sorted(CONFIGS))
        value = self.chance.choice(CONFIGS[name])
        self.told.append(f"  {name} {value}")
        self.group.configure(**{name.replace(".", "_"): value})


def run(twins: Twins, seed: int) -> None:
    with Pair(twins, _fail) as pair:
        script = Script(pair, seed)
        try:
            for _ in range(STEPS):
                script.step()
        except Diverged:
            return
        except AssertionError as error:
            told = "\n".join(script.told)
            raise AssertionError(f"{error}\nafter\n{told}") from error


def _fail(name: str, text: str) -> None:
    raise AssertionError(f"{name}: {text}")


BATCHES: Final = [
    pytest.param(first, marks=() if first == 0 else pytest.mark.long)
    for first in range(0, SEEDS, BATCH)
]


@pytest.mark.parametrize("first", BATCHES)
def test_both_brokers_answer_each_step_alike(
    twins: Twins, subtests: pytest.Subtests, first: int, *, long_form: bool
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        seeds = range(first, first + (BATCH if long_form else SEEDS_SHORT))
        scripts = {seed: threads.submit(run, twins, seed) for seed in seeds}
    for seed, script in scripts.items():
        with subtests.test(seed=seed):
            script.result()
