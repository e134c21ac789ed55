"""The codecs that were compiled against the same ones in Python.

Of whatever is given to both, they must make the same message, bytes or error. What the compiled
ones hand on to the others would be the same in any case, so it is said as well what they must not
hand on.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerated.codecs.generator import hot_pairs
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.messages import membership
from tests.property.hot_codecs import (
    compiled_alone,
    forget_tags,
    needs_compiled,
    same_when_read,
    same_when_written,
)
from tests.property.message_values import Message, codec_settings, full_value, identify, values
from tests.support import messages as m

pytestmark = needs_compiled

READ = [(message, version) for message, version, is_read in hot_pairs() if is_read]
WRITTEN = [(message, version) for message, version, is_read in hot_pairs() if not is_read]
every_read = pytest.mark.parametrize(("message", "version"), READ, ids=identify)
every_written = pytest.mark.parametrize(("message", "version"), WRITTEN, ids=identify)
thorough = settings(codec_settings, max_examples=10 * codec_settings.max_examples)


def test_codecs_use_what_is_compiled() -> None:
    for message, version, is_read in hot_pairs():
        made: Any = getattr(codec(message, version), "decode" if is_read else "encode_into")
        assert type(made.__self__).__module__ == "kohort.protocol.hot_codecs"


# What must be compiled, and stay compiled.


@every_read
@codec_settings
@given(data=st.data())
def test_messages_are_read_by_what_is_compiled_with_all_their_tags(
    message: Message, version: int, data: st.DataObject
) -> None:
    value = data.draw(values(message, version))
    encoded = codec(message, version).encode(value)

    assert compiled_alone(message, version)(encoded) == (value, len(encoded))


@every_written
@codec_settings
@given(data=st.data())
def test_messages_without_tags_are_written_by_what_is_compiled(
    message: Message, version: int, data: st.DataObject
) -> None:
    value = data.draw(values(message, version))
    forget_tags(value, version)

    parts = compiled_alone(message, version)(value, bytearray())

    assert codec(message, version).decode(b"".join(parts))[0] == value


def _without_tags(message: Message, version: int) -> Any:  # noqa: ANN401
    value = full_value(message, version)
    forget_tags(value, version)
    return value


def test_the_topic_id_of_a_commit_is_the_tag_that_is_compiled() -> None:
    value = full_value(m.OffsetCommitValue, 4)
    parts = compiled_alone(m.OffsetCommitValue, 4)(value, bytearray())
    assert codec(m.OffsetCommitValue, 4).decode(parts[0]) == (value, len(parts[0]))


def test_an_error_code_of_the_enum_is_an_ordinary_number() -> None:
    value = full_value(m.OffsetFetchResponse, 9)
    value.groups[0].error_code = ErrorCode.NOT_COORDINATOR
    compiled_alone(m.OffsetFetchResponse, 9)(value, bytearray())
    same_when_written(m.OffsetFetchResponse, 9, value)


# The same of anything.


Sample = Callable[[Message, int], Any]

with_and_without_tags = pytest.mark.parametrize("sample", [full_value, _without_tags])
"""With tags most messages go to Python whole, and nothing behind the first is seen."""


@every_read
@codec_settings
@given(data=st.data())
def test_both_forms_read_the_same(message: Message, version: int, data: st.DataObject) -> None:
    value = data.draw(values(message, version))
    encoded = codec(message, version).encode(value)

    same_when_read(message, version, b"before" + encoded + b"behind", 6)


@every_read
@with_and_without_tags
def test_both_forms_say_the_same_of_a_message_cut_short(
    message: Message, version: int, sample: Sample
) -> None:
    encoded = codec(message, version).encode(sample(message, version))
    for size in range(len(encoded)):
        same_when_read(message, version, encoded[:size])
    same_when_read(message, version, encoded, len(encoded) + 1)


@every_read
@with_and_without_tags
@thorough
@given(data=st.data())
def test_both_forms_say_the_same_of_damaged_bytes(
    message: Message, version: int, sample: Sample, data: st.DataObject
) -> None:
    value = data.draw(st.one_of(st.just(sample(message, version)), values(message, version)))
    encoded = bytearray(codec(message, version).encode(value))
    for position in data.draw(st.lists(st.integers(0, max(len(encoded) - 1, 0)), max_size=3)):
        encoded[position : position + 1] = data.draw(st.binary(max_size=5))

    same_when_read(message, version, bytes(encoded))


@every_read
@with_and_without_tags
def test_both_forms_say_the_same_of_any_byte_anywhere(
    message: Message, version: int, sample: Sample
) -> None:
    encoded = codec(message, version).encode(sample(message, version))
    for position in range(len(encoded)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF):
            for width in (1, 2, 4):
                rest = encoded[position + width :]
                same_when_read(message, version, encoded[:position] + bytes([byte]) * width + rest)
        for length in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10"):
            rest = encoded[position + 1 :]
            same_when_read(message, version, encoded[:position] + length + rest)


@every_written
@codec_settings
@given(data=st.data())
def test_both_forms_write_the_same(message: Message, version: int, data: st.DataObject) -> None:
    same_when_written(message, version, data.draw(values(message, version)))


UNFIT: list[Any] = [None, True, -1, 1 << 15, 1 << 31, 1 << 63, -(1 << 63) - 1, 1.5, math.nan]
UNFIT += ["", "text", "\ud800", "x" * 40_000, b"", b"bytes", bytes(16), bytearray(2), (), [None]]
UNFIT += [[1 << 40], ["text"], object(), full_value(m.OffsetCommitKey, 1)]


@every_written
@with_and_without_tags
def test_both_forms_say_the_same_of_a_value_that_does_not_fit(
    message: Message, version: int, sample: Sample
) -> None:
    whole = sample(message, version)
    for holder, name in _attributes(whole):
        present = getattr(holder, name)
        for value in UNFIT:
            setattr(holder, name, value)
            same_when_written(message, version, whole)
        delattr(holder, name)
        same_when_written(message, version, whole)
        setattr(holder, name, present)
        same_when_written(message, version, whole)
    same_when_written(message, version, full_value(membership.HeartbeatRequest, 4))
    same_when_written(message, version, None)


def _attributes(whole: Any) -> Iterator[tuple[Any, str]]:  # noqa: ANN401
    """Every attribute of a message and of the structures in it."""
    waiting = [whole]
    while waiting:
        holder = waiting.pop()
        for one in schema_of(type(holder)).fields:
            yield holder, one.name
            inner = getattr(holder, one.name)
            waiting += [
                element
                for element in (inner if isinstance(inner, list) else [inner])
                if isinstance(element, Struct)
            ]
