"""What a peer may send instead of a message: cut short, with lengths beyond its end, with bad text.

Everything is refused with DecodeError and nothing else, and before memory is claimed for it.
"""

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.limits import ELEMENTS_MAX, REQUEST_ELEMENTS_MAX
from kohort.protocol.message import schema_of
from kohort.protocol.schema import Field
from kohort.protocol.types import WireType
from tests.property.message_values import (
    Message,
    full_value,
    identify,
    top_level_messages,
    versions,
)
from tests.support import messages as m

every_message = pytest.mark.parametrize("message", top_level_messages(), ids=identify)

KIB, MIB = 1 << 10, 1 << 20


def _full_frames(message: Message) -> Iterator[tuple[int, bytes]]:
    for version in versions(message):
        yield version, codec(message, version).encode(full_value(message, version))


@every_message
def test_a_message_cut_short_anywhere_is_refused(message: Message) -> None:
    for version, frame in _full_frames(message):
        decode = codec(message, version).decode
        for size in range(len(frame)):
            with pytest.raises(DecodeError):
                decode(frame[:size])
            with pytest.raises(DecodeError):
                decode(memoryview(frame)[:size])


@every_message
def test_text_that_is_not_utf_8_is_refused_wherever_it_stands(message: Message) -> None:
    text = "\u03b1".encode()
    for version, frame in _full_frames(message):
        position = frame.find(text)
        while position >= 0:
            # A lone continuation byte, a start without its second byte, an encoded surrogate half.
            for bad in (b"\x80\x80", b"a\xc3", b"\xed\xa0"):
                damaged = frame[:position] + bad + frame[position + 2 :]
                with pytest.raises(DecodeError, match="UTF-8"):
                    codec(message, version).decode(damaged)
            position = frame.find(text, position + 1)


@every_message
def test_no_length_or_count_makes_a_short_message_claim_memory(
    message: Message, long_form: bool
) -> None:
    frames = dict(_full_frames(message))
    chosen = frames.keys() if long_form else {min(frames), max(frames)}
    largest = [
        struct.pack(">h", 0x7FFF),
        struct.pack(">i", 0x7FFFFFFF),
        b"\xff\xff\xff\xff\x07",  # 2^31 - 1 as a compact length,
        b"\xff\xff\xff\xff\x0f",  # and 2^32 - 1.
        b"\x80\x80\x01",
    ]
    for version in chosen:
        frame, decode = frames[version], codec(message, version).decode
        # Wherever the lengths are, every position includes them.
        damaged = [
            frame[:position] + length + frame[position + len(length) * overwrites :]
            for position in range(len(frame))
            for length in largest
            for overwrites in (0, 1)
        ]
        # The first that a compiled codec does not like has the one in Python generated.
        with suppress(DecodeError):
            decode(b"")
        tracemalloc.start()
        for each in damaged:
            with suppress(DecodeError):
                decode(each)
            _, peak = tracemalloc.get_traced_memory()
            assert peak < 64 * KIB, each.hex()
            tracemalloc.reset_peak()
        tracemalloc.stop()


# The same with a long message, where a count may look plausible.


def _peak_of_refusal(message: Message, version: int, frame: bytes) -> int:
    decode = codec(message, version).decode
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [MIB // 2 + 1, MIB, 1 << 24, 0x7FFFFFFF])
def test_a_count_that_what_is_left_cannot_hold_is_refused_before_the_first_element(
    count: int,
) -> None:
    # A topic name takes at least its two bytes of length.
    frame = struct.pack(">i", count) + bytes(MIB)

    assert _peak_of_refusal(m.MetadataRequest, 0, frame) < 64 * KIB


@pytest.mark.parametrize("count", [MIB // 4 + 1, 0x7FFFFFFF])
def test_a_count_of_fixed_width_elements_is_refused_before_they_are_read(count: int) -> None:
    # One topic "t" with one assignment of partition 0 to `count` brokers of four bytes each.
    frame = struct.pack(">ih1sihiii", 1, 1, b"t", 1, 1, 1, 0, count) + bytes(MIB)

    assert _peak_of_refusal(m.CreateTopicsRequest, 2, frame) < 64 * KIB


@pytest.mark.parametrize("length", [MIB + 1, 1 << 24, 0x7FFFFFFF])
def test_a_length_beyond_what_is_left_is_refused_before_bytes_are_copied(length: int) -> None:
    frame = struct.pack(">i", length) + bytes(MIB)

    assert _peak_of_refusal(m.SaslAuthenticateRequest, 0, frame) < 64 * KIB


def test_a_message_of_too_many_elements_is_refused_even_if_they_are_there() -> None:
    # Four million empty names in eight megabytes would be a hundred megabytes of objects.
    frame = struct.pack(">i", 4 * MIB) + bytes(8 * MIB)

    assert _peak_of_refusal(m.MetadataRequest, 0, frame) < 64 * KIB


def test_the_limit_of_elements_holds_for_all_arrays_of_a_message_together() -> None:
    topic = struct.pack(">hi", 0, ELEMENTS_MAX // 100) + bytes(ELEMENTS_MAX // 100 * 4)
    frame = struct.pack(">i", 200) + topic * 200

    with pytest.raises(DecodeError, match="too many"):
        codec(m.DescribeLogDirsRequest, 1).decode(frame)


@pytest.mark.parametrize(
    ("message", "version", "begin", "element"),
    [
        # Topics, all of whose tags are unknown;
        (m.MetadataRequest, 12, b"", bytes(16) + b"\x02t"),
        # and the partitions of one topic, which know a tag.
        (m.FetchRequest, 17, bytes(21) + b"\x02" + bytes(16), bytes(32)),
    ],
    ids=["unknown", "known"],
)
def test_tags_count_like_elements_over_the_whole_message(
    message: Message, version: int, begin: bytes, element: bytes
) -> None:
    """Each structure may have a thousand; in a request of 100 MB they took a minute to skip."""
    tags = b"\xe8\x07" + b"".join(
        bytes([tag & 0x7F | 0x80, tag >> 7, 0]) for tag in range(128, 1128)
    )
    count = REQUEST_ELEMENTS_MAX // 1_000 + 1

    with pytest.raises(DecodeError, match="too many tagged fields"):
        codec(message, version).decode(begin + bytes([count + 1]) + (element + tags) * count)


@pytest.mark.parametrize(
    ("message", "version"), [(m.FindCoordinatorRequest, 3), (m.MetadataRequest, 9)]
)
def test_text_is_no_longer_than_the_classic_encoding_can_say(
    message: Message, version: int
) -> None:
    """Kafka refuses more too; without a bound a group's id could be as long as a request."""
    begin = b"" if message is m.FindCoordinatorRequest else b"\x02"
    longest, longer = b"\x80\x80\x02" + b"x" * 0x7FFF, b"\x81\x80\x02" + b"x" * 0x8000

    codec(message, version).decode(begin + longest + bytes(5))
    with pytest.raises(DecodeError, match="text of 32768 bytes"):
        codec(message, version).decode(begin + longer + bytes(5))


def test_records_are_views_of_the_frame_and_not_copies() -> None:
    request = full_value(m.ProduceRequest, 9)
    request.topic_data[0].partition_data[0].records = bytes(4 * MIB)
    frame = codec(m.ProduceRequest, 9).encode(request)
    codec(m.ProduceRequest, 9).decode(frame)  # The first time compiles it.

    tracemalloc.start()
    decoded, _ = codec(m.ProduceRequest, 9).decode(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 64 * KIB
    assert decoded == request


@every_message
def test_null_is_written_and_read_only_where_the_definition_allows_it(message: Message) -> None:
    for version in versions(message):
        for field in schema_of(message).fields:
            if version not in field.versions or field.is_tagged(version) or _is_bool(field):
                continue
            value = full_value(message, version)
            setattr(value, field.name, None)
            if version in field.nullable:
                encoded = codec(message, version).encode(value)
                assert codec(message, version).decode(encoded)[0] == value
            else:
                with pytest.raises(EncodeError):
                    codec(message, version).encode(value)


def _is_bool(field: Field) -> bool:
    """Python's truth is written for a bool, and None is false."""
    return isinstance(field.kind, WireType) and field.kind.name == "bool" and not field.is_array


@pytest.mark.parametrize(
    ("message", "version", "frame"),
    [
        (m.FindCoordinatorRequest, 0, b"\xff\xff"),
        (m.FindCoordinatorRequest, 3, b"\x00\x00\x00"),
        (m.SaslAuthenticateRequest, 0, b"\xff\xff\xff\xff"),
        (m.SaslAuthenticateRequest, 2, b"\x00\x00"),
        (m.MetadataRequest, 0, b"\xff\xff\xff\xff"),
        (m.FindCoordinatorRequest, 4, b"\x00\x00\x00"),
    ],
)
def test_null_is_refused_for_a_string_bytes_or_array_that_must_be_there(
    message: Message, version: int, frame: bytes
) -> None:
    with pytest.raises(DecodeError, match="-1 is not allowed"):
        codec(message, version).decode(frame)
