"""Batches of values alone, against the encoder that takes whole records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.protocol.errors import EncodeError
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import encode_batch, encode_values
from kohort.protocol.records.record import Record

LENGTHS = st.one_of(st.integers(0, 130), st.sampled_from([8_180, 8_191, 8_192, 20_000]))


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=200), codec=st.sampled_from(CompressionType))
def test_they_are_what_the_general_encoder_makes(
    lengths: list[int], codec: CompressionType
) -> None:
    values = [bytes([index & 255]) * length for index, length in enumerate(lengths)]
    records = [Record(value, timestamp=1_700_000_000_123) for value in values]
    made = encode_values(
        values, 1_700_000_000_123, codec=codec, producer_id=7, producer_epoch=2, base_sequence=9
    )
    assert made == encode_batch(
        records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=9
    )


def test_many_of_them_have_long_offset_deltas() -> None:
    values = [b"x"] * 20_000
    assert encode_values(values, 5) == encode_batch([Record(b"x", timestamp=5)] * 20_000)


def test_none_are_no_batch() -> None:
    with pytest.raises(EncodeError):
        encode_values([], 0)
