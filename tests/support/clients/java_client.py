"""Kafka's own client 4.4.0, in a JVM that tests/java/ClientDriver.java keeps at our command."""

import itertools
from collections.abc import Sequence

from tests.support.clients.model import (
    ANY_SEAT,
    CONSUMED_WITHIN_S,
    MAX_REQUEST_BYTES,
    Client,
    Codec,
    Record,
    Seat,
)
from tests.support.clients.remote_member import RemoteMember, from_json, to_json
from tests.support.processes.java_process import JavaProcess

_MEMBER_IDS = itertools.count()
_CONSUMER = "org.apache.kafka.clients.consumer"
_ASSIGNORS = {
    "range": f"{_CONSUMER}.RangeAssignor",
    "roundrobin": f"{_CONSUMER}.RoundRobinAssignor",
    "cooperative-sticky": f"{_CONSUMER}.CooperativeStickyAssignor",
}


class JavaClient(Client):
    name = "java"

    def __init__(self, bootstrap: str, process: JavaProcess) -> None:
        super().__init__(bootstrap)
        self._process = process

    def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> None:
        self._process.call(
            op="produce",
            topic=topic,
            records=[to_json(record) for record in records],
            config={
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": str(idempotent).lower(),
                "acks": "all",
                "max.request.size": MAX_REQUEST_BYTES,
                "linger.ms": 5,
            },
        )

    def consume(
        self, topic: str, count: int, *, timeout_s: float = CONSUMED_WITHIN_S
    ) -> list[Record]:
        answer = self._process.call(
            op="consume",
            topic=topic,
            count=count,
            timeout_ms=int(timeout_s * 1000),
            config={"bootstrap.servers": self.bootstrap},
        )
        return [from_json(record) for record in answer["records"]]

    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> "JavaMember":
        return JavaMember(self._process, self.bootstrap, group, topic, seat)


def _protocol(seat: Seat) -> dict[str, str | int]:
    if seat.uses_consumer_protocol:
        return {"group.protocol": "consumer"}
    return {
        "partition.assignment.strategy": _ASSIGNORS[seat.strategy],
        "heartbeat.interval.ms": 300,
        "session.timeout.ms": seat.session_timeout_ms,
    }


class JavaMember(RemoteMember):
    def __init__(
        self, process: JavaProcess, bootstrap: str, group: str, topic: str, seat: Seat
    ) -> None:
        super().__init__(process, f"member-{next(_MEMBER_IDS)}")
        names = {}
        if seat.client_id is not None:
            names["client.id"] = seat.client_id
        if seat.instance_id is not None:
            names["group.instance.id"] = seat.instance_id
        process.call(
            op="join",
            member=self._name,
            topics=[topic],
            config={
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                **_protocol(seat),
                **names,
            },
        )

    def enforce_rebalance(self, reason: str) -> None:
        """The consumer's method of that name, called with its next poll."""
        self._process.call(op="enforce_rebalance", member=self._name, reason=reason)
