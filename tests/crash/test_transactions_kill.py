"""kill -9 in the midst of transactions: each of them is whole or not there, wherever the kill came.

Producers of another library live on while the broker dies under them. What they were told counts: a
transaction that was committed is in every partition that it was written to, once; one that was
aborted is in none; of one whose end was not answered all is there, or nothing. (Positions in
transactions, over kills: `test_read_process_write_is_exact_over_kills`. librdkafka 2.16 hangs for
ever in send_offsets_to_transaction where a broker is back within a second.)
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.forked_kohort import ForkedKohort
from tests.support.clients.whole_topics import read_whole

PARTITIONS: Final = 3
WRITERS: Final = 4
BROKERS: Final = 2
UP_S: Final = 0.4
"""At most, between the first transaction after a start and the next kill."""
TOLD_EVERY: Final = 50
"""Kills."""
TIMEOUT_S: Final = 60
TOPIC: Final = "written"


class TransactionEnd(Enum):
    """What a producer knows of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()


class Transaction(NamedTuple):
    """One, as its producer sees it."""

    number: int
    partitions: frozenset[int]
    outcome: TransactionEnd


class Writer:
    """A transactional producer, and each that replaces it, until told to stop."""

    def __init__(self, bootstrap: str, number: int, chance: random.Random) -> None:
        self.name = f"writer{number}"
        self.done: list[Transaction] = []
        self.error: Exception | None = None
        self._bootstrap = bootstrap
        self._chance = chance
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the transaction that is open, and have its successor end what is undecided."""
        self._stopping.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._live()
            self._new_producer()
        except Exception as error:  # noqa: BLE001 - raised by `stop`.
            self.error = error

    def _new_producer(self) -> Producer:
        """Ends what its predecessor has left."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        while True:
            try:
                producer.init_transactions(TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return producer

    def _live(self) -> None:
        """Run transactions as long as one producer can go on."""
        producer = self._new_producer()
        while not self._stopping.is_set():
            number = len(self.done)
            partitions = frozenset(self._chance.sample(range(PARTITIONS), 2))
            try:
                outcome = self._one(producer, number, partitions)
            except KafkaException as error:
                self.done.append(Transaction(number, partitions, TransactionEnd.UNKNOWN))
                if error.args[0].fatal() or self._chance.random() < 0.3:
                    return
                self._abort(producer)
            else:
                self.done.append(Transaction(number, partitions, outcome))

    def _one(self, producer: Producer, number: int, partitions: frozenset[int]) -> TransactionEnd:
        producer.begin_transaction()
        for partition in partitions:
            producer.produce(TOPIC, f"{self.name}:{number}".encode(), partition=partition)
        if self._chance.random() < 0.3:
            self._abort(producer)
            return TransactionEnd.ABORTED
        for _ in range(50):
            try:
                producer.commit_transaction(5)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    self._abort(producer)
                    return TransactionEnd.ABORTED
                if not error.args[0].retriable():
                    raise
            else:
                return TransactionEnd.COMMITTED
        return TransactionEnd.UNKNOWN

    def _abort(self, producer: Producer) -> None:
        for _ in range(50):
            try:
                producer.abort_transaction(5)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


def read_committed(bootstrap: str) -> dict[int, list[str]]:
    """Values by partition, up to the high watermark: behind it nothing may be undecided."""
    found: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}
    places = [(TOPIC, index) for index in range(PARTITIONS)]
    for place, message in read_whole(bootstrap, places, "read_committed", timeout_s=TIMEOUT_S):
        value = message.value()
        assert value is not None
        found[place.partition].append(value.decode())
    return found


def check(bootstrap: str, writers: list[Writer]) -> None:
    found = read_committed(bootstrap)
    counts = {index: Counter(values) for index, values in found.items()}
    for writer in writers:
        for number, partitions, outcome in writer.done:
            value = f"{writer.name}:{number}"
            seen = {index: counts[index][value] for index in range(PARTITIONS)}
            whole = {index: int(index in partitions) for index in range(PARTITIONS)}
            nothing = dict.fromkeys(range(PARTITIONS), 0)
            allowed = {
                TransactionEnd.COMMITTED: [whole],
                TransactionEnd.ABORTED: [nothing],
                TransactionEnd.UNKNOWN: [whole, nothing],
            }[outcome]
            assert seen in allowed, f"{value} in {set(partitions)}, {outcome.name}: seen {seen}"
        for index, values in found.items():
            own = [int(one.split(":")[1]) for one in values if one.startswith(f"{writer.name}:")]
            assert own == sorted(own), f"out of order in partition {index}"


def wait_at_work(writers: list[Writer]) -> int:
    """Return when one more transaction is done: the library takes its time to find the broker that
    was killed. How many there are.
    """
    before = done = sum(len(writer.done) for writer in writers)
    deadline_s = time.monotonic() + TIMEOUT_S
    while done == before:
        assert time.monotonic() < deadline_s, "nothing goes on"
        time.sleep(0.01)
        done = sum(len(writer.done) for writer in writers)
    return done


def live(directory: Path, kills: int, chance: random.Random) -> tuple[int, int]:
    """A broker's life of so many kills; how many transactions were committed, and how many ended
    without an answer.
    """
    overrides = {
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.num.partitions": "2",
        "log.segment.bytes": str(1024 * 1024),
    }
    with ForkedKohort(directory, overrides=overrides) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
            future.result(20)
        writers = [
            Writer(broker.bootstrap, number, random.Random(chance.random()))
            for number in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        try:
            for count in range(1, kills + 1):
                done = wait_at_work(writers)
                if count % TOLD_EVERY == 0:
                    print(f"{directory.name}: {count} kills, {done} transactions", flush=True)
                time.sleep(chance.uniform(0, UP_S))
                broker.kill()
                broker.start()
            wait_at_work(writers)
        finally:
            for writer in writers:
                writer.stop()
        check(broker.bootstrap, writers)
        broker.kill()
        broker.start()
        check(broker.bootstrap, writers)
    outcomes = Counter(one.outcome for writer in writers for one in writer.done)
    return outcomes[TransactionEnd.COMMITTED], outcomes[TransactionEnd.UNKNOWN]


def test_transactions_are_whole_or_not_there_after_kill_9(
    tmp_path: Path, transaction_kills: int
) -> None:
    kills, seed = transaction_kills, random.randrange(1 << 32)
    print(f"seed {seed}, {kills} kills")
    with ThreadPoolExecutor(BROKERS) as pool:
        lives = [
            pool.submit(
                live, tmp_path / f"{number}", -(-kills // BROKERS), random.Random(seed + number)
            )
            for number in range(BROKERS)
        ]
        committed, unknown = map(sum, zip(*(one.result() for one in lives), strict=True))
    print(f"{kills} kills, {committed} transactions committed, {unknown} without an answer")
    assert committed > kills
