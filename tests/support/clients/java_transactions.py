"""Transactional producers of Kafka's own client 4.4.0, and its readers of both isolation levels."""

import itertools
from collections.abc import Mapping, Sequence

from tests.support.clients.model import Isolation, Record
from tests.support.clients.remote_member import from_json, to_json
from tests.support.processes.java_process import JavaProcess

LEVELS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")

_NAMES = itertools.count()


class JavaTransactions:
    """One producer; the constructor returns when it has its producer id and epoch.

    Each method returns when the client does, and raises `RemoteError` by the name of its exception.
    """

    def __init__(self, bootstrap: str, process: JavaProcess, transactional_id: str) -> None:
        self._process = process
        self._name = f"{transactional_id}/{next(_NAMES)}"
        self._step(
            "open",
            config={
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
            },
        )

    def begin(self) -> None:
        self._step("begin")

    def send(self, topic: str, *values: str, partition: int = 0) -> list[int]:
        """The offsets of the acknowledged records."""
        records = [to_json(Record(value.encode(), partition=partition)) for value in values]
        sent: list[tuple[int, int]] = self._step("send", topic=topic, records=records)["sent"]
        return [offset for _, offset in sent]

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> None:
        """Offsets are triples of topic, partition and position."""
        self._step("send_offsets", group=group, offsets=offsets)

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def close(self) -> None:
        """A transaction that is open stays so."""
        self._step("close")

    def _step(self, step: str, **more: object) -> Mapping[str, list[tuple[int, int]]]:
        return self._process.call(op="transaction", step=step, producer=self._name, **more)


def read_to_end(
    bootstrap: str, process: JavaProcess, topic: str, isolation: Isolation
) -> list[Record]:
    """All that a reader of this level sees now, by Kafka's own consumer."""
    answer = process.call(
        op="read_to_end",
        topic=topic,
        config={"bootstrap.servers": bootstrap, "isolation.level": isolation},
    )
    return [from_json(record) for record in answer["records"]]


def values_of(records: Sequence[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]
