"""``kohort consume --format``: formats records by kcat's placeholders."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from kohort.cli.errors import UsageError

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


def _headers(record: AnyRecord) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + _content(content)
        for name, content in record.headers
    )


_FIELDS: Final[dict[str, Form]] = {
    "s": lambda record: _content(record.value),
    "k": lambda record: _content(record.key),
    "h": _headers,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "d": lambda record: as_date(record.timestamp),
    "S": lambda record: b"%d" % record.serialized_value_size,
    "K": lambda record: b"%d" % record.serialized_key_size,
}
