"""Statements by which the metadata's databases are changed.

SQLite's module releases the GIL several times per statement, and while the event loop is busy, each
reacquisition costs an event loop iteration. So a change of properties (rules, users, limits) is one
statement.
"""

import zlib
from collections.abc import Sequence
from typing import Final

Statement = tuple[str, tuple[bytes | str | int, ...]]
"""SQL and its parameters."""

_PUT_PROPERTY: Final = "INSERT OR REPLACE INTO properties VALUES (?, ?, ?)"
_FORGET_PROPERTY: Final = "DELETE FROM properties WHERE name = ?"
_FORGOTTEN: Final = ("", -1)
"""Value and checksum that mark a row for removal. Real checksums are never negative."""
FORGETTING: Final = (
    "CREATE TEMP TRIGGER forgetting AFTER INSERT ON main.properties WHEN NEW.checksum = -1"
    " BEGIN DELETE FROM properties WHERE name = NEW.name; END"
)
"""A trigger of the connection, not of the file."""
_ROWS_MAX: Final = 1_000
"""Rows of one statement, which may have 32,766 parameters."""


def put_property(name: str, value: str) -> Statement:
    columns = name, value
    return (_PUT_PROPERTY, (*columns, checksum_of(columns)))


def forget_property(name: str) -> Statement:
    return (_FORGET_PROPERTY, (name,))


def forget_topic(topic_id: bytes) -> Statement:
    return ("DELETE FROM topics WHERE topic_id = ?", (topic_id,))


def at_once(statements: Sequence[Statement]) -> Statement | None:
    """Return one equivalent statement if all change properties and are few, else None."""
    if not 0 < len(statements) <= _ROWS_MAX:
        return None
    rows: list[bytes | str | int] = []
    for sql, parameters in statements:
        if sql is _PUT_PROPERTY:
            rows += parameters
        elif sql is _FORGET_PROPERTY:
            rows += (*parameters, *_FORGOTTEN)
        else:
            return None
    more = ", (?, ?, ?)" * (len(statements) - 1)
    return f"{_PUT_PROPERTY}{more}", tuple(rows)


def checksum_of(columns: Sequence[bytes | str | int]) -> int:
    """Compute the last column of a row from the others."""
    return zlib.crc32(repr(tuple(columns)).encode())
