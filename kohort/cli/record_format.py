"""How ``kohort consume --format`` writes records: text with the marks that kcat has."""

import datetime as dt
import os
import re
from typing import Final

from kohort.cli.errors import UsageError
from kohort.client.core.fetch.text import NULL, TextForm

VALUES: Final = TextForm("sl", (b"\n",))
"""Each value on a line."""

_MARK: Final = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MARKS: Final = "skhtpoTdSK"
"""What `TextForm` knows."""

HELP: Final = (
    "what to print of a record: %%s value, %%k key, %%h headers, %%t topic, %%p partition, "
    "%%o offset, %%T timestamp in milliseconds, %%d the same as a date, %%S and %%K bytes of value "
    "and key, %%%% a percent sign, \\n \\t \\r \\0 \\\\; the default is %%s\\n"
)


def parse_format(text: str) -> TextForm:
    """What the marks in a text mean. Raises UsageError."""
    marks: list[str] = []
    literals: list[bytes] = []
    literal = b""
    at = 0
    for found in _MARK.finditer(text):
        literal += os.fsencode(text[at : found.start()])
        mark, escape = found.groups()
        if mark == "%":
            literal += b"%"
        elif mark is not None and mark in _MARKS:
            if literal:
                marks.append("l")
                literals.append(literal)
                literal = b""
            marks.append(mark)
        elif escape in _ESCAPES:
            literal += _ESCAPES[escape]
        else:
            known = " ".join(f"%{one}" for one in (*_MARKS, "%"))
            raise UsageError(f"--format: {found.group()} is not known; {known} are, and \\n \\t")
        at = found.end()
    literal += os.fsencode(text[at:])
    if literal:
        marks.append("l")
        literals.append(literal)
    return TextForm("".join(marks), tuple(literals), as_date)


def as_date(timestamp: int) -> bytes:
    """A timestamp in milliseconds as ISO 8601 in UTC, null if it is none."""
    if timestamp < 0:
        return NULL
    try:
        # Not fromtimestamp: its float is too coarse for the milliseconds of distant years.
        at = _EPOCH + dt.timedelta(milliseconds=timestamp)
    except OverflowError:
        return b"%d" % timestamp  # Beyond the year 9999: whatever a producer has written.
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
