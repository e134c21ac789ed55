"""Records as text, in both forms of the module: the same records, each field that is asked for.

What is expected is made of the records that `unpack` returns.
"""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.client.core.fetch.text import NULL, TextForm
from kohort.client.core.fetch.unpack import unpack_text
from kohort.client.core.records import AnyRecord
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import HEADER_BYTES, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.unit.client.core.fetch.test_unpack import (
    ALL,
    EACH,
    FORMS,
    record_lists,
    records_of,
    source_of,
)

NO_END = (1 << 63) - 1
VALUES = TextForm("sl", (b"\n",))


@pytest.fixture(params=["as_written", "compiled"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS.as_written if request.param == "as_written" else FORMS.compiled()


def as_date(timestamp: int) -> bytes:
    return b"<%d>" % timestamp


def text_of(
    module: ModuleType, batch: bytes, form: TextForm, floor: int = 0, until: int = NO_END
) -> bytes:
    header = read_header(batch)
    text, position, left = module.unpack_text(
        batch[HEADER_BYTES:], 0, header.record_count, source_of(batch), floor, until, ALL, form
    )
    assert (position, left) == (len(batch) - HEADER_BYTES, 0)
    return b"".join(text.parts)


def expected(record: AnyRecord, form: TextForm) -> bytes:
    literals = iter(form.literals)
    headers = b",".join(
        name.encode() + b"=" + (NULL if content is None else content)
        for name, content in record.headers
    )
    found = {
        "s": NULL if record.value is None else record.value,
        "k": NULL if record.key is None else record.key,
        "h": headers,
        "t": record.topic.encode(),
        "p": b"%d" % record.partition,
        "o": b"%d" % record.offset,
        "T": b"%d" % record.timestamp,
        "d": as_date(record.timestamp),
        "S": b"%d" % record.serialized_value_size,
        "K": b"%d" % record.serialized_key_size,
    }
    return b"".join(next(literals) if mark == "l" else found[mark] for mark in form.marks)


forms = st.lists(st.sampled_from("skhtpoTdSKl"), max_size=8).map(
    lambda marks: TextForm(
        "".join(marks), tuple(b"<%d>" % place for place in range(marks.count("l"))), as_date
    )
)


@settings(deadline=None, max_examples=100)
@given(record_lists, forms, st.integers(0, 1 << 50), st.integers(0, 9), st.integers(0, 9))
def test_text_has_what_the_records_have(
    records: list[Record], form: TextForm, base: int, below: int, behind: int
) -> None:
    batch = encode_batch(records, base_offset=base)
    floor, until = base + below, base + len(records) - behind
    for each in EACH:
        wanted = [one for one in records_of(each, batch) if floor <= one.offset < until]
        found = text_of(each, batch, form, floor, until)
        assert found == b"".join(expected(one, form) for one in wanted)


def test_a_stamp_of_the_broker_is_what_is_printed(module: ModuleType) -> None:
    batch = encode_batch([Record(b"a", timestamp=5)])
    text, _, _ = module.unpack_text(
        batch[HEADER_BYTES:], 0, 1, source_of(batch, 77), 0, NO_END, ALL, TextForm("T", ())
    )
    assert text.parts == [b"77"]


def test_text_comes_in_as_many_pieces_as_one_likes(module: ModuleType) -> None:
    batch = encode_batch([Record(b"%d" % number) for number in range(10)], base_offset=50)
    block, source = batch[HEADER_BYTES:], source_of(batch)
    first, position, left = module.unpack_text(block, 0, 10, source, 0, NO_END, 4, VALUES)
    assert (len(first), left) == (4, 6)
    assert (first[-1].offset, first[-1].leader_epoch) == (53, 7)
    rest, position, left = module.unpack_text(
        block, position, left, source, 54, NO_END, ALL, VALUES
    )
    first += rest
    assert b"".join(first.parts) == b"".join(b"%d\n" % number for number in range(10))
    assert (len(first), first[-1].offset, position, left) == (10, 59, len(block), 0)


def test_what_is_behind_the_end_is_no_part_of_it(module: ModuleType) -> None:
    batch = encode_batch([Record(b"%d" % number) for number in range(5)], base_offset=20)
    block, source = batch[HEADER_BYTES:], source_of(batch)
    text, _, left = module.unpack_text(block, 0, 5, source, 21, 23, ALL, VALUES)
    assert (b"".join(text.parts), len(text), text[-1].offset, left) == (b"1\n2\n", 2, 22, 0)
    nothing, _, left = module.unpack_text(block, 0, 5, source, 0, 20, ALL, VALUES)
    assert (len(nothing), left) == (0, 0)
    assert not nothing


def test_what_is_good_is_printed_before_what_is_bad_is_complained_about(
    module: ModuleType,
) -> None:
    good = encode_batch([Record(b"a"), Record(b"b"), Record(b"c")])
    block, source = good[HEADER_BYTES:-1], source_of(good)
    text, position, left = module.unpack_text(block, 0, 3, source, 0, NO_END, ALL, VALUES)
    assert (text.parts, left) == ([b"a\nb\n"], 1)
    with pytest.raises(DecodeError):
        module.unpack_text(block, position, left, source, 2, NO_END, ALL, VALUES)


def test_a_consumer_of_text_takes_the_form_that_is_compiled() -> None:
    module = FORMS.compiled()
    assert unpack_text is module.unpack_text
    assert str(module.__file__).endswith(".so")
