"""Damage to metadata databases in other states than a clean stop's: with changes that only the
write-ahead log has, as a kill leaves them, and with so many topics that trees have many pages.

What one of the two files has lost is always had from the other.
"""

import logging
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from kohort.broker.storage.metadata.store import (
    FILE_NAME,
    MIRROR_FILE_NAME,
    MetadataStore,
    TopicRecord,
)

PAGE_BYTES = 4096
NAMES = (FILE_NAME, MIRROR_FILE_NAME)


def topic(number: int) -> TopicRecord:
    # Rows of many lengths, and some that need pages of their own.
    replicas = "1:1," * (400 if number % 50 == 0 else 1) + "1:1"
    return TopicRecord(
        topic_id=number.to_bytes(2, "big") * 8,
        name=f"topic-{number:04}-" + "x" * (number % 90),
        partition_count=3,
        created_ms=1,
        configs={
            "retention.ms": str(number),
            "follower.replication.throttled.replicas": replicas,
        },
    )


def content_of(store: MetadataStore) -> object:
    return store.topics(), store.deleted_topics(), store.cluster_id, dict(store._properties)


@pytest.fixture
def root() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        logging.disable(logging.CRITICAL)
        yield Path(directory)
        logging.disable(logging.NOTSET)


def check_a_start_finds_everything(
    files: dict[str, bytes], root: Path, truth: object, what: str
) -> None:
    """Everything is read, can be changed, and is there, changed, at the next start."""
    directory = root / "damaged"
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    store = MetadataStore(directory, new_cluster_id="another")
    assert content_of(store) == truth, what
    store.create_topics([topic(999)])
    store.set_topic_configs(topic(5).topic_id, {"retention.ms": "9"})
    changed = content_of(store)
    store.close()
    store = MetadataStore(directory, new_cluster_id="another")
    assert content_of(store) == changed, f"{what}, after changes"
    store.close()
    shutil.rmtree(directory)


def test_a_damaged_bit_beside_a_write_ahead_log_loses_nothing(root: Path, long_form: bool) -> None:
    source = root / "source"
    source.mkdir()
    store = MetadataStore(source, new_cluster_id="c" * 22)
    store.create_topics([topic(number) for number in range(1, 6)])
    store.set_broker_configs("", {"log.retention.ms": "5"})
    truth = content_of(store)
    # Taken while it is open, as a kill would leave them.
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    store.close()
    assert {f"{name}-wal" for name in NAMES} <= files.keys()
    random = Random(3)
    for name in sorted(files):
        content = files[name]
        positions = {*range(min(len(content), 120))}
        positions |= {random.randrange(len(content)) for _ in range(400)} if content else set()
        for at in sorted(positions) if long_form else random.sample(sorted(positions), 20):
            damaged = bytearray(content)
            damaged[at] ^= 1 << random.randrange(8)
            changed = files | {name: bytes(damaged)}
            check_a_start_finds_everything(changed, root, truth, f"{name} at {at}")


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_byte_or_page_of_a_large_database_loses_nothing(
    root: Path, name: str, long_form: bool
) -> None:
    source = root / "source"
    source.mkdir()
    store = MetadataStore(source, new_cluster_id="c" * 22)
    store.create_topics([topic(number) for number in range(1, 400)])
    for number in range(100, 200):
        store.mark_topics_deleted([topic(number).topic_id])
    for number in range(100, 160):
        store.forget_topics([topic(number).topic_id])
    store.set_properties({f"acl:{number}": "y" * (number * 7 % 300) for number in range(200)})
    truth = content_of(store)
    store.close()
    files = {one: (source / one).read_bytes() for one in NAMES}
    content = files[name]
    pages = len(content) // PAGE_BYTES
    assert pages > 20
    random = Random(name)
    for number in range(1_000 if long_form else 30):
        damaged = bytearray(content)
        page = random.randrange(pages) * PAGE_BYTES
        if number % 10 == 9:
            other = random.randrange(pages) * PAGE_BYTES
            damaged[page : page + PAGE_BYTES] = content[other : other + PAGE_BYTES]
            what = f"{name} with the page at {other} in place of that at {page}"
        else:
            # Every third byte anywhere, the rest in heads of pages, which have the structure.
            at = page + random.randrange(60) if number % 3 else random.randrange(len(content))
            damaged[at] = random.randrange(256)
            what = f"{name} at {at}"
        check_a_start_finds_everything(files | {name: bytes(damaged)}, root, truth, what)


@pytest.mark.parametrize("name", NAMES)
def test_an_index_with_an_entry_of_another_name_is_damage(root: Path, name: str) -> None:
    """Rows and their checksums are whole; by the index, a second topic could get a name."""
    source = root / "source"
    source.mkdir()
    store = MetadataStore(source, new_cluster_id="c" * 22)
    store.create_topics([topic(number) for number in range(1, 6)])
    truth = content_of(store)
    store.close()
    with sqlite3.connect(source / name) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'topics_by_name'"
        ).fetchone()
    connection.close()
    files = {one: (source / one).read_bytes() for one in NAMES}
    damaged = bytearray(files[name])
    entry = damaged.index(b"topic-0003", (page - 1) * PAGE_BYTES, page * PAGE_BYTES)
    damaged[entry : entry + 10] = b"topic-0007"
    files[name] = bytes(damaged)
    check_a_start_finds_everything(files, root, truth, name)
    directory = root / "believed"
    directory.mkdir()
    for one in NAMES:
        (directory / one).write_bytes(files[one])
    MetadataStore(directory, new_cluster_id="another").close()
    assert (directory / name).read_bytes() != files[name], "the damaged file was taken for sound"
