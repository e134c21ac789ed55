"""How the edge's and the purgatory's counts are shown."""

from kohort.broker.metrics.exposition import edge_metrics, memory_metrics, purgatory_metrics
from kohort.broker.metrics.requests import DURATION_BOUNDS_S, EdgeMetrics
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import HeartbeatResponse
from tests.unit.broker.metrics.sources import Network, Purgatory, values

OK = HeartbeatResponse(error_code=0)


def test_requests_are_shown_by_version_and_durations_by_api_alone() -> None:
    edge = EdgeMetrics()
    for version in (3, 4, 4):
        edge.request_answered("Heartbeat", version, OK, 2**-9)
    edge.request_answered("Heartbeat", 4, OK, 1024.0)
    found = values(edge_metrics(edge))
    assert found["kohort_requests_total"] == {("Heartbeat", "3"): 1, ("Heartbeat", "4"): 3}
    buckets = found["kohort_request_duration_seconds_bucket"]
    assert len(buckets) == len(DURATION_BOUNDS_S) + 1
    assert buckets["Heartbeat", "0.0005"] == 0
    assert buckets["Heartbeat", "0.002"] == 3
    assert buckets["Heartbeat", "120.0"] == 3
    assert buckets["Heartbeat", "+Inf"] == 4
    assert found["kohort_request_duration_seconds_count"] == {("Heartbeat",): 4}
    assert found["kohort_request_duration_seconds_sum"] == {("Heartbeat",): 1024 + 3 * 2**-9}


def test_errors_are_shown_by_their_names_and_summed_over_versions() -> None:
    edge = EdgeMetrics()
    edge.request_failed("Heartbeat", 0, ErrorCode.UNKNOWN_MEMBER_ID, 0.001)
    edge.request_failed("Heartbeat", 4, ErrorCode.UNKNOWN_MEMBER_ID, 0.001)
    edge.request_failed("Fetch", 4, ErrorCode.UNKNOWN_SERVER_ERROR, 0.001)
    edge.request_failed("Fetch", 4, 32000, 0.001)
    found = values(edge_metrics(edge))
    assert found["kohort_request_errors_total"] == {
        ("Heartbeat", "UNKNOWN_MEMBER_ID"): 2,
        ("Fetch", "UNKNOWN_SERVER_ERROR"): 1,
        ("Fetch", "32000"): 1,
    }
    assert found["kohort_storage_errors_total"] == {(): 0}
    edge.request_failed("Produce", 9, ErrorCode.KAFKA_STORAGE_ERROR, 0.001)
    edge.request_failed("OffsetCommit", 9, ErrorCode.KAFKA_STORAGE_ERROR, 0.001)
    again = values(edge_metrics(edge))
    assert again["kohort_storage_errors_total"] == {(): 2}


def test_connections_bytes_and_reasons_are_shown() -> None:
    edge = EdgeMetrics()
    edge.connection_opened()
    edge.connection_opened()
    edge.connection_closed("idle")
    edge.connection_refused("max.connections.per.ip")
    edge.request_rejected("malformed_body")
    edge.waiting_count += 1
    edge.received_bytes += 11
    edge.sent_bytes += 12
    found = values(edge_metrics(edge))
    assert found == {
        "kohort_connections": {(): 1},
        "kohort_connections_opened_total": {(): 2},
        "kohort_connections_closed_total": {("idle",): 1},
        "kohort_connections_refused_total": {("max.connections.per.ip",): 1},
        "kohort_requests_rejected_total": {("malformed_body",): 1},
        "kohort_requests_waiting": {(): 1},
        "kohort_received_bytes_total": {(): 11},
        "kohort_sent_bytes_total": {(): 12},
        "kohort_storage_errors_total": {(): 0},
    }


def test_the_purgatory_is_shown_by_kind_of_operation() -> None:
    assert values(purgatory_metrics(Purgatory())) == {
        "kafka_server_delayedoperationpurgatory_purgatorysize": {("Fetch",): 5, ("Heartbeat",): 0},
        "kafka_server_delayedoperationpurgatory_numdelayedoperations": {
            ("Fetch",): 2,
            ("Heartbeat",): 7,
        },
        "kohort_purgatory_held_bytes": {(): 123},
    }


def test_what_requests_and_answers_hold_is_shown() -> None:
    assert values(memory_metrics(Network())) == {
        "kohort_request_bytes_held": {(): 21},
        "kohort_response_bytes_held": {(): 22},
    }
