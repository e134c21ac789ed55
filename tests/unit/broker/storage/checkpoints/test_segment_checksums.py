"""The checksums of transaction indexes, snapshots and first batches, and recovery without them."""

import logging

import pytest

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checkpoints.segment_checksums import (
    FILE_NAME,
    SegmentChecksums,
    encode_sums,
    parse_sums,
)
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError
from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    batch_of,
    marker_of,
    memory_log,
    open_log,
    repair_indexes,
)

INDEX = "/data/t-0/00000000000000000000.txnindex"
CHECKSUMS = f"/data/t-0/{FILE_NAME}"
ABORTED = [AbortedTransaction(5, 0, 1, 2), AbortedTransaction(6, 2, 3, 4)]
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def send(log: PartitionLog, producer_id: int, sequence: int = 0) -> int:
    batch = encode_batch(
        [Record(b"v", timestamp=WALL_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    return append(log, batch).base_offset


def end(log: PartitionLog, producer_id: int, result: ControlType) -> int:
    return append(log, marker_of(result, producer_id, timestamp=0)).base_offset


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    repair_indexes(log)
    return log.aborted.reading(0, log.log_end_offset).read()


@pytest.fixture
def files() -> SimulatedFileSystem:
    """A closed log: two aborted transactions in its first segment, of which more follow."""
    log, files = memory_log()
    for producer_id in (5, 6):
        send(log, producer_id)
        end(log, producer_id, ABORT)
    for _ in range(2):
        log.roll(wall_ms=WALL_MS)
        append(log, batch_of(b"v"))
    log.close()
    return files


def test_written_checksums_are_read_again() -> None:
    files = SimulatedFileSystem()
    files.make_directory("/data/t-0")
    sums = {"0.txnindex": None, "7.snapshot": 0xFFFFFFFF, "0.log": 0}
    assert SegmentChecksums(files, "/data/t-0").replace(sums)
    again = SegmentChecksums(files, "/data/t-0", exists=True)
    assert again.sums == sums
    assert not again.replace(sums)


def test_a_list_with_one_changed_bit_or_of_another_directory_is_ignored() -> None:
    content = encode_sums({"0.txnindex": None, "7.snapshot": 17}, "/data/t-0")
    for bit in range(len(content) * 8):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFileError):
            parse_sums(bytes(changed), "/data/t-0")
    with pytest.raises(CorruptFileError):
        parse_sums(content, "/data/t-1")
    for size in range(len(content)):
        with pytest.raises(CorruptFileError):
            parse_sums(content[:size], "/data/t-0")


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_with_a_wrong_bit_or_entry_is_rebuilt_and_logged(
    files: SimulatedFileSystem, clean: bool, caplog: pytest.LogCaptureFixture, long_form: bool
) -> None:
    content = read_file(files, INDEX)
    contents: list[bytes | None] = [None, b"", content[:34], content[34:], content[:34] * 2]
    for bit in range(0, len(content) * 8, 1 if long_form else 11):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        contents.append(bytes(changed))
    for damage in contents:
        damaged = files.copy()
        damaged.remove(INDEX)
        if damage is not None:
            damaged.create(INDEX).pwritev([damage], 0)
        caplog.clear()
        log = open_log(damaged, clean=clean, recovery_point=6)
        assert aborted(log) == ABORTED
        assert INDEX in caplog.text
        assert read_file(damaged, INDEX) == content
        log.close()
        caplog.clear()
        assert aborted(open_log(damaged)) == ABORTED
        assert not caplog.records


def test_an_index_that_should_not_exist_is_not_trusted(files: SimulatedFileSystem) -> None:
    path = "/data/t-0/00000000000000000004.txnindex"
    files.create(path).pwritev([read_file(files, INDEX)], 0)
    assert aborted(open_log(files)) == ABORTED
    assert not files.exists(path)


def test_a_directory_without_checksums_is_compared_with_the_batches_once(
    files: SimulatedFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka writes none, nor did earlier releases."""
    files.remove(CHECKSUMS)
    log = open_log(files)
    assert [segment.aborted is None for segment in log.segments] == [False] * 3
    assert aborted(log) == ABORTED
    assert [segment.aborted is None for segment in log.segments] == [False, True, True]
    log.close()
    files.fail("pread", suffix=".log", number=5, times=1000)
    assert aborted(open_log(files)) == ABORTED
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_sound_directory_is_opened_without_reading_batches(files: SimulatedFileSystem) -> None:
    files.fail("pread", suffix=".log", number=5, times=1000)
    log = open_log(files)
    assert aborted(log) == ABORTED


def test_the_snapshot_of_another_offset_is_not_trusted() -> None:
    """Its own checksum is right, and it knows of no open transaction."""
    log, files = memory_log()
    append(log, batch_of(b"v"))
    log.roll(wall_ms=WALL_MS)
    first = send(log, 5)
    log.close()
    snapshots = [path for path in files.paths() if path.endswith(".snapshot")]
    assert len(snapshots) == 2
    content = read_file(files, min(snapshots))
    files.remove(max(snapshots))
    files.create(max(snapshots)).pwritev([content], 0)
    log = open_log(files)
    assert [one.first_offset for one in log.producers.open_transactions()] == [first]


def test_the_batches_of_another_partition_are_not_served(files: SimulatedFileSystem) -> None:
    other, others = memory_log()
    for _ in range(4):
        append(other, batch_of(b"secret"))
    path = "/data/t-0/00000000000000000000.log"
    files.remove(path)
    files.create(path).pwritev([read_file(others, path)], 0)
    log = open_log(files)
    with pytest.raises(CorruptBatchError, match="offsets 0 to 3"):
        log.read(0, 1000, up_to_offset=4, min_one=True)
    assert log.read(4, 1000, up_to_offset=6, min_one=True)


def test_another_active_segment_is_neither_served_nor_appended_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, files = memory_log()
    other, others = memory_log()
    for _ in range(3):
        append(log, batch_of(b"v"))
        append(other, batch_of(b"secret"))
    log.close()
    path = "/data/t-0/00000000000000000000.log"
    files.remove(path)
    files.create(path).pwritev([read_file(others, path)], 0)
    log = open_log(files)
    with pytest.raises(CorruptBatchError, match="offsets from 0 on"):
        log.read(0, 1000, up_to_offset=3, min_one=True)
    assert append(log, batch_of(b"w")).base_offset == 3
    assert f"{path} has the batches of another segment: offsets from 0 on" in caplog.text
    log.close()
    log = open_log(files)
    with pytest.raises(CorruptBatchError, match="offsets 0 to 2"):
        log.read(0, 1000, up_to_offset=4, min_one=True)
    assert b"w" in bytes(log.read(3, 1000, up_to_offset=4, min_one=True))


def test_a_segment_that_was_listed_as_active_may_grow_and_be_sealed(
    files: SimulatedFileSystem,
) -> None:
    for clean in (True, False, True):
        log = open_log(files, clean=clean, recovery_point=6)
        append(log, batch_of(b"v"))
        log.roll(wall_ms=WALL_MS)
        append(log, batch_of(b"v"))
        log.flush()
        log.close()
        files = files.copy()
    log = open_log(files)
    for offset in range(log.log_end_offset):
        assert log.read(offset, 1, up_to_offset=log.log_end_offset, min_one=True)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("result", [COMMIT, ABORT])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_the_outcome_of_a_transaction_survives_the_segment_with_its_marker(
    how: str, result: ControlType, clean: bool
) -> None:
    log, files = memory_log()
    send(log, 5)
    log.roll(wall_ms=WALL_MS)
    end(log, 5, result)
    log.roll(wall_ms=WALL_MS)
    # The same producer goes on; a client must not leave that out.
    send(log, 5, 1)
    end(log, 5, COMMIT)
    log.close()
    path = "/data/t-0/00000000000000000001.log"
    if how == "gone":
        files.remove(path)
    else:
        files.file(path).truncate(0)
    log = open_log(files, clean=clean, recovery_point=4)
    assert not log.producers.open_transactions()
    expected = [AbortedTransaction(5, 0, 1, 2)] if result is ABORT else []
    assert aborted(log) == expected
    data = log.read(1, 1000, up_to_offset=4, min_one=True)
    assert data
    assert not log.aborted.in_read(1, len(data), up_to_offset=4).at_once()


def test_without_an_index_an_unknown_outcome_counts_as_aborted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, files = memory_log()
    send(log, 5)
    log.roll(wall_ms=WALL_MS)
    end(log, 5, COMMIT)
    log.roll(wall_ms=WALL_MS)
    append(log, batch_of(b"v"))
    log.close()
    files.remove("/data/t-0/00000000000000000001.log")
    files.remove(CHECKSUMS)
    log = open_log(files)
    (entry,) = aborted(log)
    assert (entry.producer_id, entry.first_offset) == (5, 0)
    assert "/data/t-0: the marker of a transaction of producer 5 was lost with offsets 1 to 1" in (
        caplog.text
    )


def test_a_damaged_marker_below_the_recovery_point_leaves_its_transaction_aborted() -> None:
    log, files = memory_log()
    send(log, 5)
    end(log, 5, ABORT)
    log.flush()
    append(log, batch_of(b"v"))
    position = log.segments[0].size_bytes
    # This bit turns an abort marker into a commit marker.
    marker = read_file(files, "/data/t-0/00000000000000000000.log").index(b"\x08\0\0\0\0\x0c")
    assert marker < position
    files.flip("/data/t-0/00000000000000000000.log", marker + 4, 1)
    log = open_log(files, clean=False, recovery_point=2)
    assert aborted(log) == ABORTED[:1]
    assert not log.producers.open_transactions()


def test_a_list_that_is_older_than_its_segments_is_dropped_before_they_are_used() -> None:
    """A power failure may bring back the list of the last clean stop."""
    log, files = memory_log()
    append(log, batch_of(b"v"))
    log.close()
    before = read_file(files, CHECKSUMS)
    log = open_log(files)
    send(log, 5)
    end(log, 5, ABORT)
    log.roll(wall_ms=WALL_MS)
    append(log, batch_of(b"v"))
    log.flush()
    # The power failure loses the index, and the list that was written since.
    files.remove(INDEX)
    files.remove(CHECKSUMS)
    files.create(CHECKSUMS).pwritev([before], 0)
    log = open_log(files, clean=False, recovery_point=1)
    again = open_log(files.copy(), clean=False, recovery_point=log.log_end_offset)
    assert aborted(again) == [AbortedTransaction(5, 1, 2, 3)]
