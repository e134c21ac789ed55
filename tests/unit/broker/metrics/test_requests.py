"""The counters that the edge and the dispatcher call."""

import importlib
import pkgutil

import pytest

from kohort.broker.metrics.requests import EdgeMetrics, ErrorCounts, error_counter
from kohort.broker.network.metrics import NetworkMetrics
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.messages.fetch import PartitionData
from kohort.protocol.messages.heartbeat import HeartbeatResponse
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


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_the_error_of_a_whole_response_is_found(code: ErrorCode) -> None:
    assert count(m.HeartbeatResponse(error_code=code)) == {int(code): 1}


def test_no_error_is_nothing_to_count() -> None:
    assert count(m.HeartbeatResponse(error_code=0)) == {}
    assert count(fetch_response(0, 0, 0)) == {}


def test_errors_of_partitions_are_counted_one_by_one_beside_that_of_the_whole() -> None:
    response = fetch_response(
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, ErrorCode.OFFSET_OUT_OF_RANGE
    )
    assert count(response) == {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND: 1,
        ErrorCode.OFFSET_OUT_OF_RANGE: 2,
    }


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


def test_the_edge_can_be_given_these_counters() -> None:
    edge = EdgeMetrics()
    counters: NetworkMetrics = edge
    counters.received_bytes += 5
    counters.sent_bytes += 7
    counters.waiting_count += 1
    assert (edge.received_bytes, edge.sent_bytes, edge.waiting_count) == (5, 7, 1)


def test_answers_are_counted_by_api_and_version_with_their_durations_and_errors() -> None:
    edge = EdgeMetrics()
    edge.request_answered("Heartbeat", 4, HeartbeatResponse(error_code=0), 0.001)
    edge.request_answered(
        "Heartbeat", 4, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION), 3.0
    )
    edge.request_answered("Heartbeat", 0, HeartbeatResponse(error_code=0), 0.001)
    old, new = edge.request_meters()
    assert (old.api, old.version, sum(old.duration.counts)) == ("Heartbeat", 0, 1)
    assert (new.api, new.version, sum(new.duration.counts)) == ("Heartbeat", 4, 2)
    assert new.duration.total == 3.001
    assert new.errors == {ErrorCode.ILLEGAL_GENERATION: 1}
    assert old.errors == {}


def test_a_request_without_an_answer_counts_as_one_without_error() -> None:
    edge = EdgeMetrics()
    edge.request_answered("Produce", 9, None, 0.001)
    (meter,) = edge.request_meters()
    assert (sum(meter.duration.counts), meter.errors) == (1, {})


def test_a_request_that_failed_counts_as_answered_with_its_error() -> None:
    edge = EdgeMetrics()
    edge.request_failed("Metadata", 12, ErrorCode.UNKNOWN_SERVER_ERROR, 0.001)
    (meter,) = edge.request_meters()
    assert (sum(meter.duration.counts), meter.errors) == (1, {-1: 1})


def test_connections_add_up() -> None:
    edge = EdgeMetrics()
    edge.connection_opened()
    edge.connection_opened()
    edge.connection_closed("idle")
    edge.connection_refused("max.connections")
    edge.request_rejected("bad_frame")
    assert (edge.connection_count, edge.opened_count) == (1, 2)
    assert (edge.closed, edge.refused) == ({"idle": 1}, {"max.connections": 1})
    assert edge.rejected == {"bad_frame": 1}
