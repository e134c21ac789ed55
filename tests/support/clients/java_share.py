"""Kafka's own share consumer 4.4.0, in the JVM of tests/java/ClientDriver.java."""

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.support.clients.remote_member import from_json
from tests.support.processes.java_process import JavaProcess

_NAMES = itertools.count()


class Delivered(NamedTuple):
    value: bytes | None
    partition: int
    offset: int
    delivery_count: int


class JavaShareConsumer:
    """A share consumer that polls and acknowledges only when told to."""

    def __init__(
        self, process: JavaProcess, bootstrap: str, group: str, topic: str, **config: str | int
    ) -> None:
        """`config` in Kafka's names with underscores for dots."""
        self._process = process
        self._name = f"share-{next(_NAMES)}"
        self.lock_timeout_ms = -1
        """The lock timeout of the last response; -1 before the first."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self._call(
            "open",
            topics=[topic],
            config={"bootstrap.servers": bootstrap, "group.id": group, **settings},
        )

    def poll(self, timeout_ms: int = 1_000) -> list[Delivered]:
        answer = self._call("poll", timeout_ms=timeout_ms)
        self.lock_timeout_ms = answer["lock_timeout_ms"]
        return [
            Delivered(
                from_json(record).value,
                record["partition"],
                record["offset"],
                record["delivery_count"],
            )
            for record in answer["records"]
        ]

    def acknowledge(self, records: Iterable[Delivered], kind: str = "accept") -> None:
        """`kind`: accept, release, reject or renew."""
        self._call(
            "acknowledge",
            records=[[record.partition, record.offset, kind] for record in records],
        )

    def commit(self) -> dict[str, str]:
        """Send the acknowledgements; return the error of each partition, "" for none."""
        errors: dict[str, str] = self._call("commit")["errors"]
        return errors

    def close(self) -> None:
        self._call("close")

    def _call(self, step: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON.
        return self._process.call(op="share", step=step, member=self._name, **arguments)
