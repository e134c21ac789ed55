"""Kafka's own client 4.4.0, in a JVM that tests/java/ClientDriver.java keeps at our command."""

import base64
import itertools
from collections.abc import Sequence
from typing import Any

from tests.interop.model import (
    ANY_SEAT,
    MAX_REQUEST_BYTES,
    Client,
    Codec,
    Member,
    Record,
    Seat,
)
from tests.java_process import JavaProcess

_MEMBER_IDS = itertools.count()


class JavaClient(Client):
    name = "java"

    def __init__(self, bootstrap: str, process: JavaProcess) -> None:
        super().__init__(bootstrap)
        self._process = process

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        idempotent: bool = False,
    ) -> None:
        self._process.call(
            op="produce",
            topic=topic,
            records=[_to_json(record) for record in records],
            config={
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": str(idempotent).lower(),
                "acks": "all",
                "max.request.size": MAX_REQUEST_BYTES,
                "linger.ms": 5,
            },
        )

    def consume(self, topic: str, count: int, *, timeout_s: float = 30) -> list[Record]:
        answer = self._process.call(
            op="consume",
            topic=topic,
            count=count,
            timeout_ms=int(timeout_s * 1000),
            config={"bootstrap.servers": self.bootstrap},
        )
        return [_from_json(record) for record in answer["records"]]

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        answer = self._process.call(
            op="offsets_for_time",
            topic=topic,
            timestamp=timestamp_ms,
            config={"bootstrap.servers": self.bootstrap},
        )
        return {int(partition): offset for partition, offset in answer.items()}

    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> "JavaMember":
        return JavaMember(self._process, self.bootstrap, group, topic, seat)


class JavaMember(Member):
    def __init__(
        self, process: JavaProcess, bootstrap: str, group: str, topic: str, seat: Seat
    ) -> None:
        self._process = process
        self._id = f"member-{next(_MEMBER_IDS)}"
        self._assigned: set[int] = set()
        self._records: list[Record] = []
        self._left = False
        names = {}
        if seat.client_id is not None:
            names["client.id"] = seat.client_id
        if seat.instance_id is not None:
            names["group.instance.id"] = seat.instance_id
        process.call(
            op="join",
            member=self._id,
            topics=[topic],
            config={
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "partition.assignment.strategy": (
                    "org.apache.kafka.clients.consumer.RangeAssignor"
                ),
                "heartbeat.interval.ms": 300,
                "session.timeout.ms": seat.session_timeout_ms,
                **names,
            },
        )

    def assigned(self) -> set[int]:
        self._take("take")
        return self._assigned

    def records(self) -> list[Record]:
        self._take("take")
        return self._records

    def enforce_rebalance(self, reason: str) -> None:
        """The consumer's method of that name, called with its next poll."""
        self._process.call(op="enforce_rebalance", member=self._id, reason=reason)

    def leave(self) -> None:
        self._take("leave")
        self._left = True

    def _take(self, op: str) -> None:
        if self._left:
            return
        answer = self._process.call(op=op, member=self._id)
        self._assigned = {partition for _topic, partition in answer["assigned"]}
        self._records += [_from_json(record) for record in answer["records"]]


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "key": _encode(record.key),
        "value": _encode(record.value),
        "headers": [[name, _encode(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
        "partition": record.partition,
    }


def _from_json(record: dict[str, Any]) -> Record:
    return Record(
        value=_decode(record["value"]),
        key=_decode(record["key"]),
        headers=tuple((name, base64.b64decode(value)) for name, value in record["headers"]),
        timestamp_ms=record["timestamp"],
        partition=record["partition"],
        offset=record["offset"],
    )


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
