"""kill -9 under acks=all load, restart, read everything: nothing acknowledged is lost or doubled.

The producers live on while the broker dies under them, as they would in production, so their
retries of what was in flight go to the restarted broker and must be recognised by the producer
state that it rebuilt from the log.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.whole_topics import read_whole

PARTITIONS = 3

BROKERS = 4
"""At a time: what one of them does is waiting, for the most part."""

RECORD_BYTES = 1_000
"""So large that segments are rolled in the midst of it, and so few that checking them is quick."""

Records = dict[int, list[tuple[int, str]]]
"""partition -> (offset, value) of each record, in offset order."""


class Load:
    """An idempotent producer that writes numbered records until told to stop."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.topic = topic
        self.name = name
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """number -> (partition, offset), as the broker said."""
        self.sent: dict[int, list[int]] = defaultdict(list)
        """partition -> numbers in the order they were sent."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                # While the broker is away no more than these gather, however long that takes.
                "queue.buffering.max.messages": 1_000,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending and wait until everything sent is acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "records are still unacknowledged after a minute"

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            partition = number % PARTITIONS
            try:
                self._producer.produce(
                    self.topic,
                    f"{self.name}:{number}".encode().ljust(RECORD_BYTES, b"."),
                    partition=partition,
                    on_delivery=self._on_delivery(number),
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent[partition].append(number)
            number += 1
            if number % 50 == 0:
                self._producer.poll(0)
                time.sleep(0.02)

    def _on_delivery(self, number: int) -> Callable[[object, Message], None]:
        def note(error: object, message: Message) -> None:
            assert error is None, error
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.acknowledged[number] = (partition, offset)

        return note


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)]).values():
        future.result(20)


def read_everything(bootstrap: str, *topics: str) -> dict[str, Records]:
    """All that the topics hold, by partition."""
    found: dict[str, Records] = {
        topic: {index: [] for index in range(PARTITIONS)} for topic in topics
    }
    places = [(topic, index) for topic in topics for index in range(PARTITIONS)]
    for place, message in read_whole(bootstrap, places):
        value = message.value()
        assert value is not None
        record = (place.offset, value.rstrip(b".").decode())
        found[place.topic][place.partition].append(record)
    return found


def check(loads: list[Load], found: Records) -> None:
    at = {(partition, offset): value for partition in found for offset, value in found[partition]}
    for load in loads:
        for number, place in load.acknowledged.items():
            assert at.get(place) == f"{load.name}:{number}", (
                f"{load.name}:{number} was acknowledged at {place}, where {at.get(place)!r} is"
            )
        for partition, sent in load.sent.items():
            prefix = f"{load.name}:"
            stored = [
                int(value.removeprefix(prefix))
                for _, value in found[partition]
                if value.startswith(prefix)
            ]
            assert stored == sent, "lost, doubled or out of order"


def live(directory: Path, kills: int, chance: random.Random) -> int:
    """A broker's life of so many kills; returns how many records were acknowledged in it."""
    rounds: list[tuple[str, list[Load]]] = []
    # The smallest segments that Kafka allows, so that a crash meets rolls and snapshots.
    with KohortServer(directory, overrides={"log.segment.bytes": str(1024 * 1024)}) as broker:
        for run in range(kills):
            topic = f"crash-{run}"
            create_topic(broker.bootstrap, topic)
            loads = [Load(broker.bootstrap, topic, f"producer{i}") for i in range(2)]
            rounds.append((topic, loads))
            for load in loads:
                load.start()
            try:
                time.sleep(chance.uniform(0.1, 0.7))
                broker.kill()
                broker.start()
            finally:
                for load in loads:
                    load.stop()
            check(loads, read_everything(broker.bootstrap, topic)[topic])
        # Later crashes must not have harmed what was written before them.
        found = read_everything(broker.bootstrap, *(topic for topic, _ in rounds))
        for topic, loads in rounds:
            check(loads, found[topic])
    return sum(len(load.acknowledged) for _, loads in rounds for load in loads)


def test_no_acknowledged_record_is_lost_doubled_or_reordered_by_kill_9(
    tmp_path: Path, crash_runs: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {crash_runs} kills")
    shares = [crash_runs // BROKERS + (number < crash_runs % BROKERS) for number in range(BROKERS)]
    with ThreadPoolExecutor(BROKERS) as pool:
        lives = [
            pool.submit(live, tmp_path / f"broker{number}", kills, random.Random(seed + number))
            for number, kills in enumerate(shares)
            if kills
        ]
        total = sum(life.result() for life in lives)
    print(f"{crash_runs} kills, {total} acknowledged records, all read back in place")
    assert total > crash_runs
