"""The counters that the edge and the dispatcher call."""

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.metrics import NetworkMetrics
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.heartbeat import HeartbeatResponse


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
