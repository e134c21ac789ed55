import pytest

from kohort.client.core.errors import RecordError
from kohort.client.core.fetch.batches import Fetched
from kohort.client.core.fetch.buffers import CHUNK_OVERHEAD_BYTES, FetchBuffers
from kohort.client.core.fetch.positions import Positions
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


def test_a_partition_whose_answer_is_used_up_lets_the_others_go_first() -> None:
    one = Fixture(A, B)
    one.fetched(A, batch_of(0, 2))
    one.fetched(A, batch_of(2, 2))
    one.fetched(B, batch_of(0, 2))
    assert one.buffers.next_offset(A) == 4
    assert [one.take(2) for _ in range(3)] == [{A: [0, 1]}, {B: [0, 1]}, {A: [2, 3]}]


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


LARGE_COUNT = 5


def large_batch(offset: int = 0) -> bytes:
    """It has 5 records of 20,000 bytes, and some hundred bytes as it is sent."""
    records = [Record(bytes([index]) * 20_000) for index in range(LARGE_COUNT)]
    return encode_batch(records, base_offset=offset, codec=CompressionType.GZIP)


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
