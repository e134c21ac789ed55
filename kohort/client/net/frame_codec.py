"""Requests as frames, and answers out of frames; for the loop's connections and the thread's."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kohort.protocol.codec import Buffer, codec
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.framing import API_VERSIONS_KEY, skip_header_tags
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.messages.header import RequestHeader

_SIZE: Final = 4
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class Expected(NamedTuple):
    """An answer that is to come."""

    correlation_id: int
    response: type
    version: int


def encode_request(
    request: object, version: int, correlation_id: int, client_id: str
) -> tuple[Sequence[Buffer], Expected]:
    """A whole frame, in parts, and what will answer it.

    Raises:
        EncodeError: the request says something that the version cannot.
    """
    schema = schema_of(type(request))
    assert schema.key is not None
    header = RequestHeader(
        request_api_key=schema.key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = bytearray(_SIZE)
    codec(RequestHeader, 2 if schema.is_flexible(version) else 1).encode_into(header, out)
    parts = codec(type(request), version).encode_into(request, out)
    size = sum(map(len, parts)) - _SIZE
    out[:_SIZE] = size.to_bytes(_SIZE, "big")
    return parts, Expected(correlation_id, RESPONSES[schema.key], version)


def decode_response(frame: Buffer, expected: Expected) -> Any:  # noqa: ANN401 - as was expected.
    """The answer in a frame; records in it are views of the frame.

    Raises:
        DecodeError: it is not the answer that was to come next.
    """
    schema = schema_of(expected.response)
    version = expected.version
    if int.from_bytes(frame[:4], "big", signed=True) != expected.correlation_id:
        raise DecodeError("an answer to another request")
    position = 4
    if schema.key == API_VERSIONS_KEY:
        # A broker that does not know the version says so in the oldest, which all clients know.
        if frame[4:6] == _UNSUPPORTED_VERSION:
            version = 0
    elif schema.is_flexible(version):
        position = skip_header_tags(frame, position)
    message: Any = codec(expected.response, version).decode(frame, position)[0]
    return message
