"""One SQLite file with the broker's metadata, each row protected by a checksum.

SQLite detects damage to its own structure, but to it a value with a flipped bit is just another
value. Topics and properties therefore have a CRC-32 of the row.

WAL mode with full synchronisation: a change is atomic, and durable when `change` returns.

There are three kinds of errors, which SQLite's codes alone do not distinguish (a flipped bit in the
schema is "no such column", one in a name cannot be decoded): the file is damaged, the disk fails
(`UnreadableError`, or StorageError if waiting or another setting may help), or the file belongs to
another program or a later release.
"""

import errno
import json
import os
import sqlite3
from binascii import crc32
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from kohort.broker.storage.errors import StorageError

Statement = tuple[str, tuple[bytes | str | int, ...]]
"""SQL and its parameters."""

_PUT_PROPERTY: Final = "INSERT OR REPLACE INTO properties VALUES (?, ?, ?)"
_FORGET_PROPERTY: Final = "DELETE FROM properties WHERE name = ?"
_FORGOTTEN: Final = ("", -1)
"""Value and checksum that mark a row for removal. Real checksums are never negative."""
_FORGETTING: Final = (
    "CREATE TEMP TRIGGER forgetting AFTER INSERT ON main.properties WHEN NEW.checksum = -1"
    " BEGIN DELETE FROM properties WHERE name = NEW.name; END"
)
"""Creates a trigger that deletes rows marked as `_FORGOTTEN`; only in this connection, not in the
file."""
_ROWS_MAX: Final = 1_000
"""Maximum rows changed by one statement; SQLite allows a statement 32,766 parameters."""
CHANGES: Final = "changes"
"""The property that counts the changes of a database."""

_APPLICATION_ID: Final = 0x4B4F484F
"""ASCII "KOHO" in the header of the file, by which `file` and this module identify it."""

_MIGRATIONS: Final = (
    """
    CREATE TABLE topics (
        topic_id BLOB PRIMARY KEY, name TEXT NOT NULL, partition_count INTEGER NOT NULL,
        created_ms INTEGER NOT NULL, configs TEXT NOT NULL, deleted INTEGER NOT NULL,
        checksum INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX topics_by_name ON topics (name) WHERE deleted = 0;
    CREATE TABLE properties (
        name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
)
"""Entry n upgrades a database from version n to n + 1; entries are only ever added."""

_TOPICS: Final = (
    "SELECT topic_id, name, partition_count, created_ms, configs, deleted, checksum FROM topics"
)
_PROPERTIES: Final = "SELECT name, value, checksum FROM properties"
_TABLES: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
"""Kind, name, table and statement of each table and index."""

# Not INSERT OR REPLACE, which would also replace another topic of the same name.
_PUT_TOPIC: Final = (
    "INSERT INTO topics (topic_id, name, partition_count, created_ms, configs, deleted, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (topic_id) DO UPDATE SET"
    " partition_count = excluded.partition_count, configs = excluded.configs,"
    " deleted = excluded.deleted, checksum = excluded.checksum"
)


_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""UnicodeDecodeError occurs if SQLite's own message quotes a damaged name."""
_SHORT_FILE: Final = {sqlite3.SQLITE_IOERR_SHORT_READ}
_FAILING_DISK: Final = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
_OPERATOR_ERRORS: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
}
"""Errors due to another process or missing permissions; to be fixed by the operator."""
_MAYBE_OURS: Final = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def put_property(name: str, value: str) -> Statement:
    columns = name, value
    return (_PUT_PROPERTY, (*columns, checksum_of(columns)))


def forget_property(name: str) -> Statement:
    return (_FORGET_PROPERTY, (name,))


def forget_topic(topic_id: bytes) -> Statement:
    return ("DELETE FROM topics WHERE topic_id = ?", (topic_id,))


def _at_once(statements: Sequence[Statement]) -> Statement | None:
    """Combine 1 to `_ROWS_MAX` statements that all change properties into one; else return None.

    SQLite's module releases the GIL several times per statement, and while the event loop is busy,
    each reacquisition costs an event loop iteration.
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
    """Compute the checksum, which is the last column of a row, from the other columns."""
    return crc32(repr(tuple(columns)).encode())


class MetadataError(Exception):
    """A database that cannot be used at all: damaged, of a later version, or another program's."""


class DamagedError(MetadataError):
    """The file is damaged."""


class UnreadableError(StorageError):
    """Reading or writing the file fails."""


class TopicRecord(NamedTuple):
    topic_id: bytes
    """16 bytes, never reused for another topic."""
    name: str
    partition_count: int
    created_ms: int
    """Wall-clock time of the creation."""
    configs: Mapping[str, str] = {}
    deleted: bool = False
    """Whether the topic is deleted: its name is free, and remaining directories are removed."""

    def put(self) -> Statement:
        """Return the statement that inserts the topic, or updates the row with its topic id."""
        columns = self._columns()
        return (_PUT_TOPIC, (*columns, checksum_of(columns)))

    def _columns(self) -> tuple[bytes, str, int, int, str, int]:
        configs = json.dumps(dict(self.configs), sort_keys=True)
        counts = self.partition_count, self.created_ms
        return (self.topic_id, self.name, *counts, configs, int(self.deleted))


class Content(NamedTuple):
    topics: list[TopicRecord]
    """Topics by name, including deleted ones."""
    properties: dict[str, str]

    @property
    def changes(self) -> int:
        """The number of changes; damage to the write-ahead log can lose the latest ones."""
        return int(self.properties.get(CHANGES, "0"))


_PRIVATE: Final = 0o600
_SQLITE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
_HEADER_BYTES: Final = 100
_WRITE_VERSION_AT: Final = 18
_WRITE_VERSIONS: Final = frozenset({1, 2})
"""Write versions in SQLite's file format: rollback journal, or WAL."""


_Row = tuple[bytes | None, ...]
_PROPERTY_COLUMNS: Final = 3


class _Text(bytes):
    """A value of type TEXT, perhaps not valid UTF-8; plain `bytes` are values of type BLOB."""

    __slots__ = ()


class MetadataDatabase:
    """An open database; for one caller at a time. With `path` None it is in memory."""

    def __init__(self, path: Path | None) -> None:
        """Open or create the database. Raises MetadataError or StorageError."""
        self.path = str(path) if path is not None else ":memory:"
        try:
            self._open("NORMAL")
        except UnreadableError as error:
            # A full disk has no room for the file of the WAL's shared-memory index. Exclusive mode
            # does not need that file.
            try:
                self._open("EXCLUSIVE")
            except StorageError:
                raise error from None

    def _open(self, locking_mode: str) -> None:
        try:
            _keep_private(self.path)
            # Autocommit, because change() begins and ends its own transactions.
            self._connection = _connect(self.path)
        except sqlite3.Error as error:
            raise explained(self.path, "cannot be opened", error) from error
        try:
            self._connection.execute(f"PRAGMA locking_mode = {locking_mode}")
            self._prepare()
            self._connection.execute(_FORGETTING)
        except _ERRORS as error:
            self._connection.close()
            raise explained(self.path, "cannot be opened", error) from error
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the database; the write-ahead log is merged into the file."""
        self._connection.close()

    def destroy(self) -> None:
        """Close the database and remove the file, as far as the disk allows."""
        self._connection.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(self.path + suffix).unlink()

    def read(self) -> Content:
        """Read all topics and properties. Raises DamagedError or StorageError."""
        topics = sorted(map(_topic_of, self._checked_rows(_TOPICS)), key=lambda topic: topic.name)
        return Content(topics, self._checked_properties())

    def change(self, statements: Sequence[Statement]) -> None:
        """Execute one transaction. Raises StorageError, having changed nothing."""
        connection = self._connection
        try:
            whole = _at_once(statements)
            if whole is not None:
                connection.execute(*whole)
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                for sql, parameters in statements:
                    connection.execute(sql, parameters)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.IntegrityError:
            # For example a name used for two topics: a programming error, not a failure of the
            # disk.
            raise
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be written: {error}") from error

    def copy_to(self, other: "MetadataDatabase") -> None:
        """Make the other database equal to this one. Raises StorageError."""
        try:
            self._connection.backup(other._connection)  # noqa: SLF001 - one of its own kind.
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be copied: {error}") from error

    def _checked_rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            rows = [_decoded(row) for row in self._connection.execute(query)]
        except _ERRORS as error:
            raise explained(self.path, "cannot be read", error) from error
        sound = [row for row in rows if row is not None]
        if len(sound) != len(rows):
            raise DamagedError(f"{self.path} is damaged: a row does not have its checksum")
        return sound

    def _checked_properties(self) -> dict[str, str]:
        connection = self._connection
        try:
            # Decode text strictly: invalid UTF-8 is an error.
            connection.text_factory = str
            rows = connection.execute(_PROPERTIES).fetchall()
        except _ERRORS as error:
            raise explained(self.path, "cannot be read", error) from error
        finally:
            connection.text_factory = _Text
        # No object is created per row: thousands of users and rules are read at every start.
        for name, value, checksum in rows:
            is_text = type(name) is str and type(value) is str
            if not is_text or checksum_of((name, value)) != checksum:
                raise DamagedError(f"{self.path} is damaged: a row does not have its checksum")
        return {name: value for name, value, _ in rows}

    def _prepare(self) -> None:
        # Checked first: the header of a damaged file does not identify its program or release.
        if not self._is_writable():
            raise DamagedError(f"{self.path} is damaged: its header allows no changes")
        # PRAGMA quick_check would miss a damaged index, with which a change might not find the
        # existing row and add a second one.
        rows = self._connection.execute("PRAGMA integrity_check(3)").fetchall()
        if rows != [(b"ok",)]:
            problems = "; ".join(row[0].decode(errors="replace") for row in rows)
            raise DamagedError(f"{self.path} is damaged: {problems}")
        application, version = self._pragma("application_id"), self._pragma("user_version")
        self._check_kind(application, version)
        # Readers are never blocked, and a commit is one write and one fsync of one file.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if version < len(_MIGRATIONS):
            script = "".join(_MIGRATIONS[version:])
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {script} PRAGMA application_id = {_APPLICATION_ID};"
                f" PRAGMA user_version = {len(_MIGRATIONS)}; COMMIT;"
            )

    def _check_kind(self, application: int, version: int) -> None:
        """Check that the file is a database that this release can use."""
        is_ours = application in {0, _APPLICATION_ID}
        if is_ours and 0 <= version < len(_MIGRATIONS):
            return  # New, or created by an earlier release.
        found, ours = set(self._connection.execute(_TABLES)), _our_tables()
        if is_ours and version == len(_MIGRATIONS):
            if found != ours:
                raise DamagedError(f"{self.path} is damaged: its tables were changed")
        elif found == ours or (not is_ours and found & ours):
            raise DamagedError(f"{self.path} is damaged: its header does not match its tables")
        elif not is_ours:
            raise MetadataError(f"{self.path} is a database of another program")
        else:
            raise MetadataError(
                f"{self.path} has version {version}, created by a later release; this one reads"
                f" versions up to {len(_MIGRATIONS)}"
            )

    def _is_writable(self) -> bool:
        """Whether the header allows writing. SQLite mistakes a damaged format version for one of
        a later release: it reads the file, and fails only at the first change.
        """
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - in memory it is no path
                header = file.read(_HEADER_BYTES)
        except FileNotFoundError:
            return True
        return len(header) < _HEADER_BYTES or header[_WRITE_VERSION_AT] in _WRITE_VERSIONS

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


@cache
def _our_tables() -> set[_Row]:
    """Return the result of the query `_TABLES` for a database created by this release.

    These tables identify a file with a damaged header: no other program has any of them, and no
    later release has exactly these.
    """
    with closing(sqlite3.connect(":memory:")) as made:
        made.text_factory = bytes
        made.executescript("".join(_MIGRATIONS))
        return set(made.execute(_TABLES))


def salvage(path: Path) -> Content:
    """Return those rows of a damaged database that have a correct checksum; never raises.

    An unreadable page hides the rows after it, so tables are read from both ends.
    """
    topics: dict[bytes, TopicRecord] = {}
    properties: dict[str, str] = {}
    with suppress(*_ERRORS), closing(_connect(str(path))) as connection:
        for order in ("ASC", "DESC"):
            for row in _sound_rows(connection, f"{_TOPICS} ORDER BY topic_id {order}"):
                topics[row[0]] = _topic_of(row)
            for row in _sound_rows(connection, f"{_PROPERTIES} ORDER BY name {order}"):
                properties[row[0]] = row[1]
    return Content(sorted(topics.values(), key=lambda topic: topic.name), properties)


def _sound_rows(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    with suppress(*_ERRORS):
        yield from filter(None, map(_decoded, connection.execute(query)))


def _keep_private(path: str) -> None:
    """Make the database, which contains credentials, accessible only to its owner.

    SQLite creates its other files with the same mode; this also sets it on existing ones.
    """
    if path == ":memory:":
        return
    # Any failure is left for SQLite to report.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, _PRIVATE))
    for suffix in _SQLITE_SUFFIXES:
        with suppress(OSError):
            if Path(path + suffix).stat().st_mode & 0o077:
                Path(path + suffix).chmod(_PRIVATE)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    # Damaged values may not be valid text.
    connection.text_factory = _Text
    return connection


def _decoded(row: Sequence[Any]) -> tuple[Any, ...] | None:
    """Decode the texts of a row; None if the row is damaged."""
    *columns, checksum = row
    is_property = len(row) == _PROPERTY_COLUMNS
    texts = columns if is_property else columns[1:]
    # Damage can turn a TEXT into a BLOB of the same bytes, which is a different key to SQLite.
    if any(type(value) is bytes for value in texts):
        return None
    if not is_property and isinstance(columns[0], _Text):
        return None
    try:
        decoded = tuple(value.decode() if isinstance(value, _Text) else value for value in columns)
    except UnicodeDecodeError:
        return None
    return (*decoded, checksum) if checksum_of(decoded) == checksum else None


def _topic_of(row: Sequence[Any]) -> TopicRecord:
    return TopicRecord(
        topic_id=row[0],
        name=row[1],
        partition_count=row[2],
        created_ms=row[3],
        configs=json.loads(row[4]),
        deleted=bool(row[5]),
    )


def explained(path: str, doing: str, error: Exception) -> MetadataError | StorageError:
    """Return the exception to raise for an SQLite error in opening or reading a file."""
    text = f"{path} {doing}: {error}"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code in _SHORT_FILE:
        return DamagedError(f"{path} is damaged: {error}")
    primary = code & 0xFF
    if primary in _FAILING_DISK:
        return UnreadableError(text)
    if primary in _OPERATOR_ERRORS:
        return StorageError(text)
    if primary in _MAYBE_OURS:
        # SQLite reports a damaged header like a missing permission, so open the files as it would.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            os.close(os.open(path + "-wal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE))
        except OSError as problem:
            is_disk = problem.errno == errno.EIO
            return (UnreadableError if is_disk else StorageError)(f"{text} ({problem.strerror})")
    return DamagedError(f"{path} is damaged: {error}")
