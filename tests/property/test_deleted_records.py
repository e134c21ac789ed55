"""DeleteRecords holds through power losses and damage, once it was answered."""

from copy import deepcopy
from pathlib import Path
from random import Random

from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.topics.directories import PartitionDirectories
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import WALL_MS, fill, settings

ROOT = Path("/data")
TOPIC_ID = bytes(range(16))


def opened(files: SimulatedFileSystem, *, clean: bool) -> tuple[PartitionDirectories, PartitionLog]:
    directories = PartitionDirectories(files, ROOT, clean_shutdown=clean)
    log = directories.open_log("t", 0, TOPIC_ID, settings(), wall_ms=WALL_MS)
    return directories, log


def deleted_before(offset: int, *, batches: int, flush: bool) -> SimulatedFileSystem:
    """A partition after a DeleteRecords that was answered, with nothing else forced to the disk."""
    files = SimulatedFileSystem()
    files.make_directory(str(ROOT))
    directories, log = opened(files, clean=True)
    fill(log, batches)
    if flush:
        log.flush()
    assert log.delete_records_before(offset, wall_ms=WALL_MS) == offset
    directories.note(log, "t", 0)
    directories.write_checkpoints(*directories.notes())
    return files


def test_deleted_records_do_not_come_back_after_a_power_loss(long_form: bool) -> None:
    random = Random(4)
    for seed in range(4_000 if long_form else 200):
        batches = random.randrange(1, 60)
        offset = random.randrange(1, 2 * batches + 1)
        files = deleted_before(offset, batches=batches, flush=random.random() < 0.5)
        files.lose_power(Random(seed).randrange)
        _, log = opened(files, clean=False)
        assert log.log_start_offset == offset, seed
        assert log.log_end_offset >= offset


def test_deleted_records_do_not_come_back_when_a_file_beside_the_log_is_damaged(
    long_form: bool,
) -> None:
    files = deleted_before(21, batches=30, flush=True)
    directories, log = opened(files, clean=False)
    log.close()
    directories.note(log, "t", 0)
    directories.write_checkpoints(*directories.notes())
    directories.write_last_notes()
    paths = [f"/data/{entry.name}" for entry in files.entries("/data") if not entry.is_directory]
    paths += [
        f"/data/t-0/{entry.name}"
        for entry in files.entries("/data/t-0")
        if not entry.name.endswith(".log")
    ]
    assert "/data/t-0/partition.metadata" in paths
    random = Random(5)
    for path in paths:
        content = read_file(files, path)
        changed: list[bytes | None] = [None, b"", bytes(len(content)), content[: len(content) // 2]]
        positions = range(len(content))
        if not long_form and len(content) > 15:
            positions = range(random.randrange(15), len(content), 15)
        for position in positions:
            for mask in [1 << bit for bit in range(8)] if long_form else [1 << random.randrange(8)]:
                byte = bytes([content[position] ^ mask])
                changed.append(content[:position] + byte + content[position + 1 :])
        for damage in changed:
            damaged = deepcopy(files)
            damaged.remove(path)
            if damage is not None:
                file = damaged.create(path)
                if damage:
                    file.pwritev([damage], 0)
            for clean in (True, False):
                copy = deepcopy(damaged)
                _, log = opened(copy, clean=clean)
                assert log.log_start_offset == 21, (path, damage, clean)
                assert log.log_end_offset == 60, (path, damage, clean)
