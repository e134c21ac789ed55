import pytest

from kohort.client.core.errors import AuthorizationError, UnknownTopicError
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import ExpectedTopics, TopicInfo
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID


def topic(partition_count: int = 1, error: ErrorCode = ErrorCode.NONE) -> TopicInfo:
    return TopicInfo("t", ZERO_UUID, False, error, {}, partition_count, {}, {})


SEVENTH = TopicPartition("t", 7)
UNKNOWN = topic(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def expecting(
    *topics: str, partitions: tuple[TopicPartition, ...] = (), timeout_ms: int | None = 2_000
) -> ExpectedTopics:
    expected = ExpectedTopics(timeout_ms)
    expected.expect(topics, partitions, 1_000)
    return expected


def test_a_partition_beyond_the_last_one_is_missed_once_and_an_error_after_its_time() -> None:
    expected = expecting(partitions=(TopicPartition("t", 0), SEVENTH))
    known = {"t": topic(partition_count=7)}
    assert expected.missing(1_000) == {}
    assert expected.compare(known, 1_500) == (["t-7"], None)
    assert expected.compare(known, 2_999) == ([], None)
    assert expected.missing(2_999) == {"t-7": 1.999}
    missed, error = expected.compare(known, 3_000)
    assert missed == []
    assert isinstance(error, UnknownTopicError)
    assert "t-7;" in str(error)
    assert "missing_topic_timeout_ms" in str(error)
    assert expected.is_waiting


@pytest.mark.parametrize("known", [{}, {"t": UNKNOWN}])
def test_the_partitions_of_a_topic_that_is_not_there_are_missed(
    known: dict[str, TopicInfo],
) -> None:
    expected = expecting(partitions=(SEVENTH,))
    assert expected.compare(known, 1_000).missed == ["t-7"]
    assert isinstance(expected.compare(known, 3_000).error, UnknownTopicError)


def test_what_was_deleted_is_missed_from_then_on_and_again_after_it_came_back() -> None:
    expected = expecting("t", partitions=(SEVENTH,))
    assert expected.compare({"t": topic(8)}, 1_000) == ([], None)
    assert (expected.missing(1_000), expected.is_waiting) == ({}, False)
    assert expected.compare({}, 60_000) == (["t", "t-7"], None)
    assert expected.missing(60_000) == {"t": 0, "t-7": 0}
    assert expected.compare({"t": UNKNOWN}, 61_999) == ([], None)
    assert expected.missing(61_999) == {"t": 1.999, "t-7": 1.999}
    assert expected.compare({"t": topic(8)}, 62_500) == ([], None)
    assert (expected.missing(62_500), expected.is_waiting) == ({}, False)
    assert expected.compare({}, 70_000) == (["t", "t-7"], None)
    assert isinstance(expected.compare({}, 72_000).error, UnknownTopicError)


def test_what_comes_late_is_not_missed_any_more() -> None:
    expected = expecting("t", timeout_ms=None)
    assert expected.compare({}, 1_000).missed == ["t"]
    assert expected.compare({}, 600_000) == ([], None)
    assert expected.compare({"t": topic()}, 700_000) == ([], None)
    assert (expected.missing(700_000), expected.is_waiting) == ({}, False)


def test_another_wish_begins_its_time_again_and_the_same_one_does_not() -> None:
    expected = expecting("t")
    expected.compare({}, 1_000)
    expected.expect(["t", "u"], (), 2_500)
    missed, error = expected.compare({}, 3_000)
    assert missed == ["u"]
    assert "partition: t;" in str(error)
    expected.expect(["u"], (), 3_000)
    assert expected.compare({}, 3_000).error is None


def test_a_topic_that_may_not_be_read_is_named_once_for_all_its_partitions() -> None:
    expected = expecting(partitions=(TopicPartition("t", 0), SEVENTH))
    error = expected.compare({"t": topic(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)}, 1_000).error
    assert isinstance(error, AuthorizationError)
    assert "not allowed to read t;" in str(error)
