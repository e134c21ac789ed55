"""The metadata store keeps what it returned from, through crashes and damage."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.database import (
    DamagedError,
    MetadataDatabase,
    UnreadableError,
    explained,
)
from kohort.broker.storage.metadata.store import (
    FILE_NAME,
    MIRROR_FILE_NAME,
    MetadataError,
    MetadataStore,
    TopicRecord,
)

NOT_EVEN_BY_ROOT = Path("/proc/self")
"""A directory in which root, who may write anywhere else, makes no file."""


def topic(name: str, number: int = 0, **changes: object) -> TopicRecord:
    values = {
        "topic_id": number.to_bytes(8, "big") + name.encode()[:8].ljust(8),
        "name": name,
        "partition_count": 3,
        "created_ms": 1_700_000_000_000,
        "configs": {"retention.ms": "5"},
    }
    return TopicRecord(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    store = MetadataStore(tmp_path, new_cluster_id="first")
    yield store
    store.close()


def reopened(directory: Path) -> MetadataStore:
    return MetadataStore(directory, new_cluster_id="another")


def topics_in(directory: Path) -> list[TopicRecord]:
    store = reopened(directory)
    try:
        return store.topics()
    finally:
        store.close()


def test_a_deleted_topics_name_is_free_while_its_remains_are_remembered(
    tmp_path: Path, store: MetadataStore
) -> None:
    old, new = topic("orders", 1), topic("orders", 2)
    store.create_topics([old])
    store.mark_topics_deleted([old.topic_id])
    store.create_topics([new])
    store.close()

    again = reopened(tmp_path)
    assert again.topics() == [new]
    assert [one.topic_id for one in again.deleted_topics()] == [old.topic_id]
    again.forget_topics([old.topic_id])
    again.close()
    final = reopened(tmp_path)
    assert (final.topics(), final.deleted_topics()) == ([new], [])
    final.close()


def test_two_topics_of_one_name_are_refused_and_none_of_the_call_is_kept(
    tmp_path: Path, store: MetadataStore
) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.create_topics([topic("orders", 1), topic("sales", 2), topic("orders", 3)])
    assert store.topics() == []
    store.close()
    assert topics_in(tmp_path) == []


def test_producer_ids_are_never_given_twice(tmp_path: Path, store: MetadataStore) -> None:
    given = [*store.allocate_producer_ids(1000), *store.allocate_producer_ids(10)]
    store.close()
    again = reopened(tmp_path)
    given += again.allocate_producer_ids(1000)
    again.close()
    assert len(given) == len(set(given)) == 2010


def test_the_file_that_has_seen_more_changes_wins(tmp_path: Path, store: MetadataStore) -> None:
    store.create_topics([topic("orders")])
    store.close()
    old = (tmp_path / FILE_NAME).read_bytes()
    newer = reopened(tmp_path)
    newer.create_topics([topic("sales")])
    newer.close()
    # As if damage to its log of changes had made the first file forget the last one.
    (tmp_path / FILE_NAME).write_bytes(old)
    assert [one.name for one in topics_in(tmp_path)] == ["orders", "sales"]


def test_databases_of_a_later_release_are_refused_and_left_alone(
    tmp_path: Path, store: MetadataStore
) -> None:
    store.close()
    for name in (FILE_NAME, MIRROR_FILE_NAME):
        database = sqlite3.connect(tmp_path / name)
        database.execute("ALTER TABLE topics ADD COLUMN later TEXT")
        database.execute("PRAGMA user_version = 99")
        database.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(MetadataError, match="version 99"):
        reopened(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_what_an_operator_can_mend_is_not_taken_for_damage(
    tmp_path: Path, store: MetadataStore
) -> None:
    store.create_topics([topic("orders")])
    store.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    # SQLite finds no way to open it, as where the disk has no more inodes.
    (tmp_path / f"{FILE_NAME}-wal").mkdir()
    with pytest.raises(StorageError, match=r"metadata\.db cannot be opened.*Is a directory"):
        reopened(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before
    (tmp_path / f"{FILE_NAME}-wal").rmdir()
    assert topics_in(tmp_path) == [topic("orders")]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_IOERR_READ, UnreadableError),
        (sqlite3.SQLITE_IOERR_FSYNC, UnreadableError),
        (sqlite3.SQLITE_FULL, UnreadableError),
        (sqlite3.SQLITE_BUSY, StorageError),
        (sqlite3.SQLITE_NOMEM, StorageError),
        (sqlite3.SQLITE_IOERR_SHORT_READ, DamagedError),
        (sqlite3.SQLITE_CORRUPT, DamagedError),
        (sqlite3.SQLITE_NOTADB, DamagedError),
        (sqlite3.SQLITE_ERROR, DamagedError),
        # The file can be opened for writing: so it is its header that says otherwise.
        (sqlite3.SQLITE_READONLY, DamagedError),
    ],
)
def test_a_failing_disk_is_told_from_a_damaged_file(
    tmp_path: Path, store: MetadataStore, code: int, kind: type[Exception]
) -> None:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    assert type(explained(str(tmp_path / FILE_NAME), "cannot be read", error)) is kind


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("PRAGMA application_id = 77")
    database.execute("CREATE TABLE theirs (x)")
    database.close()
    with pytest.raises(MetadataError, match="another program"):
        reopened(tmp_path)


def test_a_mirror_that_cannot_be_written_does_not_fail_the_change(
    tmp_path: Path, store: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    # Another holder of the mirror's write lock stands for a disk that refuses.
    other = sqlite3.connect(tmp_path / MIRROR_FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert store._mirror is not None
    store._mirror._connection.execute("PRAGMA busy_timeout = 0")
    store.create_topics([topic("orders")])
    other.execute("ROLLBACK")
    other.close()
    assert "mirror of the metadata is not used" in caplog.text
    assert not (tmp_path / MIRROR_FILE_NAME).exists()
    store.close()
    assert topics_in(tmp_path) == [topic("orders")]


def test_a_mirror_that_cannot_be_restored_is_done_without(
    tmp_path: Path, store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topics([topic("orders")])
    store.close()
    (tmp_path / MIRROR_FILE_NAME).unlink()

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(MetadataDatabase, "copy_to", refuse)
    again = reopened(tmp_path)
    again.create_topics([topic("payments")])
    again.close()
    assert not (tmp_path / MIRROR_FILE_NAME).exists()
    assert topics_in(tmp_path) == [topic("orders"), topic("payments")]


def test_a_database_that_cannot_be_written_fails_the_change_and_keeps_the_state(
    tmp_path: Path, store: MetadataStore
) -> None:
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store._database._connection.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(StorageError):
        store.create_topics([topic("orders")])
    assert store.topics() == []
    other.execute("ROLLBACK")
    other.close()
    store.create_topics([topic("orders")])
    assert store.topics() == [topic("orders")]


def test_a_directory_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError):
        reopened(tmp_path if os.geteuid() else NOT_EVEN_BY_ROOT)


def test_a_store_in_memory_works_without_files() -> None:
    store = MetadataStore(None, new_cluster_id="first")
    store.create_topics([topic("orders")])
    assert store.topics() == [topic("orders")]
    assert store.allocate_producer_ids(5) == range(5)
    store.close()
