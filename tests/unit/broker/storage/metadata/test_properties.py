"""Changes of properties: what is stored, and that it takes few statements."""

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.database import (
    MetadataDatabase,
    Statement,
    TopicRecord,
    forget_property,
    put_property,
)
from kohort.broker.storage.metadata.store import FILE_NAME, MIRROR_FILE_NAME, MetadataStore

ODD = ("", "a", "A", "ß", "\N{GRINNING FACE}", "with\0nul", "x" * 40_000, "'); --")


def properties(store: MetadataStore) -> dict[str, str]:
    return {
        name: text
        for name, text in store.properties("").items()
        if name not in {"changes", "cluster_id"}
    }


def test_what_was_put_and_removed_is_so_after_a_restart_in_either_copy(tmp_path: Path) -> None:
    chance, known = random.Random(1), dict[str, str]()
    store = MetadataStore(tmp_path, new_cluster_id="c")
    names = [*ODD, *(f"rule-{number}" for number in range(1_500))]
    for _ in range(20):
        some = chance.sample(names, chance.choice([1, 2, 10, 1_200]))
        change = {name: chance.choice([None, "", "text", "ü\0"]) for name in some}
        store.set_properties(change)
        known |= {name: text for name, text in change.items() if text is not None}
        known = {name: text for name, text in known.items() if change.get(name, "") is not None}
    assert properties(store) == known
    store.close()
    for lost in (MIRROR_FILE_NAME, FILE_NAME):
        for path in tmp_path.glob(f"{lost}*"):
            path.unlink()
        again = MetadataStore(tmp_path, new_cluster_id="another")
        assert properties(again) == known
        again.close()


@pytest.fixture
def database(tmp_path: Path) -> MetadataDatabase:
    return MetadataDatabase(tmp_path / "one.db")


def told(database: MetadataDatabase, change: Callable[[], None]) -> list[str]:
    """The statements of a change; SQLite tells one again for each run of its trigger."""
    said: list[str] = []
    connection: sqlite3.Connection = database._connection
    connection.set_trace_callback(said.append)
    try:
        change()
    finally:
        connection.set_trace_callback(None)
    return list(dict.fromkeys(one for one in said if not one.startswith("--")))


def test_a_change_of_properties_is_one_statement(database: MetadataDatabase) -> None:
    """Each gives the interpreter up, and a busy loop gives it back once in a turn."""
    put = [put_property("a", "1"), put_property("b", "2"), put_property("changes", "1")]
    assert len(told(database, lambda: database.change(put))) == 1
    removed = [forget_property("a"), put_property("b", "3"), put_property("changes", "2")]
    assert len(told(database, lambda: database.change(removed))) == 1
    assert database.read().properties == {"b": "3", "changes": "2"}
    database.close()


def test_the_last_change_of_a_name_counts(database: MetadataDatabase) -> None:
    database.change([put_property("a", "1"), forget_property("a"), put_property("a", "2")])
    database.change([put_property("b", "1"), forget_property("b")])
    assert database.read().properties == {"a": "2"}
    database.close()


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 10_001])
def test_any_number_is_changed_at_once(database: MetadataDatabase, count: int) -> None:
    database.change([put_property(f"p{number}", "x") for number in range(count)])
    assert len(database.read().properties) == count
    database.change([forget_property(f"p{number}") for number in range(count)])
    assert database.read().properties == {}
    database.close()


def test_nothing_is_changed_by_a_change_that_fails(database: MetadataDatabase) -> None:
    database.change([put_property("a", "1")])
    database._connection.execute("PRAGMA query_only = 1")
    statements: list[list[Statement]] = [
        [put_property("a", "2"), put_property("b", "1")],
        [forget_property("a")],
        [TopicRecord(topic_id=bytes(16), name="t", partition_count=1, created_ms=1).put()],
    ]
    for change in statements:
        with pytest.raises(StorageError):
            database.change(change)
    assert database.read().properties == {"a": "1"}
    database._connection.execute("PRAGMA query_only = 0")
    database.change([forget_property("a")])
    assert database.read().properties == {}
    database.close()


def test_the_file_has_nothing_of_how_rows_are_removed(database: MetadataDatabase) -> None:
    database.change([put_property("a", "1"), forget_property("a")])
    database.close()
    with sqlite3.connect(database.path) as plain:
        kinds = plain.execute("SELECT DISTINCT type FROM sqlite_schema").fetchall()
        assert {kind for (kind,) in kinds} == {"table", "index"}
    plain.close()
