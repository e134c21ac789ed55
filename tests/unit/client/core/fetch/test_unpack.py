"""Both forms of the module that makes records: as it is written, and compiled."""

from types import ModuleType

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kohort.client.core.fetch import unpack as compiled
from kohort.client.core.fetch.batch_context import BatchContext
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import HEADER_BYTES, TimestampType, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.records.varint import encode_varint
from tests.support.both_forms import BothForms
from tests.support.records.batches import SHAPES, one_record, with_block
from tests.support.suites.examples import examples

ALL = 1 << 30


FORMS = BothForms(compiled)
EACH = [FORMS.as_written, compiled] if FORMS.is_compiled else [FORMS.as_written]


@pytest.fixture(params=["as_written", "compiled"])
def unpack(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS.as_written if request.param == "as_written" else FORMS.compiled()


def source_of(batch: bytes, stamp: int | None = None) -> BatchContext:
    header = read_header(batch)
    return BatchContext(
        "topic", 3, header.base_offset, header.last_offset, header.base_timestamp, stamp,
        TimestampType.CREATE_TIME, 7,
    )  # fmt: skip


def records_of(module: ModuleType, batch: bytes, floor: int = 0) -> list[AnyRecord]:
    """All of them, as a reader gets them who wants to know what is wrong with the last as well."""
    block, left = batch[HEADER_BYTES:], read_header(batch).record_count
    source, position = source_of(batch), 0
    records: list[AnyRecord] = []
    while left:
        some, position, left = module.unpack(block, position, left, source, floor, ALL)
        records += some
        if some:
            floor = some[-1].offset + 1
    if position != len(block):
        raise DecodeError("there is more")
    return records


@pytest.mark.parametrize("size", [63, 64, 128, 8_191, 8_192])
def test_a_length_may_have_several_bytes_also_without_bits(unpack: ModuleType, size: int) -> None:
    (record,) = records_of(unpack, encode_batch([Record(bytes(size), bytes(size))]))
    assert (record.key, record.value) == (bytes(size), bytes(size))


def test_a_record_has_all_that_the_batch_says(unpack: ModuleType) -> None:
    written = Record(b"value", b"key", (("h", b"1"), ("ключ", None)), 1_700_000_000_123)
    batch = encode_batch([Record(None, None, (), 1_700_000_000_000), written], base_offset=40)
    first, second = records_of(unpack, batch)
    assert second == ConsumerRecord(
        topic="topic",
        partition=3,
        offset=41,
        timestamp=1_700_000_000_123,
        timestamp_type=TimestampType.CREATE_TIME,
        key=b"key",
        value=b"value",
        serialized_key_size=3,
        serialized_value_size=5,
        headers=(("h", b"1"), ("ключ", None)),
        leader_epoch=7,
    )
    assert (first.key, first.value, first.headers) == (None, None, ())
    assert (first.serialized_key_size, first.serialized_value_size) == (-1, -1)
    assert isinstance(second, ConsumerRecord)


def test_records_below_the_floor_are_passed_over(unpack: ModuleType) -> None:
    batch = encode_batch([Record(b"%d" % n) for n in range(10)], base_offset=100)
    assert [one.offset for one in records_of(unpack, batch, floor=107)] == [107, 108, 109]
    assert records_of(unpack, batch, floor=110) == []


def test_a_block_is_read_in_as_many_pieces_as_one_likes(unpack: ModuleType) -> None:
    batch = encode_batch([Record(b"%d" % n) for n in range(10)])
    block, source = batch[HEADER_BYTES:], source_of(batch)
    first = unpack.unpack(block, 0, 10, source, 0, 4)
    rest = unpack.unpack(block, first.position, first.left, source, 0, ALL)
    assert [one.value for one in first.records + rest.records] == [b"%d" % n for n in range(10)]
    assert (rest.position, rest.left) == (len(block), 0)
    assert unpack.unpack(block, 0, 10, source, 0, 0) == ([], 0, 10)


def test_what_is_good_is_returned_before_what_is_bad_is_complained_about(
    unpack: ModuleType,
) -> None:
    good = encode_batch([Record(b"a"), Record(b"b"), Record(b"c")])
    block = good[HEADER_BYTES:-1]
    source = source_of(good)
    some, position, left = unpack.unpack(block, 0, 3, source, 0, ALL)
    assert ([one.value for one in some], left) == ([b"a", b"b"], 1)
    with pytest.raises(DecodeError, match=f"record at {position} of {len(block)} bytes, 1 before"):
        unpack.unpack(block, position, left, source, 2, ALL)


def test_a_stamp_of_the_broker_replaces_all_timestamps(unpack: ModuleType) -> None:
    batch = encode_batch([Record(b"a", timestamp=5), Record(b"b", timestamp=9)])
    found = unpack.unpack(batch[HEADER_BYTES:], 0, 2, source_of(batch, 77), 0, ALL)
    assert [one.timestamp for one in found.records] == [77, 77]


@pytest.mark.parametrize("delta", [0, 63, 64, -1, -8_192, 1 << 54, -(1 << 55), 1 << 56, 1 << 62])
@pytest.mark.parametrize("base", [0, -1, 1_700_000_000_000, (1 << 62), -(1 << 62)])
def test_timestamps_of_any_size_are_what_they_are(
    unpack: ModuleType, base: int, delta: int
) -> None:
    batch = with_block(one_record(Record(b"v"), delta), 1, base_timestamp=base)
    (record,) = records_of(unpack, batch)
    assert record.timestamp == base + delta


@pytest.mark.parametrize("record", SHAPES, ids=range(len(SHAPES)))
def test_a_record_cut_short_anywhere_is_refused(unpack: ModuleType, record: Record) -> None:
    block = one_record(record)
    source = source_of(with_block(block, 1))
    for size in (*range(min(len(block), 200)), len(block) - 1):
        with pytest.raises(DecodeError):
            unpack.unpack(block[:size], 0, 1, source, 0, ALL)


def test_an_offset_beyond_the_batch_s_last_is_refused(unpack: ModuleType) -> None:
    block = one_record(Record(b"v"), 0, 5)
    with pytest.raises(DecodeError):
        records_of(unpack, with_block(block, 1, last_offset_delta=4))
    assert len(records_of(unpack, with_block(block, 1, last_offset_delta=5))) == 1


def _outcome(module: ModuleType, batch: bytes) -> object:
    try:
        return records_of(module, batch)
    except DecodeError:
        return DecodeError


def _declared(batch: bytes) -> object:
    """What the broker's reader makes of it."""
    try:
        return [
            (one.offset, one.timestamp, one.key, one.value, one.headers)
            for one in decode_records(batch)
        ]
    except DecodeError:
        return DecodeError


def _plain(outcome: object) -> object:
    if not isinstance(outcome, list):
        return outcome
    return [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in outcome]


some_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
record_lists = st.lists(
    st.builds(Record, some_bytes, some_bytes, headers, st.integers(-1, 1 << 60)),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=examples(60))
@given(record_lists, st.integers(0, 1 << 50))
def test_both_forms_read_what_the_broker_s_reader_reads(
    records: list[Record], base_offset: int
) -> None:
    batch = encode_batch(records, base_offset=base_offset)
    for form in EACH:
        assert _plain(_outcome(form, batch)) == _declared(batch)


@settings(deadline=None, max_examples=examples(150))
@given(st.binary(max_size=60), st.integers(1, 3))
@example(encode_varint(7) + b"\x00\x00\x00\x01\x01\x00\x00", 1)
@example(b"\x16\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x01\x01\x00", 1)
def test_both_forms_agree_about_any_bytes(block: bytes, count: int) -> None:
    batch = with_block(block, count, last_offset_delta=(1 << 31) - 1)
    outcomes = [_outcome(form, batch) for form in EACH]
    assert outcomes.count(outcomes[0]) == len(EACH)


@settings(deadline=None, max_examples=examples(150))
@given(record_lists, st.data())
def test_bytes_that_are_changed_are_read_as_the_broker_s_reader_reads_them(
    records: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(encode_batch(records))
    assume(len(batch) > HEADER_BYTES)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    declared = _declared(bytes(batch))
    offsets = [one[0] for one in declared] if isinstance(declared, list) else []
    # Ours also wants offsets to rise and to stay within the batch.
    assume(all(0 <= offset < len(records) for offset in offsets))
    assume(offsets == sorted(set(offsets)))
    for form in EACH:
        assert _plain(_outcome(form, bytes(batch))) == declared
