"""Damage to the metadata databases: one of them costs nothing, both cost what nothing else proves.

Every byte with each of its bits flipped, zeroed and set, every length, every page: of a database
with two topics, five broker configs and a deleted topic, that is. The short form draws a sample.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from kohort.broker.config import load
from kohort.broker.storage.checkpoints.partition_metadata import write_topic_id
from kohort.broker.storage.filesystem import OS_FILES
from kohort.broker.storage.metadata.database import Content
from kohort.broker.storage.metadata.store import (
    FILE_NAME,
    MIRROR_FILE_NAME,
    MetadataError,
    MetadataStore,
    TopicRecord,
)
from kohort.broker.topics.rebuilding import CAREFUL_CONFIGS, Rebuilding

PAGE_BYTES = 4096
WRITE_VERSION_AT = 18
WALL_MS = 1_700_000_000_000
CONFIGS = {"retention.ms": "1000", "cleanup.policy": "compact"}
NAMES = ["orders", "sales", "größe-is-no-name"]


def topic(name: str, number: int, **changes: object) -> TopicRecord:
    values = {
        "topic_id": bytes([0x80 + number]) * 16,
        "name": name,
        "partition_count": 3,
        "created_ms": WALL_MS,
        "configs": CONFIGS,
    }
    return TopicRecord(**(values | changes))  # type: ignore[arg-type]


class Sample:
    """Both databases as a clean stop left them, and a place to damage copies of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.number = 0
        store = MetadataStore(root, new_cluster_id="the-cluster-id-of-ours")
        store.create_topics([topic(name, number) for number, name in enumerate(NAMES)])
        store.create_topics([topic("deleted", 9)])
        store.mark_topics_deleted([topic("deleted", 9).topic_id])
        for broker in ("", "1", "2"):
            store.set_broker_configs(broker, {"log.retention.ms": f"{broker}77"})
        store.allocate_producer_ids(1000)
        self.truth = told(store)
        store.close()
        self.contents = {name: (root / name).read_bytes() for name in (FILE_NAME, MIRROR_FILE_NAME)}
        assert sorted(path.name for path in root.iterdir()) == sorted(self.contents)

    def write(self, damaged: dict[str, bytes | None]) -> None:
        for path in self.root.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in (self.contents | damaged).items():
            if content is not None:
                (self.root / name).write_bytes(content)

    def check_nothing_is_lost(self, damaged: dict[str, bytes | None], what: str) -> None:
        self.write(damaged)
        self.number += 1
        # A second start finds both files whole again; one of a few is asked, to save time.
        after_a_change: dict[str, object] = {}
        for _ in range(2 if self.number % 8 == 0 else 1):
            store = MetadataStore(self.root, new_cluster_id="another")
            assert told(store) == self.truth, what
            if self.number % 8 == 1:
                store.allocate_producer_ids(1)
            after_a_change = told(store)
            store.close()
        if self.number % 8 == 1:
            store = MetadataStore(self.root, new_cluster_id="another")
            assert told(store) == after_a_change, f"{what}, after a change"
            store.close()


def told(store: MetadataStore) -> dict[str, object]:
    return {
        "topics": store.topics(),
        "deleted": store.deleted_topics(),
        "cluster": store.cluster_id,
        "brokers": [store.broker_configs(broker) for broker in ("", "1", "2")],
        "properties": dict(store._properties),
    }


@pytest.fixture(scope="module")
def sample() -> Iterator[Sample]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        logging.disable(logging.CRITICAL)
        yield Sample(Path(directory))
        logging.disable(logging.NOTSET)


def single_bytes(
    content: bytes, positions: Iterator[int], pick: Callable[[set[int]], Iterable[int]]
) -> Iterator[tuple[int, bytes]]:
    """The content with one byte changed, in the ways that are picked."""
    for position in positions:
        was = content[position]
        values = {*(was ^ 1 << bit for bit in range(8)), 0x00, 0xFF} - {was}
        for value in pick(values):
            yield position, content[:position] + bytes([value]) + content[position + 1 :]


def positions_of(content: bytes, random: Random, *, long_form: bool) -> Iterator[int]:
    """All; or some, mostly of those that mean something."""
    if long_form:
        yield from range(len(content))
        return
    used = [position for position in range(len(content)) if content[position]]
    yield from random.sample(range(100), 30)
    yield from random.sample(used, 50)
    yield from random.sample(range(len(content)), 5)


@pytest.mark.parametrize("name", [FILE_NAME, MIRROR_FILE_NAME])
def test_one_damaged_byte_in_one_database_loses_nothing(
    sample: Sample, name: str, long_form: bool
) -> None:
    content = sample.contents[name]
    random = Random(name)
    positions = positions_of(content, random, long_form=long_form)

    def pick(values: set[int]) -> Iterable[int]:
        return values if long_form else [random.choice(sorted(values))]

    for position, damaged in single_bytes(content, positions, pick):
        sample.check_nothing_is_lost({name: damaged}, f"{name} at {position}")


@pytest.mark.parametrize("name", [FILE_NAME, MIRROR_FILE_NAME])
def test_one_database_that_is_short_or_gone_or_blank_in_places_loses_nothing(
    sample: Sample, name: str, long_form: bool
) -> None:
    content = sample.contents[name]
    step = 1 if long_form else 1999
    for length in {0, 1, 99, 100, 101, *range(0, len(content), step)}:
        sample.check_nothing_is_lost({name: content[:length]}, f"{name} cut to {length}")
    for start in range(0, len(content), PAGE_BYTES):
        for byte in (b"\x00", b"\xff"):
            blank = content[:start] + byte * PAGE_BYTES + content[start + PAGE_BYTES :]
            sample.check_nothing_is_lost({name: blank}, f"{name} without the page at {start}")
        sector = content[:start] + bytes(512) + content[start + 512 :]
        sample.check_nothing_is_lost({name: sector}, f"{name} without the sector at {start}")
    sample.check_nothing_is_lost({name: None}, f"{name} is missing")
    sample.check_nothing_is_lost({name: content + bytes(5000)}, f"{name} is longer")


@pytest.mark.parametrize("version", [0, 3, 255])
def test_a_header_that_allows_no_changes_is_damage(sample: Sample, version: int) -> None:
    """SQLite reads such a file, and refuses the first change to it."""
    for name, content in sample.contents.items():
        damaged = bytearray(content)
        damaged[WRITE_VERSION_AT] = version
        sample.write({name: bytes(damaged)})
        store = MetadataStore(sample.root, new_cluster_id="another")
        assert told(store) == sample.truth
        assert store.allocate_producer_ids(1)[0] >= 1000
        store.close()


def test_both_databases_damaged_keep_what_rows_and_directories_prove(
    sample: Sample, long_form: bool
) -> None:
    for number, name in enumerate(NAMES[:2]):
        for index in range(3):
            directory = sample.root / f"{name}-{index}"
            directory.mkdir(exist_ok=True)
            write_topic_id(OS_FILES, str(directory), topic(name, number).topic_id, sync=False)
    config = load(overrides=[f"log.dirs={sample.root}"]).config
    rebuilding = Rebuilding(OS_FILES, sample.root, config, wall_ms=WALL_MS)
    random = Random(1)
    refused = 0
    for _ in range(20_000 if long_form else 60):
        damaged: dict[str, bytes | None] = {}
        most = 0
        for name, content in sample.contents.items():
            used = [position for position in range(len(content)) if content[position]]
            changed = bytearray(content)
            count = random.choice([1, 1, 1, 5, 500])
            most = max(most, count)
            for position in random.sample(used, count):
                changed[position] ^= 1 << random.randrange(8)
            damaged[name] = bytes(changed)
        sample.write(damaged)
        try:
            store = MetadataStore(sample.root, new_cluster_id="another", rebuild=rebuilding.rebuild)
        except MetadataError:
            # In several places at once, damage can look like the work of a later release.
            assert most > 1
            assert {name: (sample.root / name).read_bytes() for name in damaged} == damaged
            refused += 1
            continue
        topics = {one.name: one for one in store.topics()}
        for number, name in enumerate(NAMES[:2]):
            assert topics[name].topic_id == topic(name, number).topic_id
            assert topics[name].partition_count == 3
            assert topics[name].configs in (CONFIGS, CAREFUL_CONFIGS)
        assert topics.keys() <= set(NAMES)
        assert store.allocate_producer_ids(1)[0] >= 1000
        rebuilt = told(store)
        store.close()
        again = MetadataStore(sample.root, new_cluster_id="third", rebuild=refuse)
        assert told(again) == rebuilt
        again.close()
    assert refused <= (20 if long_form else 0)
    for path in sample.root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)


def refuse(salvaged: Content, *, was_damaged: bool) -> Content:
    raise AssertionError(f"both are sound: {salvaged} {was_damaged}")
