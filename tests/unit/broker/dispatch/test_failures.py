from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker.dispatch.failures import NoErrorField, error_response
from kohort.broker.handlers import load_handlers
from kohort.protocol.codec import Codec, codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import REQUESTS, RESPONSES, Struct, schema_of
from tests.support import messages as m

APIS = load_handlers()


def failed(request: object, version: int, code: ErrorCode, text: str | None = None) -> Struct:
    key = schema_of(type(request)).key
    assert key is not None
    return error_response(APIS[key].on_error, request, version, code, text)


def sample(message: type) -> Any:  # noqa: ANN401 - of a class known at run time.
    """A message with two elements in every list."""
    values = {}
    for field in schema_of(message).fields:
        is_struct = isinstance(field.kind, type)
        if field.is_array:
            element = sample(field.kind) if is_struct else field.kind.zero  # type: ignore[arg-type, union-attr]
            values[field.name] = [element, element]
        elif is_struct or not field.has_default:
            values[field.name] = field.make_default()
    return message(**values)


def error_codes(message: Struct, version: int) -> Iterator[int]:
    for field in schema_of(type(message)).fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if field.name in {"error_code", "partition_error_code"}:
            yield value
        for element in value if isinstance(value, list) else [value]:
            if isinstance(element, Struct):
                yield from error_codes(element, version)


@pytest.mark.parametrize("key", APIS)
def test_every_api_says_that_a_request_failed_in_every_version(key: int) -> None:
    request = sample(REQUESTS[key])
    for version in range(APIS[key].versions.low, APIS[key].versions.high + 1):
        response = failed(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        response_codec: Codec[Struct] = codec(RESPONSES[key], version)
        decoded, _ = response_codec.decode(response_codec.encode(response))
        assert set(error_codes(decoded, version)) == {ErrorCode.UNKNOWN_SERVER_ERROR}, version


def test_a_response_with_an_error_of_its_own_says_it_there() -> None:
    request = m.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    response: Any = failed(request, 7, ErrorCode.KAFKA_STORAGE_ERROR)
    assert (response.error_code, response.responses) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_the_field_that_the_version_has_is_the_one_that_is_read() -> None:
    by_name = m.DeleteTopicsRequest(topic_names=["a"], timeout_ms=1)
    response: Any = failed(by_name, 5, ErrorCode.UNKNOWN_SERVER_ERROR, "broken")
    assert [(r.name, r.error_message) for r in response.responses] == [("a", "broken")]
    by_id = m.DeleteTopicsRequest(topics=[m.DeleteTopicState(topic_id=b"i" * 16)], timeout_ms=1)
    response = failed(by_id, 6, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [(r.topic_id, r.error_message) for r in response.responses] == [(b"i" * 16, None)]


def test_where_there_is_nothing_to_hang_the_error_on_the_caller_is_told() -> None:
    all_topics = m.MetadataRequest(topics=None)
    with pytest.raises(NoErrorField):
        failed(all_topics, 12, ErrorCode.UNKNOWN_SERVER_ERROR)
    response: Any = failed(all_topics, 13, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert response.error_code == -1
