import pytest

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import (
    NO_SEQUENCE,
    PLACEMENT_BYTES,
    CompressionType,
    TimestampType,
    crc_matches,
    crc_of,
    iter_headers,
    payload_of,
    placement_prefix,
    read_header,
    restamped,
    split_batches,
)
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from tests.support.records.batches import sequenced, with_header
from tests.support.records.layout import ATTRIBUTES

RECORDS = [Record(b"one", b"k", (("h", b"x"),), 1_000), Record(None, None, (), 1_234)]
BATCH = encode_batch(RECORDS, base_offset=7, leader_epoch=3)


@pytest.mark.parametrize("bit", range(8))
def test_attributes_are_read_bit_by_bit_as_declared(bit: int) -> None:
    header = read_header(with_header(BATCH, attributes=1 << bit))
    declared = ATTRIBUTES.parse((1 << bit).to_bytes(2, "big"))
    for name in ("codec_id", "is_transactional", "is_control", "has_delete_horizon"):
        assert getattr(header, name) == declared[name]
    assert header.timestamp_type == declared.timestamp_type


def test_bits_that_have_no_meaning_yet_are_ignored() -> None:
    header = read_header(with_header(BATCH, attributes=-256))
    assert header.codec is CompressionType.NONE
    assert not header.is_control
    assert not header.is_transactional
    assert header.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_id_of_no_codec_is_told_but_names_none(codec_id: int) -> None:
    header = read_header(with_header(BATCH, attributes=codec_id))
    assert header.codec_id == codec_id
    with pytest.raises(DecodeError, match="codec"):
        _ = header.codec


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60])
def test_a_header_that_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(DecodeError):
        read_header(BATCH[:size])
    with pytest.raises(DecodeError):
        read_header(BATCH, len(BATCH) - size)


@pytest.mark.parametrize("position", [-1, -61, 10_000])
def test_a_header_outside_the_buffer_is_refused(position: int) -> None:
    with pytest.raises(DecodeError):
        read_header(BATCH, position)


@pytest.mark.parametrize("magic", [-128, -1, 0, 1, 3])
def test_another_format_is_refused(magic: int) -> None:
    with pytest.raises(DecodeError, match="magic"):
        read_header(with_header(BATCH, magic=magic))


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48])
def test_a_length_below_that_of_a_header_is_refused(length: int) -> None:
    with pytest.raises(DecodeError, match="length"):
        read_header(with_header(BATCH, length=length))


@pytest.mark.parametrize(
    ("base", "count", "last"),
    [(0, 1, 0), (5, 3, 7), ((1 << 31) - 1, 1, (1 << 31) - 1), ((1 << 31) - 1, 2, 0), (-1, 2, -1)],
)
def test_sequences_wrap_to_zero(base: int, count: int, last: int) -> None:
    assert sequenced(9, 0, base, count).last_sequence == last
    assert NO_SEQUENCE == -1


def test_the_crc_covers_all_but_what_the_broker_sets() -> None:
    header = read_header(BATCH)
    assert crc_of(BATCH, header) == header.crc
    for position in range(len(BATCH)):
        flipped = bytearray(BATCH)
        flipped[position] ^= 1
        covered = position >= 21
        assert crc_matches(flipped, header) is not covered


def test_a_batch_that_is_cut_short_has_no_crc_and_no_payload() -> None:
    header = read_header(BATCH)
    assert not crc_matches(BATCH[:-1], header)
    for reader in (crc_of, payload_of):
        with pytest.raises(DecodeError):
            reader(BATCH[:-1], header)


def test_a_batch_is_placed_by_its_first_sixteen_bytes_alone() -> None:
    header = read_header(BATCH)
    placed = placement_prefix(1 << 40, header.length, 12) + BATCH[PLACEMENT_BYTES:]
    moved = read_header(placed)
    assert moved == header._replace(base_offset=1 << 40, partition_leader_epoch=12)
    assert crc_matches(placed, moved)


def test_the_payload_is_not_copied() -> None:
    source = bytearray(BATCH)
    payload = payload_of(source, read_header(source))
    source[-1] ^= 0xFF
    assert payload[-1] == source[-1]


def test_batches_in_a_row_are_told_apart() -> None:
    other = encode_batch([Record(b"x" * 300)], base_offset=9)
    split = list(split_batches(BATCH + other))
    assert [header.base_offset for header, _ in split] == [7, 9]
    assert [bytes(batch) for _, batch in split] == [BATCH, other]
    assert [position for position, _ in iter_headers(BATCH + other)] == [0, len(BATCH)]


@pytest.mark.parametrize("cut", [1, 30, 60, 61, len(BATCH) - 1])
def test_a_batch_cut_off_at_the_end_is_left_out_only_if_that_is_asked_for(cut: int) -> None:
    data = BATCH + BATCH[:cut]
    assert len(list(iter_headers(data, partial_tail=True))) == 1
    with pytest.raises(DecodeError):
        list(iter_headers(data))


def test_log_append_time_replaces_the_timestamp_of_every_record() -> None:
    stamped, header = restamped(BATCH, read_header(BATCH), TimestampType.LOG_APPEND_TIME, 5_000)
    assert crc_matches(stamped, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in decode_records(stamped)] == [5_000, 5_000]


def test_create_time_puts_the_records_own_timestamps_back_in_force() -> None:
    appended = restamped(BATCH, read_header(BATCH), TimestampType.LOG_APPEND_TIME, 5_000)
    assert restamped(*appended, TimestampType.CREATE_TIME, 1_234) == (BATCH, read_header(BATCH))
