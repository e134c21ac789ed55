"""What clients write is what brokers read, and the other way round, headers included."""

import struct

import pytest

from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError, EncodeError, ErrorCode
from kohort.protocol.framing import (
    ExpectedAnswer,
    decode_response,
    decode_response_at,
    encode_request,
    read_request_prefix,
    response_frame,
)
from kohort.protocol.message import schema_of
from tests.support import messages as m

HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("client_id", ["test", "", None, "\u00fcml\u00e4ut"])
@pytest.mark.parametrize("version", range(5))
def test_a_request_is_a_size_the_header_and_the_body(version: int, client_id: str | None) -> None:
    parts, expected = encode_request(HEARTBEAT, version, 7, client_id)
    frame = b"".join(parts)
    name = (client_id or "").encode()
    header = struct.pack(">hhih", 12, version, 7, -1 if client_id is None else len(name)) + name
    if schema_of(m.HeartbeatRequest).is_flexible(version):
        header += b"\0"
    body = codec(m.HeartbeatRequest, version).encode(HEARTBEAT)
    assert frame == len(header + body).to_bytes(4, "big") + header + body
    assert expected == ExpectedAnswer(7, m.HeartbeatResponse, version)
    assert read_request_prefix(frame[4:])[0].client_id == client_id


def test_a_client_id_that_no_header_can_hold_is_refused() -> None:
    assert encode_request(HEARTBEAT, 4, 1, "x" * 32_767)
    with pytest.raises(EncodeError, match="32768"):
        encode_request(HEARTBEAT, 4, 1, "x" * 32_768)


@pytest.mark.parametrize("version", range(5))
def test_an_answer_is_read_wherever_it_begins_and_ends(version: int) -> None:
    body = codec(m.HeartbeatResponse, version).encode(m.HeartbeatResponse(error_code=27))
    has_tags = schema_of(m.HeartbeatResponse).is_flexible(version)
    frame = response_frame(7, body, header_has_tags=has_tags)
    expected = ExpectedAnswer(7, m.HeartbeatResponse, version)
    assert decode_response(frame[4:], expected).error_code == 27
    answer, end = decode_response_at(frame + b"more", 4, expected)
    assert (answer.error_code, end) == (27, len(frame))


def test_tags_in_the_header_of_an_answer_are_passed_over() -> None:
    body = codec(m.HeartbeatResponse, 4).encode(m.HeartbeatResponse(error_code=27))
    frame = b"\0\0\0\7" + b"\1\0\2xy" + body
    assert decode_response(frame, ExpectedAnswer(7, m.HeartbeatResponse, 4)).error_code == 27


def test_the_answer_to_another_request_is_none() -> None:
    body = codec(m.HeartbeatResponse, 4).encode(m.HeartbeatResponse(error_code=0))
    frame = response_frame(8, body, header_has_tags=True)[4:]
    with pytest.raises(DecodeError, match="another request"):
        decode_response(frame, ExpectedAnswer(7, m.HeartbeatResponse, 4))


@pytest.mark.parametrize("size", range(9))
def test_an_answer_that_ends_early_is_none(size: int) -> None:
    body = codec(m.HeartbeatResponse, 4).encode(m.HeartbeatResponse(error_code=0))
    frame = response_frame(0, body, header_has_tags=True)[4:]
    with pytest.raises(DecodeError):
        decode_response(frame[:size], ExpectedAnswer(0, m.HeartbeatResponse, 4))


def test_a_broker_that_does_not_know_the_version_of_api_versions_is_understood() -> None:
    told = m.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[m.ApiVersion(api_key=18, min_version=0, max_version=2)],
    )
    frame = response_frame(1, codec(m.ApiVersionsResponse, 0).encode(told), header_has_tags=False)[
        4:
    ]
    _, expected = encode_request(m.ApiVersionsRequest(), 3, 1, "test")
    answer = decode_response(frame, expected)
    assert (answer.error_code, answer.api_keys[0].max_version) == (35, 2)
