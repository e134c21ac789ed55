"""The counters that the edge and the dispatcher call."""

import importlib
import pkgutil

from kohort.broker.metrics.requests import EdgeMetrics, ErrorCounts, error_counter
from kohort.protocol import messages
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.messages.fetch import PartitionData
from kohort.protocol.schema import MessageSchema
from tests.support import messages as m


def count(response: object) -> ErrorCounts:
    message: type = type(response)
    counter = error_counter(message)
    assert counter is not None
    found: ErrorCounts = {}
    counter(response, found)
    return found


def fetch_response(error_code: int, *partition_codes: int) -> m.FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index, error_code=code, high_watermark=0, aborted_transactions=[],
            records=b"",
        )
        for index, code in enumerate(partition_codes)
    ]  # fmt: skip
    topic = m.FetchableTopicResponse(partitions=partitions)
    return m.FetchResponse(error_code=error_code, responses=[topic, topic])


def test_no_error_is_nothing_to_count() -> None:
    assert count(m.HeartbeatResponse(error_code=0)) == {}
    assert count(fetch_response(0, 0, 0)) == {}


def test_a_message_without_a_place_for_errors_has_no_counter() -> None:
    assert error_counter(m.HeartbeatRequest) is None


def codes_below(schema: MessageSchema) -> int:
    """How many different places a declaration has for an error code."""
    own = sum(field.name == "error_code" for field in schema.fields)
    nested = [schema_of(field.kind) for field in schema.fields if isinstance(field.kind, type)]
    return own + sum(map(codes_below, nested))


def filled(message: type, code: int) -> object:
    """A message with one of everything and the code wherever it fits."""
    values: dict[str, object] = {}
    for field in schema_of(message).fields:
        if isinstance(field.kind, type):
            one = filled(field.kind, code)
            values[field.name] = [one] if field.is_array else one
        elif field.name == "error_code":
            values[field.name] = code
        else:
            values[field.name] = None if field.nullable.high >= 0 else field.make_default()
    return message(**values)


def test_no_response_of_any_api_hides_an_error() -> None:
    for module in pkgutil.iter_modules(messages.__path__):
        importlib.import_module(f"kohort.protocol.messages.{module.name}")
    assert len(RESPONSES) >= 30
    for response in RESPONSES.values():
        places = codes_below(schema_of(response))
        if places:
            assert count(filled(response, 42)) == {42: places}, response
        else:
            assert error_counter(response) is None


def test_a_request_without_an_answer_counts_as_one_without_error() -> None:
    edge = EdgeMetrics()
    edge.request_answered("Produce", 9, None, 0.001)
    (meter,) = edge.request_meters()
    assert (sum(meter.duration.counts), meter.errors) == (1, {})
