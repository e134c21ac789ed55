"""What joins a transaction, and which batches are taken into one, is as at Kafka."""

import pytest

from kohort.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tests.interop.same_answers import differences
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import (
    NOWHERE,
    Topic,
    batch,
    create_topic,
    produce_request,
)
from tests.interop.same_answers.transactions import (
    Producer,
    describe_producers,
    producer,
    read,
    some_versions,
)

OFFSETS_TOPIC = Topic("__consumer_offsets", b"\x00" * 16)
STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


def reached(pair: Pair, topic: Topic, state: str) -> Producer:
    made = producer(pair)
    if state != "Empty":
        made.begun(topic)
    if state.startswith("Complete"):
        made.end(3, commit=state == "CompleteCommit")
    return made


@some_versions("add", 1, 4, 5)
def test_who_may_add_partitions(pair: Pair, transaction_topic: Topic, version: int) -> None:
    topic = transaction_topic
    for state in STATES:
        one = reached(pair, topic, state)
        for off in (-1, 1):
            one.add({topic: [0]}, version, epoch=one.off(off))
            one.add({topic: [0]}, version, pid=one.strange_pid, epoch=one.off(off))
        one.add({topic: [0]}, version, pid=one.strange_pid)
        one.describe()
        one.add({topic: [0, 1]}, version)
        one.describe()
        one.add({topic: [1, 0]}, version)
        one.add({topic: [2]}, version)
        one.describe()
    one = producer(pair)
    for name in ("no such id", ""):
        one.id = name
        one.add({topic: [0]}, version)


@some_versions("add", 1, 4, 5)
def test_partitions_that_cannot_be_added(
    pair: Pair, transaction_topic: Topic, version: int
) -> None:
    topic = transaction_topic
    one = producer(pair)
    cases: list[dict[Topic, list[int]]] = [
        {topic: [0, 7]},
        {NOWHERE: [0, 1]},
        {topic: [0, 1], NOWHERE: [0]},
        {topic: [], NOWHERE: []},
        {topic: [0], OFFSETS_TOPIC: [0]},
        {OFFSETS_TOPIC: [0, 1]},
        {OFFSETS_TOPIC: [99]},
        {Topic("", b""): [0], topic: [1]},
        {Topic("not/legal", b""): [0]},
        {topic: [-1]},
    ]
    for partitions in cases:
        if version >= 4 and not set(partitions) <= {topic, NOWHERE}:
            continue
        for epoch in (one.off(3), one.epoch) if version < 4 else (one.off(3),):
            one.add(partitions, version, epoch=epoch)
            one.describe()


@some_versions("add", 1, 4, 5)
def test_nothing_and_the_same_twice(pair: Pair, transaction_topic: Topic, version: int) -> None:
    topic = transaction_topic
    several: list[dict[Topic, list[int]]] = [{}, {topic: []}, {topic: [1, 1, 0]}]
    for state in STATES:
        for partitions in several:
            one = reached(pair, topic, state)
            request = one.add_request(partitions, version)
            if version < 4:
                request.v3_and_below_topics *= 2
            else:
                request.transactions[0].topics *= 2
            pair.ask(request, version)
            one.describe()
            one.end(version)
            one.describe()


@pytest.mark.parametrize("version", [4, 5])
def test_questions_of_brokers(pair: Pair, transaction_topic: Topic, version: int) -> None:
    topic = transaction_topic
    for state in STATES:
        one = reached(pair, topic, state)
        for off in (-1, 0, 1):
            one.add({topic: [0, 1]}, version, verify_only=True, epoch=one.off(off))
        one.add({topic: [0]}, version, verify_only=True, pid=one.strange_pid)
        one.add({}, version, verify_only=True)
        one.add({OFFSETS_TOPIC: [0]}, version, verify_only=True)
        one.describe()
    one = producer(pair)
    one.id = "no such id"
    one.add({topic: [0]}, version, verify_only=True)


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_at_once(pair: Pair, transaction_topic: Topic, version: int) -> None:
    one, two, three = producer(pair), producer(pair), producer(pair)
    topic = transaction_topic
    transactions = [
        *one.add_request({topic: [0]}, version).transactions,
        *two.add_request({topic: [0]}, version, epoch=two.off(1)).transactions,
        *three.add_request({topic: [0]}, version, verify_only=True).transactions,
    ]
    pair.ask(AddPartitionsToTxnRequest(transactions=transactions), version)
    for each_one in (one, two, three):
        each_one.describe()
    pair.open(timeout_s=1).ask(
        AddPartitionsToTxnRequest(transactions=[]),
        version,
        differs=differences.NO_TRANSACTIONS,
        may_close=True,
    )


@some_versions("add_offsets", 1, 2, 4)
def test_who_may_add_offsets(pair: Pair, transaction_topic: Topic, version: int) -> None:
    for state in STATES:
        one = reached(pair, transaction_topic, state)
        for off in (-1, 1):
            one.add_offsets("some group", version, epoch=one.off(off))
        one.add_offsets("some group", version, pid=one.strange_pid)
        one.describe()
        for group_id in ("", "no such group", "no such group"):
            one.add_offsets(group_id, version)
            one.describe()
        one.end(version)
    one = producer(pair)
    for name in ("no such id", ""):
        one.id = name
        one.add_offsets("some group", version)


@some_versions("produce", 11, 13)
def test_who_may_produce(pair: Pair, version: int) -> None:
    for state in STATES:
        for off in (1, -1, 0):
            topic = create_topic(pair, partitions=2)
            one = reached(pair, topic, state)
            for partition in (1, 0):
                sequence = 0 if partition or state == "Empty" else 1
                data = one.batch(sequence, epoch=one.off(off))
                one.produce(topic, {partition: data}, version)
                one.describe()
            if off == 0:
                one.produce(topic, {1: one.batch(1, pid=one.strange_pid)}, version)
                one.end(3 if version < 12 else 5)
            for isolation_level in (0, 1):
                offsets = {0: 0, 1: 0}
                read(pair, topic, offsets, isolation_level=isolation_level)
            describe_producers(pair, topic, 0, 1)


@some_versions("produce", 11, 13)
def test_batches_that_do_not_go_together(pair: Pair, version: int) -> None:
    topic = create_topic(pair, partitions=3)
    one, two = producer(pair), producer(pair)
    one.add({topic: [0, 1]})
    two.add({topic: [0, 1]})
    one.produce(topic, {0: one.batch(0)}, version, transactional_id="no such id")
    one.produce(topic, {0: one.batch(0), 1: two.batch(0)}, version)
    one.produce(topic, {0: one.batch(0), 1: batch(b"plain")}, version)
    one.produce(topic, {1: one.batch(0), 7: one.batch(0)}, version)
    one.produce(topic, {0: one.batch(1, is_transactional=False)}, version)
    one.produce(topic, {2: one.batch(0, is_transactional=False)}, version)
    one.produce(topic, {0: batch(b"plain")}, version)
    for acks in (1, 0):
        request = produce_request(
            topic, {0: one.batch(2 - acks)}, transactional_id=one.id, acks=acks
        )
        if acks:
            pair.ask(request, version)
        else:
            pair.line.send(request, version).unanswered()
            pair.settle()
    one.describe()
    describe_producers(pair, topic, 0, 1, 2)
    read(pair, topic, {0: 0, 1: 0, 2: 0})


@pytest.mark.parametrize("version", [9, 13])
def test_batches_whose_id_is_not_their_producers(pair: Pair, version: int) -> None:
    topic = create_topic(pair)
    one, two = producer(pair), producer(pair)
    one.begun(topic)
    one.produce(
        topic,
        {0: one.batch(1)},
        version,
        transactional_id=two.id,
        differs=differences.FOREIGN_TRANSACTIONAL_ID,
    )


@pytest.mark.parametrize("version", [9, 13])
def test_transactional_batches_of_no_producer(pair: Pair, version: int) -> None:
    topic = create_topic(pair)
    one = producer(pair)
    one.add({topic: [0]})
    nobody = batch(b"value", is_transactional=True)
    one.produce(topic, {0: nobody}, version, differs=differences.NO_PRODUCER_ID)


@pytest.mark.parametrize("version", [12, 13])
def test_refused_batches_add_nothing(pair: Pair, version: int) -> None:
    topic = create_topic(pair)
    one = producer(pair)
    one.send(topic, 1, version)
    one.describe(differs=differences.REJECTED_BATCH)


@some_versions("produce", 11, 13)
def test_requests_without_an_id(pair: Pair, version: int) -> None:
    topic = create_topic(pair, partitions=2)
    one = producer(pair)
    one.add({topic: [0, 1]})
    one.produce(topic, {0: one.batch(0), 1: one.batch(0)}, version, transactional_id=None)
    # One transactional batch is enough for Kafka to reject the request as a whole.
    one.produce(topic, {0: one.batch(0), 1: batch()}, version, transactional_id=None)


@pytest.mark.parametrize("first", [0, 5])
@some_versions("produce", 11, 13)
@pytest.mark.parametrize("end_version", [3, 5])
def test_sequences_from_one_transaction_to_the_next(
    pair: Pair, version: int, end_version: int, first: int
) -> None:
    topic = create_topic(pair)
    one = producer(pair)
    for commit in (True, False, True):
        if version < 12:
            one.add({topic: [0]})
        for sequence in (first, first + 1, first, first + 3, first + 1, first + 2):
            one.send(topic, sequence, version)
        one.describe() if first == 0 or version < 12 else None
        if first and version >= 12:
            break
        one.end(end_version, commit=commit)
        first = 0 if end_version == 5 else first + 3
    describe_producers(pair, topic)
    read(pair, topic)


def test_producers_of_two_transactions_in_one_partition(pair: Pair) -> None:
    topic = create_topic(pair)
    one, two = producer(pair), producer(pair)
    for number, (first, second) in enumerate([(one, two), (two, one)] * 2):
        first.send(topic, 0, 12)
        second.send(topic, 0, 12)
        for isolation_level in (0, 1):
            read(pair, topic, isolation_level=isolation_level)
        first.end(5, commit=number % 2 == 0)
        read(pair, topic)
        describe_producers(pair, topic)
        second.end(5, commit=number % 2 == 1)
        read(pair, topic)
