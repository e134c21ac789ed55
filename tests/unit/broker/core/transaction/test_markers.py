import pytest

from kohort.broker.core.transaction.markers import MissingMarkers
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.protocol.errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("error", "is_settled"),
    [
        (ErrorCode.NONE, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
    ],
)
def test_a_marker_is_missing_until_its_partition_has_one_or_is_gone(
    error: ErrorCode, is_settled: bool
) -> None:
    markers = MissingMarkers([A, B])
    awaiting = [markers.is_awaiting]
    assert markers.ask() == (A, B)
    for partition, outcome in ((A, error), (B, ErrorCode.NONE)):
        awaiting.append(markers.is_awaiting)
        markers.note(partition, outcome)
    assert [*awaiting, markers.is_awaiting] == [False, True, True, False]
    assert markers.partitions == markers.ask() == (() if is_settled else (A,))
