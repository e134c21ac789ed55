import pytest

from kohort.client.core.errors import RecordError
from kohort.client.core.fetch.batches import Fetched
from kohort.client.core.fetch.buffers import AHEAD_RECORDS, CHUNK_OVERHEAD_BYTES, FetchBuffers
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.offsets import EARLIEST
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from kohort.protocol.records.record import Record
from tests.support.records.batches import READ, with_header

A, B, C = (TopicPartition("t", index) for index in range(3))


class Fixture:
    """Buffers, with positions at 0 and a note of what they said."""

    def __init__(self, *partitions: TopicPartition, inflated_bytes_limit: int = 1 << 20) -> None:
        self.positions = Positions()
        self.positions.set_assigned(partitions)
        for partition in partitions:
            self.positions.seek(partition, 0)
        self.left: dict[TopicPartition, int] = {}
        self.failures: list[tuple[TopicPartition, RecordError]] = []
        self.buffers = FetchBuffers(
            self.positions,
            inflated_bytes_limit=inflated_bytes_limit,
            on_less=self.left.__setitem__,
            on_failed=lambda partition, error: self.failures.append((partition, error)),
        )

    def fetched(self, partition: TopicPartition, *batches: bytes) -> int:
        chunk = Fetched(partition, memoryview(b"".join(batches)), READ)
        return self.buffers.add(partition, self.positions.state(partition).fence, chunk)

    def take(self, max_records: int = 1_000) -> dict[TopicPartition, list[int]]:
        taken = self.buffers.take(max_records)
        return {one: [record.offset for record in records] for one, records in taken.items()}

    def iterate(self) -> list[tuple[TopicPartition, int]]:
        """Until there is no more, by what is read one by one."""
        found = []
        while self.buffers.has_readable():
            if (record := self.buffers.next_record()) is not None:
                found.append((TopicPartition(record.topic, record.partition), record.offset))
        return found


def batch_of(offset: int, count: int) -> bytes:
    return encode_batch([Record(b"v")] * count, base_offset=offset)


def test_taking_moves_positions_past_what_was_taken() -> None:
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, 3), batch_of(3, 3))
    one.fetched(B, batch_of(0, 2))
    assert one.take(4) == {A: [0, 1, 2, 3]}
    assert (one.positions.position(A), one.positions.position(B)) == (4, 0)
    assert one.take() == {A: [4, 5], B: [0, 1]}
    assert (one.positions.position(A), one.positions.position(B)) == (6, 2)
    assert not one.buffers.has_readable()


def test_a_partition_whose_answer_is_used_up_lets_the_others_go_first() -> None:
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, 2))
    one.fetched(A, batch_of(2, 2))
    one.fetched(B, batch_of(0, 2))
    assert one.buffers.next_offset(A) == 4
    assert [one.take(2) for _ in range(3)] == [{A: [0, 1]}, {B: [0, 1]}, {A: [2, 3]}]


def test_paused_partitions_keep_what_they_have_for_later() -> None:
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, 2))
    one.fetched(B, batch_of(0, 2))
    assert one.take(1) == {A: [0]}
    one.positions.pause([A])
    one.buffers.drop_outdated()
    assert one.take() == {B: [0, 1]}
    assert not one.buffers.has_readable()
    one.positions.resume([A])
    assert one.take() == {A: [1]}


def test_kept_partitions_keep_what_they_have_and_others_nothing() -> None:
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, 2))
    one.fetched(B, batch_of(0, 2))
    one.positions.hold([B])
    assert one.take(1) == {A: [0]}
    one.positions.set_assigned([A, C])
    one.buffers.drop_outdated()
    assert one.left[B] == 0
    assert one.take() == {A: [1]}
    one.positions.set_assigned([A, B])
    one.positions.seek(B, 0)
    assert one.take() == {}


def test_what_was_fetched_before_a_seek_is_not_returned_after_it() -> None:
    one = Fixture(A)
    one.fetched(A, batch_of(0, 5))
    one.take(1)
    one.positions.seek(A, 1)
    assert one.take() == {}
    one.buffers.drop_outdated()
    assert one.buffers.next_offset(A) is None
    one.fetched(A, batch_of(0, 5))
    assert one.take() == {A: [1, 2, 3, 4]}


def test_a_partition_without_a_position_returns_nothing() -> None:
    one = Fixture(A)
    one.fetched(A, batch_of(0, 5))
    one.positions.seek_to(A, EARLIEST)
    assert (one.take(), one.buffers.next_record()) == ({}, None)


def test_reading_one_by_one_moves_the_position_record_by_record() -> None:
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, AHEAD_RECORDS + 5))
    one.fetched(B, batch_of(0, 3))
    for offset in range(AHEAD_RECORDS + 5):
        record = one.buffers.next_record()
        assert record is not None
        assert (record.partition, record.offset) == (0, offset)
        assert (one.positions.position(A), one.positions.position(B)) == (offset + 1, 0)
    assert one.iterate() == [(B, offset) for offset in range(3)]


def test_both_ways_of_reading_go_on_where_the_other_one_was() -> None:
    one = Fixture(A)
    one.fetched(A, batch_of(0, 10), batch_of(10, 2))
    first = one.buffers.next_record()
    assert first is not None
    assert one.take(2) == {A: [1, 2]}
    assert one.iterate() == [(A, offset) for offset in range(3, 12)]


def test_a_pause_between_two_records_is_heeded() -> None:
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, 3))
    one.fetched(B, batch_of(0, 1))
    assert one.buffers.next_record() is not None
    one.positions.pause([A])
    assert one.iterate() == [(B, 0)]
    one.positions.resume([A])
    assert one.iterate() == [(A, 1), (A, 2)]


def test_a_seek_between_two_records_is_heeded() -> None:
    one = Fixture(A)
    one.fetched(A, batch_of(0, 3))
    assert one.buffers.next_record() is not None
    one.positions.seek(A, 0)
    assert one.buffers.next_record() is None


def test_positions_move_past_what_is_not_for_users() -> None:
    for take in (Fixture.take, Fixture.iterate):
        one = Fixture(A)
        commit = EndTransactionMarker(ControlType.COMMIT, 0)
        one.fetched(A, make_marker(commit, producer_id=1, producer_epoch=0, timestamp=0)[0])
        assert not take(one)
        assert one.positions.position(A) == 1


def test_what_is_left_is_told_while_it_is_taken() -> None:
    one = Fixture(A)
    first, second = batch_of(0, 5), batch_of(5, 5)
    had = one.fetched(A, first, second)
    assert had == len(first) + len(second) + CHUNK_OVERHEAD_BYTES
    one.take(5)
    assert one.left.get(A, had) == had
    one.take(1)
    assert one.left[A] == len(second) + CHUNK_OVERHEAD_BYTES
    one.take()
    assert one.left[A] == 0


def test_a_record_that_cannot_be_given_out_keeps_its_position_and_no_other_from_being_read() -> (
    None
):
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, 2), with_header(batch_of(2, 2), crc=1))
    one.fetched(B, batch_of(0, 2))
    assert one.take() == {A: [0, 1], B: [0, 1]}
    assert [partition for partition, _ in one.failures] == [A]
    assert one.positions.position(A) == 2
    assert one.left[A] == 0
    one.fetched(A, batch_of(2, 2))
    assert one.iterate() == [(A, 2), (A, 3)]


MANY = [TopicPartition("t", index) for index in range(8)]
LARGE_COUNT = 5


def large_batch(offset: int = 0) -> bytes:
    """It has 5 records of 20,000 bytes, and some hundred bytes as it is sent."""
    records = [Record(bytes([index]) * 20_000) for index in range(LARGE_COUNT)]
    return encode_batch(records, base_offset=offset, codec=CompressionType.GZIP)


def read_in_turn(one: Fixture) -> tuple[dict[TopicPartition, list[int]], int]:
    """One record of each partition at a time: what came of each, and the most that was inflated."""
    found: dict[TopicPartition, list[int]] = {}
    most = 0
    while one.buffers.has_readable():
        for partition in MANY:
            for record in one.buffers.take(1, {partition}).get(partition, ()):
                assert record.value == bytes([record.offset % LARGE_COUNT]) * 20_000
                found.setdefault(partition, []).append(record.offset)
            most = max(most, one.buffers.inflated_bytes)
    return found, most


@pytest.mark.parametrize(
    ("limit", "kept"), [(1, 100_000), (250_000, 250_000), (10_000_000, 900_000)]
)
def test_batches_that_were_begun_are_inflated_up_to_a_limit_and_read_to_their_end(
    limit: int, kept: int
) -> None:
    one = Fixture(*MANY, inflated_bytes_limit=limit)
    for partition in MANY:
        one.fetched(partition, large_batch(), large_batch(LARGE_COUNT))
    found, most = read_in_turn(one)
    assert found == {partition: list(range(2 * LARGE_COUNT)) for partition in MANY}
    # A few bytes of each record are its frame.
    assert most <= kept * 1.01
    assert one.buffers.inflated_bytes == 0


def test_what_was_made_ahead_of_a_batch_that_is_not_inflated_any_more_is_put_back() -> None:
    one = Fixture(A, B, inflated_bytes_limit=1)
    one.fetched(A, large_batch())
    one.fetched(B, large_batch())
    first = one.buffers.next_record()
    assert first is not None
    assert first.offset == 0
    assert {p: [r.offset for r in rs] for p, rs in one.buffers.take(1, {B}).items()} == {B: [0]}
    assert one.take() == {A: [1, 2, 3, 4], B: [1, 2, 3, 4]}


def test_what_is_dropped_does_not_count_as_inflated() -> None:
    one = Fixture(A, B, C)
    for partition in (A, B, C):
        one.fetched(partition, large_batch())
        one.buffers.take(1, {partition})
    each = one.buffers.inflated_bytes // 3
    assert each > 100_000
    one.positions.seek(A, 0)
    one.buffers.drop_outdated()
    assert one.buffers.inflated_bytes == 2 * each
    one.buffers.clear()
    assert one.buffers.inflated_bytes == 0


@pytest.mark.parametrize("reads", [1, 3])
def test_what_is_in_hand_is_not_processed_whatever_becomes_of_the_leader(reads: int) -> None:
    one = Fixture(A)
    one.fetched(A, batch_of(0, 3))
    one.take(reads)
    one.positions.doubt(A)
    one.buffers.drop_outdated()
    assert one.buffers.processed()[A].offset == 0
    one.positions.believe(A)
    assert one.buffers.processed()[A].offset == 0
    one.buffers.mark_processed(None)
    assert one.buffers.processed()[A].offset == reads


def test_after_a_seek_the_new_position_is_what_is_processed() -> None:
    one = Fixture(A)
    one.fetched(A, batch_of(0, 3))
    one.take(3)
    one.positions.seek(A, 2)
    assert one.buffers.processed()[A].offset == 2
