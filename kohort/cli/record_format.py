"""How ``kohort consume --format`` writes a record: text with the marks that kcat has."""

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kohort.cli.errors import UsageError
from kohort.client.core.records import RawRecord

Part: TypeAlias = bytes | Callable[[RawRecord], bytes]
"""Text as it is, or what a record puts there."""

NULL: Final = b"null"
_MARK: Final = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _time(record: RawRecord) -> bytes:
    if record.timestamp < 0:
        return NULL
    at = dt.datetime.fromtimestamp(record.timestamp / 1000, dt.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _headers(record: RawRecord) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (NULL if content is None else content)
        for name, content in record.headers
    )


_MARKS: Final[dict[str, Callable[[RawRecord], bytes]]] = {
    "s": lambda record: NULL if record.value is None else record.value,
    "k": lambda record: NULL if record.key is None else record.key,
    "h": _headers,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "d": _time,
    "S": lambda record: b"%d" % record.serialized_value_size,
    "K": lambda record: b"%d" % record.serialized_key_size,
    "%": lambda _: b"%",
}

HELP: Final = (
    "what to print of a record: %%s value, %%k key, %%h headers, %%t topic, %%p partition, "
    "%%o offset, %%T timestamp in milliseconds, %%d the same as a date, %%S and %%K bytes of value "
    "and key, %%%% a percent sign, \\n \\t \\r \\0 \\\\; the default is %%s\\n"
)


def parse_format(text: str) -> list[Part]:
    """The parts that a record becomes. Raises UsageError."""
    parts: list[Part] = []
    at = 0
    for found in _MARK.finditer(text):
        if found.start() > at:
            parts.append(text[at : found.start()].encode("utf-8", "surrogateescape"))
        mark, escape = found.groups()
        part = _MARKS.get(mark) if mark is not None else _ESCAPES.get(escape)
        if part is None:
            known = " ".join(f"%{one}" for one in _MARKS)
            raise UsageError(f"--format: {found.group()} is not known; {known} are, and \\n \\t")
        parts.append(part)
        at = found.end()
    if at < len(text):
        parts.append(text[at:].encode("utf-8", "surrogateescape"))
    return parts


def written(parts: Sequence[Part], record: RawRecord) -> bytes:
    """A record in that format."""
    return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])
