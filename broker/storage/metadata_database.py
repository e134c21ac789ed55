"""One SQLite file with what the broker knows beside the records, each row under a checksum.

SQLite notices damage to its own structure, but a flipped bit inside of a value is to it just
another value. Topics and properties therefore carry a CRC-32 of the row.

WAL mode with full synchronisation: a change that was returned from survives a power loss, and a
change is whole or absent.
"""

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from broker.storage.errors import StorageError
from protocol.lazy_dataclass import dataclass

Statement = tuple[str, tuple[bytes | str | int, ...]]
"""SQL and its parameters."""

_APPLICATION_ID: Final = 0x4B4F484F
"""ASCII "KOHO" in the header of the file, so that `file` and we can tell whose it is."""

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
"""Step n brings a database of version n to n + 1; steps are only ever added."""

# Not INSERT OR REPLACE, which would also replace another topic of the same name.
_PUT_TOPIC: Final = (
    "INSERT INTO topics (topic_id, name, partition_count, created_ms, configs, deleted, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (topic_id) DO UPDATE SET"
    " partition_count = excluded.partition_count, configs = excluded.configs,"
    " deleted = excluded.deleted, checksum = excluded.checksum"
)


class MetadataError(Exception):
    """A database that cannot be used at all: damaged, of a later version, or not ours."""


class DamagedError(MetadataError):
    """The file does not hold what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """What is stored of a topic."""

    topic_id: bytes
    """16 bytes, never used for another topic."""
    name: str
    partition_count: int
    created_ms: int
    """Wall time of the creation."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """What was set on the topic itself, by config name."""
    deleted: bool = False
    """Its name is free again and its directories, if any are left, are refuse."""

    def put(self) -> Statement:
        """The statement that stores the topic in place of what is known under its id."""
        columns = self._columns()
        return (_PUT_TOPIC, (*columns, _checksum(columns)))

    def _columns(self) -> tuple[bytes, str, int, int, str, int]:
        configs = json.dumps(dict(self.configs), sort_keys=True)
        counts = self.partition_count, self.created_ms
        return (self.topic_id, self.name, *counts, configs, int(self.deleted))


def put_property(name: str, value: str) -> Statement:
    """The statement that stores a property."""
    columns = name, value
    return ("INSERT OR REPLACE INTO properties VALUES (?, ?, ?)", (*columns, _checksum(columns)))


def forget_topic(topic_id: bytes) -> Statement:
    """The statement that removes a topic's row."""
    return ("DELETE FROM topics WHERE topic_id = ?", (topic_id,))


@dataclass(frozen=True, slots=True)
class Content:
    """All that a database holds."""

    topics: list[TopicRecord]
    """By name, deleted ones included."""
    properties: dict[str, str]


class MetadataDatabase:
    """The file, open; one caller at a time. `path` None keeps it in memory."""

    def __init__(self, path: Path | None) -> None:
        """Open or create it. Raises MetadataError or StorageError."""
        self.path = str(path) if path is not None else ":memory:"
        try:
            # Autocommit, because change() marks its own transactions.
            self._connection = sqlite3.connect(
                self.path, check_same_thread=False, isolation_level=None
            )
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be opened: {error}") from error
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise StorageError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise DamagedError(f"{self.path} is damaged: {error}") from error
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close it; what the log of changes held is merged into the file."""
        self._connection.close()

    def destroy(self) -> None:
        """Close it and remove the file, as far as the disk allows."""
        self._connection.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(self.path + suffix).unlink()

    def read(self) -> Content:
        """All that it holds. Raises DamagedError or StorageError."""
        topics = self._checked_rows(
            "SELECT topic_id, name, partition_count, created_ms, configs, deleted, checksum"
            " FROM topics ORDER BY name"
        )
        properties = self._checked_rows("SELECT name, value, checksum FROM properties")
        return Content(
            [
                TopicRecord(
                    topic_id=row[0],
                    name=row[1],
                    partition_count=row[2],
                    created_ms=row[3],
                    configs=json.loads(row[4]),
                    deleted=bool(row[5]),
                )
                for row in topics
            ],
            {row[0]: row[1] for row in properties},
        )

    def change(self, statements: Sequence[Statement]) -> None:
        """One transaction. Raises StorageError, and has then changed nothing."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for sql, parameters in statements:
                    connection.execute(sql, parameters)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.IntegrityError:
            # A name given to two topics: our mistake, not the disk's.
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
            rows = self._connection.execute(query).fetchall()
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self.path} cannot be read: {error}") from error
        except sqlite3.DatabaseError as error:
            raise DamagedError(f"{self.path} is damaged: {error}") from error
        for row in rows:
            if _checksum(row[:-1]) != row[-1]:
                raise DamagedError(f"{self.path} is damaged: a row does not have its checksum")
        return rows

    def _prepare(self) -> None:
        application, version = self._pragma("application_id"), self._pragma("user_version")
        if application not in {0, _APPLICATION_ID}:
            raise MetadataError(f"{self.path} is a database of another program")
        if version > len(_MIGRATIONS):
            raise MetadataError(
                f"{self.path} has version {version} and was made by a later release; this one reads"
                f" versions up to {len(_MIGRATIONS)}"
            )
        problems = [str(row[0]) for row in self._connection.execute("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise DamagedError(f"{self.path} is damaged: {'; '.join(problems)}")
        # Readers are never blocked, and a commit is one write and one fsync of one file.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if version < len(_MIGRATIONS):
            steps = "".join(_MIGRATIONS[version:])
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {steps} PRAGMA application_id = {_APPLICATION_ID};"
                f" PRAGMA user_version = {len(_MIGRATIONS)}; COMMIT;"
            )

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


def _checksum(columns: Sequence[bytes | str | int]) -> int:
    return zlib.crc32(repr(tuple(columns)).encode())
