"""Both forms of the module that makes records of lines, against the encoder of whole records."""

from __future__ import annotations

from itertools import product
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.protocol.errors import EncodeError
from kohort.protocol.records import lines as lines_module
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import LinesBatch, encode_batch
from kohort.protocol.records.record import Record, write_record
from tests.support.both_forms import BothForms

FORMS = BothForms(lines_module)
EACH = [FORMS.as_written, lines_module] if FORMS.is_compiled else [FORMS.as_written]
NOW_MS = 1_700_000_000_123

LENGTHS = st.one_of(
    st.integers(0, 130), st.sampled_from([8_170, 8_180, 8_191, 8_192, 8_193, 20_000])
)


@pytest.fixture(params=["as_written", "compiled"])
def lines(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS.as_written if request.param == "as_written" else FORMS.compiled()


def packed(
    module: ModuleType, text: bytes, *, room: int = 1 << 16, count: int = 0
) -> tuple[bytes, int, int]:
    """The records, how many there are then, and where to continue."""
    block = bytearray(room)
    filled, count, position = module.pack_lines(block, 0, count, bytearray(text), 0, len(text))
    assert len(block) == room
    assert not any(block[filled:])
    return bytes(block[:filled]), count, position


def declared(values: list[bytes], first: int = 0) -> bytes:
    block = bytearray()
    for index, value in enumerate(values):
        write_record(block, Record(value), 0, first + index)
    return bytes(block)


SIZES = [0, 1, 56, 57, 58, 63, 64, 8_180, 8_191, 8_192, 1 << 20, 1 << 21]
FIRSTS = [0, 63, 64, 8_191, 8_192, 1 << 20, 1 << 27, (1 << 30) - 2]


def test_lengths_and_deltas_of_any_size_are_written_as_declared(lines: ModuleType) -> None:
    for size, first in product(SIZES, FIRSTS):
        values = [b"v" * size, b"next"]
        text = b"\n".join([*values, b""])
        found = packed(lines, text, room=size + 100, count=first)
        assert found == (declared(values, first), first + 2, len(text)), (size, first)


def test_a_line_is_packed_whole_or_not_at_all(lines: ModuleType) -> None:
    for room in range(64):
        check_taken_whole(lines, room)


def check_taken_whole(lines: ModuleType, room: int) -> None:
    text = b"one\ntwo\n\nthree\n"
    block, count, position = packed(lines, text, room=room)
    taken = text.split(b"\n")[:count]
    assert block == declared(taken)
    assert position == sum(map(len, taken)) + count
    # What has room, with the longest lengths that there are, is taken.
    rest = text[position:].split(b"\n")[0]
    assert position == len(text) or len(block) + len(rest) + 19 > room


def test_nothing_before_the_first_line_or_behind_the_last_is_touched(lines: ModuleType) -> None:
    block = bytearray(b"." * 60)
    text = bytearray(b"not this\nthis\nnor that\n")
    filled, count, position = lines.pack_lines(block, 10, 3, text, 9, 14)
    assert (count, position) == (4, 14)
    assert block[:10] == b"." * 10
    assert block[10:filled] == declared([b"this"], 3)
    assert block[filled:] == b"." * (60 - filled)


def test_a_line_without_an_end_is_not_taken(lines: ModuleType) -> None:
    assert packed(lines, b"whole\ncut") == (declared([b"whole"]), 1, 6)


@given(text=st.binary(max_size=300), position=st.integers(0, 310), end=st.integers(0, 310))
@example(text=b"a\n" * 100, position=3, end=200)
def test_both_forms_make_the_same_of_any_bytes(text: bytes, position: int, end: int) -> None:
    found = []
    for form in EACH:
        block = bytearray(b"." * 400)
        found.append((form.pack_lines(block, 5, 60, bytearray(text), position, end), block))
    assert found[0] == found[-1]


@settings(max_examples=50)
@given(lengths=st.lists(LENGTHS, min_size=1, max_size=200), codec=st.sampled_from(CompressionType))
def test_a_batch_is_what_the_general_encoder_makes(
    lengths: list[int], codec: CompressionType
) -> None:
    # No byte of them is the end of a line.
    values = [bytes([11 + index % 200]) * length for index, length in enumerate(lengths)]
    text = bytearray(b"\n".join([*values, b""]))
    made = LinesBatch(sum(lengths) + 19 * len(lengths))
    assert made.add(text, 0, len(text)) == len(text)
    assert made.count == len(values)
    found = made.encode(NOW_MS, codec=codec, producer_id=7, producer_epoch=2, base_sequence=9)
    records = [Record(value, timestamp=NOW_MS) for value in values]
    assert bytes(found) == encode_batch(
        records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=9
    )


def test_no_lines_are_no_batch() -> None:
    with pytest.raises(EncodeError):
        LinesBatch(100).encode(0)
