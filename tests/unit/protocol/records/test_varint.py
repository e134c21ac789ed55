import pytest

from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.records.varint import (
    encode_uvarint,
    encode_varint,
    encode_varlong,
    read_uvarint,
    read_varint,
    read_varlong,
)

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (INT32[1], "feffffff0f"),
        (INT32[0], "ffffffff0f"),
    ],
)
def test_small_magnitudes_of_either_sign_take_few_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_a_varint_that_the_buffer_cuts_off_is_refused() -> None:
    for reader in (read_uvarint, read_varint, read_varlong):
        for cut in (b"", b"\x80", b"\xff\xff\xff"):
            with pytest.raises(DecodeError, match="ends with the buffer"):
                reader(cut, 0)


def test_a_position_outside_the_buffer_is_refused() -> None:
    for position in (-1, 1, 7):
        with pytest.raises(DecodeError):
            read_varint(b"\x00", position)


def test_a_varint_of_too_many_groups_is_refused_even_if_they_are_empty() -> None:
    with pytest.raises(DecodeError):
        read_varint(b"\x80\x80\x80\x80\x80\x00", 0)
    with pytest.raises(DecodeError):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_a_value_beyond_its_type_is_refused_and_not_cut_off() -> None:
    with pytest.raises(DecodeError):
        read_varint(bytes.fromhex("ffffffff1f"), 0)
    with pytest.raises(DecodeError):
        read_uvarint(bytes.fromhex("8080808010"), 0)
    with pytest.raises(DecodeError):
        read_varlong(b"\xff" * 9 + b"\x02", 0)


def test_needless_empty_groups_are_accepted_as_by_all_clients() -> None:
    assert read_varint(b"\x82\x80\x00", 0) == (1, 3)


def test_a_value_that_does_not_fit_is_not_written() -> None:
    for encode, value in (
        (encode_varint, INT32[1] + 1),
        (encode_varint, INT32[0] - 1),
        (encode_varlong, INT64[1] + 1),
        (encode_uvarint, -1),
        (encode_uvarint, 1 << 32),
    ):
        with pytest.raises(EncodeError):
            encode(value)
