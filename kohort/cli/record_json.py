"""Records as lines of JSON: what ``kohort consume --json`` prints, ``kohort produce --json`` takes.

Keys, values and the values of headers are strings where they are UTF-8, else ``{"base64": "..."}``,
and null where there is none.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from kohort.protocol.records.record import Headers, Record

if TYPE_CHECKING:
    from kohort.client.core.records import AnyRecord

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
"""One for all lines: to make one costs as much as a line."""


class RecordError(ValueError):
    """A line is no record; the text says why."""


def as_line(record: AnyRecord) -> bytes:
    """Return a record as a line."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [[name, _text(content)] for name, content in record.headers],
        "key": _text(record.key),
        "value": _text(record.value),
    }
    return _ENCODER.encode(fields).encode() + b"\n"


def from_line(line: bytes) -> tuple[Record, int | None]:
    """A record and its partition, if the line tells one. Only `value` must be there.

    Raises:
        RecordError
    """
    try:
        told = json.loads(line)
    except ValueError as error:
        raise RecordError(f"no JSON: {error}") from error
    if not isinstance(told, dict) or "value" not in told:
        raise RecordError('no record: {"key": ..., "value": ...} is one')
    partition = told.get("partition")
    timestamp = told.get("timestamp", -1)
    if not isinstance(partition, int | None) or not isinstance(timestamp, int):
        raise RecordError("partition and timestamp are whole numbers")
    return (
        Record(
            value=_bytes(told["value"]),
            key=_bytes(told.get("key")),
            headers=_headers(told.get("headers", [])),
            timestamp=timestamp,
        ),
        partition,
    )


def _headers(told: object) -> Headers:
    if not isinstance(told, list):
        raise RecordError('headers are a list: [["name", "value"], ...]')
    headers: list[tuple[str, bytes | None]] = []
    for one in told:
        match one:
            case [str(name), content]:
                headers.append((name, _bytes(content)))
            case _:
                raise RecordError('a header is ["name", "value"]')
    return tuple(headers)


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _bytes(told: Any) -> bytes | None:  # noqa: ANN401 - whatever JSON has.
    match told:
        case None:
            return None
        case str():
            return told.encode("utf-8", "surrogatepass")
        case {"base64": str(text)} if len(told) == 1:
            try:
                return b64decode(text, validate=True)
            except binascii.Error as error:
                raise RecordError(f"base64: {error}") from error
        case _:
            raise RecordError('a key or value is a string, {"base64": "..."} or null')
