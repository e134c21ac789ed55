"""Statements by which the metadata's databases are changed.

SQLite's module gives the interpreter up several times in each statement, and while the event loop
is busy, each time costs it a turn of the loop to get the interpreter back. So a change of
properties, as rules, users and limits are, is one statement.
"""

import zlib
from collections.abc import Sequence
from typing import Final

Statement = tuple[str, tuple[bytes | str | int, ...]]
"""SQL and its parameters."""

_PUT_PROPERTY: Final = "INSERT OR REPLACE INTO properties VALUES (?, ?, ?)"
_FORGET_PROPERTY: Final = "DELETE FROM properties WHERE name = ?"
_FORGOTTEN: Final = ("", -1)
"""Value and checksum of a row that is put in order to remove the one of its name. No row has this
checksum, which is never negative."""
FORGETTING: Final = (
    "CREATE TEMP TRIGGER forgetting AFTER INSERT ON main.properties WHEN NEW.checksum = -1"
    " BEGIN DELETE FROM properties WHERE name = NEW.name; END"
)
"""A trigger of the connection, not of the file."""
_ROWS_MAX: Final = 1_000
"""Rows of one statement, which may have 32,766 parameters."""


def put_property(name: str, value: str) -> Statement:
    """Return the statement that stores a property."""
    columns = name, value
    return (_PUT_PROPERTY, (*columns, checksum_of(columns)))


def forget_property(name: str) -> Statement:
    """Return the statement that removes a property."""
    return (_FORGET_PROPERTY, (name,))


def forget_topic(topic_id: bytes) -> Statement:
    """Return the statement that removes a topic's row."""
    return ("DELETE FROM topics WHERE topic_id = ?", (topic_id,))


def at_once(statements: Sequence[Statement]) -> Statement | None:
    """Return one statement that does the same, a transaction by itself, if all are of properties
    and not too many.
    """
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
    """Return what the last column of a row has, from the others."""
    return zlib.crc32(repr(tuple(columns)).encode())
