"""A group member that lives in another process and answers commands."""

import base64
from typing import Any

from tests.support.clients.model import Member, Record
from tests.support.processes.line_process import LineProcess


class RemoteMember(Member):
    """The member `name` of those that the process holds. Its join has been commanded before."""

    def __init__(self, process: LineProcess, name: str) -> None:
        self._process = process
        self._name = name
        self._assigned: set[int] = set()
        self._records: list[Record] = []
        self._left = False

    def assigned(self) -> set[int]:
        self._take("take")
        return self._assigned

    def records(self) -> list[Record]:
        self._take("take")
        return self._records

    def leave(self) -> None:
        self._take("leave")
        self._left = True

    def _take(self, op: str) -> None:
        if self._left:
            return
        answer = self._process.call(op=op, member=self._name)
        self._assigned = {partition for _topic, partition in answer["assigned"]}
        self._records += [from_json(record) for record in answer["records"]]


def to_json(record: Record) -> dict[str, Any]:
    return {
        "key": _encode(record.key),
        "value": _encode(record.value),
        "headers": [[name, _encode(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
        "partition": record.partition,
        "offset": record.offset,
    }


def from_json(record: dict[str, Any]) -> Record:
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
