"""One damaged byte in any file of a log: never served as data, and never in the way of the rest."""

from collections.abc import Iterator
from copy import deepcopy
from random import Random

import pytest

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.records.batch import split_batches
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import WALL_MS, append, batch_of, fill, open_log, stored

TIMES = [WALL_MS, WALL_MS + 55, WALL_MS + 200, WALL_MS + 400, WALL_MS + 10_000]


class Sample:
    """A closed log of several segments, and everything true about it."""

    def __init__(self, *, clean: bool) -> None:
        self.files = SimulatedFileSystem()
        self.files.make_directory("/data")
        log = open_log(self.files)
        batches = fill(log, 60)
        for number in range(10):
            batch = batch_of(b"idempotent", producer_id=5, base_sequence=number)
            batches.append(stored(batch, append(log, batch).base_offset))
        log.flush()
        self.recovery_point = log.log_end_offset
        for number in range(10, 25):
            batch = batch_of(b"unflushed", producer_id=5, base_sequence=number)
            batches.append(stored(batch, append(log, batch).base_offset))
        self.times = {time: log.offset_for_timestamp(time, up_to_offset=1000) for time in TIMES}
        self.batches = {
            header.base_offset: batch for batch in batches for header, _ in split_batches(batch)
        }
        self.end = log.log_end_offset
        self.clean = clean
        assert len(log.segments) == 3
        if clean:
            log.close()

    def paths(self) -> list[str]:
        return [f"/data/t-0/{entry.name}" for entry in self.files.entries("/data/t-0")]

    def open_damaged(self, path: str, position: int, mask: int) -> PartitionLog:
        files = deepcopy(self.files)
        files.flip(path, position, mask)
        return open_log(files, clean=self.clean, recovery_point=self.recovery_point)

    def flips(self, path: str, stride: int) -> Iterator[tuple[int, int]]:
        """Every position of a small file, every `stride`th of a large one; one bit, or all."""
        random = Random(path)
        size = len(read_file(self.files, path))
        step = 1 if size < 100 else stride
        for position in range(random.randrange(step), size, step):
            yield position, random.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])


@pytest.fixture(scope="module", params=["after a clean stop", "after a kill"])
def sample(request: pytest.FixtureRequest) -> Sample:
    return Sample(clean=request.param == "after a clean stop")


def test_a_damaged_byte_in_any_file_is_never_served_as_data(
    sample: Sample, long_form: bool
) -> None:
    for path in sample.paths():
        for position, mask in sample.flips(path, stride=37 if long_form else 101):
            log = sample.open_damaged(path, position, mask)
            damaged = check_reads(sample, log)
            where = f"{path} at {position} with {mask}"
            if not path.endswith(".log"):
                assert log.log_end_offset == sample.end, where
                assert not damaged, where
            elif sample.clean:
                assert log.log_end_offset == sample.end, where
                # The damaged one, and those behind it up to the next entry of the index.
                assert 1 <= len(damaged) <= 7, where
            else:
                assert log.log_end_offset >= sample.recovery_point, where
            compared = check_times(sample, log)
            assert path.endswith(".log") or compared == len(TIMES), where


def test_a_log_with_a_damaged_byte_goes_on_where_it_ended(sample: Sample) -> None:
    known = set()
    for path in sample.paths():
        for position, mask in sample.flips(path, stride=101):
            log = sample.open_damaged(path, position, mask)
            end = log.log_end_offset
            batch = batch_of(b"new", producer_id=9, base_sequence=0)
            assert append(log, batch).base_offset == end
            assert log.read(end, 1000, up_to_offset=end + 1, min_one=True) == stored(batch, end)
            if not path.endswith(".log"):
                producer = log.producers.get(5)
                assert producer is not None
                assert producer.batches[-1].last_sequence == 24
                known.add(path)
            log.flush()
            log.close()
    assert known == {path for path in sample.paths() if not path.endswith(".log")}
    assert len(known) > len(sample.paths()) / 2


def check_reads(sample: Sample, log: PartitionLog) -> set[int]:
    """Read from the offset of every batch; returns those that are refused."""
    refused = set()
    for base_offset in sample.batches:
        if base_offset >= log.log_end_offset:
            continue
        try:
            data = log.read(base_offset, 700, up_to_offset=log.log_end_offset, min_one=True)
        except CorruptBatchError:
            refused.add(base_offset)
            continue
        assert data
        for header, batch in split_batches(data):
            assert bytes(batch) == sample.batches[header.base_offset]
    return refused


def check_times(sample: Sample, log: PartitionLog) -> int:
    """Look up times; returns how many could be compared."""
    compared = 0
    for time, expected in sample.times.items():
        try:
            found = log.offset_for_timestamp(time, up_to_offset=1000)
        except CorruptBatchError:
            continue
        if log.log_end_offset == sample.end:
            assert found == expected
            compared += 1
    return compared
