"""Records as lines of JSON, for ``kohort consume --json`` and ``kohort produce --json``.

Keys, values and values of headers are strings if they are UTF-8, otherwise ``{"base64": "..."}``,
or null.
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
"""Shared, because creating an encoder takes as long as encoding a line."""


class RecordError(ValueError):
    """A line is not a valid record; the text has the reason."""


def as_line(record: AnyRecord) -> bytes:
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
    """Parse a record and its partition, if the line has one. Only `value` is required.

    Raises:
        RecordError
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise RecordError(f"invalid JSON: {error}") from error
    if not isinstance(fields, dict) or "value" not in fields:
        raise RecordError('expected {"key": ..., "value": ...}')
    partition = fields.get("partition")
    timestamp = fields.get("timestamp", -1)
    if not isinstance(partition, int | None) or not isinstance(timestamp, int):
        raise RecordError("partition and timestamp must be whole numbers")
    return (
        Record(
            value=_bytes(fields["value"]),
            key=_bytes(fields.get("key")),
            headers=_headers(fields.get("headers", [])),
            timestamp=timestamp,
        ),
        partition,
    )


def _headers(value: object) -> Headers:
    if not isinstance(value, list):
        raise RecordError('headers must be a list: [["name", "value"], ...]')
    headers: list[tuple[str, bytes | None]] = []
    for header in value:
        match header:
            case [str(name), content]:
                headers.append((name, _bytes(content)))
            case _:
                raise RecordError('a header must be ["name", "value"]')
    return tuple(headers)


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _bytes(value: Any) -> bytes | None:  # noqa: ANN401 - any JSON value.
    match value:
        case None:
            return None
        case str():
            return value.encode("utf-8", "surrogatepass")
        case {"base64": str(text)} if len(value) == 1:
            try:
                return b64decode(text, validate=True)
            except binascii.Error as error:
                raise RecordError(f"base64: {error}") from error
        case _:
            raise RecordError('a key or value must be a string, {"base64": "..."} or null')
