"""The generated codecs against the construct layouts that they are generated from.

The layouts are slow and simple: they are the definition. For random values of every message in
every version both must write the same bytes and read the same values, and of damaged bytes the
codec must think what the layout thinks.
"""

from typing import TypeVar

import construct
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.protocol.codec import codec
from kohort.protocol.constructs import MessageStruct
from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.layout import layout, to_plain
from kohort.protocol.limits import TAGS_MAX
from kohort.protocol.message import schema_of
from kohort.protocol.records.varint import append_uvarint
from tests.property.message_values import (
    EXAMPLES,
    Message,
    codec_settings,
    full_value,
    identify,
    message_versions,
    top_level_messages,
    values,
    versions,
)
from tests.support import messages as m

T = TypeVar("T")
# Building the tree of constructs takes longer than using it.
_layouts: dict[tuple[Message, int], MessageStruct] = {}

every_message_version = pytest.mark.parametrize(
    ("message", "version"), message_versions(), ids=identify
)
every_message = pytest.mark.parametrize("message", top_level_messages(), ids=identify)


def oracle(message: Message, version: int) -> MessageStruct:
    if (message, version) not in _layouts:
        _layouts[message, version] = layout(message, version)
    return _layouts[message, version]


@every_message_version
@codec_settings
@given(data=st.data())
def test_codec_and_layout_write_the_same_bytes_and_read_the_same_value(
    message: Message, version: int, data: st.DataObject
) -> None:
    value = data.draw(values(message, version))
    fast, slow = codec(message, version), oracle(message, version)

    encoded = fast.encode(value)

    assert encoded == slow.build(to_plain(value, version))
    assert slow.parse(encoded) == to_plain(value, version)
    assert fast.decode(encoded) == (value, len(encoded))


@every_message
@settings(codec_settings, max_examples=4 * EXAMPLES)
@given(data=st.data())
def test_a_damaged_message_is_read_alike_by_codec_and_layout_or_refused_by_both(
    message: Message, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(versions(message)))
    encoded = bytearray(codec(message, version).encode(full_value(message, version)))
    for position in data.draw(st.lists(st.integers(0, max(len(encoded) - 1, 0)), max_size=3)):
        encoded[position : position + 1] = data.draw(st.binary(max_size=5))

    assert _outcome_of_codec(message, version, bytes(encoded)) == _outcome_of_layout(
        message, version, bytes(encoded)
    )


def _outcome_of_codec(message: Message, version: int, data: bytes) -> object:
    try:
        return to_plain(codec(message, version).decode(data)[0], version)
    except DecodeError:
        return "refused"


def _outcome_of_layout(message: Message, version: int, data: bytes) -> object:
    try:
        return oracle(message, version).parse(data)
    except construct.ConstructError:
        return "refused"


@every_message
def test_decoding_starts_at_a_position_and_leaves_what_follows_alone(message: Message) -> None:
    for version in versions(message):
        value = full_value(message, version)
        encoded = codec(message, version).encode(value)

        frame = memoryview(b"before" + encoded + b"after")

        assert codec(message, version).decode(frame, 6) == (value, 6 + len(encoded))


@every_message
def test_a_field_that_a_version_lacks_is_dropped_if_ignorable_and_an_error_if_not(
    message: Message,
) -> None:
    for version in versions(message):
        present = full_value(message, version)
        for field in schema_of(message).fields:
            if version in field.versions:
                continue
            other = next(v for v in versions(message) if v in field.versions)
            value = full_value(message, version)
            setattr(value, field.name, getattr(full_value(message, other), field.name))
            if field.options.ignorable:
                decoded, _ = codec(message, version).decode(codec(message, version).encode(value))
                assert decoded == present
            else:
                with pytest.raises(EncodeError, match=field.name):
                    codec(message, version).encode(value)


def test_a_value_of_the_wrong_type_or_size_is_an_encode_error() -> None:
    request = full_value(m.FetchRequest, 18)
    request.max_wait_ms = 1 << 31
    with pytest.raises(EncodeError):
        codec(m.FetchRequest, 18).encode(request)
    request.max_wait_ms = "soon"  # type: ignore[assignment]
    with pytest.raises(EncodeError):
        codec(m.FetchRequest, 18).encode(request)


@pytest.mark.parametrize("topic_id", [b"", bytes(15), bytes(17)])
def test_a_uuid_of_the_wrong_length_is_an_encode_error(topic_id: bytes) -> None:
    request = full_value(m.FetchRequest, 18)
    request.topics[0].topic_id = topic_id
    with pytest.raises(EncodeError):
        codec(m.FetchRequest, 18).encode(request)


# Tagged fields.


def _with_tag_buffer(message: Message, version: int, tags: bytes) -> bytes:
    """A full message whose outermost tag buffer, left empty by it, is replaced by ``tags``."""
    encoded = codec(message, version).encode(_without_tags(message, version))
    assert encoded.endswith(b"\x00")
    return encoded[:-1] + tags


def _without_tags(message: type[T], version: int) -> T:
    value = full_value(message, version)
    for field in schema_of(message).fields:
        if field.is_tagged(version):
            setattr(value, field.name, field.make_default())
    return value


def _flexible_versions(message: Message) -> list[int]:
    return [version for version in versions(message) if schema_of(message).is_flexible(version)]


@every_message
def test_unknown_tags_are_skipped_in_any_order(message: Message) -> None:
    for version in _flexible_versions(message):
        # Two unknown tags, the greater first: 300 with three bytes and 40 with none.
        frame = _with_tag_buffer(message, version, b"\x02\xac\x02\x03abc\x28\x00")

        decoded, end = codec(message, version).decode(frame)

        assert end == len(frame)
        assert decoded == _without_tags(message, version)


MALFORMED_TAGS = [
    (b"\x02\x28\x01a\x28\x01b", "twice"),
    (b"\x01", "ends"),
    (b"\x01\x28", "ends"),
    (b"\x01\x28\x02a", "exceeds"),
    (b"\x01\x28\xff\xff\xff\xff\x0f", "exceeds"),
    (b"\x01\xff\xff\xff\xff\xff\x01\x00", "does not fit"),
]


@every_message
def test_malformed_tag_buffers_are_refused(message: Message) -> None:
    for version in _flexible_versions(message):
        for tags, why in MALFORMED_TAGS:
            with pytest.raises(DecodeError, match=why):
                codec(message, version).decode(_with_tag_buffer(message, version, tags))


# With and without tags of its own, which are read by different code.
@pytest.mark.parametrize(("message", "version"), [(m.ApiVersionsRequest, 3), (m.FetchRequest, 12)])
@pytest.mark.parametrize("count", [TAGS_MAX + 1, 20_000_000])
def test_more_tags_than_any_message_has_are_refused_by_their_count(
    message: Message, version: int, count: int
) -> None:
    tags = bytearray()
    append_uvarint(tags, count)
    for tag in range(TAGS_MAX + 1):
        append_uvarint(tags, 1_000 + tag)
        tags.append(0)

    with pytest.raises(DecodeError, match=f"{count} tagged fields"):
        codec(message, version).decode(_with_tag_buffer(message, version, bytes(tags)))


@pytest.mark.parametrize("tags", [b"\x01\x00\x05\x03ab", b"\x01\x00\x01\x03ab"])
def test_a_known_tag_must_fill_its_size_exactly(tags: bytes) -> None:
    # Tag 0 is the cluster id, a compact string of two characters that takes three bytes.
    with pytest.raises(DecodeError):
        codec(m.FetchRequest, 12).decode(_with_tag_buffer(m.FetchRequest, 12, tags))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", 0),
        (b"\x01", 1),
        (b"\x02garbage", 2),
        (b"\x80", -128),
        (b"\x7f" + b"x" * 40, 127),
    ],
)
def test_the_join_reason_never_fails_a_request(payload: bytes, reason: int) -> None:
    size = bytes([len(payload)])
    for version in range(6, 10):
        tags = b"\x01\xb0\x3c" + size + payload
        decoded, _ = codec(m.JoinGroupRequest, version).decode(
            _with_tag_buffer(m.JoinGroupRequest, version, tags)
        )
        assert decoded.join_reason == reason


def test_the_join_reason_is_written_after_all_else_and_not_when_unknown() -> None:
    request = full_value(m.JoinGroupRequest, 9)
    request.join_reason = 1
    assert codec(m.JoinGroupRequest, 9).encode(request).endswith(b"\x01\xb0\x3c\x01\x01")
    request.join_reason = 0
    assert codec(m.JoinGroupRequest, 9).encode(request).endswith(b"\x00")
