"""Both forms of the module that follows records: as it is written, and compiled."""

from collections.abc import Callable
from itertools import product
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kohort.protocol.errors import DecodeError
from kohort.protocol.records import walk as walk_module
from kohort.protocol.records.record import Record, field_of, iter_spans
from kohort.protocol.records.varint import encode_varint, read_varint
from tests.support.both_forms import BothForms
from tests.support.records.batches import SHAPES, one_record
from tests.support.records.layout import RECORD

FORMS = BothForms(walk_module)


@pytest.fixture(params=["as_written", "compiled"])
def walk(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS.as_written if request.param == "as_written" else FORMS.compiled()


TIMESTAMP_DELTAS = [0, 63, 64, -1, 8_191, 8_192, -(1 << 62), (1 << 62)]
OFFSET_DELTAS = [0, 63, 64, 10_000, (1 << 31) - 1]


def test_a_record_is_written_and_read_as_declared(walk: ModuleType) -> None:
    for record, timestamp_delta, offset_delta in product(SHAPES, TIMESTAMP_DELTAS, OFFSET_DELTAS):
        check_as_declared(walk, record, timestamp_delta, offset_delta)


def check_as_declared(
    walk: ModuleType, record: Record, timestamp_delta: int, offset_delta: int
) -> None:
    block = one_record(record, timestamp_delta, offset_delta)
    declared = RECORD.parse(block)
    assert RECORD.build(declared) == block
    span = walk.read_span(memoryview(b"before" + block + b"behind"), 6)
    assert (span.start, span.stop) == (6, 6 + len(block))
    assert (span.timestamp_delta, span.offset_delta) == (timestamp_delta, offset_delta)
    assert (declared.timestamp_delta, declared.offset_delta) == (timestamp_delta, offset_delta)
    moved = b"before" + block
    assert field_of(moved, span.key_start, span.key_length) == declared.key == record.key
    assert field_of(moved, span.value_start, span.value_length) == declared.value == record.value
    assert span.header_count == len(declared.headers) == len(record.headers)
    assert [(h.key.decode(), h.value) for h in declared.headers] == list(record.headers)


def test_keys_and_values_are_found_without_being_copied(walk: ModuleType) -> None:
    source = bytearray(one_record(Record(b"value", b"key")))
    span = walk.read_span(source, 0)
    source[span.value_start] = ord("V")
    assert field_of(source, span.value_start, span.value_length) == b"Value"


@pytest.mark.parametrize("record", SHAPES[:6], ids=range(6))
def test_a_record_cut_short_anywhere_is_refused(walk: ModuleType, record: Record) -> None:
    block = one_record(record)
    for size in range(len(block)):
        with pytest.raises(DecodeError):
            walk.read_span(block[:size], 0)


def test_a_record_must_fill_the_length_it_claims_and_no_more(walk: ModuleType) -> None:
    block = one_record(Record(b"value", b"key", (("h", b"x"),)))
    body = len(block) - 1
    assert block[:1] == encode_varint(body)
    for claimed in range(body + 40):
        if claimed == body:
            continue
        with pytest.raises(DecodeError):
            walk.read_span(encode_varint(claimed) + block[1:] + bytes(40), 0)


HEAD = b"\x00\x00\x00"
"""Attributes, timestamp delta 0, offset delta 0."""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(HEAD + b"\x03\x01\x00", id="key of length -2"),
        pytest.param(HEAD + b"\x01\x03\x00", id="value of length -2"),
        pytest.param(HEAD + b"\x03k\x01\x00", id="key of length -2 and a byte"),
        pytest.param(HEAD + b"\x01\x03v\x00", id="value of length -2 and a byte"),
        pytest.param(HEAD + b"\x01\x01\x01", id="header count -1"),
        pytest.param(HEAD + b"\x01\x01\x02\x01", id="header key of length -1 alone"),
        pytest.param(HEAD + b"\x01\x01\x02\x01\x01", id="header without key"),
        pytest.param(HEAD + b"\x01\x01\x02\x00\x03", id="header value of length -2"),
        pytest.param(HEAD + b"\x01\x01\x04\x00\x01", id="a header too few"),
        pytest.param(HEAD + b"\x0a\x01\x00", id="key longer than the record"),
        pytest.param(HEAD + b"\x01\x0a\x00", id="value longer than the record"),
        pytest.param(HEAD + b"\x01\x01\xfe\xff\xff\xff\x0f", id="2147483647 headers"),
        pytest.param(HEAD + b"\xfe\xff\xff\xff\x0f\x01\x00", id="key of 2147483647 bytes"),
        pytest.param(b"\x00\x00\xff\xff\xff\xff\x7f\x01\x01\x00", id="offset delta of 35 bits"),
    ],
)
def test_a_record_with_nonsense_inside_is_refused(walk: ModuleType, body: bytes) -> None:
    with pytest.raises(DecodeError):
        walk.read_span(encode_varint(len(body)) + body + bytes(64), 0)


def test_a_record_of_negative_length_is_refused(walk: ModuleType) -> None:
    block = one_record(Record(b"value", b"key"))
    for size in (block[0] - 1, block[0] + 1):
        with pytest.raises(DecodeError):
            walk.read_span(bytes([size]) + block[1:], 0)


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\x01" * 40, b"\x80" * 40, b"garbage " * 5])
def test_garbage_is_no_record(walk: ModuleType, garbage: bytes) -> None:
    with pytest.raises(DecodeError):
        walk.read_span(garbage, 0)


TIMES = [0, 63, -64, 64, 8_191, -8_192, 8_192, 1 << 40, (1 << 63) - 1, -(1 << 63), 5, -1]


@pytest.mark.parametrize("first_index", [0, 62, 8_190, 2_000_000])
def test_the_summary_agrees_with_the_single_records(walk: ModuleType, first_index: int) -> None:
    shapes = [SHAPES[number % len(SHAPES)] for number in range(len(TIMES))]
    block = b"".join(
        one_record(record, TIMES[number], first_index + number)
        for number, record in enumerate(shapes)
    )
    spans = list(iter_spans(block, len(shapes)))
    for first in range(len(spans)):
        for count in range(1, len(spans) - first + 1):
            some = spans[first : first + count]
            checked = walk.check_records(
                memoryview(block), some[0].start, first_index + first, count, 1_000_000
            )
            deltas = [span.timestamp_delta for span in some]
            bodies = [read_varint(block, span.start)[0] for span in some]
            assert checked == (
                some[-1].stop,
                count,
                min(deltas),
                max(deltas),
                sum(span.key_length < 0 for span in some),
                max(bodies),
            )


def test_checking_stops_after_a_number_of_records_and_headers(walk: ModuleType) -> None:
    with_headers = Record(b"v", headers=(("h", b"x"),) * 5)
    block = b"".join(one_record(with_headers, 0, number) for number in range(10))
    assert walk.check_records(block, 0, 0, 10, 1).record_count == 1
    assert walk.check_records(block, 0, 0, 10, 6).record_count == 1
    assert walk.check_records(block, 0, 0, 10, 13).record_count == 3
    assert walk.check_records(block, 0, 0, 10, 1_000).record_count == 10


@pytest.mark.parametrize("offset_delta", [0, 2, -1, 127, 1 << 20, -(1 << 31)])
def test_a_record_must_have_the_expected_offset_delta(walk: ModuleType, offset_delta: int) -> None:
    block = one_record(Record(b"v"), 0, 0) + one_record(Record(b"v"), 0, offset_delta)
    with pytest.raises(DecodeError, match=f"record 1 has offset delta {offset_delta}"):
        walk.check_records(block, 0, 0, 2, 1_000)


def outcome(read: Callable[..., object], *args: object) -> object:
    try:
        return read(*args)
    except DecodeError:
        return DecodeError


BLOCKS = st.one_of(
    st.binary(max_size=60),
    st.lists(st.integers(0, 3).map(lambda n: one_record(SHAPES[n], 5, n)), max_size=5).map(
        b"".join
    ),
    st.builds(lambda n, rest: b"\xff" * n + rest, st.integers(0, 12), st.binary(max_size=12)),
)


@given(BLOCKS, st.integers(0, 60), st.integers(0, 9))
@example(HEAD[:1] + b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + HEAD, 0, 1)
def test_both_forms_say_the_same_of_any_bytes(block: bytes, position: int, count: int) -> None:
    compiled = walk_module
    for given_as in (block, memoryview(block), bytearray(block)):
        checked = outcome(FORMS.as_written.check_records, given_as, position, 0, count, 1_000)
        assert checked == outcome(compiled.check_records, given_as, position, 0, count, 1_000)
        span = outcome(FORMS.as_written.read_span, given_as, position)
        assert span == outcome(compiled.read_span, given_as, position)
        if count == 1 and checked is not DecodeError:
            assert isinstance(span, tuple)
            assert isinstance(checked, tuple)
            assert span[1:3] == (checked[0], checked[2])
