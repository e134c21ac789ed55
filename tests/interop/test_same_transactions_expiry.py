"""Transactional ids and producers that were not used for long are forgotten as at Kafka, and those
with an open transaction are not.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.transactions import DescribeProducersRequest, TopicRequest
from tests.interop.conftest import start_twins
from tests.interop.same_answers import differences
from tests.interop.same_answers.pair import Pair, Side, Twins, opened
from tests.interop.same_answers.scenes import Topic, create_topic
from tests.interop.same_answers.transactions import producer
from tests.support.waiting import wait_until

SETTINGS: Final = {
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "3000",
    "producer.id.expiration.check.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
FORGOTTEN: Final = ""
"""The state of an id that is not known."""


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Brokers that do not remember for long."""
    with start_twins(tmp_path_factory.mktemp("expiry"), SETTINGS) as twins:
        yield twins


@pytest.fixture
def own_pair(forgetful: Twins, subtests: pytest.Subtests) -> Iterator[Pair]:
    with opened(forgetful, subtests) as pair:
        yield pair


def producer_ids(pair: Pair, side: Side, topic: Topic) -> set[int]:
    """The producers that one broker remembers of the topic's first partition."""
    answer = pair.line.ask_alone(side, producers_request(topic), 0)
    return {one.producer_id for one in answer.topics[0].partitions[0].active_producers}


def producers_request(topic: Topic) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])


@pytest.mark.long
def test_an_idle_id_is_forgotten_and_one_with_a_transaction_is_not(own_pair: Pair) -> None:
    topic = create_topic(own_pair)
    opened, ended, empty = (producer(own_pair) for _ in range(3))
    opened.begun(topic)
    ended.begun(topic)
    ended.end(3)
    for one in (ended, empty):
        one.wait_state(FORGOTTEN)
        for side in own_pair.sides:
            assert one.look(side).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    opened.check_state("Ongoing")
    for version in (0, 3):
        ended.add({topic: [0]}, version)
        ended.end(version)
    ended.end(5)
    # It starts again, whatever it was.
    ended.init(5, producer_id=ended.pid, producer_epoch=ended.epoch)
    empty.init(5)
    empty.describe()
    opened.end(3)
    opened.check_state("CompleteCommit")


@pytest.mark.long
def test_a_transaction_whose_time_is_up_is_aborted_without_a_sweep(own_pair: Pair) -> None:
    topic = create_topic(own_pair)
    one = producer(own_pair)
    one.timeout_ms = 500
    one.init()
    one.begun(topic)
    if not own_pair.are_both_kafka:
        wait_until(
            lambda: one.look(own_pair.kohort).transaction_state == "CompleteAbort",
            "its time is up",
        )
        one.describe(differs=differences.OWN_TIMER)
    # Kafka aborts it for who comes back.
    one.timeout_ms = 60_000
    one.init()
    one.settle()
    one.check_state("Empty")
    one.begun(topic)
    one.end(5)


@pytest.mark.long
def test_a_producer_that_is_silent_is_forgotten_by_the_partition_and_an_open_one_is_not(
    own_pair: Pair,
) -> None:
    topic = create_topic(own_pair)
    opened, ended = producer(own_pair), producer(own_pair)
    opened.begun(topic)
    ended.begun(topic)
    ended.end(3)
    for side in own_pair.sides:
        wait_until(
            lambda side=side: len(producer_ids(own_pair, side, topic)) == 1,  # type: ignore[misc]
            "only the open one is left",
        )
    own_pair.ask(producers_request(topic), 0)
    # Its sequences go on.
    opened.send(topic, 1)
    opened.end(3)
