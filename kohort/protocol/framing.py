"""Encodes and decodes frames and the headers of messages, for clients and brokers.

A frame is an int32 size and that many bytes; a request or response in it is a header and a body.
"""

import struct
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kohort.protocol.codec import Buffer, Codec, codec
from kohort.protocol.errors import DecodeError, EncodeError, ErrorCode
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.tags import skip_tags

API_VERSIONS_KEY: Final = 18
T = TypeVar("T")
_PREFIX: Final = struct.Struct(">hhih")
_SIZED_PREFIX: Final = struct.Struct(">ihhih")
_CLIENT_ID_BYTES_MAX: Final = 0x7FFF
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
_SIZE: Final = struct.Struct(">i")
_RESPONSE: Final = struct.Struct(">ii")
_RESPONSE_WITH_TAGS: Final = struct.Struct(">iix")


class RequestHeader:
    """The header before a request's body. The correlation id is echoed, never interpreted."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id


def read_request_prefix(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the four fields that every request header starts with; return the position after them.

    Safe for a request of any api and version: the client id keeps its classic length prefix
    everywhere. Flexible versions continue with a tag buffer, see :func:`skip_header_tags`.

    Raises:
        DecodeError: the frame is shorter than a header, or the client id is malformed.
    """
    try:
        key, version, correlation_id, length = _PREFIX.unpack_from(frame, 0)
    except struct.error:
        raise DecodeError("the frame is shorter than a request header") from None
    if length < 0:
        if length != -1:
            raise DecodeError(f"client id of length {length}")
        return RequestHeader(key, version, correlation_id, None), 10
    end = 10 + length
    if end > len(frame):
        raise DecodeError("the client id exceeds the frame")
    try:
        client_id = str(frame[10:end], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"client id is not UTF-8: {error.reason}") from None
    return RequestHeader(key, version, correlation_id, client_id), end


def skip_header_tags(frame: Buffer, position: int) -> int:
    """Skip the tag buffer of a flexible header; Kafka defines no tags for it.

    Raises:
        DecodeError: malformed, or too many tags.
    """
    try:
        count = frame[position]
        if count == 0:
            return position + 1
        if count > 127:
            # The count has a second byte. No client sends that many header tags: reject them.
            raise DecodeError("too many tags in a header")
        return skip_tags(frame, position + 1, count)
    except IndexError:
        raise DecodeError("a header ends early") from None


def response_buffers(
    correlation_id: int, codec: Codec[T], message: T, *, header_has_tags: bool
) -> list[Buffer]:
    """Encode a whole response frame: size, header and body, as buffers to be written in order.

    Args:
        header_has_tags: whether the header is v1, as in flexible versions of every api but
            ApiVersions, whose header stays at v0 because the client may not know the broker's
            versions yet.
    """
    out = _response_header(correlation_id, header_has_tags=header_has_tags)
    return _framed(codec.encode_into(message, out), out)


def response_buffers_in_steps(
    correlation_id: int, codec: Codec[T], message: T, *, header_has_tags: bool
) -> Generator[None, None, list[Buffer]]:
    """Like `response_buffers`, as a generator with a step for each element of an array."""
    out = _response_header(correlation_id, header_has_tags=header_has_tags)
    return _framed((yield from codec.encode_in_steps(message, out)), out)


def _response_header(correlation_id: int, *, header_has_tags: bool) -> bytearray:
    return bytearray(
        (_RESPONSE_WITH_TAGS if header_has_tags else _RESPONSE).pack(0, correlation_id)
    )


def _framed(parts: list[Buffer], out: bytearray) -> list[Buffer]:
    """Write the frame's size into `out`, the frame's first and usually only part."""
    size = len(out) if len(parts) == 1 else sum(map(len, parts))
    _SIZE.pack_into(out, 0, size - 4)
    return parts


def response_frame(correlation_id: int, body: bytes, *, header_has_tags: bool) -> bytes:
    """Like `response_buffers`, for a body that is already encoded; return a single buffer."""
    header = _RESPONSE_WITH_TAGS if header_has_tags else _RESPONSE
    return header.pack(header.size - 4 + len(body), correlation_id) + body


class ExpectedAnswer(NamedTuple):
    correlation_id: int
    response: type
    version: int


def encode_request(
    request: object, version: int, correlation_id: int, client_id: str | None
) -> tuple[Sequence[Buffer], ExpectedAnswer]:
    """Encode a whole frame, in parts; return it with the answer to expect.

    Raises:
        EncodeError: the version cannot express the request.
    """
    schema = schema_of(type(request))
    assert schema.key is not None
    name = b"" if client_id is None else client_id.encode()
    if len(name) > _CLIENT_ID_BYTES_MAX:
        raise EncodeError(
            f"the client id has {len(name)} bytes; at most {_CLIENT_ID_BYTES_MAX} are allowed"
        )
    length = -1 if client_id is None else len(name)
    out = bytearray(_SIZED_PREFIX.pack(0, schema.key, version, correlation_id, length))
    out += name
    if schema.is_flexible(version):
        out.append(0)
    parts = _framed(codec(type(request), version).encode_into(request, out), out)
    return parts, ExpectedAnswer(correlation_id, RESPONSES[schema.key], version)


def decode_response(frame: Buffer, expected: ExpectedAnswer) -> Any:
    """Decode the response in a frame without its size; records are views of the frame.

    Raises:
        DecodeError: it is not the expected response.
    """
    return decode_response_at(frame, 0, expected)[0]


def decode_response_at(frame: Buffer, position: int, expected: ExpectedAnswer) -> tuple[Any, int]:
    """Decode the answer whose header begins at `position`; return it with the position after it.

    Raises:
        DecodeError: it is not the expected response.
    """
    schema = schema_of(expected.response)
    version = expected.version
    body = position + 4
    if int.from_bytes(frame[position:body], "big", signed=True) != expected.correlation_id:
        raise DecodeError("a response to another request")
    if schema.key == API_VERSIONS_KEY:
        # A broker that lacks the requested version responds in version 0, which all clients know.
        if frame[body : body + 2] == _UNSUPPORTED_VERSION:
            version = 0
    elif schema.is_flexible(version):
        body = skip_header_tags(frame, body)
    decoded: tuple[Any, int] = codec(expected.response, version).decode(frame, body)
    return decoded
