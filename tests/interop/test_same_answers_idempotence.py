"""Sequence numbers of idempotent producers are judged as Kafka judges them."""

import itertools

import pytest

from kohort.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.interop.same_answers.each import each
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import (
    Topic,
    batch,
    create_topic,
    fetch_request,
    produce_request,
)

MAX = 2**31 - 1

Send = tuple[int, int, int]
"""Epoch, first sequence, number of records."""

SCRIPTS: dict[str, list[Send]] = {
    "in order": [(0, 0, 1), (0, 1, 3), (0, 4, 1)],
    "begins in the middle": [(0, 17, 2), (0, 19, 1), (0, 17, 2), (0, 0, 1)],
    "begins with a high epoch": [(7, 3, 1), (7, 4, 1), (6, 5, 1)],
    "sent again": [(0, 0, 2), (0, 0, 2), (0, 2, 1), (0, 0, 2), (0, 2, 1)],
    "five are remembered": [
        *((0, number, 1) for number in range(7)),
        *((0, number, 1) for number in range(7)),
    ],
    "gap": [(0, 0, 1), (0, 2, 1), (0, 1, 1)],
    "partial overlaps": [(0, 0, 3), (0, 0, 2), (0, 0, 4), (0, 1, 2), (0, 2, 2), (0, 3, 1)],
    "several at once sent again": [(0, 0, 1), (0, 1, 1), (0, 0, 2)],
    "epoch goes down": [(3, 0, 1), (2, 1, 1), (2, 0, 1), (3, 1, 1)],
    "epoch goes up": [(0, 0, 5), (1, 0, 1), (1, 1, 1), (0, 5, 1), (0, 0, 5)],
    "epoch goes up in the middle": [(0, 0, 5), (1, 5, 1), (1, 1, 1), (1, 0, 1), (3, 0, 1)],
    "wraps": [(0, MAX - 1, 2), (0, 0, 1), (0, MAX - 1, 2), (0, 1, 1)],
    "a batch over the wrap": [(0, MAX - 1, 4), (0, MAX - 1, 4), (0, 2, 1), (0, 4, 1)],
    "ends at the last number": [(0, MAX, 1), (0, 1, 1), (0, 0, 1)],
    "highest epoch": [(32767, 0, 1), (32767, 1, 1), (0, 0, 1)],
    "epoch -1": [(-1, 0, 1), (-1, 1, 1), (0, 0, 1)],
}

producer_ids = itertools.count(5_000_000_000)


def play(pair: Pair, topic: Topic, script: list[Send], version: int) -> None:
    producer_id = next(producer_ids)
    for epoch, sequence, count in script:
        data = batch(
            *[b"value"] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        pair.ask(produce_request(topic, data), version)


@pytest.mark.parametrize("name", SCRIPTS)
def test_sequences(pair: Pair, name: str) -> None:
    topic = create_topic(pair)
    for version in (3, 5, 8, 13):
        play(pair, topic, SCRIPTS[name], version)
    pair.ask(fetch_request(topic), 12)


def test_repeated_batches_where_the_topic_stamps_records_itself(pair: Pair) -> None:
    topic = create_topic(pair, configs={"message.timestamp.type": "LogAppendTime"})
    for version in (3, 8, 13):
        play(pair, topic, SCRIPTS["sent again"], version)


def test_each_partition_counts_for_itself(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    producer_id = next(producer_ids)
    first, second = (
        batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        for sequence in (0, 1)
    )
    for batches in ({0: first}, {0: second, 1: first}, {0: second, 1: second}, {0: first, 1: b""}):
        pair.ask(produce_request(topic, batches), 9)


def test_producers_with_the_ids_they_were_given(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in range(6):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        given = pair.ask(request, version)
        for sequence in (0, 1, 0, 3):
            data = each(
                *(
                    batch(
                        producer_id=one.producer_id,
                        producer_epoch=one.producer_epoch,
                        base_sequence=sequence,
                    )
                    for one in given
                )
            )
            pair.ask(produce_request(topic, data), 9)
    pair.ask(fetch_request(topic), 12)


def test_requests_for_producer_ids_that_are_refused(pair: Pair) -> None:
    for version in range(6):
        pair.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version)
        pair.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), version)
    for version in (3, 4, 5):
        for producer_id, epoch in ((1, -1), (-1, 1), (4711, 0), (-2, -1), (-1, -2), (4711, -2)):
            pair.ask(
                InitProducerIdRequest(
                    transactional_id=None,
                    transaction_timeout_ms=1000,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                ),
                version,
            )
