"""Where the codecs that were compiled end: limits, large records, what is left to Python."""

import gc
import sys
from array import array
from contextlib import suppress
from typing import Any, cast

import construct
import pytest

from kohort.groups.steps import at_once
from kohort.protocol.codec import STRICT_OPTION, codec
from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.layout import layout, to_plain
from kohort.protocol.limits import REQUEST_BYTES_MAX, REQUEST_ELEMENTS_MAX, TAGS_MAX, TEXT_BYTES_MAX
from kohort.protocol.message import schema_of
from kohort.protocol.messages import membership
from kohort.protocol.messages.fetch import PartitionData
from kohort.protocol.records.varint import append_uvarint
from tests.property.hot_codecs import (
    compiled_alone,
    forget_tags,
    in_python,
    needs_compiled,
    same_when_read,
    same_when_written,
)
from tests.property.message_values import full_value
from tests.support import messages as m

pytestmark = needs_compiled


@pytest.mark.parametrize("excess", [0, 1])
def test_the_budget_of_elements_is_one_for_the_whole_message(excess: int) -> None:
    half = REQUEST_ELEMENTS_MAX // 2
    # The group, its two topics, and their partitions.
    sizes = [half - 3, half + excess]
    topics = [m.OffsetFetchRequestTopic(name="t", partition_indexes=[0] * size) for size in sizes]
    group = m.OffsetFetchRequestGroup(group_id="g", member_id=None, member_epoch=-1, topics=topics)
    encoded = codec(m.OffsetFetchRequest, 9).encode(m.OffsetFetchRequest(groups=[group]))

    same_when_read(m.OffsetFetchRequest, 9, encoded)

    if excess:
        with pytest.raises(DecodeError, match="too many array elements"):
            codec(m.OffsetFetchRequest, 9).decode(encoded)
    else:
        compiled_alone(m.OffsetFetchRequest, 9)(encoded)


@pytest.mark.parametrize("size", [TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1])
def test_texts_have_a_limit(size: int) -> None:
    encoded = bytearray()
    append_uvarint(encoded, size + 1)
    encoded += b"x" * size + b"\x00\x00\x00\x05\x02m\x00\x00"

    same_when_read(membership.HeartbeatRequest, 4, bytes(encoded))

    if size > TEXT_BYTES_MAX:
        with pytest.raises(DecodeError, match=f"text of {size} bytes"):
            codec(membership.HeartbeatRequest, 4).decode(bytes(encoded))
    else:
        compiled_alone(membership.HeartbeatRequest, 4)(bytes(encoded))


@pytest.mark.parametrize("excess", [0, 1])
def test_the_texts_and_bytes_of_a_request_have_one_limit(excess: int) -> None:
    sizes = [5_000_000, REQUEST_BYTES_MAX - 5_000_000 - len("gconsumer") - 2_000 + excess]
    request = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[
            m.JoinGroupRequestProtocol(name="x" * 1_000, metadata=bytes(size)) for size in sizes
        ],
    )
    encoded = codec(m.JoinGroupRequest, 9).encode(request)

    same_when_read(m.JoinGroupRequest, 9, encoded)

    if excess:
        with pytest.raises(DecodeError, match=f"more than {REQUEST_BYTES_MAX} bytes of text"):
            codec(m.JoinGroupRequest, 9).decode(encoded)
        with pytest.raises(DecodeError):
            at_once(codec(m.JoinGroupRequest, 9).decode_in_steps(encoded, 0))
    else:
        assert codec(m.JoinGroupRequest, 9).decode(encoded)[0] == request


@pytest.mark.parametrize("character", ["x", "ü"])
@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("version", [5, 9])
def test_texts_have_the_same_limit_when_they_are_written(
    version: int, excess: int, character: str
) -> None:
    count = TEXT_BYTES_MAX // len(character.encode())
    response = full_value(m.JoinGroupResponse, version)
    response.leader = character * (count + excess)
    write = codec(m.JoinGroupResponse, version)
    if excess:
        with pytest.raises(EncodeError):
            write.encode(response)
        with pytest.raises(EncodeError):
            b"".join(write.generated("encode_into")(response, bytearray()))
        with pytest.raises(construct.ConstructError):
            layout(m.JoinGroupResponse, version).build(to_plain(response, version))
    else:
        assert write.decode(write.encode(response))[0] == response


_UNKNOWN, _OTHER, _JOIN_REASON = b"\x28\x01a", b"\xb1\x3c\x00", b"\xb0\x3c\x01\x03"


def _with_tags(*tags: bytes) -> bytes:
    encoded = codec(m.JoinGroupRequest, 9).encode(full_value(m.JoinGroupRequest, 9))
    return encoded[: encoded.index(b"\x01\xb0\x3c")] + bytes([len(tags)]) + b"".join(tags)


@pytest.mark.parametrize(
    "tags",
    [
        (_JOIN_REASON,),
        (_UNKNOWN,),
        (_UNKNOWN, _JOIN_REASON),
        (_JOIN_REASON, _UNKNOWN),
        (_OTHER, _UNKNOWN, _JOIN_REASON),
        (b"\xb0\x3c\x00",),
        (b"\xb0\x3c\x03\xff\x01\x02",),
    ],
)
def test_known_and_unknown_tags_are_compiled_in_any_order(tags: tuple[bytes, ...]) -> None:
    encoded = _with_tags(*tags)

    request, end = compiled_alone(m.JoinGroupRequest, 9)(encoded)

    assert end == len(encoded)
    assert (request, end) == in_python(m.JoinGroupRequest, 9, "decode")(encoded, 0)
    same_when_read(m.JoinGroupRequest, 9, encoded)


@pytest.mark.parametrize(
    "tags",
    [
        (_UNKNOWN, _UNKNOWN),
        (_JOIN_REASON, _JOIN_REASON),
        (_JOIN_REASON[:-1],),
        (b"\x28\x7f",),
        (b"\xff\xff\xff\xff\x7f\x00",),
    ],
)
def test_malformed_tags_are_left_to_python(tags: tuple[bytes, ...]) -> None:
    encoded = _with_tags(*tags)
    with pytest.raises(AssertionError, match="left to Python"):
        compiled_alone(m.JoinGroupRequest, 9)(encoded)
    same_when_read(m.JoinGroupRequest, 9, encoded)


@pytest.mark.parametrize("count", [TAGS_MAX, TAGS_MAX + 1])
@pytest.mark.parametrize("message", [m.JoinGroupRequest, membership.HeartbeatRequest])
def test_tags_have_a_limit(message: type, count: int) -> None:
    version = schema_of(message).versions.high
    value: Any = full_value(message, version)
    forget_tags(value, version)
    encoded = bytearray(codec(message, version).encode(value)[:-1])
    append_uvarint(encoded, count)
    for tag in range(count):
        append_uvarint(encoded, tag)
        encoded.append(0)

    same_when_read(message, version, bytes(encoded))

    if count > TAGS_MAX:
        with pytest.raises(DecodeError, match=f"{count} tagged fields"):
            codec(message, version).decode(bytes(encoded))
    else:
        compiled_alone(message, version)(bytes(encoded))


def test_records_are_views_of_the_buffer() -> None:
    encoded = codec(m.ProduceRequest, 13).encode(full_value(m.ProduceRequest, 13))
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        request, _ = compiled_alone(m.ProduceRequest, 13)(buffer)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is (encoded if isinstance(buffer, memoryview) else buffer)


def test_large_records_are_written_uncopied() -> None:
    response = full_value(m.FetchResponse, 17)
    forget_tags(response, 17)
    small, large = b"s" * 2_048, memoryview(b"l" * 2_049)
    topic: m.FetchableTopicResponse = response.responses[0]
    sample: PartitionData = topic.partitions[0]
    topic.partitions = []
    for records in (small, large, None, large, small):
        sample = full_value(PartitionData, 17)
        forget_tags(sample, 17)
        sample.records = records
        topic.partitions.append(sample)

    parts = compiled_alone(m.FetchResponse, 17)(response, bytearray())

    assert [part is large for part in parts] == [False, True, False, True, False]
    same_when_written(m.FetchResponse, 17, response)


class _Elsewhere:
    """Records that are sent from where they lie."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def test_records_that_lie_elsewhere_are_written_as_they_are() -> None:
    response = full_value(m.FetchResponse, 17)
    forget_tags(response, 17)
    elsewhere: Any = _Elsewhere(2_049)
    for topic in response.responses:
        for partition in topic.partitions:
            partition.records = elsewhere

    parts = compiled_alone(m.FetchResponse, 17)(response, bytearray())
    plain = in_python(m.FetchResponse, 17, "encode_into")(response, bytearray())

    assert elsewhere in parts
    assert parts == plain


@pytest.mark.parametrize("odd", [_Elsewhere(2_048), 7, object()])
def test_what_is_no_large_thing_elsewhere_is_left_to_python(odd: Any) -> None:  # noqa: ANN401
    response = full_value(m.FetchResponse, 17)
    forget_tags(response, 17)
    response.responses[0].partitions[0].records = odd
    with pytest.raises(AssertionError, match="left to Python"):
        compiled_alone(m.FetchResponse, 17)(response, bytearray())


def test_a_strict_process_does_not_pass_over_a_writer_that_gave_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    response = full_value(m.JoinGroupResponse, 9)
    forget_tags(response, 9)
    response.members = cast("Any", tuple(response.members))
    expected = in_python(m.JoinGroupResponse, 9, "encode_into")(response, bytearray())
    assert codec(m.JoinGroupResponse, 9).encode_into(response, bytearray()) == expected
    monkeypatch.setitem(sys._xoptions, STRICT_OPTION, True)
    with pytest.raises(AssertionError, match="gave up"):
        codec(m.JoinGroupResponse, 9).encode(response)


def test_a_strict_process_does_not_pass_over_a_reader_that_gave_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded = codec(m.JoinGroupRequest, 9).encode(full_value(m.JoinGroupRequest, 9))
    monkeypatch.setitem(sys._xoptions, STRICT_OPTION, True)
    assert codec(m.JoinGroupRequest, 9).decode(encoded)[1] == len(encoded)
    with pytest.raises(DecodeError):
        codec(m.JoinGroupRequest, 9).decode(encoded[:-1])
    # Well formed, in a buffer that a broker does not have.
    with pytest.raises(AssertionError, match="gave up"):
        codec(m.JoinGroupRequest, 9).decode(array("B", encoded))


def test_references_are_counted_right() -> None:
    """One too many would be a leak, one too few a crash."""
    text = "a topic that nobody else has \u03b1"
    key = m.OffsetCommitKey(group=text, topic=text, partition=1 << 20)
    encode = compiled_alone(m.OffsetCommitKey, 1)
    encoded = codec(m.OffsetFetchRequest, 9).encode(full_value(m.OffsetFetchRequest, 9))
    decode = compiled_alone(m.OffsetFetchRequest, 9)
    tagged = codec(m.FetchRequest, 18).encode(full_value(m.FetchRequest, 18))
    decode_tagged = compiled_alone(m.FetchRequest, 18)
    references, objects = sys.getrefcount(text), len(gc.get_objects())

    for _ in range(1_000):
        encode(key, bytearray())
        decode(encoded)
        decode_tagged(tagged)
        for size in range(len(tagged) - 9, len(tagged)):
            with suppress(AssertionError):
                decode_tagged(tagged[:size])
        with suppress(AssertionError):
            decode(encoded[:-1])

    assert sys.getrefcount(text) == references
    assert len(gc.get_objects()) < objects + 100
