"""kill -9 while a compacted topic is written in transactions: the last committed value of every key
is read when all is over, and no aborted one; by those, too, who read of it all the while.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.whole_topics import read_whole

pytestmark = pytest.mark.long

WRITERS = 3
KEYS = 20
"""Each writer's own."""
TRANSACTIONS = 150
"""Each writer's."""
KILLS = 3
VALUE_BYTES = 20_000
LAST = b"end"
"""The key, and value, of what is written when all is over."""
LEVELS = ("read_uncommitted", "read_committed")
TIMEOUT_S = 120
QUICK_COMPACTION = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.bytes": "1048576",
}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "60000",
}
Table = dict[bytes, bytes | None]


def retried(act: object, *arguments: object) -> None:
    """Do a step of a transaction until it is done; the broker may be away for a while."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            act(*arguments)  # type: ignore[operator]
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


class Writer(threading.Thread):
    """Writes keys of its own in transactions, of which it aborts every third or so."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(daemon=True)
        self.committed: Table = {}
        self.aborted: set[tuple[bytes, int]] = set()
        """Keys and numbers of transactions."""
        self.record_count = 0
        self.error: Exception | None = None
        self._random = random.Random(number)
        self._keys = [b"%d-%d" % (number, key) for key in range(KEYS)]
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"writer-{number}",
                "transaction.timeout.ms": 60_000,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        try:
            retried(self._producer.init_transactions, 10)
            for number in range(TRANSACTIONS):
                self._write(number)
        except Exception as error:  # noqa: BLE001 - told by the test.
            self.error = error

    def _write(self, number: int) -> None:
        table: Table = {}
        self._producer.begin_transaction()
        for _ in range(self._random.randrange(1, 4)):
            key = self._random.choice(self._keys)
            value = None if self._random.random() < 0.1 else b"%d " % number * (VALUE_BYTES // 4)
            self._producer.produce("t", value, key, partition=0)
            table[key] = value
            self.record_count += 1
        if self._random.random() < 0.4:
            # An abort takes back what has not been sent yet.
            assert self._producer.flush(TIMEOUT_S) == 0
            retried(self._producer.abort_transaction, 10)
            self.aborted |= {(key, number) for key in table}
        else:
            retried(self._producer.commit_transaction, 10)
            self.committed |= table


class Follower(threading.Thread):
    """Reads at one isolation level, from the beginning to the record that is the last."""

    def __init__(self, bootstrap: str, isolation_level: str) -> None:
        super().__init__(daemon=True)
        self.table: Table = {}
        self.read: list[tuple[int, bytes, int]] = []
        """Offset, key, and number of the transaction, of what is no tombstone."""
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "follower",
                "isolation.level": isolation_level,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])

    def run(self) -> None:
        while LAST not in self.table:
            message = self._consumer.poll(1)
            if message is None or message.error() is not None:
                continue
            key, value, offset = message.key(), message.value(), message.offset()
            assert key is not None
            assert offset is not None
            self.table[key] = value
            if value is not None and key != LAST:
                self.read.append((offset, key, int(value.split(b" ", 1)[0])))
        self._consumer.close()

    def check_order(self) -> None:
        """By offset, and each key by the transactions of its writer."""
        offsets = [offset for offset, _key, _number in self.read]
        assert offsets == sorted(set(offsets))
        latest: dict[bytes, int] = {}
        for _offset, key, number in self.read:
            assert number >= latest.get(key, 0)
            latest[key] = number


def read_table(bootstrap: str) -> tuple[Table, int]:
    """The table that a consumer of committed records makes of the topic, and their count."""
    table: Table = {}
    count = 0
    for _, message in read_whole(bootstrap, [("t", 0)], "read_committed"):
        key = message.key()
        assert key is not None
        table[key] = message.value()
        count += 1
    return table, count


def living(table: Table) -> Table:
    return {key: value for key, value in table.items() if value is not None}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KohortServer]:
    with KohortServer(tmp_path, overrides=QUICK_COMPACTION) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config=CONFIGS)])["t"].result(60)
        yield server


def test_the_last_committed_values_survive_compaction_and_kills(server: KohortServer) -> None:
    writers = [Writer(server.bootstrap, number) for number in range(WRITERS)]
    followers = {level: Follower(server.bootstrap, level) for level in LEVELS}
    for thread in (*writers, *followers.values()):
        thread.start()
    choices = random.Random(1)
    for _ in range(KILLS):
        time.sleep(choices.uniform(1, 3))
        server.kill()
        server.start()
    for writer in writers:
        writer.join(TIMEOUT_S)
        assert writer.error is None
        assert not writer.is_alive()
    expected: Table = {}
    for writer in writers:
        expected |= writer.committed
    end = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    end.produce("t", LAST, LAST, partition=0)
    assert end.flush(30) == 0
    expected[LAST] = LAST
    table, count = read_table(server.bootstrap)
    assert living(table) == living(expected)
    written = sum(writer.record_count for writer in writers)
    print(written, "records written,", count, "read")
    assert count < written / 2
    for follower in followers.values():
        follower.join(TIMEOUT_S)
        assert not follower.is_alive()
        follower.check_order()
    aborted = {one for writer in writers for one in writer.aborted}
    found = {
        level: {(key, number) for _offset, key, number in follower.read} & aborted
        for level, follower in followers.items()
    }
    assert not found["read_committed"]
    assert found["read_uncommitted"]
    assert living(followers["read_committed"].table) == living(expected)
