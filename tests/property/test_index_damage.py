"""Damaged indexes cost time, not truth: what a log answers is the same as with sound ones.

Every .index and .timeindex of a closed log is cut to each of its lengths, blanked from each entry
on, lengthened, removed, put in another one's place, and has its bytes changed; the short form draws
some of these. Timestamps do not rise with offsets, so that the latest of a segment is not in its
last batch.
"""

from collections.abc import Iterator
from copy import deepcopy
from random import Random

import pytest

from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    batch_of,
    open_log,
    read_all,
    settings,
)

HOUR = 3_600_000
CONFIG = settings(cleanup_policy=("delete",), retention_ms=30 * HOUR, index_interval_bytes=100)
HOURS = [*range(12), 30, *range(12, 40), 20, *range(40, 60)]
TIMES = [WALL_MS + hour * HOUR for hour in range(0, 65, 5)]
Answers = dict[str, list[object]]


def sample() -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    log = open_log(files, config=CONFIG)
    for hour in HOURS:
        append(log, batch_of(b"x" * 60, b"y", timestamp=WALL_MS + hour * HOUR))
    assert len(log.segments) >= 3
    log.close()
    return files


def answers(log: PartitionLog) -> Answers:
    end = log.log_end_offset
    told: Answers = {
        "latest": [log.max_timestamp()],
        "batches": list(read_all(log)),
        "by time": [log.offset_for_timestamp(time, up_to_offset=end) for time in TIMES],
    }
    deleted: list[object] = [
        log.enforce_retention(wall_ms=WALL_MS + hour * HOUR, up_to_offset=end)
        for hour in range(30, 125, 5)
    ]
    return told | {"deleted by retention": deleted, "start": [log.log_start_offset]}


def damages(contents: dict[str, bytes], *, long_form: bool) -> Iterator[tuple[str, bytes | None]]:
    """(path, new content); None for no file."""
    random = Random(1)
    for path, content in contents.items():
        size = 12 if path.endswith(".timeindex") else 8
        lengths = range(len(content)) if long_form else range(0, len(content), size)
        for length in lengths:
            yield path, content[:length]
            yield path, content[:length] + bytes(len(content) - length)
        yield path, content + bytes(5 * size)
        yield path, content + b"\xff" * size
        yield path, content + content[-size:]
        yield path, None
        for other, its in contents.items():
            if other != path:
                yield path, its
        for position in range(len(content)):
            changed = bytearray(content)
            changed[position] ^= 1 << random.randrange(8)
            yield path, bytes(changed)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_with_damaged_indexes_answers_and_deletes_as_with_sound_ones(
    long_form: bool, clean: bool
) -> None:
    files = sample()
    paths = [f"/data/t-0/{entry.name}" for entry in files.entries("/data/t-0")]
    contents = {path: read_file(files, path) for path in paths if path.endswith("index")}
    log = open_log(deepcopy(files), config=CONFIG)
    end, expected = log.log_end_offset, answers(log)
    assert any(expected["deleted by retention"])
    every = list(damages(contents, long_form=long_form))
    for path, content in every if long_form else Random(2).sample(every, 40):
        damaged = deepcopy(files)
        damaged.remove(path)
        if content is not None:
            damaged.create(path).pwritev([content], 0)
        log = open_log(damaged, clean=clean, recovery_point=end, config=CONFIG)
        assert answers(log) == expected, (path, content)
