"""The codecs that were compiled against the same ones in Python.

Of whatever is given to both, they must make the same message, bytes or error. What the compiled
ones hand on to the others would be the same in any case, so it is said as well what they must not
hand on.
"""

import gc
import importlib
import math
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

import construct
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kohort
from kohort.accelerated.codecs.generator import hot_pairs
from kohort.protocol.codec import STRICT_OPTION, Codec, codec
from kohort.protocol.constructs import REQUEST_ELEMENTS_MAX, TEXT_BYTES_MAX
from kohort.protocol.errors import DecodeError, EncodeError, ErrorCode, ProtocolError
from kohort.protocol.hot import declared, is_hot
from kohort.protocol.layout import layout, to_plain
from kohort.protocol.message import Struct, field, record, schema_of
from kohort.protocol.messages import heartbeat
from kohort.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kohort.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kohort.protocol.messages.offsets_topic import OffsetCommitKey, OffsetCommitValue
from kohort.protocol.messages.produce import ProduceRequest
from kohort.protocol.types import Int16, Int32, String
from kohort.protocol.varints import append_uvarint
from tests.property.message_values import Message, codec_settings, full_value, identify, values

ROOT = Path(kohort.__file__).parents[1]
COMPILED = (ROOT / "kohort/protocol/hot_codecs").with_suffix(
    str(sysconfig.get_config_var("EXT_SUFFIX"))
)

pytestmark = pytest.mark.skipif(
    not COMPILED.exists(), reason="not compiled: no C compiler was there when the package was built"
)

READ = [(message, version) for message, version, is_read in hot_pairs() if is_read]
WRITTEN = [(message, version) for message, version, is_read in hot_pairs() if not is_read]
every_read = pytest.mark.parametrize(("message", "version"), READ, ids=identify)
every_written = pytest.mark.parametrize(("message", "version"), WRITTEN, ids=identify)
thorough = settings(codec_settings, max_examples=10 * codec_settings.max_examples)

_in_python: dict[tuple[Message, int, str], Callable[..., Any]] = {}


def in_python(message: Message, version: int, name: str) -> Callable[..., Any]:
    key = message, version, name
    if key not in _in_python:
        _in_python[key] = Codec.generated(codec(message, version), name)
    return _in_python[key]


def outcome(function: Callable[..., Any], *args: object) -> object:
    """What came of it: errors by their class and text, buffers by their bytes."""
    try:
        result = function(*args)
    except ProtocolError as error:
        return type(error), str(error), type(error.__cause__), error.__suppress_context__
    if isinstance(result, list):
        # A str among the records is a mistake that only the socket would notice.
        parts = [part if isinstance(part, str) else bytes(part) for part in result]
        return parts, [type(part) for part in result]
    return result, [type(one) for one in _leaves(result[0])]


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, Struct):
        for one in schema_of(type(value)).fields:
            yield from _leaves(getattr(value, one.name))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def test_codecs_use_what_is_compiled() -> None:
    for message, version, is_read in hot_pairs():
        made: Any = getattr(codec(message, version), "decode" if is_read else "encode_into")
        assert type(made.__self__).__module__ == "kohort.protocol.hot_codecs"


def same_when_read(message: Message, version: int, data: bytes, position: int = 0) -> None:
    expected = outcome(in_python(message, version, "decode"), data, position)
    for buffer in (data, bytearray(data), memoryview(data)):
        assert outcome(codec(message, version).decode, buffer, position) == expected


def same_when_written(message: Message, version: int, value: object) -> None:
    compiled, plain = bytearray(b"head"), bytearray(b"head")
    expected = outcome(in_python(message, version, "encode_into"), value, plain)
    assert outcome(codec(message, version).encode_into, value, compiled) == expected
    assert compiled == plain


# What must be compiled, and stay compiled.


def compiled_alone(message: Message, version: int) -> Callable[..., Any]:
    """The compiled codec, of which the way to Python ends in an error."""

    def refuse(_: str) -> NoReturn:
        raise AssertionError("left to Python")

    module: Any = importlib.import_module("kohort.protocol.hot_codecs")
    found: Callable[..., Any] = module.bound(message, version, refuse)
    return found


@every_read
@codec_settings
@given(data=st.data())
def test_messages_without_tags_are_read_by_what_is_compiled(
    message: Message, version: int, data: st.DataObject
) -> None:
    value = data.draw(values(message, version))
    _forget_tags(value, version)
    encoded = codec(message, version).encode(value)

    assert compiled_alone(message, version)(encoded) == (value, len(encoded))


@every_written
@codec_settings
@given(data=st.data())
def test_messages_without_tags_are_written_by_what_is_compiled(
    message: Message, version: int, data: st.DataObject
) -> None:
    value = data.draw(values(message, version))
    _forget_tags(value, version)

    parts = compiled_alone(message, version)(value, bytearray())

    assert codec(message, version).decode(b"".join(parts))[0] == value


def _without_tags(message: Message, version: int) -> Any:  # noqa: ANN401
    value = full_value(message, version)
    _forget_tags(value, version)
    return value


def _forget_tags(value: Any, version: int) -> None:  # noqa: ANN401
    for one in schema_of(type(value)).fields:
        inner = getattr(value, one.name)
        if one.is_tagged(version):
            setattr(value, one.name, one.make_default())
        for element in inner if isinstance(inner, list) else [inner]:
            if isinstance(element, Struct):
                _forget_tags(element, version)


def test_the_topic_id_of_a_commit_is_the_tag_that_is_compiled() -> None:
    value = full_value(OffsetCommitValue, 4)
    parts = compiled_alone(OffsetCommitValue, 4)(value, bytearray())
    assert codec(OffsetCommitValue, 4).decode(parts[0]) == (value, len(parts[0]))


def test_an_error_code_of_the_enum_is_an_ordinary_number() -> None:
    value = full_value(OffsetFetchResponse, 9)
    value.groups[0].error_code = ErrorCode.NOT_COORDINATOR
    compiled_alone(OffsetFetchResponse, 9)(value, bytearray())
    same_when_written(OffsetFetchResponse, 9, value)


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
UNFIT += [[1 << 40], ["text"], object(), full_value(OffsetCommitKey, 1)]


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
    same_when_written(message, version, full_value(heartbeat.HeartbeatRequest, 4))
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


# Limits.


@pytest.mark.parametrize("excess", [0, 1])
def test_the_budget_of_elements_is_one_for_the_whole_message(excess: int) -> None:
    half = REQUEST_ELEMENTS_MAX // 2
    # The group, its two topics, and their partitions.
    sizes = [half - 3, half + excess]
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0] * size) for size in sizes]
    group = OffsetFetchRequestGroup(group_id="g", member_id=None, member_epoch=-1, topics=topics)
    encoded = codec(OffsetFetchRequest, 9).encode(OffsetFetchRequest(groups=[group]))

    same_when_read(OffsetFetchRequest, 9, encoded)

    if excess:
        with pytest.raises(DecodeError, match="too many array elements"):
            codec(OffsetFetchRequest, 9).decode(encoded)
    else:
        compiled_alone(OffsetFetchRequest, 9)(encoded)


@pytest.mark.parametrize("size", [TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1])
def test_texts_have_a_limit(size: int) -> None:
    encoded = bytearray()
    append_uvarint(encoded, size + 1)
    encoded += b"x" * size + b"\x00\x00\x00\x05\x02m\x00\x00"

    same_when_read(heartbeat.HeartbeatRequest, 4, bytes(encoded))

    if size > TEXT_BYTES_MAX:
        with pytest.raises(DecodeError, match=f"text of {size} bytes"):
            codec(heartbeat.HeartbeatRequest, 4).decode(bytes(encoded))
    else:
        compiled_alone(heartbeat.HeartbeatRequest, 4)(bytes(encoded))


@pytest.mark.parametrize("character", ["x", "ü"])
@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("version", [5, 9])
def test_texts_have_the_same_limit_when_they_are_written(
    version: int, excess: int, character: str
) -> None:
    count = TEXT_BYTES_MAX // len(character.encode())
    response = full_value(JoinGroupResponse, version)
    response.leader = character * (count + excess)
    write = codec(JoinGroupResponse, version)
    if excess:
        with pytest.raises(EncodeError):
            write.encode(response)
        with pytest.raises(EncodeError):
            b"".join(write.generated("encode_into")(response, bytearray()))
        with pytest.raises(construct.ConstructError):
            layout(JoinGroupResponse, version).build(to_plain(response, version))
    else:
        assert write.decode(write.encode(response))[0] == response


@pytest.mark.parametrize(
    "tags", [b"\x01\x28\x00", b"\x02\x28\x01a\x28\x01b", b"\x01\xb0\x3c\x01\x03"]
)
def test_tags_are_left_to_python(tags: bytes) -> None:
    encoded = codec(JoinGroupRequest, 9).encode(full_value(JoinGroupRequest, 9))
    plain = encoded[: encoded.index(b"\x01\xb0\x3c")]
    same_when_read(JoinGroupRequest, 9, plain + tags)


def test_records_are_views_of_the_buffer() -> None:
    encoded = codec(ProduceRequest, 13).encode(full_value(ProduceRequest, 13))
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        request, _ = compiled_alone(ProduceRequest, 13)(buffer)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is (encoded if isinstance(buffer, memoryview) else buffer)


def test_large_records_are_written_uncopied() -> None:
    response = full_value(FetchResponse, 17)
    _forget_tags(response, 17)
    small, large = b"s" * 2_048, memoryview(b"l" * 2_049)
    topic: FetchableTopicResponse = response.responses[0]
    sample: PartitionData = topic.partitions[0]
    topic.partitions = []
    for records in (small, large, None, large, small):
        sample = full_value(PartitionData, 17)
        _forget_tags(sample, 17)
        sample.records = records
        topic.partitions.append(sample)

    parts = compiled_alone(FetchResponse, 17)(response, bytearray())

    assert [part is large for part in parts] == [False, True, False, True, False]
    same_when_written(FetchResponse, 17, response)


class _Elsewhere:
    """Records that are sent from where they lie."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def test_records_that_lie_elsewhere_are_written_as_they_are() -> None:
    response = full_value(FetchResponse, 17)
    _forget_tags(response, 17)
    elsewhere: Any = _Elsewhere(2_049)
    for topic in response.responses:
        for partition in topic.partitions:
            partition.records = elsewhere

    parts = compiled_alone(FetchResponse, 17)(response, bytearray())
    plain = in_python(FetchResponse, 17, "encode_into")(response, bytearray())

    assert elsewhere in parts
    assert parts == plain


@pytest.mark.parametrize("odd", [_Elsewhere(2_048), 7, object()])
def test_what_is_no_large_thing_elsewhere_is_left_to_python(odd: Any) -> None:  # noqa: ANN401
    response = full_value(FetchResponse, 17)
    _forget_tags(response, 17)
    response.responses[0].partitions[0].records = odd
    with pytest.raises(AssertionError, match="left to Python"):
        compiled_alone(FetchResponse, 17)(response, bytearray())


def test_a_strict_process_does_not_pass_over_a_writer_that_gave_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    response = full_value(JoinGroupResponse, 9)
    _forget_tags(response, 9)
    response.members = cast("Any", tuple(response.members))
    expected = in_python(JoinGroupResponse, 9, "encode_into")(response, bytearray())
    assert codec(JoinGroupResponse, 9).encode_parts(response) == expected
    monkeypatch.setitem(sys._xoptions, STRICT_OPTION, True)
    with pytest.raises(AssertionError, match="gave up"):
        codec(JoinGroupResponse, 9).encode(response)


def test_references_are_counted_right() -> None:
    """One too many would be a leak, one too few a crash."""
    text = "a topic that nobody else has \u03b1"
    key = OffsetCommitKey(group=text, topic=text, partition=1 << 20)
    encode = compiled_alone(OffsetCommitKey, 1)
    encoded = codec(OffsetFetchRequest, 9).encode(full_value(OffsetFetchRequest, 9))
    decode = compiled_alone(OffsetFetchRequest, 9)
    references, objects = sys.getrefcount(text), len(gc.get_objects())

    for _ in range(1_000):
        encode(key, bytearray())
        decode(encoded)
        with suppress(AssertionError):
            decode(encoded[:-1])

    assert sys.getrefcount(text) == references
    assert len(gc.get_objects()) < objects + 100


# A module that does not fit the sources.


def test_what_is_compiled_is_what_is_declared_here() -> None:
    module: Any = importlib.import_module("kohort.protocol.hot_codecs")
    expected = {
        (message.__name__, version): (is_read, declared(message, version))
        for message, version, is_read in hot_pairs()
    }
    assert expected == module.DECLARED, "compile it again: pip install -e ."
    sources = [
        *(ROOT / "kohort/accelerated/codecs").iterdir(),
        *(ROOT / "kohort/protocol/compiler").glob("*.py"),
    ]
    newest = max(one.stat().st_mtime for one in sources if one.is_file())
    assert COMPILED.stat().st_mtime >= newest, "compile it again: pip install -e ."


def test_a_class_of_another_declaration_is_not_given_to_what_is_compiled() -> None:
    @record(versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: String

    other: Any = HeartbeatRequest
    other.__module__ = heartbeat.HeartbeatRequest.__module__
    assert is_hot(other, 4, "decode")
    assert codec(other, 4).encode(other(group_id="g")) == b"\x02g\x00"
    assert codec(other, 4).decode(b"\x02g\x00")[0].group_id == "g"


def test_another_class_of_the_same_declaration_is_not_given_to_it_either() -> None:
    present = heartbeat.HeartbeatRequest
    encoded = codec(present, 4).encode(full_value(present, 4))
    assert codec(present, 4).decode(encoded)[0].__class__ is present
    namespace = {"__slots__": (), "schema": schema_of(present)}
    twin: Any = type(
        "HeartbeatRequest", (present,), {**namespace, "__module__": present.__module__}
    )
    assert is_hot(twin, 4, "decode")
    assert declared(twin, 4) == declared(present, 4)
    codec(twin, 4).decode(encoded)
    assert codec(present, 4).decode(encoded)[0].__class__ is present


def test_whatever_a_codec_depends_on_is_part_of_its_declaration() -> None:
    def one(**options: Any) -> type:  # noqa: ANN401
        @record(versions="0-4", flexible="2+")
        class One:
            number: Int32 = field(**options)  # type: ignore[misc]

        return One

    @record(versions="0-4", flexible="2+")
    class Two:
        number: Int16

    Two.__qualname__ = one().__qualname__
    texts = [
        declared(one(), 1),
        declared(one(), 2),
        declared(one(default=5), 2),
        declared(one(default=5, ignorable=True), 2),
        declared(one(default=9, since=3), 2),
        declared(one(default=9, since=3), 3),
        declared(one(default=0, tag=3), 3),
        declared(one(default=0, tag=4), 3),
        declared(Two, 2),
    ]
    assert len(set(texts)) == len(texts)
