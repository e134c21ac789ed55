"""The file of aborted transactions beside a segment."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.segment import transaction_index
from kohort.broker.storage.segment.transaction_index import (
    ENTRY_BYTES,
    LONG_ENTRIES,
    STEP_ENTRIES,
    Overlapping,
    TransactionIndex,
    encode_entries,
)
from kohort.groups.steps import Steps
from kohort.testing.simulated_filesystem import SimulatedFileSystem

PATH = "/t-0/00000000000000000000.txnindex"
KAFKAS = bytes.fromhex("0000 00000000000003e9 0000000000000003 0000000000000004 0000000000000000")
"""By Kafka 4.4: producer 1001 aborted 3 to 4 while another transaction was open from 0."""


@pytest.fixture
def files() -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.make_directory("/t-0")
    return files


def new_index(files: SimulatedFileSystem) -> TransactionIndex:
    return TransactionIndex(files, PATH, 0, None)


def reopened(files: SimulatedFileSystem, base_offset: int = 0) -> TransactionIndex:
    return TransactionIndex(files, PATH, base_offset, len(read_file(files, PATH)))


def short(number: int) -> AbortedTransaction:
    """One of many that do not overlap: records at 10n to 10n + 8, the marker behind them."""
    first = number * 10
    return AbortedTransaction(number, first, first + 9, first + 10)


def test_an_entry_is_written_as_kafka_writes_it(files: SimulatedFileSystem) -> None:
    index = new_index(files)
    assert not files.exists(PATH)
    index.append(AbortedTransaction(1001, 3, 4, 0))
    assert read_file(files, PATH) == KAFKAS
    again = reopened(files)
    again.check()
    assert list(again) == [AbortedTransaction(1001, 3, 4, 0)]


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 300, 5000])
def test_a_search_finds_those_that_overlap_and_knows_when_it_is_over(
    files: SimulatedFileSystem, count: int
) -> None:
    index = new_index(files)
    entries = [short(number) for number in range(count)]
    index.replace_all(entries)
    for offset in (0, 1, 9, 10, 11, count * 5, count * 10 - 11, count * 10 - 1, count * 10):
        for length in (1, 5, 10, 11, 500):
            end = offset + length
            found = index.overlapping(offset, end)
            assert found.transactions == [
                one for one in entries if one.last_offset >= offset and one.first_offset < end
            ]
            assert found.is_all == (end <= count * 10)


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each read of an index takes, from now on."""
    read: list[int] = []
    plain = TransactionIndex._plain

    def counted(self: TransactionIndex, number: int, count: int) -> list[tuple[int, int, int, int]]:
        read.append(count)
        return plain(self, number, count)

    monkeypatch.setattr(TransactionIndex, "_plain", counted)
    return read


def kept(steps: Steps[Overlapping], found: list[Overlapping]) -> Iterator[None]:
    """The same steps; what they return is added to `found`."""
    found.append((yield from steps))


@pytest.mark.parametrize("count", [1, 128, 129, 300, 5000])
def test_a_search_can_be_made_in_steps(
    files: SimulatedFileSystem, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are still open where the range ends."""
    index = new_index(files)
    entries = [AbortedTransaction(one, one, count + one, one + 1) for one in range(count)]
    index.replace_all(entries)
    read = counted_reads(monkeypatch)
    for end in (1, count // 2 + 1, count):
        found: list[Overlapping] = []
        steps = 0
        for _ in kept(index.search(0, end), found):
            # The first one finds where to begin.
            assert sum(read) <= (STEP_ENTRIES if steps else 2 * 128 + 20)
            read.clear()
            steps += 1
        assert found == [(entries[:end], True)]
        assert steps <= 1 + end / STEP_ENTRIES
        read.clear()


def test_a_long_transaction_is_found_behind_short_ones(files: SimulatedFileSystem) -> None:
    """The last stable offset of an entry says that something earlier may still come."""
    index = new_index(files)
    index.append(AbortedTransaction(2, 5, 7, 3))
    assert not index.overlapping(4, 5).is_all
    index.append(AbortedTransaction(1, 3, 20, 21))
    found = index.overlapping(4, 5)
    assert found == ([AbortedTransaction(1, 3, 20, 21)], True)


def test_what_begins_behind_the_range_is_looked_at_once(
    files: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long transaction keeps all that are aborted meanwhile undecided."""
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 8)
    monkeypatch.setattr(transaction_index, "_BLOCK_ENTRIES", 3)
    index = new_index(files)
    entries = [AbortedTransaction(1, 2 * one, 2 * one + 1, 0) for one in range(1, 101)]
    entries.append(AbortedTransaction(2, 0, 300, 301))
    index.replace_all(entries)
    read = counted_reads(monkeypatch)

    def read_entries(offset: int, end: int) -> int:
        """How many it took to find what is right."""
        read.clear()
        found = index.overlapping(offset, end)
        assert found.transactions == [
            one for one in entries if one.last_offset >= offset and one.first_offset < end
        ]
        return sum(read)

    assert read_entries(0, 5) > 100
    assert read_entries(0, 5) <= 30
    for offset in range(0, 210, 7):
        for length in (1, 10, 50, 200):
            assert read_entries(offset, offset + length) <= length // 2 + 45
    index.replace_all(entries[50:])
    entries[:50] = []
    assert read_entries(0, 120) > 0


def test_what_cannot_be_written_is_found_all_the_same_and_written_later(
    files: SimulatedFileSystem,
) -> None:
    index = new_index(files)
    index.append(short(0))
    files.fail("pwritev", suffix=".txnindex", number=errno.ENOSPC, times=2)
    for number in (1, 2):
        with pytest.raises(OSError, match="space"):
            index.append(short(number))
    assert index.overlapping(15, 30).transactions == [short(1), short(2)]
    assert len(index) == 3
    index.sync()
    assert read_file(files, PATH) == encode_entries([short(0), short(1), short(2)])


def test_all_entries_can_be_replaced_at_once(files: SimulatedFileSystem) -> None:
    index = new_index(files)
    for number in range(5):
        index.append(short(number))
    index.replace_all([short(1), short(4)])
    assert list(index) == list(reopened(files)) == [short(1), short(4)]


GOOD = encode_entries([short(number) for number in range(4)])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        GOOD[: ENTRY_BYTES * 2] + GOOD[:ENTRY_BYTES],
        GOOD[:ENTRY_BYTES] * 2,
        b"\0\1" + GOOD[2:],
        bytes(ENTRY_BYTES * 2),
        encode_entries([AbortedTransaction(1, 5, 5, 6)]),
        encode_entries([AbortedTransaction(1, 3, 5, 7)]),
    ],
    ids=[
        "nothing",
        "cut",
        "longer",
        "unordered",
        "repeated",
        "version",
        "zeros",
        "empty",
        "stable",
    ],
)
def test_a_file_that_cannot_be_what_was_written_is_noticed(
    files: SimulatedFileSystem, content: bytes
) -> None:
    new_index(files).append(short(0))
    files.file(PATH).truncate(0)
    files.file(PATH).pwritev([content], 0)
    with pytest.raises(CorruptFileError):
        reopened(files).check()


def test_an_entry_of_an_earlier_segment_is_noticed(files: SimulatedFileSystem) -> None:
    new_index(files).append(short(0))
    reopened(files, base_offset=9).check()
    with pytest.raises(CorruptFileError):
        reopened(files, base_offset=10).check()


def long_index(files: SimulatedFileSystem, *, damaged: bool = False) -> TransactionIndex:
    entries = [short(number) for number in range(LONG_ENTRIES + 1)]
    if damaged:
        entries[-1] = short(0)
    index = new_index(files)
    index.replace_all(entries)
    index.close()
    return reopened(files)


def test_a_long_file_is_checked_in_a_thread_and_is_good_then(files: SimulatedFileSystem) -> None:
    index = long_index(files)
    before = index.takes_long
    assert index.check_in_thread()
    assert (before, index.takes_long) == (True, False)
    files.fail("pread", suffix=Path(PATH).suffix, number=errno.EIO)
    index.check()


def test_damage_that_was_found_in_a_thread_is_reported_until_the_file_is_replaced(
    files: SimulatedFileSystem,
) -> None:
    index = long_index(files, damaged=True)
    assert not index.check_in_thread()
    assert index.takes_long  # To be rebuilt.
    for _ in range(2):
        with pytest.raises(CorruptFileError):
            index.check()
    index.replace_all([short(1)])
    index.check()
    assert not index.takes_long
