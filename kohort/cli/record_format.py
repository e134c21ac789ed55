"""How ``kohort consume --format`` writes records: text with the marks that kcat has."""

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from kohort.cli.errors import UsageError
from kohort.client.core.records import RawRecord

Column: TypeAlias = Callable[[Sequence[RawRecord]], Iterable[object]]
"""What a mark stands for in each of some records: bytes or numbers."""

NULL: Final = b"null"
_MARK: Final = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _time(record: RawRecord) -> bytes:
    if record.timestamp < 0:
        return NULL
    at = dt.datetime.fromtimestamp(record.timestamp / 1000, dt.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _headers(records: Sequence[RawRecord]) -> list[bytes]:
    return [
        b",".join([_name(name) + (NULL if told is None else told) for name, told in one.headers])
        for one in records
    ]


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    """Records of one topic have the same few."""
    return name.encode("utf-8", "surrogateescape") + b"="


# A list for each mark, not a call for each record: calls would cost more than all the rest.
_MARKS: Final[dict[str, tuple[bytes, Column]]] = {
    "s": (b"%b", lambda records: [NULL if one.value is None else one.value for one in records]),
    "k": (b"%b", lambda records: [NULL if one.key is None else one.key for one in records]),
    "h": (b"%b", _headers),
    "t": (b"%b", lambda records: [one.topic.encode() for one in records]),
    "p": (b"%d", lambda records: [one.partition for one in records]),
    "o": (b"%d", lambda records: [one.offset for one in records]),
    "T": (b"%d", lambda records: [one.timestamp for one in records]),
    "d": (b"%b", lambda records: map(_time, records)),
    "S": (b"%d", lambda records: [one.serialized_value_size for one in records]),
    "K": (b"%d", lambda records: [one.serialized_key_size for one in records]),
}
"""By letter: what Python's own formatting calls it, and what it stands for."""

HELP: Final = (
    "what to print of a record: %%s value, %%k key, %%h headers, %%t topic, %%p partition, "
    "%%o offset, %%T timestamp in milliseconds, %%d the same as a date, %%S and %%K bytes of value "
    "and key, %%%% a percent sign, \\n \\t \\r \\0 \\\\; the default is %%s\\n"
)


class Format(NamedTuple):
    """What a record becomes."""

    template: bytes
    """For Python's own formatting."""
    columns: tuple[Column, ...]

    def written(self, records: Sequence[RawRecord]) -> bytes:
        """Records in this format, one behind the other."""
        if not self.columns:
            return (self.template % ()) * len(records)
        rows = zip(*[column(records) for column in self.columns], strict=True)
        return b"".join(map(self.template.__mod__, rows))


def parse_format(text: str) -> Format:
    """What the marks in a text mean. Raises UsageError."""
    template: list[bytes] = []
    columns: list[Column] = []
    at = 0
    for found in _MARK.finditer(text):
        template.append(_literal(text[at : found.start()]))
        mark, escape = found.groups()
        if mark == "%":
            template.append(b"%%")
        elif mark in _MARKS:
            conversion, column = _MARKS[mark]
            template.append(conversion)
            columns.append(column)
        elif escape in _ESCAPES:
            template.append(_ESCAPES[escape])
        else:
            known = " ".join(f"%{one}" for one in (*_MARKS, "%"))
            raise UsageError(f"--format: {found.group()} is not known; {known} are, and \\n \\t")
        at = found.end()
    template.append(_literal(text[at:]))
    return Format(b"".join(template), tuple(columns))


def _literal(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape").replace(b"%", b"%%")
