"""Records as text: ``kohort consume --format`` with kcat's placeholders, and as lines of JSON for
``kohort consume --json`` and ``kohort produce --json``.

In JSON, keys, values and values of headers are strings if they are UTF-8, otherwise ``{"base64":
"..."}``, or null.
"""

from __future__ import annotations

import binascii
import datetime as dt
import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kohort.cli.errors import UsageError
from kohort.protocol.records.record import Headers, Record

if TYPE_CHECKING:
    from kohort.client.core.records import AnyRecord


Form: TypeAlias = "Callable[[AnyRecord], bytes]"

NULL: Final = b"null"
"""Text of a missing key, value or header value."""

_MARK: Final = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

HELP: Final = (
    "format of a record: %%s value, %%k key, %%h headers, %%t topic, %%p partition, "
    "%%o offset, %%T timestamp in milliseconds, %%d the same as a date, %%S and %%K bytes of value "
    "and key, %%%% a percent sign, \\n \\t \\r \\0 \\\\; the default is %%s\\n"
)


def parse_format(text: str) -> Form:
    """Parse a text with placeholders. Raises UsageError."""
    parts: list[bytes | Form] = []
    end = 0
    for match in _MARK.finditer(text):
        parts.append(os.fsencode(text[end : match.start()]))
        mark, escape = match.groups()
        if mark == "%":
            parts.append(b"%")
        elif mark in _FIELDS:
            parts.append(_FIELDS[mark])
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        else:
            known = " ".join(f"%{mark}" for mark in (*_FIELDS, "%"))
            raise UsageError(
                f"--format: unknown placeholder {match.group()}; known are {known}, and \\n \\t"
            )
        end = match.end()
    parts.append(os.fsencode(text[end:]))
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def value_line(record: AnyRecord) -> bytes:
    """Format the value as a line, the default without ``--format``."""
    return _content(record.value) + b"\n"


def as_date(timestamp: int) -> bytes:
    """Format a timestamp in milliseconds as ISO 8601 in UTC; null if it is negative."""
    if timestamp < 0:
        return NULL
    try:
        # Not fromtimestamp, whose float loses the milliseconds of distant years.
        at = _EPOCH + dt.timedelta(milliseconds=timestamp)
    except OverflowError:
        return b"%d" % timestamp  # After the year 9999.
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _content(data: bytes | None) -> bytes:
    return NULL if data is None else data


def _headers_text(record: AnyRecord) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + _content(content)
        for name, content in record.headers
    )


_FIELDS: Final[dict[str, Form]] = {
    "s": lambda record: _content(record.value),
    "k": lambda record: _content(record.key),
    "h": _headers_text,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "d": lambda record: as_date(record.timestamp),
    "S": lambda record: b"%d" % record.serialized_value_size,
    "K": lambda record: b"%d" % record.serialized_key_size,
}


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
