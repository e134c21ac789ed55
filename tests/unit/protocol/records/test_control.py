import pytest

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import HEADER_BYTES, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    decode_key,
    decode_marker,
    decode_value,
    encode_key,
    encode_value,
    make_marker,
)
from kohort.protocol.records.record import Record, decode_records
from tests.support.records.layout import CONTROL_KEY, END_TRANSACTION_MARKER


@pytest.mark.parametrize("control_type", ControlType)
def test_keys_and_values_are_written_and_read_as_declared(control_type: ControlType) -> None:
    key, value = encode_key(control_type), encode_value(1 << 20)
    assert CONTROL_KEY.build({"version": 0, "type": control_type}) == key
    assert END_TRANSACTION_MARKER.build({"version": 0, "coordinator_epoch": 1 << 20}) == value
    assert decode_key(key) == control_type
    assert decode_value(value) == 1 << 20


@pytest.mark.parametrize("control_type", ControlType)
def test_a_marker_is_written_as_any_other_batch_would_be(control_type: ControlType) -> None:
    marker = EndTransactionMarker(control_type, coordinator_epoch=7)
    record = Record(encode_value(7), encode_key(control_type), timestamp=1_000)
    batch = encode_batch(
        [record], producer_id=9, producer_epoch=2, is_transactional=True, is_control=True
    )
    made, header = make_marker(marker, producer_id=9, producer_epoch=2, timestamp=1_000)
    assert made == batch
    assert header == read_header(batch)


@pytest.mark.parametrize("change", [1, 2, 0x80])
@pytest.mark.parametrize("position", range(17))
def test_a_marker_with_another_byte_is_read_as_any_record_would_be(
    position: int, change: int
) -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, coordinator_epoch=7)
    batch, header = make_marker(marker, producer_id=9, producer_epoch=2, timestamp=1_000)
    changed = bytearray(batch)
    changed[HEADER_BYTES + position] ^= change
    try:
        (record,) = decode_records(changed, header)
        kind = decode_key(record.key or b"")
        expected = None
        if kind in set(ControlType):
            expected = EndTransactionMarker(ControlType(kind), decode_value(record.value or b""))
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_marker(changed, header)
    else:
        assert decode_marker(changed, header) == expected


@pytest.mark.parametrize("control_type", [2, 6, 99])
def test_kinds_that_end_no_transaction_are_skipped(control_type: int) -> None:
    key = CONTROL_KEY.build({"version": 0, "type": control_type})
    batch = encode_batch([Record(b"anything", key)], is_control=True)
    assert decode_marker(batch, read_header(batch)) is None


def test_later_versions_are_read_by_the_fields_they_begin_with() -> None:
    assert decode_key(CONTROL_KEY.build({"version": 3, "type": 1}) + b"more") == 1
    later = END_TRANSACTION_MARKER.build({"version": 1, "coordinator_epoch": 5})
    assert decode_value(later + b"more") == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, encode_value(0)),
        (b"", encode_value(0)),
        (b"\x00\x00\x00", encode_value(0)),
        (b"\xff\xff\x00\x01", encode_value(0)),
        (encode_key(ControlType.COMMIT), None),
        (encode_key(ControlType.COMMIT), b"\x00\x00\x00"),
        (encode_key(ControlType.COMMIT), b"\xff\xff\x00\x00\x00\x00"),
    ],
)
def test_a_malformed_control_record_is_refused(key: bytes | None, value: bytes | None) -> None:
    batch = encode_batch([Record(value, key)], is_control=True)
    with pytest.raises(DecodeError):
        decode_marker(batch, read_header(batch))


def test_only_a_control_batch_of_one_record_is_a_marker() -> None:
    record = Record(encode_value(0), encode_key(ControlType.ABORT))
    for batch in (encode_batch([record]), encode_batch([record, record], is_control=True)):
        with pytest.raises(DecodeError, match="not a control batch"):
            decode_marker(batch, read_header(batch))
