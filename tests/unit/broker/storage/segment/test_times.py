import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import read_file, write_fully
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.segment import times
from kohort.broker.storage.segment.times import (
    find_max_timestamp,
    find_timestamp,
    load_first_timestamp,
    load_max_timestamp,
    timestamp_at,
)
from kohort.protocol.records.batch import TimestampType, read_header, restamped
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.record import Record, write_record
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    batch_of,
    fill,
    memory_log,
    open_log,
)


def log_of(timestamps: list[int]) -> tuple[PartitionLog, SimulatedFileSystem]:
    """One batch of one record for each timestamp, all in one segment with a dense index."""
    log, files = memory_log(segment_bytes=1_000_000, index_interval_bytes=0)
    for timestamp in timestamps:
        append(log, batch_of(b"v", timestamp=timestamp))
    return log, files


@settings(deadline=None)
@given(
    timestamps=st.lists(st.integers(-1, 50), min_size=1, max_size=30),
    wanted=st.integers(-1, 52),
    start=st.integers(0, 31),
    reopen=st.booleans(),
)
def test_the_first_record_at_or_after_a_time_is_found(
    timestamps: list[int], wanted: int, start: int, reopen: bool
) -> None:
    log, files = log_of(timestamps)
    if reopen:
        log.close()
        log = open_log(files)
    expected = next(
        (
            (timestamp, offset)
            for offset, timestamp in enumerate(timestamps)
            if timestamp >= wanted and offset >= start
        ),
        None,
    )
    (segment,) = log.segments
    assert find_timestamp(segment, wanted, start) == expected
    assert load_max_timestamp(segment) == max(timestamps)
    assert load_first_timestamp(segment) == timestamps[0]
    latest = find_max_timestamp(segment)
    if max(timestamps) < 0:
        assert latest is None
    else:
        assert latest == (max(timestamps), timestamps.index(max(timestamps)))


def test_a_delta_that_leads_out_of_the_type_leads_where_clients_see_it() -> None:
    """Answers with a larger number could not be written: the topic could not be searched."""
    log, _ = memory_log()
    block = bytearray()
    for number, delta in enumerate((0, (1 << 63) - 1, 7)):
        write_record(block, Record(b"v"), delta, number)
    header = read_header(batch_of(b"v", b"v", b"v"))._replace(
        base_timestamp=WALL_MS, max_timestamp=WALL_MS + 7
    )
    append(log, assemble(header, block))
    (segment,) = log.segments
    assert find_timestamp(segment, WALL_MS + 1, 0) == (WALL_MS + 7, 2)
    assert timestamp_at(segment, 1) == WALL_MS - (1 << 63) - 1


def test_with_log_append_time_every_record_has_the_time_of_the_batch() -> None:
    log, _ = memory_log()
    batch = batch_of(b"a", b"b", b"c", timestamp=100)
    append(log, restamped(batch, read_header(batch), TimestampType.LOG_APPEND_TIME, 500)[0])
    (segment,) = log.segments
    assert find_timestamp(segment, 400, 0) == (500, 0)
    assert find_timestamp(segment, 400, 2) == (500, 2)
    assert find_max_timestamp(segment) == (500, 0)


def test_an_empty_segment_has_no_timestamps() -> None:
    log, files = memory_log()
    for segment in (log.segments[0], open_log(files).segments[0]):
        assert load_max_timestamp(segment) == -1
        assert load_first_timestamp(segment) == -1
        assert find_timestamp(segment, 0, 0) is None
        assert find_max_timestamp(segment) is None


@pytest.mark.parametrize("damage", ["gone", "zeros", "last entry lost", "later", "earlier"])
def test_a_time_index_that_is_not_true_is_not_believed(damage: str) -> None:
    timestamps = [10, 40, 20, 30, 60, 50, 55]
    log, files = log_of(timestamps)
    log.close()
    path = log.segments[0].path(".timeindex")
    content = read_file(files, path)
    files.remove(path)
    if damage != "gone":
        written = {
            "zeros": bytes(len(content)),
            "last entry lost": content[:-5],
            "later": content[:-12] + (999).to_bytes(8, "big") + content[-4:],
            "earlier": content[:-12] + (41).to_bytes(8, "big") + content[-4:],
        }[damage]
        write_fully(files.create(path), [written], 0)
    (segment,) = open_log(files).segments
    for wanted in range(62):
        expected = next(
            ((time, offset) for offset, time in enumerate(timestamps) if time >= wanted), None
        )
        assert find_timestamp(segment, wanted, 0) == expected
    # An entry that is true but not the last cannot be told from one that is; see LogSegment.sync.
    if damage != "last entry lost":
        assert load_max_timestamp(segment) == 60


def test_damage_on_the_way_is_told_and_a_maximum_it_hides_stays_unknown() -> None:
    log, files = memory_log(segment_bytes=1_000_000)
    fill(log, 30)
    log.close()
    (segment,) = open_log(files).segments
    size = segment.size_bytes // 30
    files.flip(segment.path(".log"), 29 * size + 40, 1)  # The latest timestamp of the log.
    assert load_max_timestamp(segment) is None
    assert find_timestamp(segment, WALL_MS + 150, 0) == (WALL_MS + 150, 30)
    with pytest.raises(CorruptBatchError):
        find_timestamp(segment, WALL_MS + 290, 0)


def test_the_time_of_a_record_is_that_of_the_record_and_not_of_its_batch() -> None:
    log, _ = memory_log(segment_bytes=1_000_000)
    append(log, encode_batch([Record(b"v", timestamp=WALL_MS + one) for one in (5, 9, 7)]))
    append(log, batch_of(b"v", timestamp=WALL_MS + 20))
    (segment,) = log.segments
    times = [timestamp_at(segment, offset) for offset in range(5)]
    assert times == [WALL_MS + 5, WALL_MS + 9, WALL_MS + 7, WALL_MS + 20, None]


def test_the_time_of_a_record_that_the_broker_stamped_is_the_brokers() -> None:
    log, _ = memory_log(segment_bytes=1_000_000)
    batch = encode_batch([Record(b"v", timestamp=one) for one in (5, 9)])
    append(log, restamped(batch, read_header(batch), TimestampType.LOG_APPEND_TIME, WALL_MS)[0])
    assert timestamp_at(log.segments[0], 1) == WALL_MS


def test_of_a_long_batch_the_first_time_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "DECODED_BYTES_MAX", 10)
    log, _ = memory_log(segment_bytes=1_000_000)
    append(log, encode_batch([Record(b"v", timestamp=one) for one in (5, 9)]))
    assert timestamp_at(log.segments[0], 1) == 5


def test_a_log_tells_the_time_of_a_record_in_whichever_segment_it_is() -> None:
    log, _ = memory_log(segment_bytes=150)
    for number in range(10):
        append(log, batch_of(b"v" * 50, timestamp=number))
    assert len(log.segments) > 4
    found = [log.detached_timestamp_at(offset).run() for offset in range(11)]
    assert found == [*range(10), None]
