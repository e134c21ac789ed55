"""Numbered records that flow while members come and go, and what became of each of them."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.clients.model import Client, Member, Record
from tests.support.waiting import wait_until


class Stream(threading.Thread):
    """Produces numbered records to all partitions until it is stopped."""

    def __init__(self, client: Client, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.sent: list[bytes] = []

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._send_some()
                time.sleep(0.02)
        except BaseException as problem:  # noqa: BLE001  Raised again in the test's own thread.
            self._failure = problem

    def _send_some(self) -> None:
        values = [b"%d" % (len(self.sent) + extra) for extra in range(30)]
        records = [
            Record(value, partition=index % self._partitions) for index, value in enumerate(values)
        ]
        self._client.produce(self._topic, records)
        self.sent += values

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert self._failure is None, self._failure


@contextmanager
def streaming(client: Client, topic: str, partitions: int) -> Iterator[Stream]:
    stream = Stream(client, topic, partitions)
    stream.start()
    try:
        yield stream
    finally:
        stream.stop()


def wait_until_all_read(stream: Stream, members: Sequence[Member]) -> None:
    def count() -> int:
        return sum(len(member.records()) for member in members)

    wait_until(lambda: count() >= len(stream.sent), lambda: f"{count()} of {len(stream.sent)} read")


def check_order(records: list[Record]) -> None:
    """Within one partition a member reads forward, also over several times of holding it."""
    last: dict[int | None, int] = {}
    for record in records:
        assert record.offset is not None
        assert record.offset > last.get(record.partition, -1)
        last[record.partition] = record.offset
