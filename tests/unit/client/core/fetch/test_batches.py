import json
from collections.abc import Sequence
from typing import Any

import pytest

from kohort.client.core.errors import (
    CorruptRecordError,
    DeserialisationError,
    PartitionError,
    RecordTooLargeError,
)
from kohort.client.core.fetch.batches import Aborted, Fetched, ReadOptions
from kohort.client.core.fetch.deserialisers import Deserialisers
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    CompressionType,
    TimestampType,
    read_header,
    restamped,
)
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from kohort.protocol.records.record import Record
from tests.support.records.batches import READ, with_header

PARTITION = TopicPartition("t", 1)
MANY = 1_000_000


def batch_of(offset: int, *values: bytes, **fields: Any) -> bytes:  # noqa: ANN401 - encode_batch's.
    return encode_batch([Record(value, b"k") for value in values], base_offset=offset, **fields)


def transactional(offset: int, producer_id: int, *values: bytes) -> bytes:
    return batch_of(
        offset, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return make_marker(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=0,
        base_offset=offset,
    )[0]


def fetched(
    *batches: bytes,
    options: ReadOptions = READ,
    aborted: Sequence[Aborted] = (),
    offset: int = 0,
) -> Fetched:
    return Fetched(PARTITION, memoryview(b"".join(batches)), options, aborted, offset=offset)


def place_of(error: PartitionError) -> tuple[TopicPartition, int | None, int | None]:
    return error.partition, error.offset, error.next_offset


def values_of(chunk: Fetched, floor: int = 0, wanted: int = MANY) -> list[bytes]:
    """To the end."""
    values: list[bytes] = []
    while records := chunk.read(floor, wanted):
        values += [record.value for record in records]
        floor = records[-1].offset + 1
    return values


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("wanted", [1, 2, 3, MANY])
def test_batches_are_read_one_after_the_other(codec: CompressionType, wanted: int) -> None:
    chunk = fetched(batch_of(5, b"a", b"b", b"c", codec=codec), batch_of(8, b"d", codec=codec))
    assert values_of(chunk, 5, wanted) == [b"a", b"b", b"c", b"d"]
    assert (chunk.next_offset, chunk.byte_count) == (9, 0)


def test_reading_begins_at_the_offset_that_was_asked_for() -> None:
    assert values_of(fetched(batch_of(5, b"a", b"b", b"c"), batch_of(8, b"d")), 7) == [b"c", b"d"]
    assert values_of(fetched(batch_of(5, b"a", b"b")), 7) == []


def test_bytes_count_until_the_batch_after_them_is_begun() -> None:
    first, second = batch_of(0, b"a", b"b"), batch_of(2, b"c")
    chunk = fetched(first, second)
    assert chunk.byte_count == len(first) + len(second)
    chunk.read(0, MANY)
    assert chunk.byte_count == len(first) + len(second)
    chunk.read(2, MANY)
    assert chunk.byte_count == len(second)


def test_a_batch_that_was_begun_can_be_put_back() -> None:
    chunk = fetched(batch_of(0, b"a", b"b", b"c"), batch_of(3, b"d"))
    assert [one.value for one in chunk.read(0, 2)] == [b"a", b"b"]
    chunk.rewind()
    assert values_of(chunk, 1) == [b"b", b"c", b"d"]


def test_reading_on_takes_as_many_batches_as_it_needs() -> None:
    chunk = fetched(*(batch_of(offset, b"%d" % offset) for offset in range(7)))
    assert [one.value for one in chunk.read_on(2, 3)] == [b"2", b"3", b"4"]
    assert [one.value for one in chunk.read_on(5, MANY)] == [b"5", b"6"]
    assert chunk.read_on(7, MANY) == []


def test_reading_on_passes_over_what_is_not_for_users() -> None:
    chunk = fetched(
        batch_of(0, b"a"),
        marker(1, 7, ControlType.COMMIT),
        transactional(2, 7, b"never"),
        marker(3, 7, ControlType.ABORT),
        batch_of(4, b"b"),
        aborted=[Aborted(2, 7)],
    )
    assert [one.value for one in chunk.read_on(0, MANY)] == [b"a", b"b"]


def test_reading_on_stops_before_what_cannot_be_read_which_comes_next() -> None:
    damaged = bytearray(batch_of(2, b"c"))
    damaged[-1] ^= 1
    chunk = fetched(batch_of(0, b"a"), batch_of(1, b"b"), bytes(damaged), batch_of(3, b"d"))
    assert [one.value for one in chunk.read_on(0, MANY)] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as caught:
            chunk.read_on(2, MANY)
        assert place_of(caught.value) == (PARTITION, 2, 3)


def test_records_to_be_deserialised_are_read_batch_by_batch() -> None:
    options = READ._replace(deserialisers=Deserialisers(value=bytes.decode))
    chunk = fetched(batch_of(0, b"a"), batch_of(1, b"b"), options=options)
    assert [one.value for one in chunk.read_on(0, MANY)] == ["a"]
    assert [one.value for one in chunk.read_on(1, MANY)] == ["b"]


def test_a_batch_that_was_cut_off_is_left_for_the_next_answer() -> None:
    second = batch_of(1, b"b")
    for size in range(len(second)):
        chunk = fetched(batch_of(0, b"a"), second[:size])
        assert (values_of(chunk), chunk.next_offset) == ([b"a"], 1)


def test_an_answer_without_one_whole_batch_says_what_to_raise() -> None:
    with pytest.raises(
        RecordTooLargeError, match=r"t-1: .* raise max_partition_fetch_bytes"
    ) as caught:
        fetched(batch_of(0, b"a")[:-1], offset=0)
    assert place_of(caught.value) == (PARTITION, 0, 1)


def test_what_is_behind_a_batch_too_large_is_not_known_without_its_header() -> None:
    with pytest.raises(RecordTooLargeError, match="at offset 7 does not fit") as caught:
        fetched(batch_of(5, b"a", b"b", b"c", b"d")[:60], offset=7)
    assert place_of(caught.value) == (PARTITION, 7, None)


def test_a_batch_of_another_format_is_named_as_such() -> None:
    batch = bytearray(batch_of(0, b"a"))
    batch[16] = 1
    with pytest.raises(CorruptRecordError, match=r"t-1: .*offset 0 .*it has format 1") as caught:
        fetched(bytes(batch), offset=3)
    assert place_of(caught.value) == (PARTITION, 3, None)


def test_what_comes_before_a_damaged_header_is_read() -> None:
    damaged = with_header(batch_of(1, b"b"), length=3)
    chunk = fetched(batch_of(0, b"a"), damaged)
    assert (values_of(chunk), chunk.next_offset) == ([b"a"], 1)
    with pytest.raises(CorruptRecordError, match="offset 1 cannot be read: its header"):
        fetched(damaged)


@pytest.mark.parametrize("codec", CompressionType)
def test_a_wrong_checksum_is_noticed_when_its_batch_has_its_turn(codec: CompressionType) -> None:
    bad = with_header(batch_of(1, b"b", codec=codec), crc=1)
    chunk = fetched(batch_of(0, b"a", codec=codec), bad)
    assert [one.value for one in chunk.read(0, MANY)] == [b"a"]
    for _ in range(2):
        with pytest.raises(
            CorruptRecordError, match=r"t-1: .*offset 1 .*checksum is wrong; seek to 2"
        ) as caught:
            chunk.read(1, MANY)
        assert place_of(caught.value) == (PARTITION, 1, 2)
    unchecked = fetched(bad, options=READ._replace(check_crcs=False))
    assert values_of(unchecked, 1) == [b"b"]


def test_a_damaged_header_does_not_say_where_to_go_on_if_a_batch_follows() -> None:
    damaged = with_header(batch_of(0, b"a", b"b"), crc=1, last_offset_delta=1_000_000)
    for batches, expected in (((damaged, batch_of(2, b"c")), 2), ((damaged,), 1_000_001)):
        with pytest.raises(CorruptRecordError, match=f"seek to {expected} to continue") as caught:
            fetched(*batches).read(0, MANY)
        assert place_of(caught.value) == (PARTITION, 0, expected)


def test_records_that_are_none_come_after_those_that_are() -> None:
    batch = with_header(batch_of(0, b"a", b"b"), record_count=3, last_offset_delta=2)
    chunk = fetched(batch)
    assert [one.value for one in chunk.read(0, MANY)] == [b"a", b"b"]
    with pytest.raises(CorruptRecordError, match="offset 0 cannot be read") as caught:
        chunk.read(2, MANY)
    # The records before it were given out, and are not passed over.
    assert place_of(caught.value) == (PARTITION, 2, 3)


def test_bytes_behind_the_last_record_are_an_error_after_it() -> None:
    chunk = fetched(with_header(batch_of(0, b"a", b"b"), record_count=1, last_offset_delta=0))
    assert [one.value for one in chunk.read(0, MANY)] == [b"a"]
    with pytest.raises(CorruptRecordError, match="data follows the last record"):
        chunk.read(1, MANY)


def test_a_negative_count_of_records_is_an_error() -> None:
    with pytest.raises(CorruptRecordError, match="it has -1 records"):
        fetched(with_header(batch_of(0, b"a"), record_count=-1)).read(0, MANY)


@pytest.mark.parametrize("codec", [one for one in CompressionType if one])
def test_a_batch_that_inflates_beyond_the_limit_says_so(codec: CompressionType) -> None:
    options = READ._replace(inflated_bytes_limit=10_000)
    chunk = fetched(
        batch_of(0, b"a", codec=codec), batch_of(1, bytes(20_000), codec=codec), options=options
    )
    assert [one.value for one in chunk.read(0, MANY)] == [b"a"]
    with pytest.raises(
        RecordTooLargeError, match=r"more than 10000 bytes; raise .* seek to 2"
    ) as caught:
        chunk.read(1, MANY)
    assert place_of(caught.value) == (PARTITION, 1, 2)


@pytest.mark.parametrize("codec", [one for one in CompressionType if one])
def test_a_block_that_does_not_inflate_is_corrupt(codec: CompressionType) -> None:
    batch = batch_of(0, b"a" * 100, codec=codec)
    broken = assemble(read_header(batch), batch[61:-9])
    with pytest.raises(CorruptRecordError, match="offset 0 cannot be read"):
        fetched(broken).read(0, MANY)


def test_what_compaction_left_of_a_batch_is_read_with_its_gaps() -> None:
    empty = read_header(batch_of(3, b"x", b"x"))
    chunk = fetched(
        with_header(batch_of(0, b"a"), last_offset_delta=2),
        assemble(empty._replace(record_count=0), b""),
    )
    assert (values_of(chunk), chunk.next_offset) == ([b"a"], 5)


def test_a_time_that_the_broker_set_is_that_of_all_records() -> None:
    batch = batch_of(0, b"a", b"b")
    stamped, _ = restamped(batch, read_header(batch), TimestampType.LOG_APPEND_TIME, 77)
    records = fetched(stamped).read(0, MANY)
    assert [(one.timestamp, one.timestamp_type) for one in records] == [(77, 1), (77, 1)]


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    chunk = fetched(
        transactional(0, 7, b"kept"),
        marker(1, 7, ControlType.COMMIT),
        transactional(2, 7, b"aborted"),
        transactional(3, 8, b"of another"),
        batch_of(4, b"of nobody"),
        transactional(5, 7, b"aborted"),
        marker(6, 7, ControlType.ABORT),
        transactional(7, 7, b"kept again"),
        marker(8, 8, ControlType.COMMIT),
        transactional(9, 8, b"aborted later"),
        marker(10, 8, ControlType.ABORT),
        aborted=[Aborted(9, 8), Aborted(2, 7)],
    )
    expected = [b"kept", b"of another", b"of nobody", b"kept again"]
    assert (values_of(chunk), chunk.next_offset) == (expected, 11)


def test_an_empty_control_batch_ends_nothing() -> None:
    """Compaction leaves such ones of markers, where a producer has left nothing else."""
    left = marker(2, 7, ControlType.COMMIT)
    empty = with_header(left[:HEADER_BYTES], length=LENGTH_MIN, record_count=0)
    chunk = fetched(
        empty,
        transactional(3, 7, b"aborted"),
        (4).to_bytes(8, "big") + empty[8:],
        transactional(5, 7, b"aborted"),
        marker(6, 7, ControlType.ABORT),
        transactional(7, 7, b"kept"),
        aborted=[Aborted(1, 7)],
    )
    assert (values_of(chunk), chunk.next_offset) == ([b"kept"], 8)


def test_an_abort_that_begins_within_a_batch_before_the_fetch_offset_counts() -> None:
    chunk = fetched(
        transactional(4, 7, b"aborted"), marker(5, 7, ControlType.ABORT), aborted=[Aborted(0, 7)]
    )
    assert (values_of(chunk, 4), chunk.next_offset) == ([], 6)


def test_deserialisers_are_given_what_was_written_and_sizes_stay() -> None:
    options = READ._replace(
        deserialisers=Deserialisers(
            key=lambda data: None if data is None else data.decode(), value=json.loads
        )
    )
    batch = encode_batch([Record(b'{"a": 1}', b"key"), Record(b"[]", None)])
    first, second = fetched(batch, options=options).read(0, MANY)
    assert (first.key, first.value, second.key, second.value) == ("key", {"a": 1}, None, [])
    assert (first.serialized_key_size, first.serialized_value_size) == (3, 8)
    assert second.serialized_key_size == -1


@pytest.mark.parametrize("what", ["key", "value"])
def test_a_deserialiser_that_raises_costs_no_other_record(what: str) -> None:
    def refuse(data: bytes | None) -> bytes | None:
        if data == b"bad":
            raise ValueError("no good")
        return data

    options = READ._replace(deserialisers=Deserialisers(**{what: refuse}))
    names = (b"good", b"bad", b"fine")
    records = [Record(one, one) for one in names]
    chunk = fetched(encode_batch(records, base_offset=5), options=options)
    assert [one.offset for one in chunk.read(5, MANY)] == [5]
    for _ in range(2):
        with pytest.raises(DeserialisationError, match=rf"t-1: the {what} .* offset 6 .*seek to 7"):
            chunk.read(6, MANY)
    with pytest.raises(DeserialisationError) as caught:
        chunk.read(6, MANY)
    assert place_of(caught.value) == (PARTITION, 6, 7)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [one.offset for one in chunk.read(7, MANY)] == [7]


def test_a_record_that_cannot_be_deserialised_is_told_as_it_was_written() -> None:
    def upper(data: bytes) -> str:
        return data.decode().upper()

    options = READ._replace(deserialisers=Deserialisers(key=upper, value=upper))
    written = Record(b"\xff", b"key", headers=(("trace", b"\x00"), ("none", None)), timestamp=77)
    chunk = fetched(encode_batch([written], base_offset=4), options=options)
    with pytest.raises(DeserialisationError, match="the value of the record at offset 4") as caught:
        chunk.read(4, MANY)
    record = caught.value.record
    assert (record.key, record.value, record.headers) == (b"key", b"\xff", written.headers)
    assert (record.topic, record.partition, record.offset) == (*PARTITION, 4)
    assert (record.timestamp, record.timestamp_type) == (77, TimestampType.CREATE_TIME)


def test_a_small_part_of_an_answer_does_not_keep_the_answer_in_memory() -> None:
    small = batch_of(0, b"a")
    answer = bytearray(small + bytes(10 * len(small)))
    chunk = Fetched(PARTITION, memoryview(answer)[: len(small)], READ)
    answer[:] = bytes(len(answer))
    assert values_of(chunk) == [b"a"]
